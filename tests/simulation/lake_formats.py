"""What `headrace.lake.iceberg` does for a worker's table tasks, done to the model of a lake.

The worker's own code (worker/tables) runs unchanged on top of these: it is what asks before it
commits and deletes after a token is spent. A function here does the steps of the one it replaces
and gives way between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from headrace.errors import Refused, Unavailable
from headrace.lake.iceberg.catalogs import (
    CatalogConfig,
    OnProgress,
    TableListing,
    TableMissing,
    TableRef,
)
from headrace.lake.iceberg.file_records import Inputs, Rewritten
from headrace.lake.iceberg.scan import Probe
from headrace.lake.iceberg.token import ProcessAt
from headrace.model.tables.files import TableFiles
from tests.simulation.lake import NAMESPACE, ROW_BYTES, TARGET_ROWS, Lake, Table
from tests.simulation.world import the_world

REWRITE_MIN_S = 0.05  # of one bin
_HERE: list[Lake] = []  # of the history that runs


def set_lake(lake: Lake | None) -> None:
    _HERE[:] = [lake] if lake is not None else []


@contextmanager
def task_session(_warm: object, _execution: str) -> Generator[Lake]:
    yield _HERE[0]


def found_table(lake: Lake, ref: TableRef) -> Table:
    found = lake.tables.get(ref.name)
    if found is None:
        raise TableMissing(ref)
    return found


def load_table(lake: Lake, ref: TableRef) -> Any:
    table = lake.ask("load", lambda: found_table(lake, ref))
    return SimpleNamespace(uuid=lambda: table.uuid)


def list_namespaces(
    lake: Lake, _config: CatalogConfig, _parent: object = ()
) -> Sequence[tuple[str, ...]]:
    return lake.ask("list", lambda: [(NAMESPACE,)])


def list_tables(
    lake: Lake,
    _config: CatalogConfig,
    *,
    wanted: Callable[[tuple[str, ...], str], bool],
    tables_max: int,
    on_progress: OnProgress,
) -> TableListing:
    found = lake.ask("list", lambda: sorted(lake.tables))
    on_progress()
    return TableListing({(NAMESPACE,): [n for n in found if wanted((NAMESPACE,), n)][:tables_max]})


def probe(lake: Lake, ref: TableRef) -> Probe:
    table = lake.ask("probe", lambda: found_table(lake, ref))
    files = table.files()
    return Probe(
        uuid=table.uuid,
        pointer=table.pointer,
        format_version=2,
        snapshot=files.snapshot,
        sequence=files.sequence,
        committed_at_ms=None,
        files=len(files.files),
        bytes=sum(each.bytes for each in files.files),
        rows=sum(each.rows for each in files.files),
        position_deletes=sum(each.kind.by_position for each in files.deletes),
        equality_deletes=sum(not each.kind.by_position for each in files.deletes),
        delete_files=len(files.deletes),
        properties=files.properties,
    )


def scan(lake: Lake, ref: TableRef, *, filter: str | None, on_progress: OnProgress) -> TableFiles:  # noqa: A002
    files = lake.ask("scan", lambda: found_table(lake, ref).files())
    on_progress()
    return files


def choose(
    lake: Lake,
    ref: TableRef,
    *,
    snapshot: int,
    bins: Sequence[Sequence[str]],
    on_progress: OnProgress,
) -> list[Inputs]:
    table = lake.ask("choose", lambda: found_table(lake, ref))
    planned = table.snapshot(snapshot)
    if planned is None:
        raise Refused(f"snapshot {snapshot} of {ref} was expired since it was planned; plan again")
    on_progress()
    entries = {each.path: each for each in planned.files}
    if missing := sorted({path for paths in bins for path in paths} - entries.keys()):
        raise Refused(f"planned files are not in snapshot {snapshot} of {ref}: {missing}")
    found: list[Inputs] = []
    for number, paths in enumerate(bins):
        applied = {path: planned.deletes_of(entries[path]) for path in paths}
        deletes = list({each.path: each for path in paths for each in applied[path]}.values())
        places = {each.path: place for place, each in enumerate(deletes)}
        found.append(
            Inputs(
                number=number,
                table=str(ref),
                uuid=table.uuid,
                snapshot=snapshot,
                sequence=planned.sequence,
                tasks=[
                    {
                        "data-file": _record(path, table.stored.get(path, ())),
                        "delete-file-references": [places[each.path] for each in applied[path]],
                    }
                    for path in paths
                ],
                deletes=[{"file-path": each.path, "content": each.kind} for each in deletes],
                users=[sum(map(each.applies_to, planned.files)) for each in deletes],
            )
        )
    return found


def _record(path: str, rows: Collection[object]) -> dict[str, Any]:
    size = ROW_BYTES * len(rows)
    told = {"file-path": path, "record-count": len(rows), "file-size-in-bytes": size}
    return {**told, "spec-id": 0}


def rewrite(
    lake: Lake, ref: TableRef, bins: Sequence[Inputs], at: ProcessAt, *, target_bytes: int
) -> list[Rewritten]:
    """Reads with the deletes of the planned snapshot, and stages; nothing is committed."""
    process = the_world().process
    assert process is not None
    made: list[Rewritten] = []
    for inputs in bins:
        the_world().sleep(process.random.uniform(REWRITE_MIN_S, lake.rewrite_s))
        table = lake.ask("read", lambda: found_table(lake, ref))
        check_same(table, ref, inputs)
        rows = _read(table, ref, inputs)
        folder = f"{folder_of(table, at)}{at.execution}/"
        staged = {
            f"{folder}{inputs.number}-{first}": rows[first : first + TARGET_ROWS]
            for first in range(0, len(rows), TARGET_ROWS)
        }
        added = [_record(path, part) for path, part in staged.items()]
        lake.call("stage", lambda t=table, s=staged: _stage(t, at, s))
        size = ROW_BYTES * len(rows)
        made.append(
            Rewritten(
                number=inputs.number,
                execution=at.execution,
                added=added,
                rows=len(rows),
                bytes=size,
            )
        )
    assert target_bytes == TARGET_ROWS * ROW_BYTES
    return made


def check_same(table: Table, ref: TableRef, inputs: Inputs) -> None:
    if table.uuid != inputs.uuid:
        raise Refused(f"{ref} was dropped and made anew since it was planned; plan again")


def _read(table: Table, ref: TableRef, inputs: Inputs) -> list[Any]:
    planned = table.snapshot(inputs.snapshot)
    paths = {str(task["data-file"]["file-path"]) for task in inputs.tasks}
    if planned is None or not paths <= table.stored.keys():
        raise Unavailable(f"a file of {ref} is not there any more")
    entries = [each for each in planned.files if each.path in paths]
    return [row for each in entries for row in table.live(planned, each)]


def folder_of(table: Table, at: ProcessAt) -> str:
    return f"{table.uuid}/{at.owner}/{at.number}/"


def _stage(table: Table, at: ProcessAt, staged: Mapping[str, Any]) -> None:
    for path, rows in staged.items():
        table.stored[path] = tuple(rows)
        table.staged[path] = at.number
        if table.spent(at.commit_at) is not None:
            table.late.add(path)
