"""Where a table stands in its optimizing, where a process of it stands, and how both change.

A table under a running process leaves it only together with the process: there is no way from
*_OPTIMIZING or COMMITTING back to IDLE in `TABLE_TRANSITIONS`, only `released` by a process that
has ended. What a restart does instead is in recovery.py, under its own name (T8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum

from headrace.errors import IllegalTransition
from headrace.model.task import ENDED, TaskStatus


class TableStatus(StrEnum):
    IDLE = "IDLE"  # nothing known that needs a rewrite
    PENDING = "PENDING"  # evaluated: there is input, and it waits for its turn
    PLANNING = "PLANNING"  # a plan task looks which files go together
    MINOR_OPTIMIZING = "MINOR_OPTIMIZING"  # rewrite tasks of a process are under way
    MAJOR_OPTIMIZING = "MAJOR_OPTIMIZING"
    FULL_OPTIMIZING = "FULL_OPTIMIZING"
    COMMITTING = "COMMITTING"  # a commit task replaces the files


class ProcessStatus(StrEnum):
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"  # committed
    FAILED = "FAILED"
    CLOSED = "CLOSED"  # given up by us: disabled, or not resumed after a restart
    KILLED = "KILLED"  # given up because somebody asked


class OptimizingType(IntEnum):
    """Ordered by strength: a process is of the strongest type among its partitions."""

    MINOR = 1  # fragments into larger files, deletes applied
    MAJOR = 2  # and undersized files into files of the target size
    FULL = 3  # and everything else that gains by it

    @property
    def status(self) -> TableStatus:
        return _STATUS_OF[self]


T = TableStatus
P = ProcessStatus

OPTIMIZING = frozenset({T.MINOR_OPTIMIZING, T.MAJOR_OPTIMIZING, T.FULL_OPTIMIZING})
PROCESSING = OPTIMIZING | {T.COMMITTING}
PROCESS_ENDED = frozenset({P.SUCCESS, P.FAILED, P.CLOSED, P.KILLED})

_STATUS_OF: Mapping[OptimizingType, TableStatus] = {
    OptimizingType.MINOR: T.MINOR_OPTIMIZING,
    OptimizingType.MAJOR: T.MAJOR_OPTIMIZING,
    OptimizingType.FULL: T.FULL_OPTIMIZING,
}

TABLE_TRANSITIONS: Mapping[TableStatus, frozenset[TableStatus]] = {
    T.IDLE: frozenset({T.PENDING}),
    # Back to IDLE: a later evaluation found nothing, or optimizing was switched off.
    T.PENDING: frozenset({T.PLANNING, T.IDLE}),
    # PENDING: planning failed, and is tried again later. IDLE: no plan gains anything.
    T.PLANNING: OPTIMIZING | {T.PENDING, T.IDLE},
    T.MINOR_OPTIMIZING: frozenset({T.COMMITTING}),
    T.MAJOR_OPTIMIZING: frozenset({T.COMMITTING}),
    T.FULL_OPTIMIZING: frozenset({T.COMMITTING}),
    T.COMMITTING: frozenset(),
}

PROCESS_TRANSITIONS: Mapping[ProcessStatus, frozenset[ProcessStatus]] = {
    P.RUNNING: PROCESS_ENDED,
    P.SUCCESS: frozenset(),
    P.FAILED: frozenset(),
    P.CLOSED: frozenset(),
    P.KILLED: frozenset(),
}


def check_table_transition(table: str, current: TableStatus, target: TableStatus) -> None:
    if target not in TABLE_TRANSITIONS[current]:
        raise IllegalTransition("table", table, current, target)


def check_process_transition(process: str, current: ProcessStatus, target: ProcessStatus) -> None:
    if target not in PROCESS_TRANSITIONS[current]:
        raise IllegalTransition("process", process, current, target)


def released(table: str, current: TableStatus, process: ProcessStatus) -> TableStatus:
    """Where a table stands once its process has ended. Refused while the process runs (T8)."""
    if current not in PROCESSING or process not in PROCESS_ENDED:
        raise IllegalTransition("table", table, current, T.IDLE)
    return T.IDLE


class NextStep(StrEnum):
    WAIT = "WAIT"  # tasks are open
    COMMIT = "COMMIT"  # all that will come has come, and there is something to commit
    FAIL = "FAIL"  # a task is lost for good, and the rest may not be committed without it
    CLOSE = "CLOSE"  # there are no tasks at all: nothing to wait for, nothing to commit


def next_step(tasks: Sequence[TaskStatus], *, allow_partial_commit: bool) -> NextStep:
    """What a running process does, by its tasks: all successful begins to commit at once (T3)."""
    if not tasks:
        return NextStep.CLOSE
    lost = sum(task in ENDED and task is not TaskStatus.SUCCESS for task in tasks)
    if lost and not allow_partial_commit:
        return NextStep.FAIL
    if any(task not in ENDED for task in tasks):
        return NextStep.WAIT
    return NextStep.COMMIT if lost < len(tasks) else NextStep.FAIL
