"""Tasks of lake tables: those of a process, and how many each table has at work.

What runs is always counted from the rows. A counter that is raised and lowered drifts with the
first crash between the two, and the quota that it counts leaks, as the peer's quotas do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Text,
    bindparam,
    case,
    cast,
    delete,
    func,
    select,
    union_all,
    update,
)

from headrace.model.task import ENDED, OF_TABLES, Lane, TaskKind, TaskStatus
from headrace.store.core.prepared_statements import PreparedStatement, Statement, one_of
from headrace.store.tables.schema import RUNNING_PROCESS, lake_tables, processes
from headrace.store.tasks.schema import ASSIGNED_TASK, PLANNED_TASK, tasks
from headrace.store.tasks.tasks import COLUMNS, Task, to_task

EXPIRED_AT_ONCE_MAX = 500  # rows of one transaction; the next pass takes the rest

_OPEN = tasks.c.status.not_in(sorted(ENDED))
_OF_PROCESS = PreparedStatement(
    select(*COLUMNS)
    .where(tasks.c.process_id == bindparam("process"))
    .order_by(tasks.c.number, tasks.c.id)
)
_STATES = PreparedStatement(
    select(*(tasks.c[name] for name in ("id", "kind", "status", "attempt", "group_name", "error")))
    .where(tasks.c.process_id == bindparam("process"))
    .order_by(tasks.c.number, tasks.c.id)
)
_RESULTS = PreparedStatement(
    select(tasks.c.number, tasks.c.result)
    .where(
        tasks.c.process_id == bindparam("process"),
        tasks.c.kind == TaskKind.REWRITE,
        tasks.c.status == TaskStatus.SUCCESS,
    )
    .order_by(tasks.c.number)
)
_RESULT_BYTES = PreparedStatement(
    select(func.coalesce(func.sum(func.length(cast(tasks.c.result, Text()))), 0)).where(
        tasks.c.process_id == bindparam("process"), tasks.c.kind == TaskKind.REWRITE
    )
)
_RESULT = PreparedStatement(select(tasks.c.result).where(tasks.c.id == bindparam("id")))
_CANCEL = PreparedStatement(
    update(tasks)
    .where(one_of(tasks.c.id, "ids"), *(tasks.c.status != ended for ended in sorted(ENDED)))
    .values(
        status=TaskStatus.CANCELED,
        error=bindparam("because"),
        ended_at_ms=bindparam("now_ms"),
    )
)
_GRANT = PreparedStatement(update(tasks).where(one_of(tasks.c.id, "ids")).values(granted=1))


@dataclass(frozen=True, slots=True)
class TaskState:
    """Where a task stands, without its payload: a rewrite's has many paths."""

    id: str
    kind: TaskKind
    status: TaskStatus
    attempt: int
    group: str
    error: str | None


@dataclass(frozen=True, slots=True)
class AtWork:
    """The rewrite tasks of one running process."""

    process_id: str
    table_id: str
    group: str
    running: int  # granted and not ended, whether a worker has claimed them or not
    waiting: int  # for a grant


def of_process(conn: Connection, process_id: str) -> Sequence[Task]:
    return [to_task(row) for row in _OF_PROCESS.rows(conn, {"process": process_id})]


def states_of(conn: Connection, process_id: str) -> Sequence[TaskState]:
    """The states of a process's tasks; read in every pass, for every running process."""
    return [
        TaskState(id_, TaskKind(kind), TaskStatus(status), *rest)
        for id_, kind, status, *rest in _STATES.rows(conn, {"process": process_id})
    ]


def results(conn: Connection, process_id: str) -> Mapping[int, Mapping[str, Any]]:
    """The results of its rewrite tasks that succeeded, by number."""
    return {n: result or {} for n, result in _RESULTS.rows(conn, {"process": process_id})}


def result_bytes(conn: Connection, process_id: str) -> int:
    """The size of the results of its rewrite tasks, without reading them."""
    [(size,)] = _RESULT_BYTES.rows(conn, {"process": process_id})
    return int(size)


def result(conn: Connection, task_id: str) -> Mapping[str, Any] | None:
    row = _RESULT.row(conn, {"id": task_id})
    return row[0] if row else None


def cancel(conn: Connection, ids: Collection[str], *, because: str, now_ms: int) -> int:
    """End open tasks, whoever holds them: their workers are told to stop, and what these still
    report changes nothing (C1)."""
    values = {"ids": sorted(ids), "because": because, "now_ms": now_ms}
    return _CANCEL.change(conn, values) if ids else 0


def open_of_table(conn: Connection, table_id: str) -> Sequence[str]:
    """The ids of a table's open tasks."""
    query = select(tasks.c.id).where(tasks.c.table_id == table_id, _OPEN).order_by(tasks.c.id)
    return list(conn.execute(query).scalars())


