"""Claims: which worker holds which task, as syncs report it.

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
    not_,
    or_,
    select,
    update,
)

from headrace.model.task import Claim, FailureCause, Lane, PipelineOrder, TaskStatus
from headrace.store.core.prepared_statements import (
    PreparedBatch,
    PreparedStatement,
    RowColumns,
    Statement,
    one_of,
)
from headrace.store.tasks.schema import ASSIGNED_TASK, PLANNED_TASK, tasks
from headrace.store.tasks.tasks import (
    COLUMNS,
    Task,
    current_attempt,
    task_may_become,
    to_task,
)


@dataclass(frozen=True, slots=True)
class Assign:
    """The assignment of one task to one worker, by the answer of this number."""

    task: Task
    worker_id: str
    number: int


_ASSIGNED_TO = PreparedStatement(
    select(*COLUMNS).where(one_of(tasks.c.worker_id, "ids"), ASSIGNED_TASK).order_by(tasks.c.id)
)


def assigned_to(conn: Connection, worker_ids: Collection[str]) -> Sequence[Task]:
    """The tasks that are assigned to these workers."""
    return [to_task(row) for row in _ASSIGNED_TO.rows(conn, {"ids": sorted(worker_ids)})]


def is_due(now_ms: Any) -> ColumnElement[bool]:
    """Whether its pause is over; or would begin only after now, by the clock of another leader."""
    begin_ms = tasks.c.not_before_ms - tasks.c.pause_ms
    return or_(tasks.c.not_before_ms <= now_ms, begin_ms > now_ms)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The tasks that a worker is not given, because it can't run them."""

    kinds: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()  # ids
    needs: frozenset[str] = frozenset()  # of tasks for which it lacks a plug-in

    @property
    def count(self) -> int:
        return len(self.kinds) + len(self.tasks) + len(self.needs)


NONE_LEFT_OUT = LeftOut()


def _claimable(*further: ColumnElement[bool]) -> PreparedStatement:
    return PreparedStatement(
        select(*COLUMNS)
        .where(
            PLANNED_TASK,
            tasks.c.group_name == bindparam("group"),
            tasks.c.lane == bindparam("lane"),
            is_due(bindparam("now_ms")),
            tasks.c.stop == 0,
            tasks.c.granted == 1,
            *further,
        )
        .order_by(tasks.c.id)
        .limit(bindparam("most"))
        .with_for_update(skip_locked=True)
    )


_CLAIMABLE = _claimable()
_CLAIMABLE_BUT = _claimable(
    not_(one_of(tasks.c.kind, "but_kinds")),
    not_(one_of(tasks.c.id, "but_tasks")),
    or_(tasks.c.needs.is_(None), not_(one_of(tasks.c.needs, "but_needs"))),
)


def claimable(
    conn: Connection,
    *,
    group: str,
    lane: Lane,
    now_ms: int,
    most: int,
    but: LeftOut = NONE_LEFT_OUT,
) -> Sequence[Task]:
    """Tasks that may be assigned now, locked; those that others have locked are skipped."""
    values: dict[str, Any] = {"group": group, "lane": lane, "now_ms": now_ms, "most": most}
    if but == NONE_LEFT_OUT:
        return [to_task(row) for row in _CLAIMABLE.rows(conn, values)]
    values |= {"but_kinds": sorted(but.kinds), "but_tasks": sorted(but.tasks)}
    values["but_needs"] = sorted(but.needs)
    return [to_task(row) for row in _CLAIMABLE_BUT.rows(conn, values)]


def _assign(row: RowColumns) -> Update:
    return (
        update(tasks)
        .where(
            tasks.c.id == row["task"],
            tasks.c.attempt == row["was_attempt"],
            task_may_become(TaskStatus.SCHEDULED),
        )
        .values(
            status=TaskStatus.SCHEDULED,
            worker_id=row["worker"],
            attempt=row["was_attempt"] + 1,
            assigned_term=row["term"],
            assigned_number=row["number"],
            scheduled_at_ms=row["now_ms"],
            progress=None,
        )
    )


