"""What a restart of the coordinator makes of a table and the process it names (T1).

One total function over every pair. Resetting lives here and nowhere else (T8): ordinary code has no
step that takes a table out of a running process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from headrace.model.tables.status import ProcessStatus, TableStatus

T = TableStatus


class Recovery(StrEnum):
    KEEP = "keep"  # change nothing about the table
    RESET = "reset"  # back to IDLE; nothing counts as optimized
    RESUME = "resume"  # the process and its tasks go on


class ProcessEnd(StrEnum):
    """What becomes of the process, in the same transaction."""

    NONE = "none"  # there is none, or it has ended before, or it goes on
    CLOSE = "close"  # it ends CLOSED, its open tasks CANCELED
    SETTLE = "settle"  # its commit may have landed: the table is asked, and that is its end


@dataclass(frozen=True, slots=True)
class Recovered:
    recovery: Recovery
    table: TableStatus  # where it stands afterwards
    process: ProcessEnd

    @property
    def evaluate(self) -> bool:
        """It is scheduled for evaluation: always, unless its process goes on."""
        return self.recovery is not Recovery.RESUME


def decide(process: ProcessStatus | None, table: TableStatus) -> Recovery:
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
    recovery = decide(process, table)
    match recovery:
        case Recovery.KEEP:
            return Recovered(recovery, table, _end(process, table))
        case Recovery.RESET:
            return Recovered(recovery, T.IDLE, _end(process, table))
        case Recovery.RESUME:
            return Recovered(recovery, table, ProcessEnd.NONE)
    assert_never(recovery)


def _end(process: ProcessStatus | None, table: TableStatus) -> ProcessEnd:
    """Of a process that isn't resumed. Also under `keep`: a crash between naming a process and
    changing the status leaves a running process beside a table that knows nothing of it."""
    if process is not ProcessStatus.RUNNING:
        return ProcessEnd.NONE
    return ProcessEnd.SETTLE if table is T.COMMITTING else ProcessEnd.CLOSE
