"""The table as a plan is predicted to leave it: for a dry run, and to prove that a plan is final.

What equality deletes take away can't be known from metadata, so they shrink nothing here; the real
files may be smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.model.tables.bins import Bin
from headrace.model.tables.files import DataFile, TableFiles
from headrace.model.tables.measure import DeleteIndex
from headrace.model.tables.plan import Plan


def predict(table: TableFiles, plan: Plan) -> TableFiles:
    """The files after the plan's commit. The snapshot has no id yet, so it keeps the old one's."""
    deletes = DeleteIndex(table)
    rewritten = {file.path for each in plan.bins for file in each.files}
    kept = [index for index in range(len(table.deletes)) if index not in plan.removed]
    place = {index: number for number, index in enumerate(kept)}
    files = [
        replace(file, deletes=tuple(place[index] for index in file.deletes))
        for file in table.files
        if file.path not in rewritten
    ]
    for number, each in enumerate(plan.bins):
        files += _outputs(each, deletes, f"predicted-{table.sequence + 1}-{number}")
    return replace(
        table,
        sequence=table.sequence + 1,
        files=files,
        deletes=[table.deletes[index] for index in kept],
    )


def _outputs(each: Bin, deletes: DeleteIndex, name: str) -> Iterator[DataFile]:
    rows = sum(map(deletes.live_rows, each.files))
    for number in range(each.outputs):
        yield DataFile(
            path=f"{name}-{number}",
            bytes=_part(each.live_bytes, each.outputs, number),
            rows=_part(rows, each.outputs, number),
            partition=each.partition,
            sorted=True,
        )


def _part(total: int, parts: int, number: int) -> int:
    return total // parts + (number < total % parts)
