"""Files that were in what failed. One that was there too often is left out of planning, and named.

The peer plans the same poison file again every minute, and loses the whole process each time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.model.tables.backoff import blamed, left_out
from headrace.model.task import UNEXPLAINED, TaskKind, TaskStatus
from headrace.protocol.tables import FILES_BLAMED_MAX, BinFailed, BinTold, RewriteResult
from headrace.store import lake, table_tasks
from headrace.store.processes import Process
from headrace.store.tasks import Task

log = logging.getLogger(__name__)


def blame(conn: Connection, process: Process, *, now_ms: int) -> None:
    """Count what failed against the files that were in it."""
    rewrites = [t for t in table_tasks.of_process(conn, process.id) if t.kind is TaskKind.REWRITE]
    if all(task.status is not TaskStatus.FAILED for task in rewrites):
        return
    failures = dict(lake.file_failures_of(conn, process.table_id))
    before = left_out(failures)
    for task in rewrites:
        if task.status is TaskStatus.FAILED:
            for paths, named in _guilty(conn, task):
                failures = dict(blamed(failures, paths, named=named))
    most = sorted(failures.items(), key=lambda item: (-item[1], item[0]))[:FILES_BLAMED_MAX]
    lake.change(conn, process.table_id, file_failures=dict(most))
    for path in sorted(left_out(failures) - before):
        facts = {"table": process.identifier, "file": path, "at_ms": now_ms}
        log.warning("file failed too often, it is left out of planning", extra=facts)


def _guilty(conn: Connection, task: Task) -> Iterable[tuple[Sequence[str], str | None]]:
    """The files of each bin that failed; of all bins, when each try at them took its worker along.
    Nobody is to blame when a worker could not even begin: its catalog was away."""
    bins = [BinTold.model_validate(each) for each in task.payload.get("bins", ())]
    failed = {each.number: each for each in _failed(conn, task)}
    for each in bins:
        if each.number in failed:
            yield each.paths, failed[each.number].path
        elif not failed and task.failure_cause in UNEXPLAINED:
            yield each.paths, None


def _failed(conn: Connection, task: Task) -> Sequence[BinFailed]:
    try:
        return RewriteResult.model_validate(table_tasks.result(conn, task.id) or {}).failed
    except ValidationError:
        log.warning("rewrite result can't be read", extra={"task": task.id})
        return ()