_ASSIGN = PreparedBatch(
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
    """Assign each picked task to its worker. `claimable` has locked the picks."""
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


def _resend(row: RowColumns) -> Update:
    carried = {"assigned_term": row["term"], "assigned_number": row["number"]}
    return update(tasks).where(*current_attempt(row["task"], row["at"])).values(carried)


_RESEND = PreparedBatch(
    _resend, key=tasks.c.id, task=Text(), at=Integer(), term=Integer(), number=Integer()
)


def resend(conn: Connection, claims: Sequence[tuple[Claim, int]], *, term: int) -> None:
    """Note that a later answer carries these claims: their workers did not see the first one."""
    _RESEND.change(
        conn,
        [
            {"task": claim.task, "at": claim.attempt, "term": term, "number": number}
            for claim, number in claims
        ],
    )


def _acknowledge(row: RowColumns) -> Update:
    return (
        update(tasks)
        .where(
            tasks.c.id == row["task"],
            tasks.c.attempt == row["at"],
            task_may_become(TaskStatus.ACKED),
        )
        .values(status=TaskStatus.ACKED, unheard=0)
    )


_ACKNOWLEDGE = PreparedBatch(_acknowledge, key=tasks.c.id, task=Text(), at=Integer())


def acknowledge(conn: Connection, claims: Sequence[Claim]) -> None:
    """Note that their workers hold these claims."""
    _ACKNOWLEDGE.change(conn, [{"task": c.task, "at": c.attempt} for c in claims])


def _progress(row: RowColumns) -> Update:
    return (
        update(tasks).where(*current_attempt(row["task"], row["at"])).values(progress=row["news"])
    )


_PROGRESS = PreparedBatch(
    _progress, key=tasks.c.id, task=Text(), at=Integer(), news=JSON(none_as_null=True)
)


def note_progress(conn: Connection, reports: Sequence[tuple[Claim, Mapping[str, Any]]]) -> None:
    """Record the progress that workers reported of their claims."""
    _PROGRESS.change(conn, [{"task": c.task, "at": c.attempt, "news": dict(p)} for c, p in reports])


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


_PLANNED_BY_GROUP = PreparedStatement(_planned_by_group())


def planned_by_group(
    conn: Connection, groups: Collection[str], *, now_ms: int, most: int
) -> Mapping[tuple[str, Lane], int]:
    """How many of the first `most` planned tasks wait for a worker, by group and lane. It is a
    plain read without locks, so that workers are not woken for nothing."""
    values = {"groups": sorted(groups), "now_ms": now_ms, "most": most}
    rows = _PLANNED_BY_GROUP.rows(conn, values)
    return {(group, Lane(lane)): count for group, lane, count in rows}


@dataclass(frozen=True, slots=True)
class LatestAttempt:
    """The latest attempt of a task, for people; and what earlier ones leave to be tried."""

    id: str
    attempt: int
    status: TaskStatus  # PLANNED: the next attempt waits for its time, or for a worker
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


_LATEST_ATTEMPTS = PreparedStatement(
    select(
        *(tasks.c.id, tasks.c.attempt, tasks.c.status, tasks.c.worker_id, tasks.c.progress),
        *(tasks.c.error, tasks.c.failure_cause, tasks.c.failed_at_ms, tasks.c.not_before_ms),
        *(tasks.c.failures, tasks.c.losses, tasks.c.payload),
    )
    .where(tasks.c.job_id == bindparam("job_id"), tasks.c.attempt > 0)
    .order_by(tasks.c.id)
)


def latest_attempts_of(conn: Connection, job_id: str) -> Mapping[str, LatestAttempt]:
    """By task id. A task that nobody has claimed yet has none."""
    return {
        row[0]: _latest_attempt(*row) for row in _LATEST_ATTEMPTS.rows(conn, {"job_id": job_id})
    }


def _latest_attempt(task: str, attempt: int, status: str, *rest: Any) -> LatestAttempt:
    worker, progress, error, cause, failed_at_ms, not_before_ms, failures, losses, payload = rest
    order = PipelineOrder.of(payload)
    return LatestAttempt(
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
        order.retry_times,
        losses,
        order.lost_workers_max,
    )


_PROGRESS_OF = PreparedStatement(
    select(tasks.c.progress).where(*current_attempt(bindparam("task"), bindparam("at")))
)


def progress_of(conn: Connection, claim: Claim) -> Mapping[str, Any]:
    """The progress last reported of an attempt that has not ended; empty, if there was none."""
    row = _PROGRESS_OF.row(conn, {"task": claim.task, "at": claim.attempt})
    return (row[0] if row else None) or {}


def count_held_by(conn: Connection, worker_id: str) -> int:
    """How many tasks the worker holds now."""
    query = select(func.count()).where(ASSIGNED_TASK, tasks.c.worker_id == worker_id)
    return int(conn.scalar(query) or 0)
