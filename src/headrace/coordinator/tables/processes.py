"""The process reconciler: advances running processes to their end, and discards staged files.

`advance` is called with every report that may be the last, by every pass, and by the recovery pass.
It decides by the rows alone, so no process can get stuck between two of them (T3).

Files staged by processes that ended without a commit are deleted once their token is spent (E6). A
DISCARD task spends the token by an abort and deletes the files afterwards. It may find the token
spent by a commit of the process that was taken for lost: nothing that is committed is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.planned_tasks import plan_task
from headrace.coordinator.tables.commits import begin_commit, blame, outcome_unknown, plan_commit
from headrace.coordinator.tables.plan_scheduler import planning_failed, planning_moved
from headrace.coordinator.tables.table_state import MOVED, close_process, waits_elsewhere
from headrace.model.ids import Ids
from headrace.model.jobs.epoch import retry_pause_ms
from headrace.model.tables.status import OPTIMIZING, NextStep, ProcessStatus, TableStatus, next_step
from headrace.model.task import ENDED, TaskKind, TaskOrder, TaskStatus
from headrace.protocol import task_types
from headrace.protocol.tables import Discarded
from headrace.store.core.engine import reading
from headrace.store.tables import lake_tables, processes, table_tasks
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.processes import Process
from headrace.store.tables.table_tasks import TaskState
from headrace.store.tasks import tasks
from headrace.store.tasks.tasks import OfTable

log = logging.getLogger(__name__)

RUNNING_MAX = 1_000  # processes in one pass; the next pass continues behind them
PLANNING_MAX = 1_000  # tables in PLANNING that one pass considers
SETTLE_TIMEOUT_S = 15 * 60  # how long the table is asked for the outcome of a commit
LEFTOVERS_MAX = 200  # processes with staged files that one pass considers
LOOK_AGAIN_MS = 30_000  # while a DISCARD task runs, or waits for a worker
DISCARD_TRIES_MAX = 20  # about 3 h with the pauses; then they are left to orphan cleaning


class ProcessStep(StrEnum):
    """What is to be done about a running process."""

    WAIT = "wait"  # for its tasks, or for whoever blocks its table
    CANCEL = "cancel"  # somebody asked for its end
    CLOSE = "close"  # it is given up: nobody would commit what it makes
    FAIL = "fail"  # its rewrites failed
    COMMIT = "commit"  # its rewrites are done
    COMMIT_AGAIN = "commit again"  # its commit task was lost, or waits in another group
    UNKNOWN = "unknown"  # how its commit ended could not be found out


@dataclass(frozen=True, slots=True)
class PlanMoved:
    """The workers of another group are to plan the table by now."""


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The table gets no plan from the task that it waits for."""

    because: str


class ProcessReconciler:
    """Keys are process ids, and `table:ID` for tables that are being planned."""

    name = "processes"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.skipped: Collection[str] = ()  # tables that are not recovered yet
        self._settling_since_s: dict[str, float] = {}  # by process, on the monotonic clock
        self._after = ""  # the next pass continues behind this key, so that each has its turn

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            running = processes.running(conn, after=self._after, most=RUNNING_MAX)
            planning = lake_tables.in_status(conn, {TableStatus.PLANNING}, most=PLANNING_MAX)
        self._after = max(running) if len(running) == RUNNING_MAX else ""
        process_ids = [process for process, table in running.items() if table not in self.skipped]
        return [
            *process_ids,
            *(f"table:{table}" for table in planning if table not in self.skipped),
        ]

    def due(self, conn: Connection, key: str) -> bool:
        if key.startswith("table:"):
            table = lake_tables.get(conn, key.removeprefix("table:"))
            return table is not None and _planning_ended(conn, table) is not None
        process = processes.get(conn, key)
        if process is None:
            return False
        late = self._is_late(process)
        snapshot = _ProcessSnapshot(conn, process, self._clock.wall_ms(), late=late)
        return snapshot.step() is not ProcessStep.WAIT

    def _is_late(self, process: Process) -> bool:
        """Whether settling has timed out, on this leader's own monotonic clock: while there was no
        leader, nobody asked the table."""
        if not process.settling:
            self._settling_since_s.pop(process.id, None)
            return False
        now_s = self._clock.monotonic_s()
        since_s = self._settling_since_s.setdefault(process.id, now_s)
        return now_s - since_s > SETTLE_TIMEOUT_S

    def reconcile(self, conn: Connection, key: str) -> None:
        now_ms = self._clock.wall_ms()
        if key.startswith("table:"):
            table = lake_tables.lock(conn, key.removeprefix("table:"))
            if table is not None:
                _end_planning(conn, table, now_ms=now_ms)
            return
        process = processes.lock(conn, key)
        if process is not None and process.status is ProcessStatus.RUNNING:
            advance(conn, process, now_ms=now_ms, late=self._is_late(process))


