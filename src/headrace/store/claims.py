"""Claims: which worker holds which task, as syncs say it.

The statements here run once for a whole batch of syncs, so they are built once and executed with
many rows. They are the hot path of the coordinator (bench/sync).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, or_, select, update

from headrace.model.task import Claim, Lane, TaskStatus
from headrace.store.schema import ASSIGNED_TASK, PLANNED_TASK, tasks
from headrace.store.tasks import COLUMNS, Task, held, to_task


@dataclass(frozen=True, slots=True)
class Assign:
    """One task for one worker, in the answer of this number."""

    task: Task
    worker_id: str
    number: int


_ASSIGNED_TO = (
    select(*COLUMNS)
    .where(
        tasks.c.worker_id.in_(bindparam("ids", expanding=True)),
        ASSIGNED_TASK,
    )
    .order_by(tasks.c.id)
)


def assigned_to(conn: Connection, worker_ids: Collection[str]) -> Sequence[Task]:
    return [to_task(row) for row in conn.execute(_ASSIGNED_TO, {"ids": sorted(worker_ids)})]


def is_due(now_ms: Any) -> ColumnElement[bool]:
    """Its pause is over; or it was to begin after now, by the clock of another leader."""
    begin_ms = tasks.c.not_before_ms - tasks.c.pause_ms
    return or_(tasks.c.not_before_ms <= now_ms, begin_ms > now_ms)


_CLAIMABLE = (
    select(*COLUMNS)
    .where(
        PLANNED_TASK,
        tasks.c.group_name == bindparam("group"),
        tasks.c.lane == bindparam("lane"),
        is_due(bindparam("now_ms")),
        tasks.c.stop == 0,
    )
    .order_by(tasks.c.id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)


def claimable(
    conn: Connection, *, group: str, lane: Lane, now_ms: int, most: int
) -> Sequence[Task]:
    rows = conn.execute(_CLAIMABLE, {"group": group, "lane": lane, "now_ms": now_ms, "most": most})
    return [to_task(row) for row in rows]


_ASSIGN = (
    update(tasks)
    .where(tasks.c.id == bindparam("task"), tasks.c.attempt == bindparam("was_attempt"))
    .values(
        status=TaskStatus.SCHEDULED,
        worker_id=bindparam("worker"),
        attempt=bindparam("to_attempt"),
        assigned_term=bindparam("term"),
        assigned_number=bindparam("number"),
        scheduled_at_ms=bindparam("now_ms"),
        progress=None,
    )
)


def assign(conn: Connection, picks: Sequence[Assign], *, term: int, now_ms: int) -> None:
    """Give each picked task to its worker. The picks were locked by `claimable`."""
    conn.execute(
        _ASSIGN,
        [
            {
                "task": pick.task.id,
                "was_attempt": pick.task.attempt,
                "to_attempt": pick.task.attempt + 1,
                "worker": pick.worker_id,
                "term": term,
                "number": pick.number,
                "now_ms": now_ms,
            }
            for pick in picks
        ],
    )


_RESEND = (
    update(tasks)
    .where(*held(bindparam("task"), bindparam("at")))
    .values(assigned_term=bindparam("term"), assigned_number=bindparam("number"))
)


def resend(conn: Connection, claims: Sequence[tuple[Claim, int]], *, term: int) -> None:
    """Note that these claims are carried by a later answer: the first one was not seen."""
    conn.execute(
        _RESEND,
        [
            {"task": claim.task, "at": claim.attempt, "term": term, "number": number}
            for claim, number in claims
        ],
    )


_ACKNOWLEDGE = (
    update(tasks)
    .where(
        tasks.c.id == bindparam("task"),
        tasks.c.attempt == bindparam("at"),
        tasks.c.status == TaskStatus.SCHEDULED,
    )
    .values(status=TaskStatus.ACKED)
)


def acknowledge(conn: Connection, claims: Sequence[Claim]) -> None:
    conn.execute(_ACKNOWLEDGE, [{"task": c.task, "at": c.attempt} for c in claims])


_PROGRESS = (
    update(tasks)
    .where(*held(bindparam("task"), bindparam("at")))
    .values(progress=bindparam("news"))
)


def note_progress(conn: Connection, news: Sequence[tuple[Claim, Mapping[str, Any]]]) -> None:
    conn.execute(_PROGRESS, [{"task": c.task, "at": c.attempt, "news": dict(p)} for c, p in news])


def planned_by_group(
    conn: Connection, groups: Collection[str], *, now_ms: int, most: int
) -> Mapping[tuple[str, Lane], int]:
    """How many tasks wait for a worker, of the first `most`: a plain read, so that nobody is
    woken for nothing."""
    waiting = (
        select(tasks.c.group_name, tasks.c.lane)
        .where(
            PLANNED_TASK,
            tasks.c.group_name.in_(groups),
            is_due(now_ms),
            tasks.c.stop == 0,
        )
        .order_by(tasks.c.group_name, tasks.c.lane, tasks.c.id)
        .limit(most)
        .subquery()
    )
    rows = conn.execute(
        select(waiting.c.group_name, waiting.c.lane, func.count()).group_by(
            waiting.c.group_name, waiting.c.lane
        )
    )
    return {(group, Lane(lane)): count for group, lane, count in rows}


@dataclass(frozen=True, slots=True)
class Execution:
    """The latest attempt of a task, for people."""

    id: str
    worker_id: str | None
    progress: Mapping[str, Any] | None
    error: str | None


def executions_of(conn: Connection, job_id: str) -> Mapping[str, Execution]:
    """By task id. A task nobody has claimed yet has none."""
    rows = conn.execute(
        select(tasks.c.id, tasks.c.attempt, tasks.c.worker_id, tasks.c.progress, tasks.c.error)
        .where(tasks.c.job_id == job_id, tasks.c.attempt > 0)
        .order_by(tasks.c.id)
    )
    return {
        row.id: Execution(
            Claim(row.id, row.attempt).execution, row.worker_id, row.progress, row.error
        )
        for row in rows
    }
