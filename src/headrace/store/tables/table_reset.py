"""Recovery: reset a table after a restart (T1, T8). Only the recovery pass may import this."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, or_, select, update

from headrace.model.tables.status import Recovered, Recovery, TableStatus, check_table_reset
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.schema import RUNNING_PROCESS, lake_tables, processes


def undecided(conn: Connection) -> Sequence[str]:
    """Tables that a new leader has to decide on: not IDLE, or with a process, or with a process
    that runs and is not settling. The statuses are read by their index; there are few of all of
    these."""
    busy = select(lake_tables.c.id).where(
        or_(lake_tables.c.status != TableStatus.IDLE, lake_tables.c.process_id.is_not(None))
    )
    running = select(processes.c.table_id).where(
        RUNNING_PROCESS, processes.c.settling_since_ms.is_(None)
    )
    return sorted({*conn.execute(busy).scalars(), *conn.execute(running).scalars()})


def reset(conn: Connection, table: LakeTable, decision: Recovered, *, now_ms: int) -> bool:
    """Move the table to IDLE, out of any process, to be evaluated at once. False: its status has
    changed. Nothing counts as optimized by it: whatever the next evaluation finds is pending
    again."""
    assert decision.recovery is Recovery.RESET
    check_table_reset(table.identifier, table.status, decision.table)
    result = conn.execute(
        update(lake_tables)
        .where(lake_tables.c.id == table.id, lake_tables.c.status == table.status)
        .values(
            status=decision.table,
            status_since_ms=now_ms,
            process_id=None,
            task_id=None,
            due_at_ms=now_ms,
            pointer=None,  # or "nothing has changed" would keep it from being scanned
            pending=None,
            pending_since_ms=None,
        )
    )
    return result.rowcount == 1
