"""What processes that ended without a commit have staged: deleted, once their token is spent (E6).

A DISCARD task spends the token with nothing and deletes then. It may find the token spent by a
commit of the process that somebody took for lost: nothing that is committed is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.tables.moving import MOVED, waits_elsewhere
from headrace.model.cleanup import retry_pause_ms
from headrace.model.ids import Ids
from headrace.model.task import ENDED, Lane, TaskKind, TaskStatus
from headrace.protocol.tables import Discarded
from headrace.store import lake, processes, table_tasks, tasks
from headrace.store.engine import reading
from headrace.store.processes import Process
from headrace.store.task_rows import OfTable

log = logging.getLogger(__name__)

LEFTOVERS_MAX = 200  # processes looked at in one pass
LOOK_AGAIN_MS = 30_000  # while a worker is at it, or there is none
DISCARD_TRIES_MAX = 20  # with the pauses of a cleanup 3 h; then it is left to orphan cleaning


class Leftovers:
    name = "leftovers"

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock, self._ids = clock, ids

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            now_ms = self._clock.wall_ms()
            return processes.with_leftovers(conn, now_ms=now_ms, most=LEFTOVERS_MAX)

    def due(self, conn: Connection, key: str) -> bool:
        process = processes.get(conn, key)
        return process is not None and process.leftovers

    def reconcile(self, conn: Connection, key: str) -> None:
        process, now_ms = processes.lock(conn, key), self._clock.wall_ms()
        if process is None or not process.leftovers:
            return
        table = lake.get(conn, process.table_id)
        if table is None:  # dropped, its files with it
            _done(conn, process)
            return
        task = tasks.get(conn, process.discard_task) if process.discard_task else None
        if task is not None and waits_elsewhere(task, table.group):
            table_tasks.cancel(conn, [task.id], because=MOVED, now_ms=now_ms)
            task = None
        if task is not None and task.status not in ENDED:
            processes.change(conn, process.id, discard_at_ms=now_ms + LOOK_AGAIN_MS)
        elif task is not None and task.status is not TaskStatus.SUCCESS:
            error = task.error or f"its task ended {task.status}, and nobody said why"
            self._failed(conn, process, error, now_ms=now_ms)
        else:
            self._plan(conn, process, table.group, now_ms=now_ms)

    def _plan(self, conn: Connection, process: Process, group: str, *, now_ms: int) -> None:
        task_id = self._ids.new()
        tasks.plan(
            conn,
            task_id=task_id,
            kind=TaskKind.DISCARD,
            lane=Lane.CONTROL,
            group=group,
            of=OfTable(process.table_id, process.id),
            now_ms=now_ms,
        )
        again_ms = now_ms + LOOK_AGAIN_MS
        processes.change(conn, process.id, discard_task=task_id, discard_at_ms=again_ms)

    def _failed(self, conn: Connection, process: Process, error: str, *, now_ms: int) -> None:
        failures = process.discard_failures + 1
        facts = {"table": process.identifier, "process_id": process.id, "reason": error}
        if failures >= DISCARD_TRIES_MAX:
            log.error("staged files left to orphan cleaning", extra=facts)
            _done(conn, process)
            return
        log.warning("staged files not deleted yet", extra={**facts, "failures": failures})
        processes.change(
            conn,
            process.id,
            discard_task=None,
            discard_failures=failures,
            discard_at_ms=now_ms + retry_pause_ms(failures),
        )


def discarded(conn: Connection, process: Process, found: Discarded) -> None:
    """Nothing of it is left at its table."""
    if found.committed_snapshot is not None and process.error is not None:
        late = f"{process.error}; yet its commit had landed, as snapshot {found.committed_snapshot}"
        result = dict(processes.result_of(conn, process.id) or {})
        result["snapshot"] = found.committed_snapshot
        processes.change(conn, process.id, error=late, result=result)
    _done(conn, process)


def _done(conn: Connection, process: Process) -> None:
    processes.change(conn, process.id, leftovers=0, discard_task=None, discard_at_ms=None)
