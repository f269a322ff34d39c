"""From PENDING to a process: a plan task chooses files, and what it chose becomes rows, at once.

The process, its rewrite tasks and the table's new status are one transaction. Before it nothing has
happened, after it everything that is to be done stands in the store.
"""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import Connection

from headrace.coordinator.tables.closing import failed, to_be_found_again
from headrace.coordinator.tables.moving import MOVED
from headrace.model.tables.status import OptimizingType, TableStatus
from headrace.model.task import Lane, TaskKind, TaskStatus
from headrace.protocol.tables import Planned
from headrace.seams import seam
from headrace.store import lake, processes, table_tasks, tasks
from headrace.store.lake import LakeTable
from headrace.store.tasks import End, OfTable, Task

log = logging.getLogger(__name__)

PLAN_RETRIES = 1  # a worker may die; whatever else is wrong shows on the table, which backs off
RETRY_INTERVAL_S = 5


def begin(
    conn: Connection,
    table: LakeTable,
    *,
    task_id: str,
    now_ms: int,
    budget_bytes: int,
    at_least: OptimizingType | None,
) -> None:
    """Have a pending table planned."""
    payload: dict[str, Any] = {
        "budget_bytes": budget_bytes,
        "at_least": at_least.name if at_least is not None else None,
        "retry_times": PLAN_RETRIES,
        "retry_interval_s": RETRY_INTERVAL_S,
    }
    if not lake.move(
        conn, table, TableStatus.PLANNING, now_ms=now_ms, task_id=task_id, planned_at_ms=now_ms
    ):
        return
    tasks.plan(
        conn,
        task_id=task_id,
        kind=TaskKind.PLAN,
        lane=Lane.CONTROL,
        group=table.group,
        payload=payload,
        of=OfTable(table.id),
        now_ms=now_ms,
    )


def planned(conn: Connection, task: Task, found: Planned, *, now_ms: int) -> None:
    """What a plan task chose. One that nobody waits for any more changes nothing."""
    told = found.model_dump(mode="json") if task.payload.get("dry") else None
    tasks.finish(conn, [End(task.claim, TaskStatus.SUCCESS, result=told)], now_ms=now_ms)
    table = lake.lock(conn, task.table_id or "")
    if task.payload.get("dry") or table is None or not _waits_for(table, task):
        return
    if task.payload.get("at_least") is not None and table.wanted_type is None:
        # Whoever asked for it has canceled that meanwhile; the rules have not been heard.
        again = to_be_found_again(now_ms)
        lake.move(conn, table, TableStatus.IDLE, now_ms=now_ms, task_id=None, **again)
    elif not found.tasks or found.type is None or found.snapshot is None:
        log.info("nothing to optimize", extra={"table": table.identifier, "reason": found.reason})
        _nothing(conn, table, task, now_ms=now_ms)
    else:
        _begin_process(conn, table, task, found, now_ms=now_ms)
        seam("plan persisted, in transaction")


def _waits_for(table: LakeTable, task: Task) -> bool:
    return table.status is TableStatus.PLANNING and table.task_id == task.id


def _left_wish(table: LakeTable, task: Task) -> str | None:
    """What somebody asked for while it was being planned, and the plan knows nothing of."""
    wanted, planned_for = table.wanted_type, task.payload.get("at_least")
    if wanted is None or (planned_for is not None and OptimizingType[planned_for] >= wanted):
        return None
    return wanted.name


def _nothing(conn: Connection, table: LakeTable, task: Task, *, now_ms: int) -> None:
    """No rewrite gains anything: the table rests until it changes, or a rule by time is due."""
    lake.move(
        conn,
        table,
        TableStatus.IDLE,
        now_ms=now_ms,
        task_id=None,
        wanted_type=_left_wish(table, task),
        pending=None,
        pending_since_ms=None,
        failures=0,
        error=None,
        # A look that was under way when it was planned counts for nothing: the next is not late.
        due_at_ms=now_ms + table.interval_ms,
    )


def _begin_process(
    conn: Connection, table: LakeTable, task: Task, found: Planned, *, now_ms: int
) -> None:
    """Called like the task that planned it: said twice, it begins once."""
    assert found.type is not None
    assert found.snapshot is not None
    kind, process_id = OptimizingType[found.type], task.id
    number = max(table.processes, found.spent) + 1
    kept = found.model_dump(mode="json", exclude={"tasks", "left_out"})
    bins = sum(len(rewritten) for rewritten in found.tasks)
    processes.begin(
        conn,
        process_id=process_id,
        table_id=table.id,
        identifier=table.identifier,
        number=number,
        type=kind,
        group=table.group,
        uuid=found.uuid,
        snapshot=found.snapshot,
        plan={**kept, "bins": bins, "left_out": list(found.left_out)},
        now_ms=now_ms,
    )
    _plan_rewrites(conn, table, process_id, found, now_ms=now_ms)
    lake.move(
        conn,
        table,
        kind.status,
        now_ms=now_ms,
        process_id=process_id,
        processes=number,
        task_id=None,
        wanted_type=None if kind >= (table.wanted_type or kind) else _left_wish(table, task),
        pending=None,
        pending_since_ms=None,
    )
    facts = {"table": table.identifier, "process_id": process_id, "type": found.type}
    log.info("process begins", extra={**facts, "bins": bins, "tasks": len(found.tasks)})


def _plan_rewrites(
    conn: Connection, table: LakeTable, process_id: str, found: Planned, *, now_ms: int
) -> None:
    for place, rewritten in enumerate(found.tasks):
        tasks.plan(
            conn,
            task_id=f"{process_id}-{place}",
            kind=TaskKind.REWRITE,
            lane=Lane.SLOT,
            group=table.group,
            payload={
                "bins": [each.model_dump(mode="json") for each in rewritten],
                "retry_times": found.retries,
                "retry_interval_s": RETRY_INTERVAL_S,
            },
            of=OfTable(table.id, process_id, place, granted=False),
            now_ms=now_ms,
        )


def planning_failed(conn: Connection, table: LakeTable, *, because: str, now_ms: int) -> None:
    """Its input is still there: it waits for its turn again, later and later (T2)."""
    lake.move(conn, table, TableStatus.PENDING, now_ms=now_ms, task_id=None)
    failed(conn, table, because=because, now_ms=now_ms)


def planning_moved(conn: Connection, table: LakeTable, *, now_ms: int) -> None:
    """It has another group by now: whoever could have planned it is not asked any more."""
    table_tasks.cancel(conn, [table.task_id or ""], because=MOVED, now_ms=now_ms)
    lake.move(conn, table, TableStatus.PENDING, now_ms=now_ms, task_id=None, planned_at_ms=None)
