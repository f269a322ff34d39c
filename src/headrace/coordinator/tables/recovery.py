"""The recovery pass of tables: once per leader term, before anything else moves a table (T1).

Only tables and processes that need a decision are read, each in its own transaction: one that can't
be read blocks no other (T6), and is tried again. The decision for each pair of process and table
status stands in model/tables/status.py. Nothing else may reset a table (T8).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import assert_never

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.tables.commits import plan_commit
from headrace.coordinator.tables.processes import advance
from headrace.coordinator.tables.table_state import close_process
from headrace.model.tables.status import (
    ProcessEnd,
    ProcessStatus,
    Recovered,
    Recovery,
    TableStatus,
    recover,
)
from headrace.model.task import ENDED
from headrace.seams import seam
from headrace.store.core.engine import reading
from headrace.store.tables import lake_tables, processes, table_changes, table_tasks
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.processes import Process
from headrace.store.tables.table_reset import reset, undecided
from headrace.store.tasks import tasks

log = logging.getLogger(__name__)

AGAIN_S = 30.0  # until what could not be recovered is tried again
NOT_RESUMED = "the coordinator restarted, and it was not resumed"


class RecoveryPass:
    """Keys are table ids. Lives for one leader term."""

    name = "table recovery"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.left: set[str] | None = None  # not recovered yet; None: not read yet
        self._again_at_s = 0.0

    def keys(self, engine: Engine) -> Sequence[str]:
        """All undecided tables the first time; afterwards those that could not be recovered."""
        if self.left is None:
            with reading(engine) as conn:
                self.left = set(undecided(conn))
        return sorted(self.left) if self._clock.monotonic_s() >= self._again_at_s else ()

    def recovered(self, done: Sequence[str], failed: Sequence[str]) -> None:
        """Note the outcome of a pass, by key."""
        self.left = set(failed)
        self._again_at_s = self._clock.monotonic_s() + AGAIN_S
        if done or failed:
            log.info("tables recovered", extra={"done": len(done), "failed": len(failed)})

    def due(self, conn: Connection, key: str) -> bool:  # noqa: ARG002  `keys` chose it by its rows
        return True

    def reconcile(self, conn: Connection, key: str) -> None:
        now_ms = self._clock.wall_ms()
        process = self._locked(conn, key)
        table = lake_tables.lock(conn, key)
        if table is None:
            self._close_others(conn, key, keep=None, now_ms=now_ms)
            return
        if process is None or process.id != table.process_id:
            process = processes.lock(conn, table.process_id) if table.process_id else None
        if process is not None and process.settling:
            process = None  # the table has moved on without it
        decision = recover(process.status if process else None, table.status)
        self._apply(conn, table, process, decision, now_ms=now_ms)
        resumed = process.id if process and decision.recovery is Recovery.RESUME else None
        self._close_others(conn, key, keep=resumed, now_ms=now_ms)
        facts = {"table": table.identifier, "was": table.status, "recovery": decision.recovery}
        log.debug("table recovered", extra={**facts, "process_id": table.process_id})

    def _locked(self, conn: Connection, table_id: str) -> Process | None:
        """Lock the running process of the table first: everybody locks a process before its
        table."""
        running = processes.running_of(conn, table_id)
        return processes.lock(conn, running.id) if running is not None else None

    def _apply(
        self,
        conn: Connection,
        table: LakeTable,
        process: Process | None,
        decision: Recovered,
        *,
        now_ms: int,
    ) -> None:
        match decision.recovery:
            case Recovery.KEEP:
                table_changes.leave_process(conn, table.id, due_at_ms=now_ms)
            case Recovery.RESET:
                self._reset(conn, table, decision, now_ms=now_ms)
            case Recovery.RESUME:
                assert process is not None
                advance(conn, process, now_ms=now_ms)
                return
            case _:
                assert_never(decision.recovery)
        if process is not None:
            self._end(conn, process, table, decision.process, now_ms=now_ms)

    def _reset(
        self, conn: Connection, table: LakeTable, decision: Recovered, *, now_ms: int
    ) -> None:
        # In other statuses `task_id` names an evaluation, which many other tables may share.
        if table.status is TableStatus.PLANNING and table.task_id is not None:
            table_tasks.cancel(conn, [table.task_id], because=NOT_RESUMED, now_ms=now_ms)
        reset(conn, table, decision, now_ms=now_ms)
        seam("table reset, in transaction")

    def _end(
        self,
        conn: Connection,
        process: Process,
        table: LakeTable,
        end: ProcessEnd,
        *,
        now_ms: int,
    ) -> None:
        match end:
            case ProcessEnd.NONE:
                pass
            case ProcessEnd.CLOSE:
                closed = ProcessStatus.CLOSED
                close_process(conn, process, closed, because=NOT_RESUMED, now_ms=now_ms)
            case ProcessEnd.SETTLE:
                self._settle(conn, process, table, now_ms=now_ms)
            case _:
                assert_never(end)

    def _settle(self, conn: Connection, process: Process, table: LakeTable, *, now_ms: int) -> None:
        """Find out how the commit ended. A commit task that still runs is left alone: its report
        settles it."""
        processes.begin_settling(conn, process.id, now_ms=now_ms)
        task = tasks.get(conn, process.commit_task) if process.commit_task else None
        if task is None or task.status in ENDED:
            plan_commit(conn, process, table, now_ms=now_ms)

    def _close_others(
        self, conn: Connection, table_id: str, *, keep: str | None, now_ms: int
    ) -> None:
        """Close a process that its table does not know: a crash between naming a process and
        changing the status leaves one behind."""
        other = processes.running_of(conn, table_id)
        if other is None or other.id == keep or other.settling:
            return
        locked = processes.lock(conn, other.id)
        if locked is not None and locked.status is ProcessStatus.RUNNING:
            close_process(conn, locked, ProcessStatus.CLOSED, because=NOT_RESUMED, now_ms=now_ms)
