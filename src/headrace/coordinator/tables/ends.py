"""What the end of a table's task changes. Its claim is current and locked; late ones are not here.

A result that can't be read counts as a failure of its attempt: the worker is of another version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.attempts import attempt_failed
from headrace.coordinator.tables.catalogs import discovered
from headrace.coordinator.tables.committing import committed
from headrace.coordinator.tables.evaluating import evaluated
from headrace.coordinator.tables.leftovers import discarded
from headrace.coordinator.tables.planning import planned
from headrace.coordinator.tables.processes import advance
from headrace.model.tables.status import ProcessStatus
from headrace.model.task import FailureCause, TaskKind, TaskStatus
from headrace.protocol.messages import Message, TaskEnded
from headrace.protocol.tables import (
    CommitResult,
    Discarded,
    Discovered,
    Evaluated,
    Planned,
    RewriteResult,
)
from headrace.store import processes, tasks
from headrace.store.tasks import End, Task

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)


def apply_end(conn: Connection, task: Task, report: TaskEnded, *, now_ms: int) -> None:
    if task.process_id is not None:
        # Everybody locks a process before its tasks, and its table last: nobody waits in a circle.
        processes.lock(conn, task.process_id)
    if report.outcome != "SUCCESS":
        error = report.error or f"its worker said {report.outcome} and gave no reason"
        attempt_failed(conn, task, error, cause=report.cause, retry=report.retry, now_ms=now_ms)
        _look_at_process(conn, task, now_ms=now_ms)
        return
    apply = _APPLY[task.kind]
    try:
        apply(conn, task, report, now_ms)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        told = f"its result can't be read: {'.'.join(map(str, problem['loc']))}: {problem['msg']}"
        attempt_failed(conn, task, told, retry=False, now_ms=now_ms)
        _look_at_process(conn, task, now_ms=now_ms)


def _read(kind: type[M], report: TaskEnded) -> M:
    return kind.model_validate(report.result or {})


def _discovered(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    discovered(conn, task, _read(Discovered, report), now_ms=now_ms)


def _evaluated(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    evaluated(conn, task, _read(Evaluated, report), now_ms=now_ms)


def _planned(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    planned(conn, task, _read(Planned, report), now_ms=now_ms)


def _rewritten(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    """The last one begins the commit in the same transaction (T3)."""
    found = _read(RewriteResult, report)
    if missing := _missing(task, found):
        told = f"its worker said SUCCESS, and nothing of {len(missing)} bins: {missing[0]} is one"
        attempt_failed(conn, task, told, retry=True, now_ms=now_ms)
    elif not found.failed:
        _finish(conn, task, TaskStatus.SUCCESS, report, now_ms=now_ms)
    elif task.failures < int(task.payload.get("retry_times", 0)):
        attempt_failed(conn, task, _told(found), retry=True, now_ms=now_ms)
    else:  # for good; its result tells which files were to blame
        _finish(conn, task, TaskStatus.FAILED, report, error=_told(found), now_ms=now_ms)
    _look_at_process(conn, task, now_ms=now_ms)


def _missing(task: Task, found: RewriteResult) -> list[int]:
    """Bins that nothing was said of: with them the others would count as all there was to do."""
    said = {int(str(one.get("number", -1))) for one in found.rewritten}
    said |= {one.number for one in found.failed}
    return sorted({int(each["number"]) for each in task.payload["bins"]} - said)


def _told(found: RewriteResult) -> str:
    first = found.failed[0]
    return f"{len(found.failed)} bins can't be rewritten, such as bin {first.number}: {first.error}"


def _committed(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    found = _read(CommitResult, report)
    _finish(conn, task, TaskStatus.SUCCESS, report, now_ms=now_ms)
    process = processes.lock(conn, task.process_id or "")
    if process is not None:
        committed(conn, process, found, now_ms=now_ms)


def _discarded(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    found = _read(Discarded, report)
    _finish(conn, task, TaskStatus.SUCCESS, report, now_ms=now_ms)
    process = processes.lock(conn, task.process_id or "")
    if process is not None:
        discarded(conn, process, found)


def _finish(
    conn: Connection,
    task: Task,
    status: TaskStatus,
    report: TaskEnded,
    *,
    now_ms: int,
    error: str | None = None,
) -> None:
    cause = FailureCause.ERROR if status is TaskStatus.FAILED else None
    tasks.finish(conn, [End(task.claim, status, error, report.result, cause)], now_ms=now_ms)


def _look_at_process(conn: Connection, task: Task, *, now_ms: int) -> None:
    if task.kind is TaskKind.DISCARD or task.process_id is None:
        return
    process = processes.lock(conn, task.process_id)
    if process is not None and process.status is ProcessStatus.RUNNING:
        advance(conn, process, now_ms=now_ms)


Apply = Callable[[Connection, Task, TaskEnded, int], None]
_APPLY: dict[TaskKind, Apply] = {
    TaskKind.DISCOVER: _discovered,
    TaskKind.EVALUATE: _evaluated,
    TaskKind.PLAN: _planned,
    TaskKind.REWRITE: _rewritten,
    TaskKind.COMMIT: _committed,
    TaskKind.DISCARD: _discarded,
}
