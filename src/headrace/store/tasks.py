"""Tasks: plan, claim, finish, give back.

Every write is guarded by status and attempt and says whether it landed. A report of an attempt
that is no longer the current one is late news, not an error (C1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Connection,
    Integer,
    Text,
    Update,
    bindparam,
    func,
    insert,
    not_,
    select,
    update,
)
from sqlalchemy import delete as delete_from

from headrace.model.task import ENDED, Claim, FailureCause, Lane, TaskKind, TaskStatus
from headrace.store.prepared import Prepared, PreparedMany, Said, one_of
from headrace.store.schema import ASSIGNED_TASK, PLANNED_TASK, tasks, workers
from headrace.store.task_rows import COLUMNS, NO_TABLE, OfTable, Task, held, to_task

_PLAN = Prepared(
    insert(tasks).values(
        id=bindparam("id"),
        kind=bindparam("kind"),
        lane=bindparam("lane"),
        group_name=bindparam("group"),
        job_id=bindparam("job_id"),
        pipeline=bindparam("pipeline"),
        payload=bindparam("payload"),
        status=TaskStatus.PLANNED,
        created_at_ms=bindparam("now_ms"),
        table_id=bindparam("table_id"),
        process_id=bindparam("process_id"),
        number=bindparam("number"),
        granted=bindparam("granted"),
    )
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
    of: OfTable = NO_TABLE,
) -> None:
    _PLAN.change(
        conn,
        {
            "id": task_id,
            "kind": kind,
            "lane": lane,
            "group": group,
            "job_id": job_id,
            "pipeline": pipeline,
            "payload": dict(payload or {}),
            "now_ms": now_ms,
            "table_id": of.table_id,
            "process_id": of.process_id,
            "number": of.number,
            "granted": int(of.granted),
        },
    )


_BY_ID = Prepared(select(*COLUMNS).where(tasks.c.id == bindparam("id")))
_OF_JOB = Prepared(
    select(*COLUMNS).where(tasks.c.job_id == bindparam("job_id")).order_by(tasks.c.id)
)


def get(conn: Connection, task_id: str) -> Task | None:
    row = _BY_ID.row(conn, {"id": task_id})
    return to_task(row) if row else None


def of_job(conn: Connection, job_id: str) -> Sequence[Task]:
    return [to_task(row) for row in _OF_JOB.rows(conn, {"job_id": job_id})]


_CURRENT = Prepared(
    select(*COLUMNS).where(*held(bindparam("task"), bindparam("at"))).with_for_update()
)
_LOCK = Prepared(
    select(tasks.c.id).where(one_of(tasks.c.id, "ids")).order_by(tasks.c.id).with_for_update()
)


def current(conn: Connection, claim: Claim) -> Task | None:
    """The task, locked, when `claim` is its current attempt and it has not ended."""
    row = _CURRENT.row(conn, {"task": claim.task, "at": claim.attempt})
    return to_task(row) if row else None


def lock(conn: Connection, ids: Collection[str]) -> None:
    """Lock these in the order in which everybody does, so that nobody waits in a circle."""
    _LOCK.rows(conn, {"ids": sorted(ids)})


def _finish(said: Said) -> Update:
    return (
        update(tasks)
        .where(*held(said["task"], said["at"]))
        .values(
            status=said["to"],
            error=said["because"],
            failure_cause=said["cause"],
            result=said["found"],
            ended_at_ms=said["now_ms"],
        )
    )


_FINISH = PreparedMany(
    _finish,
    key=tasks.c.id,
    task=Text(),
    at=Integer(),
    to=Text(),
    because=Text(),
    cause=Text(),
    found=JSON(none_as_null=True),
    now_ms=BigInteger(),
)


@dataclass(frozen=True, slots=True)
class End:
    claim: Claim
    status: TaskStatus
    error: str | None = None
    result: Mapping[str, Any] | None = None
    cause: FailureCause | None = None


def finish(conn: Connection, ends: Sequence[End], *, now_ms: int) -> None:
    """Record how attempts ended. An attempt that is no longer the current one changes nothing,
    and of two ends of one attempt the first counts."""
    assert all(end.status in ENDED for end in ends)
    first: dict[Claim, End] = {}
    for end in ends:
        first.setdefault(end.claim, end)
    _FINISH.change(
        conn,
        [
            {
                "task": end.claim.task,
                "at": end.claim.attempt,
                "to": end.status,
                "because": end.error,
                "cause": end.cause,
                "found": dict(end.result) if end.result is not None else None,
                "now_ms": now_ms,
            }
            for end in first.values()
        ],
    )


_GIVE_BACK = Prepared(
    update(tasks)
    .where(*held(bindparam("task"), bindparam("at")))
    .values(
        status=TaskStatus.PLANNED,
        worker_id=None,
        assigned_term=None,
        assigned_number=None,
        progress=None,
        failures=bindparam("counted", type_=Integer()),
        losses=bindparam("lost", type_=Integer()),
        unheard=tasks.c.unheard + bindparam("unheard_more", type_=Integer()),
        failure_cause=func.coalesce(bindparam("cause", type_=Text()), tasks.c.failure_cause),
        failed_at_ms=func.coalesce(bindparam("fell_ms", type_=BigInteger()), tasks.c.failed_at_ms),
        error=func.coalesce(bindparam("because", type_=Text()), tasks.c.error),
        not_before_ms=bindparam("begin_ms"),
        pause_ms=bindparam("pause"),
    )
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt is given back, and what that makes of its task."""

    error: str
    cause: FailureCause
    failures: int  # with this one, if it is one that counts so
    losses: int  # likewise
    at_ms: int
    pause_ms: int


