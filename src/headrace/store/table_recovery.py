"""Resetting a table after a restart (T1, T8). Only the recovery pass may import this."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, or_, select, update

from headrace.model.tables.recovery import Recovered, Recovery
from headrace.model.tables.status import TableStatus
from headrace.store.lake_rows import LakeTable
from headrace.store.table_schema import RUNNING_PROCESS, lake_tables, processes


def undecided(conn: Connection) -> Sequence[str]:
    """Tables that are not at rest, that name a process, or of which one runs that is not settling.
    The statuses are read by their index; there are few of all of these."""
    busy = select(lake_tables.c.id).where(
        or_(lake_tables.c.status != TableStatus.IDLE, lake_tables.c.process_id.is_not(None))
    )
    running = select(processes.c.table_id).where(
        RUNNING_PROCESS, processes.c.settling_since_ms.is_(None)
    )
    return sorted({*conn.execute(busy).scalars(), *conn.execute(running).scalars()})


def reset(conn: Connection, table: LakeTable, found: Recovered, *, now_ms: int) -> bool:
    """Back to IDLE, in no process, to be evaluated at once. Nothing counts as optimized by it:
    whatever the next evaluation finds is pending again."""
    assert found.recovery is Recovery.RESET
    done = conn.execute(
        update(lake_tables)
        .where(lake_tables.c.id == table.id, lake_tables.c.status == table.status)
        .values(
            status=found.table,
            status_since_ms=now_ms,
            process_id=None,
            task_id=None,
            due_at_ms=now_ms,
            pointer=None,  # or "nothing has changed" would keep it from being scanned
            pending=None,
            pending_since_ms=None,
        )
    )
    return done.rowcount == 1
