"""Tasks: plan, claim, finish, give back.

Every write is guarded by status and attempt and says whether it landed. A report of an attempt
that is no longer the current one is late news, not an error (C1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    bindparam,
    func,
    insert,
    not_,
    select,
    update,
)

from headrace.model.task import ENDED, Claim, Lane, TaskKind, TaskStatus
from headrace.store.schema import ASSIGNED_TASK, PLANNED_TASK, tasks, workers


@dataclass(frozen=True, slots=True)
class Task:
    id: str
    kind: TaskKind
    lane: Lane
    group: str
    job_id: str | None
    pipeline: int | None
    payload: Mapping[str, Any]
    status: TaskStatus
    attempt: int
    failures: int
    stop: bool
    worker_id: str | None
    assigned: tuple[int, int] | None  # term and number of the answer that carried it
    error: str | None = None

    @property
    def claim(self) -> Claim:
        return Claim(self.id, self.attempt)


# What makes up a Task: reading more costs the hot path dearly.
_TIMES = {"created_at_ms", "scheduled_at_ms", "ended_at_ms", "not_before_ms", "pause_ms"}
_UNREAD = {"progress", "result", *_TIMES}
COLUMNS = [column for column in tasks.c if column.name not in _UNREAD]


def to_task(row: Row[tuple[Any, ...]]) -> Task:
    return Task(
        id=row.id,
        kind=TaskKind(row.kind),
        lane=Lane(row.lane),
        group=row.group_name,
        job_id=row.job_id,
        pipeline=row.pipeline,
        payload=row.payload,
        status=TaskStatus(row.status),
        attempt=row.attempt,
        failures=row.failures,
        stop=bool(row.stop),
        worker_id=row.worker_id,
        assigned=(None if row.assigned_term is None else (row.assigned_term, row.assigned_number)),
        error=row.error,
    )


def plan(
    conn: Connection,
    *,
    task_id: str,
    kind: TaskKind,
    lane: Lane,
    group: str,
    now_ms: int,
    payload: Mapping[str, Any] | None = None,
    job_id: str | None = None,
    pipeline: int | None = None,
) -> None:
    conn.execute(
        insert(tasks).values(
            id=task_id,
            kind=kind,
            lane=lane,
            group_name=group,
            job_id=job_id,
            pipeline=pipeline,
            payload=dict(payload or {}),
            status=TaskStatus.PLANNED,
            created_at_ms=now_ms,
        )
    )


def get(conn: Connection, task_id: str) -> Task | None:
    row = conn.execute(select(*COLUMNS).where(tasks.c.id == task_id)).one_or_none()
    return to_task(row) if row else None


def planned_at_ms(conn: Connection, task_id: str) -> int:
    return conn.scalars(select(tasks.c.created_at_ms).where(tasks.c.id == task_id)).one()


def of_job(conn: Connection, job_id: str) -> Sequence[Task]:
    rows = conn.execute(select(*COLUMNS).where(tasks.c.job_id == job_id).order_by(tasks.c.id))
    return [to_task(row) for row in rows]


def held(claim_task: Any, claim_attempt: Any) -> tuple[Any, ...]:
    """The guard: this attempt is the current one, and it has not ended."""
    return tasks.c.id == claim_task, tasks.c.attempt == claim_attempt, ASSIGNED_TASK


def current(conn: Connection, claim: Claim) -> Task | None:
    """The task, locked, when `claim` is its current attempt and it has not ended."""
    row = conn.execute(
        select(*COLUMNS).where(*held(claim.task, claim.attempt)).with_for_update()
    ).one_or_none()
    return to_task(row) if row else None


def lock(conn: Connection, ids: Collection[str]) -> None:
    """Lock these in the order in which everybody does, so that nobody waits in a circle."""
    conn.execute(
        select(tasks.c.id).where(tasks.c.id.in_(ids)).order_by(tasks.c.id).with_for_update()
    )


_FINISH = (
    update(tasks)
    .where(*held(bindparam("task"), bindparam("at")))
    .values(
        status=bindparam("to"),
        error=bindparam("because"),
        result=bindparam("found"),
        ended_at_ms=bindparam("now_ms"),
    )
)


@dataclass(frozen=True, slots=True)
class End:
    claim: Claim
    status: TaskStatus
    error: str | None = None
    result: Mapping[str, Any] | None = None


def finish(conn: Connection, ends: Sequence[End], *, now_ms: int) -> None:
    """Record how attempts ended. An attempt that is no longer the current one changes nothing."""
    assert all(end.status in ENDED for end in ends)
    conn.execute(
        _FINISH,
        [
            {
                "task": end.claim.task,
                "at": end.claim.attempt,
                "to": end.status,
                "because": end.error,
                "found": dict(end.result) if end.result is not None else None,
                "now_ms": now_ms,
            }
            for end in ends
        ],
    )


def give_back(
    conn: Connection,
    claim: Claim,
    *,
    failed: bool = False,
    error: str | None = None,
    now_ms: int = 0,
    pause_ms: int = 0,
) -> bool:
    """Let somebody else claim the task. `failed` counts against its retries; being lost does too.

    The count can't be raised twice for one attempt, because the guard lets one write through.
    """
    result = conn.execute(
        update(tasks)
        .where(*held(claim.task, claim.attempt))
        .values(
            status=TaskStatus.PLANNED,
            worker_id=None,
            assigned_term=None,
            assigned_number=None,
            progress=None,
            failures=tasks.c.failures + (1 if failed else 0),
            error=error if failed else tasks.c.error,
            not_before_ms=now_ms + pause_ms,
            pause_ms=pause_ms,
        )
    )
    return result.rowcount == 1


def of_unregistered(conn: Connection, *, most: int) -> Sequence[Task]:
    """Tasks assigned to a worker that is not registered, whoever noticed or didn't (T5)."""
    rows = conn.execute(
        select(*COLUMNS)
        .where(
            ASSIGNED_TASK,
            not_(select(workers.c.id).where(workers.c.id == tasks.c.worker_id).exists()),
        )
        .order_by(tasks.c.id)
        .limit(most)
    )
    return [to_task(row) for row in rows]


