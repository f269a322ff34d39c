"""Resetting a table after a restart (T1, T8). Only the recovery pass may import this."""

from __future__ import annotations

from sqlalchemy import Connection, update

from headrace.model.tables.recovery import Recovered, Recovery
from headrace.store.lake_rows import LakeTable
from headrace.store.table_schema import lake_tables


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
        )
    )
    return done.rowcount == 1
