"""Every pair of table and process, in one store, through a real restart (T1, T2, T6).

The rows are as a leader that dies between two of its writes may leave them. The worker that holds
tasks is silent, and no other is there: what stands in the store afterwards is what the next
leader's recovery pass made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine, update

from headrace.client.client import Client
from headrace.clock import SystemClock
from headrace.model.tables.status import OPTIMIZING, PROCESS_ENDED, ProcessStatus, TableStatus
from headrace.model.task import ENDED, TaskKind, TaskStatus
from headrace.store.core.engine import open_store, writing
from headrace.store.tables.schema import processes as process_rows
from headrace.store.tasks import workers
from headrace.store.tasks.workers import Worker
from tests.coordinator.tables.lake_rows import PENDING, LakeRows
from tests.crash.cluster import Cluster, Process, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

T, P, S = TableStatus, ProcessStatus, TaskStatus
NO_PROCESS, MISSING = "no-process", "record-missing"
COLUMNS: list[ProcessStatus | str] = [NO_PROCESS, MISSING, *P]
SNAPSHOT_DONE = 7
RECOVERED_MAX_S = 240.0
# Nobody is given up meanwhile: tasks that a worker may hold are seen as the recovery left them.
PATIENT = ("--heartbeat-timeout", "600")
# It holds the tasks that are assigned. In a group of its own, so that nothing is planned for it.
SILENT = Worker(
    id="w1",
    group="elsewhere",
    slots=1,
    control_slots=1,
    version="0",
    host="nowhere",
    pid=1,
    spark_application="none",
    registered_at_ms=1,
    seen_at_ms=1,
)


@dataclass(frozen=True, slots=True)
class Cell:
    process: ProcessStatus | str
    status: TableStatus
    table_id: str
    process_id: str | None

    def __str__(self) -> str:
        return f"{self.process} x {self.status}"

    @property
    def runs(self) -> bool:
        return self.process is P.RUNNING

    @property
    def action(self) -> str:
        """The matrix of requirements.md."""
        match self.status:
            case T.IDLE | T.PENDING:
                return "keep"
            case T.MINOR_OPTIMIZING | T.MAJOR_OPTIMIZING | T.FULL_OPTIMIZING:
                return "resume" if self.runs else "reset"
            case T.PLANNING | T.COMMITTING:
                return "reset"


class Matrix:
    """A table for every cell, and one whose process can't be read."""

    def __init__(self, store: Engine) -> None:
        self._store = store
        self.lakes = LakeRows(store, now_ms=SystemClock().wall_ms())
        self.broken: Cell | None = None
        self.cells: list[Cell] = []

    def write(self) -> None:
        with writing(self._store) as conn:
            workers.register(conn, SILENT)
        self.broken = self._cell(P.RUNNING, T.FULL_OPTIMIZING, name="a-broken-one")  # before others
        garbage = update(process_rows).where(process_rows.c.id == self.broken.process_id)
        with writing(self._store) as conn:
            conn.execute(garbage.values(plan="garbage"))
        self.cells = [self._cell(process, status) for process in COLUMNS for status in T]

    def _cell(self, process: ProcessStatus | str, status: TableStatus, name: str = "") -> Cell:
        found: dict[str, Any] = {"optimized_snapshot": SNAPSHOT_DONE}
        if status is T.PENDING:
            found |= {"pending": PENDING, "pending_since_ms": 5}
        table = self.lakes.table(name or f"{status}-{process}".lower(), status, **found)
        if process == NO_PROCESS:
            return Cell(process, status, table, None)
        if process == MISSING:
            self.lakes.name_process(table, "nobody")
            return Cell(process, status, table, None)
        assert isinstance(process, ProcessStatus)
        open_ = S.CANCELED if process in PROCESS_ENDED else S.ACKED
        committing = status is T.COMMITTING
        made = self.lakes.process(
            table,
            process,
            rewrites=[S.SUCCESS if committing else open_, S.SUCCESS],
            commit=open_ if committing else None,
        )
        self.lakes.name_process(table, made)
        return Cell(process, status, table, made)

    def seen(self) -> Mapping[str, object]:
        """All that must not change any more, by table."""
        return {str(cell): self._seen(cell) for cell in self.cells}

    def _seen(self, cell: Cell) -> object:
        table = self.lakes.read(cell.table_id)
        facts = table.status, table.process_id, table.optimized_snapshot
        process = self.lakes.read_process(cell.process_id) if cell.process_id else None
        tasks = self.lakes.tasks_of(cell.process_id or "").values()
        # What a closed process left staged is discarded by a task of a later pass, which may or may
        # not have come by now.
        plan = [task for task in tasks if task.kind is not TaskKind.DISCARD]
        return (
            *facts,
            self.lakes.pending(cell.table_id),
            (process.status, process.settling_since_ms, process.commit_task) if process else None,
            {task.id: task.status for task in plan},
        )


