"""The end of a process: of itself, of its open tasks and of its hold on the table, at once.

What it may have staged stays until its token is spent: a commit of it may still be on its way.
"""

from __future__ import annotations

import logging

from sqlalchemy import Connection

from headrace.model.tables.backoff import wait_ms
from headrace.model.tables.status import PROCESSING, ProcessStatus
from headrace.model.task import TaskKind
from headrace.store import lake, processes, table_tasks
from headrace.store.lake import LakeTable
from headrace.store.processes import Process

log = logging.getLogger(__name__)

# A rewrite that was told to stop gets so long to do so before what it staged is deleted; what it
# writes even later is left to orphan cleaning.
DISCARD_PAUSE_MS = 10_000


def close_process(
    conn: Connection, process: Process, to: ProcessStatus, *, because: str, now_ms: int
) -> None:
    """End a process that did not commit. One that has ended stays as it is."""
    tasks = table_tasks.states_of(conn, process.id)
    table_tasks.cancel(conn, [task.id for task in tasks], because=because, now_ms=now_ms)
    staged = any(task.kind is TaskKind.REWRITE and task.attempt > 0 for task in tasks)
    if not processes.end(
        conn,
        process,
        to,
        now_ms=now_ms,
        error=because,
        leftovers=int(staged),
        discard_at_ms=now_ms + DISCARD_PAUSE_MS if staged else None,
    ):
        return
    facts = {"table": process.identifier, "process_id": process.id, "as": to, "reason": because}
    log.info("process ended", extra=facts)
    table = lake.lock(conn, process.table_id)
    if table is not None and table.process_id == process.id and table.status in PROCESSING:
        release(conn, table, to, because=because, now_ms=now_ms)


def release(
    conn: Connection, table: LakeTable, ended: ProcessStatus, *, because: str, now_ms: int
) -> None:
    """The table of a process that ended without a commit: its input is found again by the next
    evaluation, and after a failure it is planned later and later."""
    lake.release(conn, table, ended, now_ms=now_ms, **to_be_found_again(now_ms))
    if ended is ProcessStatus.FAILED:
        failed(conn, table, because=because, now_ms=now_ms)


def failed(conn: Connection, table: LakeTable, *, because: str, now_ms: int) -> None:
    failures = table.failures + 1
    not_before_ms = now_ms + wait_ms(failures)
    lake.change(conn, table.id, failures=failures, error=because, not_before_ms=not_before_ms)


def to_be_found_again(now_ms: int) -> dict[str, object]:
    """Without its pointer a table is scanned, whether it has changed or not."""
    return {"pointer": None, "due_at_ms": now_ms, "pending": None, "pending_since_ms": None}
