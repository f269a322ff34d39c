"""Claims: which worker holds which task, as syncs say it.

The statements here run once for a whole batch of syncs, with many rows. They are the hot path of
the coordinator (bench/sync).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Text,
    Update,
    bindparam,
    func,
    or_,
    select,
    update,
)

from headrace.model.task import Claim, FailureCause, Lane, TaskStatus
from headrace.store.prepared import Prepared, PreparedMany, Said, Statement, one_of
from headrace.store.schema import ASSIGNED_TASK, PLANNED_TASK, tasks
from headrace.store.task_rows import (
    COLUMNS,
    Task,
    held,
    lost_workers_max_of,
    retry_times_of,
    to_task,
)


@dataclass(frozen=True, slots=True)
class Assign:
    """One task for one worker, in the answer of this number."""

    task: Task
    worker_id: str
    number: int


_ASSIGNED_TO = Prepared(
    select(*COLUMNS).where(one_of(tasks.c.worker_id, "ids"), ASSIGNED_TASK).order_by(tasks.c.id)
)


def assigned_to(conn: Connection, worker_ids: Collection[str]) -> Sequence[Task]:
    return [to_task(row) for row in _ASSIGNED_TO.rows(conn, {"ids": sorted(worker_ids)})]


def is_due(now_ms: Any) -> ColumnElement[bool]:
    """Its pause is over; or it was to begin after now, by the clock of another leader."""
    begin_ms = tasks.c.not_before_ms - tasks.c.pause_ms
    return or_(tasks.c.not_before_ms <= now_ms, begin_ms > now_ms)


_CLAIMABLE = Prepared(
    select(*COLUMNS)
    .where(
        PLANNED_TASK,
        tasks.c.group_name == bindparam("group"),
        tasks.c.lane == bindparam("lane"),
        is_due(bindparam("now_ms")),
        tasks.c.stop == 0,
        tasks.c.granted == 1,
    )
    .order_by(tasks.c.id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)


def claimable(
    conn: Connection, *, group: str, lane: Lane, now_ms: int, most: int
) -> Sequence[Task]:
    asked = {"group": group, "lane": lane, "now_ms": now_ms, "most": most}
    return [to_task(row) for row in _CLAIMABLE.rows(conn, asked)]


def _assign(said: Said) -> Update:
    return (
        update(tasks)
        .where(tasks.c.id == said["task"], tasks.c.attempt == said["was_attempt"])
        .values(
            status=TaskStatus.SCHEDULED,
            worker_id=said["worker"],
            attempt=said["was_attempt"] + 1,
            assigned_term=said["term"],
            assigned_number=said["number"],
            scheduled_at_ms=said["now_ms"],
            progress=None,
        )
    )


_ASSIGN = PreparedMany(
    _assign,
    key=tasks.c.id,
    task=Text(),
    was_attempt=Integer(),
    worker=Text(),
    term=Integer(),
    number=Integer(),
    now_ms=BigInteger(),
)


def assign(conn: Connection, picks: Sequence[Assign], *, term: int, now_ms: int) -> None:
    """Give each picked task to its worker. The picks were locked by `claimable`."""
    _ASSIGN.change(
        conn,
        [
            {
                "task": pick.task.id,
                "was_attempt": pick.task.attempt,
                "worker": pick.worker_id,
                "term": term,
                "number": pick.number,
                "now_ms": now_ms,
            }
            for pick in picks
        ],
    )


def _resend(said: Said) -> Update:
    carried = {"assigned_term": said["term"], "assigned_number": said["number"]}
    return update(tasks).where(*held(said["task"], said["at"])).values(carried)


_RESEND = PreparedMany(
    _resend, key=tasks.c.id, task=Text(), at=Integer(), term=Integer(), number=Integer()
)


def resend(conn: Connection, claims: Sequence[tuple[Claim, int]], *, term: int) -> None:
    """Note that these claims are carried by a later answer: the first one was not seen."""
    _RESEND.change(
        conn,
        [
            {"task": claim.task, "at": claim.attempt, "term": term, "number": number}
            for claim, number in claims
        ],
    )


def _acknowledge(said: Said) -> Update:
    return (
        update(tasks)
        .where(
            tasks.c.id == said["task"],
            tasks.c.attempt == said["at"],
            tasks.c.status == TaskStatus.SCHEDULED,
        )
        .values(status=TaskStatus.ACKED, unheard=0)
    )


_ACKNOWLEDGE = PreparedMany(_acknowledge, key=tasks.c.id, task=Text(), at=Integer())


def acknowledge(conn: Connection, claims: Sequence[Claim]) -> None:
    _ACKNOWLEDGE.change(conn, [{"task": c.task, "at": c.attempt} for c in claims])


def _progress(said: Said) -> Update:
    return update(tasks).where(*held(said["task"], said["at"])).values(progress=said["news"])


_PROGRESS = PreparedMany(
    _progress, key=tasks.c.id, task=Text(), at=Integer(), news=JSON(none_as_null=True)
)


def note_progress(conn: Connection, news: Sequence[tuple[Claim, Mapping[str, Any]]]) -> None:
    _PROGRESS.change(conn, [{"task": c.task, "at": c.attempt, "news": dict(p)} for c, p in news])


def _planned_by_group() -> Statement:
    waiting = (
        select(tasks.c.group_name, tasks.c.lane)
        .where(
            PLANNED_TASK,
            one_of(tasks.c.group_name, "groups"),
            is_due(bindparam("now_ms")),
            tasks.c.stop == 0,
            tasks.c.granted == 1,
        )
        .order_by(tasks.c.group_name, tasks.c.lane, tasks.c.id)
        .limit(bindparam("most"))
        .subquery()
    )
    by = (waiting.c.group_name, waiting.c.lane)
    return select(*by, func.count()).group_by(*by).order_by(*by)


_PLANNED_BY_GROUP = Prepared(_planned_by_group())


def planned_by_group(
    conn: Connection, groups: Collection[str], *, now_ms: int, most: int
) -> Mapping[tuple[str, Lane], int]:
    """How many tasks wait for a worker, of the first `most`: a plain read, so that nobody is
    woken for nothing."""
    asked = {"groups": sorted(groups), "now_ms": now_ms, "most": most}
    rows = _PLANNED_BY_GROUP.rows(conn, asked)
    return {(group, Lane(lane)): count for group, lane, count in rows}


@dataclass(frozen=True, slots=True)
class Execution:
    """The latest attempt of a task, for people; and what the ones before it leave to be tried."""

    id: str
    attempt: int
    status: TaskStatus  # PLANNED: the next attempt waits, for its time or for a worker
    worker_id: str | None
    progress: Mapping[str, Any] | None
    error: str | None  # of the attempt that failed last, also while the next one runs
    failure_cause: FailureCause | None  # likewise
    failed_at_ms: int | None  # likewise
    not_before_ms: int  # the next attempt begins no sooner; 0: whenever a worker has a slot
    failures: int  # errors that count against `retry_times`
    retry_times: int  # 0: there is no second attempt, whatever the cause
    losses: int  # workers lost in a row, which count against `lost_workers_max`
    lost_workers_max: int


_EXECUTIONS = Prepared(
    select(
        *(tasks.c.id, tasks.c.attempt, tasks.c.status, tasks.c.worker_id, tasks.c.progress),
        *(tasks.c.error, tasks.c.failure_cause, tasks.c.failed_at_ms, tasks.c.not_before_ms),
        *(tasks.c.failures, tasks.c.losses, tasks.c.payload),
    )
    .where(tasks.c.job_id == bindparam("job_id"), tasks.c.attempt > 0)
    .order_by(tasks.c.id)
)


def executions_of(conn: Connection, job_id: str) -> Mapping[str, Execution]:
    """By task id. A task nobody has claimed yet has none."""
    return {row[0]: _execution(*row) for row in _EXECUTIONS.rows(conn, {"job_id": job_id})}


def _execution(task: str, attempt: int, status: str, *rest: Any) -> Execution:
    worker, progress, error, cause, failed_at_ms, not_before_ms, failures, losses, payload = rest
    return Execution(
        Claim(task, attempt).execution,
        attempt,
        TaskStatus(status),
        worker,
        progress,
        error,
        None if cause is None else FailureCause(cause),
        failed_at_ms,
        not_before_ms,
        failures,
        retry_times_of(payload),
        losses,
        lost_workers_max_of(payload),
    )


_PROGRESS_OF = Prepared(select(tasks.c.progress).where(*held(bindparam("task"), bindparam("at"))))


def progress_of(conn: Connection, claim: Claim) -> Mapping[str, Any]:
    """What its worker last said of an attempt that has not ended; nothing, if it said nothing."""
    row = _PROGRESS_OF.row(conn, {"task": claim.task, "at": claim.attempt})
    return (row[0] if row else None) or {}


def held_by(conn: Connection, worker_id: str) -> int:
    """How many tasks are given to the worker now."""
    counted = select(func.count()).where(ASSIGNED_TASK, tasks.c.worker_id == worker_id)
    return int(conn.scalar(counted) or 0)
