"""The model of a lake as a table format: what the worker's own code for tables is given here.

The worker's code (worker/tables) runs unchanged on top of it: it is what asks before it commits and
deletes after a token is spent. A method here does the steps of Iceberg's, and gives way between
them. Its Spark session is never used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from headrace.clock import Clock
from headrace.errors import Refused, Unavailable
from headrace.lake.catalog import CatalogConfig, Namespace, OnProgress, TableListing, TableRef
from headrace.lake.iceberg.file_records import Inputs, Rewritten
from headrace.lake.iceberg.table_format import at, bin_groups, process_spent
from headrace.lake.iceberg.token import ProcessAt, spent_number
from headrace.lake.table_format import Probe, ProcessExecution, ProcessSpent, Replaced
from headrace.model.tables.files import TableFiles
from tests.simulation import lake_commits
from tests.simulation.lake import NAMESPACE, ROW_BYTES, TARGET_ROWS, Lake, Table
from tests.simulation.lake_commits import check_same, folder_of
from tests.simulation.world import the_world

REWRITE_MIN_S = 0.05  # of one bin
CATALOG_TYPE = "hadoop"  # any that a coordinator takes


class NoForeignErrors:
    """There is no library beneath: a lake raises errors of ours only."""

    types: tuple[type[Exception], ...] = ()

    def _none(self, error: Exception, message: str = "") -> NoReturn:
        raise AssertionError(f"{error!r} was raised by nobody: {message}")

    translated = is_closed = line = cause = messages = way_out = _none


class SimulatedFormat:
    catalog_types: Collection[str] = (CATALOG_TYPE,)
    errors = NoForeignErrors()

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def catalog_config(
        self, name: str, kind: str, properties: Mapping[str, str], *, warehouse: str
    ) -> CatalogConfig:
        return CatalogConfig(name, properties)

    def list_namespaces(self, session: object, catalog: CatalogConfig) -> Sequence[Namespace]:
        return self._lake.ask("list", lambda: [(NAMESPACE,)])

    def list_tables(
        self,
        session: object,
        catalog: CatalogConfig,
        *,
        wanted: Callable[[Namespace, str], bool],
        tables_max: int,
        on_progress: OnProgress,
    ) -> TableListing:
        found = self._lake.ask("list", lambda: sorted(self._lake.tables))
        on_progress()
        here = [name for name in found if wanted((NAMESPACE,), name)]
        return TableListing({(NAMESPACE,): here[:tables_max]}, others=len(found) - len(here))

    def uuid(self, session: object, ref: TableRef) -> str:
        return self._lake.ask("load", lambda: self._lake.found(ref)).uuid

    def probe(self, session: object, ref: TableRef) -> Probe:
        table = self._lake.ask("probe", lambda: self._lake.found(ref))
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

    def spent_number(self, seen: Probe, owner: str) -> int:
        return spent_number(seen.properties, owner)

    def scan(
        self,
        session: object,
        ref: TableRef,
        *,
        filter: str | None,  # noqa: A002
        on_progress: OnProgress,
    ) -> TableFiles:
        files = self._lake.ask("scan", lambda: self._lake.found(ref).files())
        on_progress()
        return files

    def choose(
        self,
        session: object,
        ref: TableRef,
        *,
        snapshot: int,
        bins: Mapping[int, Sequence[str]],
        on_progress: OnProgress,
    ) -> list[Inputs]:
        table = self._lake.ask("choose", lambda: self._lake.found(ref))
        planned = table.snapshot(snapshot)
        if planned is None:
            raise Refused(
                f"snapshot {snapshot} of {ref} was expired since it was planned; plan again"
            )
        on_progress()
        entries = {each.path: each for each in planned.files}
        if missing := sorted({path for paths in bins.values() for path in paths} - entries.keys()):
            raise Refused(f"planned files are not in snapshot {snapshot} of {ref}: {missing}")
        found: list[Inputs] = []
        for number, paths in bins.items():
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

    def rewrite(
        self,
        session: object,
        ref: TableRef,
        bins: Sequence[Inputs],
        process: ProcessExecution,
        *,
        target_bytes: int,
    ) -> list[Rewritten]:
        """Reads with the deletes of the planned snapshot, and stages; nothing is committed."""
        assert target_bytes == TARGET_ROWS * ROW_BYTES
        return [self._rewrite(ref, inputs, at(process)) for inputs in bins]

    def _rewrite(self, ref: TableRef, inputs: Inputs, at: ProcessAt) -> Rewritten:
        lake, process = self._lake, the_world().process
        assert process is not None
        the_world().sleep(process.random.uniform(REWRITE_MIN_S, lake.rewrite_s))
        table = lake.ask("read", lambda: lake.found(ref))
        check_same(table, ref, inputs)
        rows = _read(table, ref, inputs)
        folder = f"{folder_of(table, at)}{at.execution}/"
        staged = {
            f"{folder}{inputs.number}-{first}": rows[first : first + TARGET_ROWS]
            for first in range(0, len(rows), TARGET_ROWS)
        }
        lake.call("stage", lambda: _stage(table, at, staged))
        return Rewritten(
            number=inputs.number,
            execution=at.execution,
            added=[_record(path, part) for path, part in staged.items()],
            rows=len(rows),
            bytes=ROW_BYTES * len(rows),
        )

    def read_rewritten(self, record: Mapping[str, Any]) -> Rewritten:
        return Rewritten.model_validate(record)

    def look(
        self, session: object, ref: TableRef, process: ProcessExecution
    ) -> ProcessSpent | None:
        spent = lake_commits.look(self._lake, ref, at(process))
        return None if spent is None else process_spent(spent)

    def look_replaced(
        self, session: object, ref: TableRef, process: ProcessExecution
    ) -> Replaced | None:
        return lake_commits.look_replaced(self._lake, ref, at(process))

    def replace(
        self,
        session: object,
        ref: TableRef,
        bins: Sequence[Inputs],
        rewritten: Mapping[int, Rewritten],
        process: ProcessExecution,
        *,
        clock: Clock,
        deadline_s: float,
    ) -> Replaced:
        groups = bin_groups(bins, rewritten)
        return lake_commits.replace(
            self._lake, ref, groups, at(process), clock=clock, deadline_s=deadline_s
        )

    def give_up(
        self,
        session: object,
        ref: TableRef,
        process: ProcessExecution,
        *,
        clock: Clock,
        deadline_s: float,
    ) -> ProcessSpent:
        spent = lake_commits.give_up(
            self._lake, ref, at(process), clock=clock, deadline_s=deadline_s
        )
        return process_spent(spent)

    def discard(self, session: object, ref: TableRef, process: ProcessExecution) -> int:
        return lake_commits.discard(self._lake, ref, at(process))

    def unclaimed(
        self, session: object, ref: TableRef, process: ProcessExecution, kept: Iterable[str]
    ) -> frozenset[str]:
        return lake_commits.unclaimed(self._lake, ref, at(process), kept)


def _record(path: str, rows: Collection[object]) -> dict[str, Any]:
    size = ROW_BYTES * len(rows)
    told = {"file-path": path, "record-count": len(rows), "file-size-in-bytes": size}
    return {**told, "spec-id": 0}


def _read(table: Table, ref: TableRef, inputs: Inputs) -> list[Any]:
    planned = table.snapshot(inputs.snapshot)
    paths = set(inputs.paths)
    if planned is None or not paths <= table.stored.keys():
        raise Unavailable(f"a file of {ref} is not there any more")
    entries = [each for each in planned.files if each.path in paths]
    return [row for each in entries for row in table.live(planned, each)]


def _stage(table: Table, at: ProcessAt, staged: Mapping[str, Any]) -> None:
    for path, rows in staged.items():
        table.stored[path] = tuple(rows)
        table.staged[path] = at.number
        if table.spent(at.commit_at) is not None:
            table.late.add(path)
