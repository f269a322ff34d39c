"""Turn planned bins, which are lists of paths, into records that a rewrite and a commit can use.

One look at every file of the planned snapshot, without a filter: only so can be told which delete
files nobody needs any more once the bins are replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import TableRef, load_table
from headrace.formats.iceberg.records import (
    LINEAGE_VERSION_MIN,
    SEQUENCE,
    DeleteKey,
    Heard,
    Inputs,
    Page,
    delete_key,
    pages,
    sequences_of,
    unheard,
)

_PATHS_TOLD_MAX = 3


def choose(
    session: SparkSession,
    ref: TableRef,
    *,
    snapshot: int,
    bins: Sequence[Sequence[str]],
    heard: Heard = unheard,
) -> list[Inputs]:
    """The inputs of each bin, in the order of its paths. A file may be in one bin only."""
    table = load_table(session, ref)
    sequence = _sequence(table, ref, snapshot)
    chosen = _Chosen(session, table, {path for paths in bins for path in paths})
    for page in pages(session, table, table.newScan().useSnapshot(snapshot), heard=heard):
        chosen.take(page)
    if chosen.twice:
        raise Refused(
            f"{chosen.twice} is listed twice in snapshot {snapshot} of {ref}, and so are its rows; "
            "replacing it would take both away; plan again"
        )
    missing = sorted(chosen.wanted - chosen.tasks.keys())
    if missing:
        told = ", ".join(missing[:_PATHS_TOLD_MAX])
        raise Refused(
            f"{len(missing)} planned files are not in snapshot {snapshot} of {ref}, such as "
            f"{told}; plan again"
        )
    return [
        _inputs(chosen, paths, number, ref=ref, table=table, snapshot=snapshot, sequence=sequence)
        for number, paths in enumerate(bins)
    ]


def _sequence(table: Any, ref: TableRef, snapshot: int) -> int:
    found = table.snapshot(snapshot)
    if found is None:
        raise Refused(f"snapshot {snapshot} of {ref} was expired since it was planned; plan again")
    return int(found.sequenceNumber())


class _Chosen:
    def __init__(self, session: SparkSession, table: Any, wanted: set[str]) -> None:
        self.wanted = wanted
        self.tasks: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
        self.twice: str | None = None  # a wanted file that was met a second time
        self.users: Counter[DeleteKey] = Counter()
        self._session = session
        version = int(table.operations().current().formatVersion())
        self._lineage = version >= LINEAGE_VERSION_MIN

    def take(self, page: Page) -> None:
        places: list[int] = []
        for place, task in enumerate(page.tasks):
            deletes = page.deletes_of(task)
            self.users.update(delete_key(one) for one in deletes)
            path = task["data-file"]["file-path"]
            if path in self.wanted:
                self.twice = path if path in self.tasks else self.twice
                self.tasks[path] = (task["data-file"], deletes)
                places.append(place)
        if places and self._lineage:
            sequences = sequences_of(self._session, page)
            for place in places:
                page.tasks[place]["data-file"][SEQUENCE] = sequences[place]


def _inputs(
    chosen: _Chosen,
    paths: Sequence[str],
    number: int,
    *,
    ref: TableRef,
    table: Any,
    snapshot: int,
    sequence: int,
) -> Inputs:
    places: dict[DeleteKey, int] = {}
    deletes: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    for path in paths:
        file, applied = chosen.tasks[path]
        for one in applied:
            if places.setdefault(delete_key(one), len(deletes)) == len(deletes):
                deletes.append(one)
        references = [places[delete_key(one)] for one in applied]
        tasks.append({"data-file": file, "delete-file-references": references})
    return Inputs(
        number=number,
        table=str(ref),
        uuid=str(table.uuid()),
        snapshot=snapshot,
        sequence=sequence,
        tasks=tasks,
        deletes=deletes,
        users=[chosen.users[delete_key(one)] for one in deletes],
    )