def want_stop(conn: Connection, job_id: str) -> Sequence[str]:
    """Ask for the job's pipeline tasks to end; return the workers that hold one.

    A task nobody holds ends here and now.
    """
    open_pipelines = (
        tasks.c.job_id == job_id,
        tasks.c.kind == TaskKind.PIPELINE,
        tasks.c.status.not_in(sorted(ENDED)),
    )
    # In order, as a sync that speaks of several locks them: two orders would be a deadlock.
    found = conn.execute(
        select(tasks.c.id, tasks.c.worker_id)
        .where(*open_pipelines)
        .order_by(tasks.c.id)
        .with_for_update()
    ).all()
    if found:
        ids = [row.id for row in found]
        conn.execute(update(tasks).where(tasks.c.id.in_(ids)).values(stop=1))
    return [row.worker_id for row in found if row.worker_id is not None]


def fail_unclaimed(conn: Connection, task_id: str, *, error: str, now_ms: int) -> bool:
    """End a task that nobody claimed. False: somebody has claimed it, or it has ended."""
    result = conn.execute(
        update(tasks)
        .where(tasks.c.id == task_id, PLANNED_TASK)
        .values(status=TaskStatus.FAILED, error=error, ended_at_ms=now_ms)
    )
    return result.rowcount == 1


def cancel_unclaimed(conn: Connection, job_id: str, *, now_ms: int) -> None:
    conn.execute(
        update(tasks)
        .where(
            tasks.c.job_id == job_id,
            tasks.c.kind == TaskKind.PIPELINE,
            PLANNED_TASK,
        )
        .values(status=TaskStatus.CANCELED, ended_at_ms=now_ms)
    )


def busy_by_group(conn: Connection) -> Mapping[str, int]:
    """Slots that are taken or spoken for, by group: derived from rows, never a counter."""
    rows = conn.execute(
        select(tasks.c.group_name, func.count().label("busy"))
        .where(tasks.c.lane == Lane.SLOT, tasks.c.status.not_in(sorted(ENDED)))
        .group_by(tasks.c.group_name)
    )
    return {row.group_name: row.busy for row in rows}
