"""Shared transitions of tables and processes: close, back off, drop, move to another group.

Closing a process ends the process itself, its open tasks and its hold on the table in one
transaction. What it may have staged stays until its token is spent: a commit of it may still be on
its way.

A table that is no longer in its catalog, or whose catalog is removed, is dropped. Whatever is under
way with it ends first; the history of its processes stays.

Catalogs and tables can be moved to another group, perhaps because the first has no workers. A task
that nobody has claimed would wait in the first group for ever, so it is canceled, and its work is
planned anew in the other.
"""

from __future__ import annotations

import logging

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from headrace.errors import Fenced, Unavailable
from headrace.model.tables.schedule import left_out, wait_ms
from headrace.model.tables.status import PROCESSING, ProcessStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.protocol.tables import CLOCKS_MAX, Clocks, Times
from headrace.store.tables import lake_tables, processes, table_changes, table_tasks
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.processes import Process
from headrace.store.tables.table_tasks import TaskState
from headrace.store.tasks.tasks import Task

log = logging.getLogger(__name__)

MOVED = "it is for the workers of another group now"

# A canceled rewrite gets this long to stop before its staged files are deleted; what it writes even
# later is left to orphan cleaning.
DISCARD_PAUSE_MS = 10_000


def close_process(
    conn: Connection, process: Process, to: ProcessStatus, *, because: str, now_ms: int
) -> None:
    """End a process that did not commit. Idempotent: an ended process stays as it is."""
    tasks = table_tasks.states_of(conn, process.id)
    table_tasks.cancel(conn, [task.id for task in tasks], because=because, now_ms=now_ms)
    staged = any(task.kind is TaskKind.REWRITE and task.attempt > 0 for task in tasks)
    discard_at_ms = now_ms + DISCARD_PAUSE_MS if staged else None
    if not processes.end(
        conn, process, to, now_ms=now_ms, error=because, discard_at_ms=discard_at_ms
    ):
        return
    facts = {"table": process.identifier, "process_id": process.id, "as": to, "reason": because}
    log.info("process ended", extra=facts)
    table = lake_tables.lock(conn, process.table_id)
    if table is not None and table.process_id == process.id and table.status in PROCESSING:
        release(conn, table, to, because=because, now_ms=now_ms)


def release(
    conn: Connection, table: LakeTable, ended: ProcessStatus, *, because: str, now_ms: int
) -> None:
    """Release the table of a process that ended without a commit: the next evaluation finds its
    input again. After a failure the table backs off."""
    table_changes.release(conn, table, ended, now_ms=now_ms)
    if ended is ProcessStatus.FAILED:
        back_off(conn, table, because=because, now_ms=now_ms)


def back_off(conn: Connection, table: LakeTable, *, because: str, now_ms: int) -> None:
    """Count a failure of the table, and delay its next plan accordingly."""
    failures = table.failures + 1
    not_before_ms = now_ms + wait_ms(failures)
    table_changes.back_off(
        conn, table.id, failures=failures, error=because, not_before_ms=not_before_ms
    )


def drop_table(conn: Connection, table_id: str, *, because: str, now_ms: int) -> None:
    """Drop a table; idempotent. Its row is deleted without being read, so a broken row goes as
    well."""
    running = processes.running_of(conn, table_id)
    process = processes.lock(conn, running.id) if running is not None else None
    if process is not None and process.status is ProcessStatus.RUNNING:
        close_process(conn, process, ProcessStatus.CLOSED, because=because, now_ms=now_ms)
    left = table_tasks.open_of_table(conn, table_id)  # a PLAN or DISCARD task, no longer needed
    table_tasks.cancel(conn, left, because=because, now_ms=now_ms)
    table_changes.drop(conn, table_id)
    log.info("table forgotten", extra={"table_id": table_id, "reason": because})


def drop_isolated(conn: Connection, table_id: str, *, because: str, now_ms: int) -> bool:
    """`drop_table` in a nested transaction. False: rows of the table can't be read; others do not
    wait for that."""
    try:
        with conn.begin_nested():
            drop_table(conn, table_id, because=because, now_ms=now_ms)
    except (Fenced, Unavailable, OperationalError):
        raise  # the store is unavailable, which is no fault of the table
    except Exception:
        log.exception("table not forgotten", extra={"table_id": table_id})
        return False
    return True


def waits_elsewhere(task: Task | TaskState | None, group: str) -> bool:
    """Whether the task is unclaimed, and only workers of another group than `group` could claim
    it."""
    return task is not None and task.status is TaskStatus.PLANNED and task.group != group


def clocks_for(conn: Connection, table: LakeTable) -> Clocks:
    """The stored partition clocks of a table, as its tasks get them."""
    return {key: _times(stored) for key, stored in lake_tables.clocks_of(conn, table.id).items()}


def _times(stored: list[int | None]) -> Times:
    minor, major, full, seen = stored
    return minor, major, full, seen


def bounded_clocks(clocks: Clocks) -> Clocks:
    """At most `CLOCKS_MAX` clocks, those with the latest events. A partition without a clock counts
    as never optimized; that is harmless, since a plan must gain something anyway."""
    if len(clocks) <= CLOCKS_MAX:
        return clocks
    latest = sorted(clocks.items(), key=lambda item: max(t or 0 for t in item[1]), reverse=True)
    return dict(latest[:CLOCKS_MAX])


def left_out_of(conn: Connection, table: LakeTable) -> tuple[str, ...]:
    """Files that failed too often and are left out of planning."""
    return tuple(sorted(left_out(lake_tables.file_failures_of(conn, table.id))))
