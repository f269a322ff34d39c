"""The state machines of tables and their optimizing processes, and recovery after a restart (T1).

The maps are all the changes that there are: the store checks each write against them (S1). A table
has three. `TABLE_TRANSITIONS` are its ordinary steps, which have no way from *_OPTIMIZING or
COMMITTING back to IDLE. `TABLE_RELEASES` are written only once the process of the table has ended.

`TABLE_RESETS` belong to the recovery pass alone (T8). What a restart of the coordinator makes of a
table and the process it names is decided by `recover`, one total function over every pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import assert_never

from headrace.errors import IllegalTransition
from headrace.model.task import ENDED, TaskStatus


class TableStatus(StrEnum):
    IDLE = "IDLE"  # nothing is known that needs a rewrite
    PENDING = "PENDING"  # evaluated: there is input, which waits for its turn
    PLANNING = "PLANNING"  # a plan task chooses the files to rewrite
    MINOR_OPTIMIZING = "MINOR_OPTIMIZING"  # rewrite tasks of a process are under way
    MAJOR_OPTIMIZING = "MAJOR_OPTIMIZING"
    FULL_OPTIMIZING = "FULL_OPTIMIZING"
    COMMITTING = "COMMITTING"  # a commit task replaces the files


class ProcessStatus(StrEnum):
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"  # committed
    FAILED = "FAILED"
    CLOSED = "CLOSED"  # given up: optimizing was disabled, or a restart did not resume it
    KILLED = "KILLED"  # given up because a user asked for it


class TableErrorKind(StrEnum):
    """What the error of a table is about; recorded by whoever records the error."""

    # It could not be evaluated. The next evaluation that succeeds clears it, and its failures.
    EVALUATION = "EVALUATION"
    # It could not be planned, rewritten or committed. Failures add up until a process succeeds.
    OPTIMIZING = "OPTIMIZING"


class OptimizingType(IntEnum):
    """Ordered by strength: a process is of the strongest type among its partitions."""

    MINOR = 1  # fragments into larger files, deletes applied
    MAJOR = 2  # and also undersized files into files of the target size
    FULL = 3  # and also everything else that gains by it

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
    # PENDING: planning failed, and is retried later. IDLE: no plan gains anything.
    T.PLANNING: OPTIMIZING | {T.PENDING, T.IDLE},
    T.MINOR_OPTIMIZING: frozenset({T.COMMITTING}),
    T.MAJOR_OPTIMIZING: frozenset({T.COMMITTING}),
    T.FULL_OPTIMIZING: frozenset({T.COMMITTING}),
    T.COMMITTING: frozenset(),
}

# Out of a process that has ended, with the end of the process or after it.
TABLE_RELEASES: Mapping[TableStatus, frozenset[TableStatus]] = {
    T.IDLE: frozenset(),
    T.PENDING: frozenset(),
    T.PLANNING: frozenset(),
    T.MINOR_OPTIMIZING: frozenset({T.IDLE}),
    T.MAJOR_OPTIMIZING: frozenset({T.IDLE}),
    T.FULL_OPTIMIZING: frozenset({T.IDLE}),
    T.COMMITTING: frozenset({T.IDLE}),
}

# What the recovery pass may do, and nobody else (T8).
TABLE_RESETS: Mapping[TableStatus, frozenset[TableStatus]] = {
    T.IDLE: frozenset(),
    T.PENDING: frozenset(),  # its input is not optimized yet (T2)
    T.PLANNING: frozenset({T.IDLE}),
    T.MINOR_OPTIMIZING: frozenset({T.IDLE}),
    T.MAJOR_OPTIMIZING: frozenset({T.IDLE}),
    T.FULL_OPTIMIZING: frozenset({T.IDLE}),
    T.COMMITTING: frozenset({T.IDLE}),
}

PROCESS_TRANSITIONS: Mapping[ProcessStatus, frozenset[ProcessStatus]] = {
    P.RUNNING: PROCESS_ENDED,
    P.SUCCESS: frozenset(),
    P.FAILED: frozenset(),
    P.CLOSED: frozenset(),
    P.KILLED: frozenset(),
}


def check_table_transition(table: str, current: TableStatus, target: TableStatus) -> None:
    """Raise IllegalTransition for a step that the state machine does not have."""
    if target not in TABLE_TRANSITIONS[current]:
        raise IllegalTransition("table", table, current, target)


def check_table_release(
    table: str, current: TableStatus, target: TableStatus, *, process: ProcessStatus
) -> None:
    """Raise IllegalTransition unless the process has ended, and the table was in it (T8)."""
    if target not in TABLE_RELEASES[current] or process not in PROCESS_ENDED:
        raise IllegalTransition("table", table, current, target)


def check_table_reset(table: str, current: TableStatus, target: TableStatus) -> None:
    """Raise IllegalTransition for what even the recovery pass may not do."""
    if target not in TABLE_RESETS[current]:
        raise IllegalTransition("table", table, current, target)


def check_process_transition(process: str, current: ProcessStatus, target: ProcessStatus) -> None:
    """Raise IllegalTransition for a step that the state machine does not have."""
    if target not in PROCESS_TRANSITIONS[current]:
        raise IllegalTransition("process", process, current, target)


class NextStep(StrEnum):
    """What a running process does next."""

    WAIT = "WAIT"  # tasks are open
    COMMIT = "COMMIT"  # all tasks have ended, and there is something to commit
    FAIL = "FAIL"  # a task has failed for good, and the rest may not be committed without it
    CLOSE = "CLOSE"  # there are no tasks at all: nothing to wait for, nothing to commit


def next_step(tasks: Sequence[TaskStatus], *, allow_partial_commit: bool) -> NextStep:
    """Decide by the tasks of a process: once all are successful, it commits at once (T3)."""
    if not tasks:
        return NextStep.CLOSE
    lost = sum(task in ENDED and task is not TaskStatus.SUCCESS for task in tasks)
    if lost and not allow_partial_commit:
        return NextStep.FAIL
    if any(task not in ENDED for task in tasks):
        return NextStep.WAIT
    return NextStep.COMMIT if lost < len(tasks) else NextStep.FAIL


class Recovery(StrEnum):
    """What a restart does with a table."""

    KEEP = "keep"  # change nothing about the table
    RESET = "reset"  # back to IDLE; none of it counts as optimized
    RESUME = "resume"  # the process and its tasks go on


class ProcessEnd(StrEnum):
    """What a restart does with the table's process, in the same transaction."""

    NONE = "none"  # there is none, or it has ended already, or it goes on
    CLOSE = "close"  # it ends CLOSED, its open tasks CANCELED
    SETTLE = "settle"  # its commit may have landed: the table itself is asked, and decides its end


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a restart writes for a table and its process."""

    recovery: Recovery
    table: TableStatus  # its status afterwards
    process: ProcessEnd

    @property
    def evaluate(self) -> bool:
        """Whether the table is scheduled for evaluation: always, unless its process goes on."""
        return self.recovery is not Recovery.RESUME


def decide_recovery(process: ProcessStatus | None, table: TableStatus) -> Recovery:
    """One cell of T1's matrix. None: the table names no process, or its record is missing."""
    match table:
        case T.IDLE | T.PENDING:
            return Recovery.KEEP  # PENDING above all: its input is not optimized yet (T2)
        case T.PLANNING | T.COMMITTING:
            return Recovery.RESET
        case T.MINOR_OPTIMIZING | T.MAJOR_OPTIMIZING | T.FULL_OPTIMIZING:
            return Recovery.RESUME if process is ProcessStatus.RUNNING else Recovery.RESET
    assert_never(table)


def recover(process: ProcessStatus | None, table: TableStatus) -> Recovered:
    """What to write for this pair: the table's status and the end of its process, together."""
    recovery = decide_recovery(process, table)
    match recovery:
        case Recovery.KEEP:
            return Recovered(recovery, table, _end(process, table))
        case Recovery.RESET:
            return Recovered(recovery, T.IDLE, _end(process, table))
        case Recovery.RESUME:
            return Recovered(recovery, table, ProcessEnd.NONE)
    assert_never(recovery)


def _end(process: ProcessStatus | None, table: TableStatus) -> ProcessEnd:
    """The end of a process that isn't resumed.

    Also under `keep`: a crash between naming a process and changing the table's status leaves a
    running process beside a table whose status knows nothing of it.
    """
    if process is not ProcessStatus.RUNNING:
        return ProcessEnd.NONE
    return ProcessEnd.SETTLE if table is T.COMMITTING else ProcessEnd.CLOSE