def give_back(
    conn: Connection, task: Task, failure: Failure | None = None, *, unheard: bool = False
) -> bool:
    """Let somebody else claim the task. `unheard`: its worker did not say that it holds it.

    It can't be counted twice for one attempt, because the guard lets one write through.
    """
    given = {
        "task": task.id,
        "at": task.attempt,
        "counted": failure.failures if failure else task.failures,
        "lost": failure.losses if failure else task.losses,
        "unheard_more": int(unheard),
        "cause": failure and failure.cause,
        "fell_ms": failure and failure.at_ms,
        "because": failure and failure.error,
        "begin_ms": failure.at_ms + failure.pause_ms if failure else 0,
        "pause": failure.pause_ms if failure else 0,
    }
    return _GIVE_BACK.change(conn, given) == 1


def times_unheard(conn: Connection, task: Task) -> int:
    """So often in a row it was given back by workers that did not say that they hold it."""
    return conn.execute(select(tasks.c.unheard).where(tasks.c.id == task.id)).scalar_one()


_PROGRESSED = Prepared(
    update(tasks)
    .where(*held(bindparam("task"), bindparam("at")))
    .values(failures=bindparam("counted", type_=Integer()), losses=0)
)


def progressed(conn: Connection, task: Task, *, failures: int) -> None:
    """An epoch was completed: no lost worker counts any more, and of the errors so many do."""
    if (task.failures, task.losses) != (failures, 0):  # rarely so: this is part of every epoch
        _PROGRESSED.change(conn, {"task": task.id, "at": task.attempt, "counted": failures})


_DELETE = Prepared(delete_from(tasks).where(tasks.c.id == bindparam("id")))


def delete(conn: Connection, task_id: str) -> None:
    """One that belongs to no job. Those of a job go with it."""
    _DELETE.change(conn, {"id": task_id})


_OF_UNREGISTERED = Prepared(
    select(*COLUMNS)
    .where(
        ASSIGNED_TASK,
        not_(select(workers.c.id).where(workers.c.id == tasks.c.worker_id).exists()),
    )
    .order_by(tasks.c.id)
    .limit(bindparam("most"))
)
_OPEN_PIPELINES = (
    tasks.c.job_id == bindparam("job"),
    tasks.c.kind == TaskKind.PIPELINE,
    *(tasks.c.status != ended for ended in sorted(ENDED)),
)
# In order, as a sync that speaks of several locks them: two orders would be a deadlock.
_LOCK_PIPELINES = Prepared(
    select(tasks.c.id, tasks.c.worker_id)
    .where(*_OPEN_PIPELINES)
    .order_by(tasks.c.id)
    .with_for_update()
)
_STOP = Prepared(update(tasks).where(one_of(tasks.c.id, "ids")).values(stop=1))
_FAIL_UNCLAIMED = Prepared(
    update(tasks)
    .where(tasks.c.id == bindparam("task"), PLANNED_TASK)
    .values(status=TaskStatus.FAILED, error=bindparam("because"), ended_at_ms=bindparam("now_ms"))
)
_CANCEL_UNCLAIMED = Prepared(
    update(tasks)
    .where(tasks.c.job_id == bindparam("job"), tasks.c.kind == TaskKind.PIPELINE, PLANNED_TASK)
    .values(status=TaskStatus.CANCELED, ended_at_ms=bindparam("now_ms"))
)


def of_unregistered(conn: Connection, *, most: int) -> Sequence[Task]:
    """Tasks assigned to a worker that is not registered, whoever noticed or didn't (T5)."""
    return [to_task(row) for row in _OF_UNREGISTERED.rows(conn, {"most": most})]


def want_stop(conn: Connection, job_id: str) -> Sequence[str]:
    """Ask for the job's pipeline tasks to end; return the workers that hold one.

    A task nobody holds ends here and now.
    """
    found = _LOCK_PIPELINES.rows(conn, {"job": job_id})
    if found:
        _STOP.change(conn, {"ids": [task for task, _ in found]})
    return [worker for _, worker in found if worker is not None]


def fail_unclaimed(conn: Connection, task_id: str, *, error: str, now_ms: int) -> bool:
    """End a task that nobody claimed. False: somebody has claimed it, or it has ended."""
    return _FAIL_UNCLAIMED.change(conn, {"task": task_id, "because": error, "now_ms": now_ms}) == 1


def cancel_unclaimed(conn: Connection, job_id: str, *, now_ms: int) -> None:
    _CANCEL_UNCLAIMED.change(conn, {"job": job_id, "now_ms": now_ms})