def _end_planning(conn: Connection, table: LakeTable, *, now_ms: int) -> None:
    """Take a table out of PLANNING that will get no plan."""
    match _planning_ended(conn, table):
        case None:
            pass
        case PlanMoved():
            planning_moved(conn, table, now_ms=now_ms)
        case PlanFailed(because):
            planning_failed(conn, table, because=because, now_ms=now_ms)


def _planning_ended(conn: Connection, table: LakeTable) -> PlanMoved | PlanFailed | None:
    """Why a table in PLANNING will get no plan; None: it is not in PLANNING, or may still get
    one."""
    if table.status is not TableStatus.PLANNING:
        return None
    task = tasks.get(conn, table.task_id) if table.task_id else None
    if task is not None and task.status not in ENDED:
        return PlanMoved() if waits_elsewhere(task, table.group) else None
    error = task.error if task else None
    return PlanFailed(error or "its plan task is gone, and nobody said why")


def advance(conn: Connection, process: Process, *, now_ms: int, late: bool = False) -> None:
    """Take the next step of a running process, if there is one. `process` is locked. `late`:
    settling has timed out."""
    snapshot = _ProcessSnapshot(conn, process, now_ms, late=late)
    step = snapshot.step()
    match step:
        case ProcessStep.WAIT:
            pass
        case ProcessStep.CANCEL:
            because = "somebody canceled it"
            close_process(conn, process, ProcessStatus.KILLED, because=because, now_ms=now_ms)
        case ProcessStep.CLOSE:
            close_process(
                conn, process, ProcessStatus.CLOSED, because=snapshot.because, now_ms=now_ms
            )
        case ProcessStep.FAIL:
            blame(conn, process, now_ms=now_ms)
            close_process(
                conn, process, ProcessStatus.FAILED, because=snapshot.because, now_ms=now_ms
            )
        case ProcessStep.COMMIT:
            assert snapshot.table is not None
            blame(conn, process, now_ms=now_ms)  # a partial commit leaves failed rewrites behind
            begin_commit(conn, snapshot.table, process, now_ms=now_ms)
        case ProcessStep.COMMIT_AGAIN:
            plan_commit(conn, process, snapshot.table, now_ms=now_ms)
        case ProcessStep.UNKNOWN:
            outcome_unknown(conn, process, because=snapshot.because, now_ms=now_ms)
        case _:
            assert_never(step)


class _ProcessSnapshot:
    """The rows of a process, its table and its tasks, and the step that follows from them."""

    def __init__(
        self, conn: Connection, process: Process, now_ms: int, *, late: bool = False
    ) -> None:
        self._conn, self._process, self._now_ms, self._late = conn, process, now_ms, late
        self.table = lake_tables.get(conn, process.table_id)
        self._tasks = table_tasks.states_of(conn, process.id)
        self.rewrites = [task for task in self._tasks if task.kind is TaskKind.REWRITE]
        self.because = ""

    def step(self) -> ProcessStep:
        if self._process.settling:
            return self._settling()
        table = self.table
        if table is None:
            return self._because(ProcessStep.CLOSE, "its table is no longer in its catalog")
        if table.process_id != self._process.id:
            return self._because(ProcessStep.CLOSE, "its table does not know of it")
        if table.status is TableStatus.COMMITTING:
            return self._committing()
        if table.status not in OPTIMIZING:
            return self._because(ProcessStep.CLOSE, f"its table is {table.status}")
        return self._rewriting(table)

    def _because(self, step: ProcessStep, because: str) -> ProcessStep:
        self.because = because
        return step

    def _rewriting(self, table: LakeTable) -> ProcessStep:
        if self._process.wanted_cancel:
            return ProcessStep.CANCEL
        if not table.may_optimize:
            off = "it was paused" if table.wanted_paused else "self-optimizing.enabled is false"
            because = f"optimizing of the table was switched off: {off}"
            return self._because(ProcessStep.CLOSE, because)
        partial = bool(self._plan().get("allow_partial_commit"))
        match next_step([task.status for task in self.rewrites], allow_partial_commit=partial):
            case NextStep.WAIT:
                return ProcessStep.WAIT
            case NextStep.CLOSE:
                return self._because(ProcessStep.CLOSE, "it has no tasks")
            case NextStep.FAIL:
                return self._because(ProcessStep.FAIL, _first_error(self.rewrites))
            case NextStep.COMMIT:
                # A blocker holds back the commit; the rewritten files are kept.
                blocked = lake_tables.blockers_of(self._conn, table.id, now_ms=self._now_ms)
                return ProcessStep.WAIT if blocked else ProcessStep.COMMIT

    def _plan(self) -> Mapping[str, object]:
        return processes.plan_of(self._conn, self._process.id)

    def _commit_task(self) -> TaskState | None:
        known = (task for task in self._tasks if task.id == self._process.commit_task)
        return next(known, None)

    def _committing(self) -> ProcessStep:
        """A commit is not canceled: it may have landed. It ends when its attempts are used up."""
        task = self._commit_task()
        if task is None or task.status in {TaskStatus.CANCELED, TaskStatus.SUCCESS}:
            return ProcessStep.COMMIT_AGAIN
        if self.table is not None and waits_elsewhere(task, self.table.group):
            return ProcessStep.COMMIT_AGAIN
        if task.status is TaskStatus.FAILED:
            because = task.error or "its commit failed, nobody said why"
            return self._because(ProcessStep.UNKNOWN, because)
        return ProcessStep.WAIT

    def _settling(self) -> ProcessStep:
        if self._late:
            minutes = SETTLE_TIMEOUT_S // 60
            task = self._commit_task()
            last = f": {task.error}" if task and task.error else ""
            because = f"outcome unknown: the table could not be asked for {minutes} min{last}"
            return self._because(ProcessStep.UNKNOWN, because)
        return self._committing()


