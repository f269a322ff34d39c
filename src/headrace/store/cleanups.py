"""Cleanups: what is still to be deleted of jobs that have ended (C3).

A record is written by the transaction that ends its job, and owned by the incarnation: the id may
be another job's by the time it is due. It goes in the transaction that does its last step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, not_, select, update

from headrace.model.cleanup import CleanupStep
from headrace.model.job import JOB_ENDED
from headrace.store.engine import insert_new
from headrace.store.job_rows import JOB_COLUMNS, Job, to_job
from headrace.store.prepared import Prepared
from headrace.store.schema import (
    WANTED_CLEANUP,
    cleanups,
    epochs,
    job_secrets,
    jobs,
    pipelines,
    ready_sources,
    tasks,
)
from headrace.store.sealed import names_of, of_cleanup, seal, unseal
from headrace.store.tasks import delete as delete_task


@dataclass(frozen=True, slots=True)
class Cleanup:
    incarnation: str
    job_id: str
    group: str
    step: CleanupStep
    made_at_ms: int
    due_at_ms: int  # of the step; after a failure, of the next try
    targets_due_at_ms: int
    up_to: int  # the highest epoch that is forgotten
    task_id: str | None  # of the last control task that was planned for it
    failures: int
    error: str | None
    wanted_at_once: bool  # somebody asked for it to begin before it is due


_COLUMNS = tuple(
    cleanups.c[name]
    for name in (
        *("incarnation", "job_id", "group_name", "step", "made_at_ms", "due_at_ms"),
        *("targets_due_at_ms", "up_to", "task_id", "failures", "error", "wanted_at_once"),
    )
)
_GET = Prepared(select(*_COLUMNS).where(cleanups.c.incarnation == bindparam("of")))
_LOCK = Prepared(
    select(*_COLUMNS).where(cleanups.c.incarnation == bindparam("of")).with_for_update()
)
# Two questions, each answered by its index; for both at once SQLite would read all records.
_DUE = Prepared(
    select(cleanups.c.incarnation)
    .where(cleanups.c.due_at_ms <= bindparam("now_ms"))
    .order_by(cleanups.c.due_at_ms, cleanups.c.incarnation)
    .limit(bindparam("most"))
)
_WANTED = Prepared(
    select(cleanups.c.incarnation)
    .where(WANTED_CLEANUP)
    .order_by(cleanups.c.incarnation)
    .limit(bindparam("most"))
)
_DELETE = Prepared(delete(cleanups).where(cleanups.c.incarnation == bindparam("of")))
_REACH = Prepared(
    select(cleanups.c.spec, cleanups.c.sealed).where(cleanups.c.incarnation == bindparam("of"))
)
_IS_UNRECORDED = (
    jobs.c.ended_at_ms.is_not(None),
    not_(
        select(cleanups.c.incarnation).where(cleanups.c.incarnation == jobs.c.incarnation).exists()
    ),
)
_UNRECORDED = Prepared(
    select(*JOB_COLUMNS).where(*_IS_UNRECORDED).order_by(jobs.c.id).limit(bindparam("most"))
)
_UNRECORDED_ONE = Prepared(
    select(*JOB_COLUMNS)
    .where(jobs.c.incarnation == bindparam("of"), *_IS_UNRECORDED)
    .with_for_update()
)


def _to_cleanup(row: Sequence[Any]) -> Cleanup:
    incarnation, job_id, group, step, *rest = row
    rest[-1] = bool(rest[-1])
    return Cleanup(incarnation, job_id, group, CleanupStep(step), *rest)


def add(conn: Connection, job: Job, *, due_at_ms: int, targets_due_at_ms: int, now_ms: int) -> bool:
    """Record that a job's state is to go. False: it is recorded already."""
    return insert_new(
        conn,
        cleanups,
        incarnation=job.incarnation,
        job_id=job.id,
        group_name=job.group,
        step=CleanupStep.STATE,
        made_at_ms=now_ms,
        due_at_ms=due_at_ms,
        targets_due_at_ms=targets_due_at_ms,
    )


def add_targets(
    conn: Connection,
    job: Job,
    *,
    key: str,
    spec: Mapping[str, Any],
    secrets: Mapping[str, Any],
    up_to: int,
    due_at_ms: int,
    now_ms: int,
) -> None:
    """Record that what the job left at some targets is to go, while the job itself goes on."""
    insert_new(
        conn,
        cleanups,
        incarnation=key,
        job_id=job.id,
        group_name=job.group,
        step=CleanupStep.TARGETS,
        made_at_ms=now_ms,
        due_at_ms=due_at_ms,
        targets_due_at_ms=due_at_ms,
        up_to=up_to,
        spec=dict(spec),
        sealed=seal(conn, of_cleanup(key), secrets),
    )


def put_secrets(conn: Connection, incarnation: str, secrets: Mapping[str, Any]) -> None:
    """What its targets are reached with, once the job has ended."""
    sealed = seal(conn, of_cleanup(incarnation), secrets)
    mine = cleanups.c.incarnation == incarnation
    conn.execute(update(cleanups).where(mine).values(sealed=sealed))


def secret_names(conn: Connection, incarnation: str) -> Sequence[str]:
    """Which secrets the record still has, by "<sink>.<option>"."""
    row = _REACH.row(conn, {"of": incarnation})
    return names_of(row[1]) if row else []


def get(conn: Connection, incarnation: str) -> Cleanup | None:
    row = _GET.row(conn, {"of": incarnation})
    return _to_cleanup(row) if row else None


def lock(conn: Connection, incarnation: str) -> Cleanup | None:
    """The record, which nobody else carries out or drops until the transaction ends."""
    row = _LOCK.row(conn, {"of": incarnation})
    return _to_cleanup(row) if row else None