def _open(*columns: Any, where: tuple[Any, ...]) -> Any:
    """Open tasks, found by the two partial indexes that hold them: most tasks have ended."""
    states = (PLANNED_TASK, ASSIGNED_TASK)
    return union_all(*(select(*columns).where(state, *where) for state in states)).subquery()


def at_work(conn: Connection, *, group: str) -> Sequence[AtWork]:
    """Every process of the group that has open rewrite tasks, the oldest first: by when its
    table was planned, a time that moves with the clock."""
    mine = (tasks.c.kind == TaskKind.REWRITE, tasks.c.group_name == group)
    columns = (tasks.c.process_id, tasks.c.table_id, tasks.c.granted)
    open_tasks = _open(*columns, where=mine).c
    granted = func.sum(case((open_tasks.granted == 1, 1), else_=0))
    planned_ms = func.coalesce(lake_tables.c.planned_at_ms, 0)
    grouped = (
        select(open_tasks.process_id, open_tasks.table_id, granted, func.count())
        .outerjoin(lake_tables, lake_tables.c.id == open_tasks.table_id)
        .group_by(open_tasks.process_id, open_tasks.table_id, planned_ms)
        .order_by(planned_ms, open_tasks.process_id)
    )
    return [
        AtWork(process, table, group, int(running), int(total) - int(running))
        for process, table, running, total in conn.execute(grouped)
    ]


def grant(conn: Connection, process_id: str, *, count: int) -> int:
    """Let `count` more tasks of the process be claimed, in their order. Returns how many there
    were."""
    waiting = (
        select(tasks.c.id)
        .where(
            tasks.c.process_id == process_id,
            tasks.c.kind == TaskKind.REWRITE,
            tasks.c.granted == 0,
            _OPEN,
        )
        .order_by(tasks.c.number)
        .limit(count)
    )
    ids = list(conn.execute(waiting).scalars())
    return _GRANT.change(conn, {"ids": sorted(ids)}) if ids else 0


def open_slots(conn: Connection, *, group: str) -> int:
    """How many tasks hold a slot of the group, or may be given one at any moment."""
    mine = (tasks.c.group_name == group, tasks.c.lane == Lane.SLOT, tasks.c.granted == 1)
    open_tasks = _open(tasks.c.id, where=mine)
    return int(conn.scalar(select(func.count()).select_from(open_tasks)) or 0)


def _run_ms() -> Statement:
    """The statement of `run_ms`."""
    since_ms, now_ms = (bindparam(name, type_=BigInteger()) for name in ("since_ms", "now_ms"))
    # An end that is yet to come was recorded before the clock was set back: it counts as now.
    ended = case((tasks.c.ended_at_ms < now_ms, tasks.c.ended_at_ms), else_=now_ms)
    began = case((tasks.c.scheduled_at_ms < since_ms, since_ms), else_=tasks.c.scheduled_at_ms)
    total_ms = func.sum(case((ended > began, ended - began), else_=0))
    return (
        select(tasks.c.table_id, total_ms)
        .where(
            one_of(tasks.c.table_id, "tables"),
            tasks.c.kind == TaskKind.REWRITE,
            tasks.c.scheduled_at_ms.is_not(None),
            ended >= since_ms,
        )
        .group_by(tasks.c.table_id)
    )


_RUN_MS = PreparedStatement(_run_ms())


def run_ms(
    conn: Connection, tables: Collection[str], *, since_ms: int, now_ms: int
) -> Mapping[str, int]:
    """By table: how long its rewrite tasks ran within the window, including those that still
    run."""
    values = {"tables": sorted(tables), "since_ms": since_ms, "now_ms": now_ms}
    return {table: int(ms) for table, ms in _RUN_MS.rows(conn, values)}


def _expired(until_ms: int) -> tuple[Any, ...]:
    """The conditions of an ended task that may be deleted. Tasks of a running process stay with
    it."""
    running = select(processes.c.id).where(RUNNING_PROCESS)
    return (
        tasks.c.table_id.is_not(None) | tasks.c.kind.in_(sorted(OF_TABLES)),
        tasks.c.ended_at_ms <= until_ms,
        tasks.c.process_id.is_(None) | tasks.c.process_id.not_in(running),
    )


def any_expired(conn: Connection, *, until_ms: int) -> bool:
    return conn.execute(select(tasks.c.id).where(*_expired(until_ms)).limit(1)).first() is not None


def expire(conn: Connection, *, until_ms: int) -> int:
    """Delete tasks of tables that ended by then. Returns how many."""
    chosen = select(tasks.c.id).where(*_expired(until_ms)).limit(EXPIRED_AT_ONCE_MAX)
    ids = list(conn.execute(chosen).scalars())
    if ids:
        conn.execute(delete(tasks).where(tasks.c.id.in_(ids)))
    return len(ids)