def _first_error(rewrites: Sequence[TaskState]) -> str:
    lost = [task for task in rewrites if task.status in ENDED - {TaskStatus.SUCCESS}]
    error = next((task.error for task in lost if task.error), "nobody said why")
    return f"{len(lost)} of {len(rewrites)} rewrite tasks failed: {error}"


class Discards:
    """Keys are ids of ended processes that have staged files left."""

    name = "leftovers"

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock, self._ids = clock, ids

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            now_ms = self._clock.wall_ms()
            return processes.with_leftovers(conn, now_ms=now_ms, most=LEFTOVERS_MAX)

    def due(self, conn: Connection, key: str) -> bool:
        process = processes.get(conn, key)
        return process is not None and process.leftovers

    def reconcile(self, conn: Connection, key: str) -> None:
        process, now_ms = processes.lock(conn, key), self._clock.wall_ms()
        if process is None or not process.leftovers:
            return
        table = lake_tables.get(conn, process.table_id)
        if table is None:  # dropped, its files with it
            processes.note_nothing_left(conn, process.id)
            return
        task = tasks.get(conn, process.discard_task) if process.discard_task else None
        if task is not None and waits_elsewhere(task, table.group):
            table_tasks.cancel(conn, [task.id], because=MOVED, now_ms=now_ms)
            task = None
        if task is not None and task.status not in ENDED:
            look_again_at_ms = now_ms + LOOK_AGAIN_MS
            processes.postpone_discard(conn, process.id, look_again_at_ms=look_again_at_ms)
        elif task is not None and task.status is not TaskStatus.SUCCESS:
            error = task.error or f"its task ended {task.status}, and nobody said why"
            self._failed(conn, process, error, now_ms=now_ms)
        else:
            self._plan(conn, process, table.group, now_ms=now_ms)

    def _plan(self, conn: Connection, process: Process, group: str, *, now_ms: int) -> None:
        task_id = self._ids.new()
        plan_task(
            conn,
            task_types.DISCARD,
            TaskOrder(),
            task_id=task_id,
            group=group,
            of=OfTable(process.table_id, process.id),
            now_ms=now_ms,
        )
        processes.begin_discard(
            conn, process.id, task_id=task_id, look_again_at_ms=now_ms + LOOK_AGAIN_MS
        )

    def _failed(self, conn: Connection, process: Process, error: str, *, now_ms: int) -> None:
        failures = process.discard_failures + 1
        facts = {"table": process.identifier, "process_id": process.id, "reason": error}
        if failures >= DISCARD_TRIES_MAX:
            log.error("staged files left to orphan cleaning", extra=facts)
            processes.note_nothing_left(conn, process.id)
            return
        log.warning("staged files not deleted yet", extra={**facts, "failures": failures})
        again_at_ms = now_ms + retry_pause_ms(failures)
        processes.note_discard_failed(conn, process.id, failures=failures, again_at_ms=again_at_ms)


def discarded(conn: Connection, process: Process, answer: Discarded) -> None:
    """Apply the result of a DISCARD task: no staged file of the process is left at its table."""
    if answer.committed_snapshot is not None and process.error is not None:
        late = (
            f"{process.error}; yet its commit had landed, as snapshot {answer.committed_snapshot}"
        )
        result = dict(processes.result_of(conn, process.id) or {})
        result["snapshot"] = answer.committed_snapshot
        processes.note_late_commit(conn, process.id, error=late, result=result)
    processes.note_nothing_left(conn, process.id)