def due(conn: Connection, *, now_ms: int, most: int) -> Sequence[str]:
    """The longest due first, then those that somebody asked for; so many of either."""
    due_now = _DUE.rows(conn, {"now_ms": now_ms, "most": most})
    return list(dict.fromkeys(of for (of,) in (*due_now, *_WANTED.rows(conn, {"most": most}))))


def counts(conn: Connection) -> Mapping[tuple[CleanupStep, bool], int]:
    """By step, and whether its last try failed: how many there are."""
    failing = cleanups.c.failures > 0
    grouped = select(cleanups.c.step, failing, func.count()).group_by(cleanups.c.step, failing)
    return {(CleanupStep(step), bool(bad)): int(n) for step, bad, n in conn.execute(grouped)}


def unrecorded(conn: Connection, *, most: int) -> Sequence[Job]:
    """Jobs that have ended and that nobody is going to clean up (C5)."""
    return [to_job(row) for row in _UNRECORDED.rows(conn, {"most": most})]


def unrecorded_one(conn: Connection, incarnation: str) -> Job | None:
    """That job, when it is one of these."""
    row = _UNRECORDED_ONE.row(conn, {"of": incarnation})
    return to_job(row) if row else None


def drop(conn: Connection, incarnation: str) -> None:
    """It is done, or its job goes on."""
    if (found := lock(conn, incarnation)) is not None:
        _forget_task(conn, found)
        _DELETE.change(conn, {"of": incarnation})


def reach(conn: Connection, incarnation: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The secrets to reach the job's targets, once it has ended; and what these targets are, once
    its rows are gone."""
    spec, secrets = _REACH.row(conn, {"of": incarnation}) or (None, None)
    return spec or {}, unseal(conn, of_cleanup(incarnation), secrets)


_WANT_AT_ONCE = Prepared(
    update(cleanups)
    .where(
        cleanups.c.incarnation == bindparam("of"),
        cleanups.c.step == CleanupStep.STATE,
        cleanups.c.task_id.is_(None),
        cleanups.c.failures == 0,
    )
    .values(wanted_at_once=1)
)


def want_at_once(conn: Connection, incarnation: str) -> None:
    """Ask for it to begin now. One that has begun, or failed, goes on as it was."""
    _WANT_AT_ONCE.change(conn, {"of": incarnation})


def begin_at_once(conn: Connection, begun: Cleanup) -> None:
    """It was asked for, and is due as the record says now."""
    dues = {"due_at_ms": begun.due_at_ms, "targets_due_at_ms": begun.targets_due_at_ms}
    _change(conn, begun, wanted_at_once=0, **dues)


def postpone(conn: Connection, found: Cleanup, *, due_at_ms: int) -> None:
    """Look at it again then."""
    _change(conn, found, due_at_ms=due_at_ms)


def began(conn: Connection, found: Cleanup, *, task_id: str, due_at_ms: int) -> None:
    """A control task was planned for it."""
    _forget_task(conn, found)
    _change(conn, found, task_id=task_id, due_at_ms=due_at_ms)


def failed(conn: Connection, found: Cleanup, *, failures: int, error: str, due_at_ms: int) -> None:
    """Its task failed: it is tried again then."""
    _forget_task(conn, found)
    _change(conn, found, task_id=None, failures=failures, error=error, due_at_ms=due_at_ms)


def _change(conn: Connection, found: Cleanup, **values: object) -> None:
    conn.execute(
        update(cleanups).where(cleanups.c.incarnation == found.incarnation).values(**values)
    )


def _forget_task(conn: Connection, found: Cleanup) -> None:
    """A FORGET task belongs to no job, so nothing else deletes it."""
    if found.task_id is not None and found.step is CleanupStep.TARGETS:
        delete_task(conn, found.task_id)


_OWNED = Prepared(
    select(*JOB_COLUMNS)
    .where(jobs.c.id == bindparam("job"), jobs.c.incarnation == bindparam("owner"))
    .with_for_update()
)


def owned_job(conn: Connection, found: Cleanup) -> Job | None:
    """The job that the record speaks of, locked; None: it is gone, or another has its id (C4)."""
    row = _OWNED.row(conn, {"job": found.job_id, "owner": found.incarnation})
    return to_job(row) if row else None


def to_targets(
    conn: Connection,
    found: Cleanup,
    *,
    up_to: int,
    spec: Mapping[str, Any],
) -> None:
    """Delete the job's rows. What its targets are, the record takes over."""
    _change(
        conn,
        found,
        step=CleanupStep.TARGETS,
        due_at_ms=found.targets_due_at_ms,
        up_to=up_to,
        spec=dict(spec),
        task_id=None,
        failures=0,
        error=None,
    )
    delete_rows(conn, found.job_id, found.incarnation)


def delete_rows(conn: Connection, job_id: str, incarnation: str) -> None:
    """All rows of a job that has ended: history, savepoints and logs are not among them."""
    for rows in (tasks, epochs, pipelines, job_secrets):
        conn.execute(delete(rows).where(rows.c.job_id == job_id))
    conn.execute(delete(ready_sources).where(ready_sources.c.incarnation == incarnation))
    conn.execute(
        delete(jobs).where(
            jobs.c.id == job_id,
            jobs.c.incarnation == incarnation,
            jobs.c.status.in_(sorted(JOB_ENDED)),
        )
    )


def owners(conn: Connection, *, most: int) -> Sequence[str]:
    """Every incarnation that this store knows of: what others left at a target is a stray."""
    query = select(jobs.c.incarnation).union(select(cleanups.c.incarnation)).limit(most)
    return [of for (of,) in conn.execute(query)]
