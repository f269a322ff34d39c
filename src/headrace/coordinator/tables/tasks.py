"""Table tasks: the payload that a worker gets, and what the result of a task changes.

The payload is built when a task is given to a worker, from the rows as they are then; building it
only reads. What an evaluation has no room for is let go of before (`shorten_evaluation`). Task rows
hold little: the catalog's secrets are stored once for all its tasks, and a commit reads the results
of the rewrite tasks of its process.

`apply_end` applies the end of a task whose claim is current and locked; late reports do not get
here. A result that can't be read counts as a failure of the attempt: the worker has another
version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, assert_never

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.jobs.attempts import attempt_failed
from headrace.coordinator.tables.catalogs import discovered
from headrace.coordinator.tables.commits import committed
from headrace.coordinator.tables.evaluation import evaluated
from headrace.coordinator.tables.plan_scheduler import planned
from headrace.coordinator.tables.processes import advance, discarded
from headrace.coordinator.tables.table_state import clocks_for, left_out_of
from headrace.errors import Refused
from headrace.model.groups import table_defaults
from headrace.model.tables.status import ProcessStatus
from headrace.model.task import FailureCause, TaskKind, TaskStatus
from headrace.protocol.messages import Message, TaskEnded
from headrace.protocol.tables import (
    CLOCKS_PER_EVALUATION_MAX,
    COMMIT_BYTES_MAX,
    CatalogSpec,
    CommitPayload,
    CommitResult,
    Discarded,
    DiscardPayload,
    Discovered,
    DiscoverPayload,
    EvaluatePayload,
    EvaluationResult,
    Planned,
    PlannedBin,
    PlanPayload,
    ProcessRef,
    RewritePayload,
    RewriteResult,
    TableIdentifier,
    ToEvaluate,
)
from headrace.store.groups import groups
from headrace.store.tables import catalogs, due_tables, lake_tables, processes, table_tasks
from headrace.store.tables.catalogs import Catalog
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.processes import Process
from headrace.store.tasks import tasks
from headrace.store.tasks.tasks import Task, TaskEnd

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)


def shorten_evaluation(conn: Connection, task: Task, *, now_ms: int) -> None:
    """When the clocks of all tables of an EVALUATE task exceed the limit of its payload, let go of
    the tables beyond it; they are due for another evaluation. Other tasks stay as they are."""
    if task.kind is not TaskKind.EVALUATE:
        return
    ids = [str(one) for one in task.payload["tables"]]
    clocks = due_tables.clocks_in(conn, ids, task_id=task.id)
    room, kept = CLOCKS_PER_EVALUATION_MAX, 0
    for place, table_id in enumerate(ids):
        if table_id not in clocks:
            continue  # dropped, or released from this evaluation
        room -= clocks[table_id]
        if kept and room < 0:
            due_tables.lock(conn, ids[place:])
            due_tables.let_go(conn, ids[place:], task_id=task.id, due_at_ms=now_ms)
            return
        kept += 1


def payload_of(conn: Connection, task: Task, *, now_ms: int) -> dict[str, Any]:
    """The payload of a task; only reads. Refused: the table, process or catalog of the task is
    gone."""
    match task.kind:
        case TaskKind.DISCOVER:
            payload = _discover(conn, task)
        case TaskKind.EVALUATE:
            payload = _evaluate(conn, task, now_ms=now_ms)
        case TaskKind.PLAN:
            payload = _plan(conn, task, now_ms=now_ms)
        case TaskKind.REWRITE:
            payload = _rewrite(conn, task)
        case TaskKind.COMMIT:
            payload = _commit(conn, task)
        case TaskKind.DISCARD:
            payload = _discard(conn, task)
        case TaskKind.PIPELINE | TaskKind.SETTLE | TaskKind.FORGET | TaskKind.NOOP:
            raise ValueError(f"{task.kind} is no task of a table")
        case _:
            assert_never(task.kind)
    return payload.model_dump(mode="json")


def _catalog_access(conn: Connection, name: str) -> tuple[Catalog, dict[str, Any]]:
    """The catalog, and the payload fields with which a worker opens it."""
    catalog = catalogs.get(conn, name)
    if catalog is None:
        raise Refused(f"there is no catalog {name!r} any more")
    spec = CatalogSpec(name=name, type=catalog.type, properties=dict(catalog.properties))
    return catalog, {"catalog": spec, "secrets": dict(catalogs.secrets_of(conn, name))}


def _discover(conn: Connection, task: Task) -> Message:
    catalog, reach = _catalog_access(conn, str(task.payload["catalog"]))
    return DiscoverPayload(**reach, table_filter=catalog.table_filter)


def _evaluate(conn: Connection, task: Task, *, now_ms: int) -> Message:
    catalog, reach = _catalog_access(conn, str(task.payload["catalog"]))
    ids = [str(one) for one in task.payload["tables"]]
    known = [lake_tables.get(conn, table_id) for table_id in ids]
    # Others were dropped, or released from this evaluation.
    held = [table for table in known if table is not None and table.task_id == task.id]
    return EvaluatePayload(
        **reach,
        defaults=dict(catalog.defaults),
        groups=_defaults_of_groups(conn),
        now_ms=now_ms,
        tables=tuple(_to_evaluate(conn, table) for table in held),
    )


def _defaults_of_groups(conn: Connection) -> dict[str, dict[str, str]]:
    """By group, its table defaults, if it has any. A group that is being removed has none any
    more."""
    known = [each for each in groups.all_of_them(conn) if not each.wanted_removed]
    by_group = {each.name: table_defaults(each.properties) for each in known}
    return {name: defaults for name, defaults in by_group.items() if defaults}


def _to_evaluate(conn: Connection, table: LakeTable) -> ToEvaluate:
    return ToEvaluate(
        table=_identifier(table),
        pointer=table.pointer,
        look_at_ms=table.look_at_ms,
        clocks=clocks_for(conn, table),
        left_out=left_out_of(conn, table),
    )


def _plan(conn: Connection, task: Task, *, now_ms: int) -> Message:
    table = _table(conn, task)
    catalog, reach = _catalog_access(conn, table.catalog)
    return PlanPayload(
        **reach,
        defaults=dict(catalog.defaults),
        groups=_defaults_of_groups(conn),
        table=_identifier(table),
        now_ms=now_ms,
        clocks=clocks_for(conn, table),
        left_out=left_out_of(conn, table),
        budget_bytes=task.payload.get("budget_bytes"),
        at_least=task.payload.get("at_least"),
        dry=bool(task.payload.get("dry")),
    )


def _rewrite(conn: Connection, task: Task) -> Message:
    table, process = _table(conn, task), _process(conn, task)
    plan = processes.plan_of(conn, process.id)
    return RewritePayload(
        **_catalog_access(conn, table.catalog)[1],
        table=_identifier(table),
        process=_ref(process),
        bins=_bins(task),
        target_bytes=int(plan["target_bytes"]),
    )


def _commit(conn: Connection, task: Task) -> Message:
    table, process = _table(conn, task), _process(conn, task)
    _check_size(conn, process)
    results = table_tasks.results(conn, process.id)
    bins: list[PlannedBin] = []
    rewritten: list[Mapping[str, Any]] = []
    for each in table_tasks.of_process(conn, process.id):
        if each.kind is not TaskKind.REWRITE or each.status is not TaskStatus.SUCCESS:
            continue
        made = RewriteResult.model_validate(results[each.number or 0]).rewritten
        by_number = {int(str(one["number"])): one for one in made}
        bins += [planned_bin for planned_bin in _bins(each) if planned_bin.number in by_number]
        rewritten += [
            by_number[planned_bin.number]
            for planned_bin in _bins(each)
            if planned_bin.number in by_number
        ]
    return CommitPayload(
        **_catalog_access(conn, table.catalog)[1],
        table=_identifier(table),
        process=_ref(process),
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


def _discard(conn: Connection, task: Task) -> Message:
    table, process = _table(conn, task), _process(conn, task)
    return DiscardPayload(
        **_catalog_access(conn, table.catalog)[1],
        table=_identifier(table),
        process=_ref(process),
    )


def _table(conn: Connection, task: Task) -> LakeTable:
    table = lake_tables.get(conn, task.table_id or "")
    if table is None:
        raise Refused("its table is no longer in its catalog")
    return table


def _process(conn: Connection, task: Task) -> Process:
    process = processes.get(conn, task.process_id or "")
    if process is None:
        raise Refused(f"there is no record of process {task.process_id!r}")
    return process


def _identifier(table: LakeTable) -> TableIdentifier:
    return TableIdentifier(id=table.id, namespace=table.namespace, name=table.name, uuid=table.uuid)


def _ref(process: Process) -> ProcessRef:
    return ProcessRef(
        id=process.id,
        owner=process.table_id,
        number=process.number,
        snapshot=process.snapshot,
        uuid=process.uuid,
    )


def _bins(task: Task) -> tuple[PlannedBin, ...]:
    return tuple(PlannedBin.model_validate(each) for each in task.payload["bins"])


def apply_end(conn: Connection, task: Task, report: TaskEnded, *, now_ms: int) -> None:
    """Apply the reported end of a task. `task` is claimed and locked."""
    if task.process_id is not None:
        # Everybody locks a process before its tasks, and its table last: this avoids deadlock.
        processes.lock(conn, task.process_id)
    if report.outcome != "SUCCESS":
        error = report.error or f"its worker said {report.outcome} and gave no reason"
        attempt_failed(conn, task, error, cause=report.cause, retry=report.retry, now_ms=now_ms)
        _advance_process(conn, task, now_ms=now_ms)
        return
    apply = _APPLY[task.kind]
    try:
        apply(conn, task, report, now_ms)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        reason = f"its result can't be read: {'.'.join(map(str, problem['loc']))}: {problem['msg']}"
        attempt_failed(conn, task, reason, retry=False, now_ms=now_ms)
        _advance_process(conn, task, now_ms=now_ms)


def _read(kind: type[M], report: TaskEnded) -> M:
    return kind.model_validate(report.result or {})


def _discovered(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    discovered(conn, task, _read(Discovered, report), now_ms=now_ms)


def _evaluated(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    evaluated(conn, task, _read(EvaluationResult, report), now_ms=now_ms)


def _planned(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    planned(conn, task, _read(Planned, report), now_ms=now_ms)


def _rewritten(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    """The report of the last rewrite begins the commit in the same transaction (T3)."""
    result = _read(RewriteResult, report)
    if missing := _missing(task, result):
        reason = f"its worker said SUCCESS, and nothing of {len(missing)} bins: {missing[0]} is one"
        attempt_failed(conn, task, reason, retry=True, now_ms=now_ms)
    elif not result.failed:
        _finish(conn, task, TaskStatus.SUCCESS, report, now_ms=now_ms)
    elif task.failures < int(task.payload.get("retry_times", 0)):
        attempt_failed(conn, task, _failure_text(result), retry=True, now_ms=now_ms)
    else:  # no attempt is left; `blame` reads from the result which files failed
        _finish(conn, task, TaskStatus.FAILED, report, error=_failure_text(result), now_ms=now_ms)
    _advance_process(conn, task, now_ms=now_ms)


def _missing(task: Task, result: RewriteResult) -> list[int]:
    """Bins that the report does not mention: without this check the others would pass for all of
    them."""
    reported = {int(str(one.get("number", -1))) for one in result.rewritten}
    reported |= {one.number for one in result.failed}
    return sorted({int(each["number"]) for each in task.payload["bins"]} - reported)


def _failure_text(result: RewriteResult) -> str:
    """How many bins failed, and the error of the first."""
    first = result.failed[0]
    return (
        f"{len(result.failed)} bins can't be rewritten, such as bin {first.number}: {first.error}"
    )


def _committed(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    result = _read(CommitResult, report)
    _finish(conn, task, TaskStatus.SUCCESS, report, now_ms=now_ms)
    process = processes.lock(conn, task.process_id or "")
    if process is not None:
        committed(conn, process, result, now_ms=now_ms)


def _discarded(conn: Connection, task: Task, report: TaskEnded, now_ms: int) -> None:
    result = _read(Discarded, report)
    _finish(conn, task, TaskStatus.SUCCESS, report, now_ms=now_ms)
    process = processes.lock(conn, task.process_id or "")
    if process is not None:
        discarded(conn, process, result)


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
    tasks.finish(conn, [TaskEnd(task.claim, status, error, report.result, cause)], now_ms=now_ms)


def _advance_process(conn: Connection, task: Task, *, now_ms: int) -> None:
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
