"""A table that is no longer in its catalog, or whose catalog is given up, is forgotten.

Whatever is under way with it ends first. The history of its processes stays.
"""

from __future__ import annotations

import logging

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from headrace.coordinator.tables.closing import close_process
from headrace.errors import Fenced, Unavailable
from headrace.model.tables.status import ProcessStatus
from headrace.store import lake, processes, table_tasks

log = logging.getLogger(__name__)


def drop_table(conn: Connection, table_id: str, *, because: str, now_ms: int) -> None:
    """Nothing happens to one that is gone already. Its row is not read, only deleted: one that is
    broken goes as well."""
    running = processes.running_of(conn, table_id)
    process = processes.lock(conn, running.id) if running is not None else None
    if process is not None and process.status is ProcessStatus.RUNNING:
        close_process(conn, process, ProcessStatus.CLOSED, because=because, now_ms=now_ms)
    left = table_tasks.open_of_table(conn, table_id)  # a plan, or a discard: nobody needs it now
    table_tasks.cancel(conn, left, because=because, now_ms=now_ms)
    lake.drop(conn, table_id)
    log.info("table forgotten", extra={"table_id": table_id, "reason": because})


def drop_apart(conn: Connection, table_id: str, *, because: str, now_ms: int) -> bool:
    """As `drop_table`. False: what the store holds of it can't be read, and no other waits for
    that."""
    try:
        with conn.begin_nested():
            drop_table(conn, table_id, because=because, now_ms=now_ms)
    except (Fenced, Unavailable, OperationalError):
        raise  # the store is away, and no table is to blame
    except Exception:
        log.exception("table not forgotten", extra={"table_id": table_id})
        return False
    return True