@pytest.fixture
def matrix(store_url: str) -> Iterator[Matrix]:
    engine = open_store(store_url)
    yield Matrix(engine)
    engine.dispose()


def recovered(made: Cluster, name: str) -> Process:
    """A coordinator that has just led its first pass."""
    process = made.coordinator(name, *PATIENT)
    said = "tables recovered"
    until(lambda: process.said(said), limit_s=RECOVERED_MAX_S, what=f"{name} has recovered")
    return process


@pytest.mark.req("T1", "T2", "T6")
def test_one_restart_decides_every_cell_and_a_broken_row_blocks_none(
    made: Cluster, matrix: Matrix
) -> None:
    first = made.coordinator("first", *PATIENT)
    made.leader(first)
    first.kill()
    matrix.write()

    second = recovered(made, "second")

    assert matrix.broken is not None
    assert matrix.lakes.read(matrix.broken.table_id).status is T.FULL_OPTIMIZING
    for cell in matrix.cells:
        assert_decided(matrix.lakes, cell)
    assert_shown(second, matrix)
    seen = matrix.seen()
    second.kill()
    recovered(made, "third")
    assert matrix.seen() == seen, "a second restart decides nothing anew"


def assert_decided(lakes: LakeRows, cell: Cell) -> None:
    table = lakes.read(cell.table_id)
    assert table.status is (T.IDLE if cell.action == "reset" else cell.status), cell
    assert table.optimized_snapshot == SNAPSHOT_DONE, f"{cell}: nothing was optimized by it"
    assert table.process_id == (cell.process_id if cell.action == "resume" else None), cell
    assert lakes.pending(cell.table_id) == (PENDING if cell.status is T.PENDING else None), cell
    looked_at = cell.action != "resume" and (cell.process, cell.status) != (NO_PROCESS, T.IDLE)
    if looked_at:  # the others are at rest, or at work
        assert table.due_at_ms <= SystemClock().wall_ms(), f"{cell}: it is scheduled"
    if cell.process_id is not None:
        assert_ended_or_goes_on(lakes, cell, cell.process_id)


def assert_ended_or_goes_on(lakes: LakeRows, cell: Cell, process_id: str) -> None:
    process, tasks = lakes.read_process(process_id), lakes.tasks_of(process_id).values()
    left = {task.kind: task.status for task in tasks if task.status not in ENDED}
    if not cell.runs:
        assert (process.status, left) == (cell.process, {}), cell
    elif cell.status is T.COMMITTING:
        assert process.status is P.RUNNING, cell
        assert process.settling, cell
        assert left == {TaskKind.COMMIT: S.ACKED}, f"{cell}: left to whoever has it"
    elif cell.status in OPTIMIZING:
        assert process.status is P.RUNNING, cell
        assert not process.settling, cell
        assert left == {TaskKind.REWRITE: S.ACKED}, cell
    else:
        assert (process.status, left) == (P.CLOSED, {}), f"{cell}: closed in the same transaction"
        assert S.CANCELED in {task.status for task in tasks}, cell


def assert_shown(coordinator: Process, matrix: Matrix) -> None:
    """People see what was decided, the table with the broken row among the others."""
    with closing(Client([coordinator.url])) as client:
        shown = {view.identifier: view.status for view in client.tables()}
    known = [matrix.lakes.read(cell.table_id) for cell in matrix.cells]
    assert {table.identifier: str(table.status) for table in known}.items() <= shown.items()
    assert len(shown) == len(known) + 1
