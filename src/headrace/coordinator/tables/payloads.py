"""What a table's task is told: built when it is given, from the rows as they are then.

Task rows hold little: the catalog's secrets stand where all its tasks find them, and a commit reads
what the rewrite tasks of its process have brought.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from headrace.coordinator.tables.knowing import clocks_for, left_out_of
from headrace.errors import Refused
from headrace.model.groups.properties import table_defaults
from headrace.model.task import TaskKind, TaskStatus
from headrace.protocol.messages import Message
from headrace.protocol.tables import (
    CLOCKS_PER_EVALUATION_MAX,
    COMMIT_BYTES_MAX,
    BinTold,
    CatalogSpec,
    CommitPayload,
    DiscardPayload,
    DiscoverPayload,
    EvaluatePayload,
    PlanPayload,
    ProcessRef,
    RewritePayload,
    RewriteResult,
    TableName,
    ToEvaluate,
)
from headrace.store import catalogs, groups, lake, lake_turns, processes, table_tasks
from headrace.store.catalogs import Catalog
from headrace.store.lake import LakeTable
from headrace.store.processes import Process
from headrace.store.tasks import Task


def payload_of(conn: Connection, task: Task, *, now_ms: int) -> dict[str, Any]:
    """Refused: what the task speaks of is gone."""
    match task.kind:
        case TaskKind.DISCOVER:
            told = _discover(conn, task)
        case TaskKind.EVALUATE:
            told = _evaluate(conn, task, now_ms=now_ms)
        case TaskKind.PLAN:
            told = _plan(conn, task, now_ms=now_ms)
        case TaskKind.REWRITE:
            told = _rewrite(conn, task)
        case TaskKind.COMMIT:
            told = _commit(conn, task)
        case _:
            told = _discard(conn, task)
    return told.model_dump(mode="json")


def _of(conn: Connection, name: str) -> tuple[Catalog, dict[str, Any]]:
    catalog = catalogs.get(conn, name)
    if catalog is None:
        raise Refused(f"there is no catalog {name!r} any more")
    spec = CatalogSpec(name=name, type=catalog.type, properties=dict(catalog.properties))
    return catalog, {"catalog": spec, "secrets": dict(catalogs.secrets_of(conn, name))}


def _discover(conn: Connection, task: Task) -> Message:
    catalog, reach = _of(conn, str(task.payload["catalog"]))
    return DiscoverPayload(**reach, table_filter=catalog.table_filter)


def _evaluate(conn: Connection, task: Task, *, now_ms: int) -> Message:
    """Of tables with so many clocks that not all fit, some are let go, and are due for another."""
    catalog, reach = _of(conn, str(task.payload["catalog"]))
    ids = [str(one) for one in task.payload["tables"]]
    told: list[ToEvaluate] = []
    room = CLOCKS_PER_EVALUATION_MAX
    for place, table_id in enumerate(ids):
        table = lake.get(conn, table_id)
        if table is None or table.task_id != task.id:
            continue  # dropped, or let go
        one = _to_evaluate(conn, table)
        room -= len(one.clocks)
        if told and room < 0:
            lake_turns.lock(conn, ids[place:])
            lake_turns.let_go(conn, ids[place:], task_id=task.id, due_at_ms=now_ms)
            break
        told.append(one)
    return EvaluatePayload(
        **reach,
        defaults=dict(catalog.defaults),
        groups=_defaults_of_groups(conn),
        now_ms=now_ms,
        tables=tuple(told),
    )


def _defaults_of_groups(conn: Connection) -> dict[str, dict[str, str]]:
    """Of those that have any. One that is to be removed gives nothing any more."""
    known = [each for each in groups.all_of_them(conn) if not each.wanted_removed]
    found = {each.name: table_defaults(each.properties) for each in known}
    return {name: defaults for name, defaults in found.items() if defaults}


def _to_evaluate(conn: Connection, table: LakeTable) -> ToEvaluate:
    return ToEvaluate(
        table=_name(table),
        pointer=table.pointer,
        look_at_ms=table.look_at_ms,
        clocks=clocks_for(conn, table),
        left_out=left_out_of(conn, table),
    )


def _plan(conn: Connection, task: Task, *, now_ms: int) -> Message:
    table = _table(conn, task)
    catalog, reach = _of(conn, table.catalog)
    return PlanPayload(
        **reach,
        defaults=dict(catalog.defaults),
        groups=_defaults_of_groups(conn),
        table=_name(table),
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
        **_of(conn, table.catalog)[1],
        table=_name(table),
        process=_ref(process),
        bins=_bins(task),
        target_bytes=int(plan["target_bytes"]),
    )


def _commit(conn: Connection, task: Task) -> Message:
    table, process = _table(conn, task), _process(conn, task)
    _check_size(conn, process)
    results = table_tasks.results(conn, process.id)
    bins: list[BinTold] = []
    rewritten: list[Mapping[str, Any]] = []
    for each in table_tasks.of_process(conn, process.id):
        if each.kind is not TaskKind.REWRITE or each.status is not TaskStatus.SUCCESS:
            continue
        made = RewriteResult.model_validate(results[each.number or 0]).rewritten
        by_number = {int(str(one["number"])): one for one in made}
        bins += [told for told in _bins(each) if told.number in by_number]
        rewritten += [by_number[told.number] for told in _bins(each) if told.number in by_number]
    return CommitPayload(
        **_of(conn, table.catalog)[1],
        table=_name(table),
        process=_ref(process),
        bins=tuple(bins),
        rewritten=tuple(dict(one) for one in rewritten),
    )


def _check_size(conn: Connection, process: Process) -> None:
    """Before it is read: everybody who syncs waits for that."""
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
        **_of(conn, table.catalog)[1],
        table=_name(table),
        process=_ref(process),
    )


def _table(conn: Connection, task: Task) -> LakeTable:
    table = lake.get(conn, task.table_id or "")
    if table is None:
        raise Refused("its table is no longer in its catalog")
    return table


def _process(conn: Connection, task: Task) -> Process:
    process = processes.get(conn, task.process_id or "")
    if process is None:
        raise Refused(f"there is no record of process {task.process_id!r}")
    return process


def _name(table: LakeTable) -> TableName:
    return TableName(id=table.id, namespace=table.namespace, name=table.name, uuid=table.uuid)


def _ref(process: Process) -> ProcessRef:
    return ProcessRef(
        id=process.id,
        owner=process.table_id,
        number=process.number,
        snapshot=process.snapshot,
        uuid=process.uuid,
    )


def _bins(task: Task) -> tuple[BinTold, ...]:
    return tuple(BinTold.model_validate(each) for each in task.payload["bins"])
