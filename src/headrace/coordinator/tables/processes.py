"""Running processes: each moves on by what its tasks say, until it has ended.

`advance` is called with the report that may have been the last, by every pass, and by the recovery
pass: it decides by the rows alone, so nothing can sit between two of them (T3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.tables.blame import blame
from headrace.coordinator.tables.closing import close_process
from headrace.coordinator.tables.committing import begin_commit, outcome_unknown, plan_commit
from headrace.coordinator.tables.moving import MOVED, waits_elsewhere
from headrace.coordinator.tables.planning import planning_failed, planning_moved
from headrace.model.tables.status import (
    OPTIMIZING,
    NextStep,
    ProcessStatus,
    TableStatus,
    next_step,
)
from headrace.model.task import ENDED, TaskKind, TaskStatus
from headrace.store import blockers, lake, processes, table_tasks, tasks
from headrace.store.engine import reading
from headrace.store.lake import LakeTable
from headrace.store.processes import Process
from headrace.store.table_tasks import State

RUNNING_MAX = 1_000  # processes looked at in one pass, the next ones in the next
PLANNING_MAX = 1_000  # tables that are being planned, looked at in one pass
SETTLE_TIMEOUT_S = 15 * 60  # so long the table is asked how a commit ended


class Processes:
    """Keys are process ids, and `table:ID` for tables that are being planned."""

    name = "processes"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.skipped: Collection[str] = ()  # tables that are not recovered yet
        self._settling_since_s: dict[str, float] = {}  # by process, as this leader saw it
        self._after = ""  # the next pass begins behind this one, so that each has its turn

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            running = processes.running(conn, after=self._after, most=RUNNING_MAX)
            planning = lake.in_status(conn, {TableStatus.PLANNING}, most=PLANNING_MAX)
        self._after = max(running) if len(running) == RUNNING_MAX else ""
        found = [process for process, table in running.items() if table not in self.skipped]
        return [*found, *(f"table:{table}" for table in planning if table not in self.skipped)]

    def due(self, conn: Connection, key: str) -> bool:
        if key.startswith("table:"):
            table = lake.get(conn, key.removeprefix("table:"))
            return table is not None and _planning_ended(conn, table) is not None
        process = processes.get(conn, key)
        if process is None:
            return False
        late = self._is_late(process)
        return _Look(conn, process, self._clock.wall_ms(), late=late).step() is not None

    def _is_late(self, process: Process) -> bool:
        """Whether the table was asked for long enough, on this leader's own clock: while nobody
        led, nobody asked."""
        if not process.settling:
            self._settling_since_s.pop(process.id, None)
            return False
        now_s = self._clock.monotonic_s()
        since_s = self._settling_since_s.setdefault(process.id, now_s)
        return now_s - since_s > SETTLE_TIMEOUT_S

    def reconcile(self, conn: Connection, key: str) -> None:
        now_ms = self._clock.wall_ms()
        if key.startswith("table:"):
            table = lake.lock(conn, key.removeprefix("table:"))
            because = _planning_ended(conn, table) if table is not None else None
            if table is not None and because == MOVED:
                planning_moved(conn, table, now_ms=now_ms)
            elif table is not None and because is not None:
                planning_failed(conn, table, because=because, now_ms=now_ms)
            return
        process = processes.lock(conn, key)
        if process is not None and process.status is ProcessStatus.RUNNING:
            advance(conn, process, now_ms=now_ms, late=self._is_late(process))


def _planning_ended(conn: Connection, table: LakeTable) -> str | None:
    """Why a table that is being planned will get no plan; None: it is not, or it may."""
    if table.status is not TableStatus.PLANNING:
        return None
    task = tasks.get(conn, table.task_id) if table.task_id else None
    if task is not None and task.status not in ENDED:
        return MOVED if waits_elsewhere(task, table.group) else None
    return (task.error if task else None) or "its plan task is gone, and nobody said why"


def advance(conn: Connection, process: Process, *, now_ms: int, late: bool = False) -> None:
    """Take the next step of a running process, if there is one. `process` is locked. `late`: it
    has been settling for too long."""
    look = _Look(conn, process, now_ms, late=late)
    match look.step():
        case "cancel":
            because = "somebody canceled it"
            close_process(conn, process, ProcessStatus.KILLED, because=because, now_ms=now_ms)
        case "close":
            close_process(conn, process, ProcessStatus.CLOSED, because=look.because, now_ms=now_ms)
        case "fail":
            blame(conn, process, now_ms=now_ms)
            close_process(conn, process, ProcessStatus.FAILED, because=look.because, now_ms=now_ms)
        case "commit":
            assert look.table is not None
            blame(conn, process, now_ms=now_ms)  # of a partial commit
            begin_commit(conn, look.table, process, now_ms=now_ms)
        case "commit again":
            plan_commit(conn, process, look.table, now_ms=now_ms)
        case "unknown":
            outcome_unknown(conn, process, because=look.because, now_ms=now_ms)
        case _:
            pass


class _Look:
    """What is known of a process, and which step follows from it."""

    def __init__(
        self, conn: Connection, process: Process, now_ms: int, *, late: bool = False
    ) -> None:
        self._conn, self._process, self._now_ms, self._late = conn, process, now_ms, late
        self.table = lake.get(conn, process.table_id)
        self._tasks = table_tasks.states_of(conn, process.id)
        self.rewrites = [task for task in self._tasks if task.kind is TaskKind.REWRITE]
        self.because = ""

    def step(self) -> str | None:
        if self._process.settling:
            return self._settling()
        table = self.table
        if table is None:
            return self._because("close", "its table is no longer in its catalog")
        if table.process_id != self._process.id:
            return self._because("close", "its table does not know of it")
        if table.status is TableStatus.COMMITTING:
            return self._committing()
        if table.status not in OPTIMIZING:
            return self._because("close", f"its table is {table.status}")
        return self._rewriting(table)

    def _because(self, step: str, because: str) -> str:
        self.because = because
        return step

    def _rewriting(self, table: LakeTable) -> str | None:
        if self._process.wanted_cancel:
            return "cancel"
        if not table.may_optimize:
            off = "it was paused" if table.wanted_paused else "self-optimizing.enabled is false"
            return self._because("close", f"optimizing of the table was switched off: {off}")
        partial = bool(self._plan().get("allow_partial_commit"))
        match next_step([task.status for task in self.rewrites], allow_partial_commit=partial):
            case NextStep.WAIT:
                return None
            case NextStep.CLOSE:
                return self._because("close", "it has no tasks")
            case NextStep.FAIL:
                return self._because("fail", _first_error(self.rewrites))
            case NextStep.COMMIT:
                # A writer that asked to be left alone is: the commit waits, the work is kept.
                blocked = blockers.of(self._conn, table.id, now_ms=self._now_ms)
                return None if blocked else "commit"

    def _plan(self) -> Mapping[str, object]:
        return processes.plan_of(self._conn, self._process.id)

    def _commit_task(self) -> State | None:
        known = (task for task in self._tasks if task.id == self._process.commit_task)
        return next(known, None)

    def _committing(self) -> str | None:
        """Past here it is not canceled: the commit may have landed, and ends within its tries."""
        task = self._commit_task()
        if task is None or task.status in {TaskStatus.CANCELED, TaskStatus.SUCCESS}:
            return "commit again"
        if self.table is not None and waits_elsewhere(task, self.table.group):
            return "commit again"
        if task.status is TaskStatus.FAILED:
            return self._because("unknown", task.error or "its commit failed, nobody said why")
        return None

    def _settling(self) -> str | None:
        if self._late:
            minutes = SETTLE_TIMEOUT_S // 60
            task = self._commit_task()
            last = f": {task.error}" if task and task.error else ""
            return self._because(
                "unknown", f"outcome unknown: the table could not be asked for {minutes} min{last}"
            )
        return self._committing()


def _first_error(rewrites: Sequence[State]) -> str:
    lost = [task for task in rewrites if task.status in ENDED - {TaskStatus.SUCCESS}]
    error = next((task.error for task in lost if task.error), "nobody said why")
    return f"{len(lost)} of {len(rewrites)} rewrite tasks failed: {error}"
