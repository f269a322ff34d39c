"""The tasks of a process: rewrite its bins, commit what they became, discard what is left.

A commit reads the results of the rewrite tasks of its process, which stay with these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from headrace.coordinator.jobs.attempts import attempt_failed
from headrace.coordinator.tables.commits import committed
from headrace.coordinator.tables.processes import advance, discarded
from headrace.coordinator.tables.table_task import (
    EndedTask,
    TableTask,
    catalog_access,
    identifier,
    process_of,
    process_ref,
    table_of,
)
from headrace.errors import Refused
from headrace.model.tables.status import ProcessStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.protocol import task_types
from headrace.protocol.tables import (
    COMMIT_BYTES_MAX,
    CommitPayload,
    CommitResult,
    Discarded,
    DiscardPayload,
    PlannedBin,
    RewritePayload,
    RewriteResult,
)
from headrace.protocol.task_types import RewriteOrder
from headrace.store.tables import processes, table_tasks
from headrace.store.tables.processes import Process
from headrace.store.tasks.tasks import Task


def _rewrite(conn: Connection, task: Task, _now_ms: int) -> RewritePayload:
    table, process = table_of(conn, task), process_of(conn, task)
    plan = processes.plan_of(conn, process.id)
    return RewritePayload(
        **catalog_access(conn, table.catalog)[1],
        table=identifier(table),
        process=process_ref(process),
        bins=RewriteOrder.of(task.payload).bins,
        target_bytes=int(plan["target_bytes"]),
    )


def _rewritten(conn: Connection, ended: EndedTask[RewriteResult], now_ms: int) -> None:
    """The report of the last rewrite begins the commit in the same transaction (T3)."""
    task, result = ended.task, ended.result
    order = RewriteOrder.of(task.payload)
    if missing := _missing(order, result):
        reason = f"its worker said SUCCESS, and nothing of {len(missing)} bins: {missing[0]} is one"
        attempt_failed(conn, task, reason, retry=True, now_ms=now_ms)
    elif not result.failed:
        ended.finish(conn, now_ms=now_ms)
    elif task.failures < order.retry_times:
        attempt_failed(conn, task, _failure_text(result), retry=True, now_ms=now_ms)
    else:  # no attempt is left; `blame` reads from the result which files failed
        error = _failure_text(result)
        ended.finish(conn, now_ms=now_ms, status=TaskStatus.FAILED, error=error)
    _advance_process(conn, task, now_ms)


def _missing(order: RewriteOrder, result: RewriteResult) -> list[int]:
    """Bins that the report does not mention: without this check the others would pass for all of
    them."""
    reported = {int(str(one.get("number", -1))) for one in result.rewritten}
    reported |= {one.number for one in result.failed}
    return sorted({each.number for each in order.bins} - reported)


def _failure_text(result: RewriteResult) -> str:
    """How many bins failed, and the error of the first."""
    first = result.failed[0]
    return (
        f"{len(result.failed)} bins can't be rewritten, such as bin {first.number}: {first.error}"
    )


def _advance_process(conn: Connection, task: Task, now_ms: int) -> None:
    process = processes.lock(conn, task.process_id or "")
    if process is not None and process.status is ProcessStatus.RUNNING:
        advance(conn, process, now_ms=now_ms)


def _commit(conn: Connection, task: Task, _now_ms: int) -> CommitPayload:
    table, process = table_of(conn, task), process_of(conn, task)
    _check_size(conn, process)
    results = table_tasks.results(conn, process.id)
    bins: list[PlannedBin] = []
    rewritten: list[Mapping[str, Any]] = []
    for each in table_tasks.of_process(conn, process.id):
        if each.kind is not TaskKind.REWRITE or each.status is not TaskStatus.SUCCESS:
            continue
        made = RewriteResult.model_validate(results[each.number or 0]).rewritten
        by_number = {int(str(one["number"])): one for one in made}
        mine = [one for one in RewriteOrder.of(each.payload).bins if one.number in by_number]
        bins += mine
        rewritten += [by_number[one.number] for one in mine]
    return CommitPayload(
        **catalog_access(conn, table.catalog)[1],
        table=identifier(table),
        process=process_ref(process),
        bins=tuple(bins),
        rewritten=tuple(dict(one) for one in rewritten),
    )


def _check_size(conn: Connection, process: Process) -> None:
    """Check the size before the results are read: every worker that syncs waits meanwhile."""
    size = table_tasks.result_bytes(conn, process.id)
    if size > COMMIT_BYTES_MAX:
        raise Refused(
            f"what its rewrites have made takes {size} bytes to tell, and {COMMIT_BYTES_MAX} are "
            "the limit: the new files have metrics of too many columns; have fewer, with "
            "write.metadata.metrics.max-inferred-column-defaults or write.metadata.metrics.column.*"
        )


def _committed(conn: Connection, ended: EndedTask[CommitResult], now_ms: int) -> None:
    if not ended.finish(conn, now_ms=now_ms):
        return
    process = processes.lock(conn, ended.task.process_id or "")
    if process is not None:
        committed(conn, process, ended.result, now_ms=now_ms)


def _discard(conn: Connection, task: Task, _now_ms: int) -> DiscardPayload:
    table, process = table_of(conn, task), process_of(conn, task)
    return DiscardPayload(
        **catalog_access(conn, table.catalog)[1],
        table=identifier(table),
        process=process_ref(process),
    )


def _discarded(conn: Connection, ended: EndedTask[Discarded], now_ms: int) -> None:
    if not ended.finish(conn, now_ms=now_ms):
        return
    process = processes.lock(conn, ended.task.process_id or "")
    if process is not None:
        discarded(conn, process, ended.result)


REWRITE = TableTask(task_types.REWRITE, build=_rewrite, apply=_rewritten, failed=_advance_process)
COMMIT = TableTask(task_types.COMMIT, build=_commit, apply=_committed, failed=_advance_process)
DISCARD = TableTask(task_types.DISCARD, build=_discard, apply=_discarded)
