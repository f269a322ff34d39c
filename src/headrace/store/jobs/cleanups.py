"""Cleanups: durable records of what is still to be deleted of jobs that have ended (C3).

A record is written by the transaction that ends its job. The incarnation owns it, since the job id
may belong to another job by the time it is due. The transaction that does its last step deletes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Update, bindparam, delete, func, not_, select, update

from headrace.model.jobs.epoch import CLEANUP_TRANSITIONS, CleanupStep
from headrace.model.jobs.status import JOB_ENDED
from headrace.model.transitions import check_transition
from headrace.store.core.encryption import names_of, of_cleanup, seal, unseal
from headrace.store.core.engine import insert_new
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.core.schema import may_become
from headrace.store.jobs.jobs import JOB_COLUMNS, Job, to_job
from headrace.store.jobs.schema import (
    WANTED_CLEANUP,
    cleanups,
    epochs,
    job_secrets,
    jobs,
    pipelines,
    ready_sources,
)
from headrace.store.tasks.schema import tasks
from headrace.store.tasks.tasks import delete as delete_task


@dataclass(frozen=True, slots=True)
class Cleanup:
    """A record of what is to be deleted, and how far that has got."""

    incarnation: str
    job_id: str
    group: str
    step: CleanupStep
    made_at_ms: int
    due_at_ms: int  # when the step is due; after a failure, the next try
    targets_due_at_ms: int
    up_to: int  # the highest epoch that is deleted at the targets
    task_id: str | None  # the last control task that was planned for it
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
_GET = PreparedStatement(select(*_COLUMNS).where(cleanups.c.incarnation == bindparam("of")))
_LOCK = PreparedStatement(
    select(*_COLUMNS).where(cleanups.c.incarnation == bindparam("of")).with_for_update()
)
# Two queries, each answered by its index; for both at once SQLite would read all records.
_DUE = PreparedStatement(
    select(cleanups.c.incarnation)
    .where(cleanups.c.due_at_ms <= bindparam("now_ms"))
    .order_by(cleanups.c.due_at_ms, cleanups.c.incarnation)
    .limit(bindparam("most"))
)
_WANTED = PreparedStatement(
    select(cleanups.c.incarnation)
    .where(WANTED_CLEANUP)
    .order_by(cleanups.c.incarnation)
    .limit(bindparam("most"))
)
_DELETE = PreparedStatement(delete(cleanups).where(cleanups.c.incarnation == bindparam("of")))
_SPEC_AND_SECRETS = PreparedStatement(
    select(cleanups.c.spec, cleanups.c.sealed).where(cleanups.c.incarnation == bindparam("of"))
)
_IS_UNRECORDED = (
    jobs.c.ended_at_ms.is_not(None),
    not_(
        select(cleanups.c.incarnation).where(cleanups.c.incarnation == jobs.c.incarnation).exists()
    ),
)
_UNRECORDED = PreparedStatement(
    select(*JOB_COLUMNS).where(*_IS_UNRECORDED).order_by(jobs.c.id).limit(bindparam("most"))
)
_UNRECORDED_ONE = PreparedStatement(
    select(*JOB_COLUMNS)
    .where(jobs.c.incarnation == bindparam("of"), *_IS_UNRECORDED)
    .with_for_update()
)


def _to_cleanup(row: Sequence[Any]) -> Cleanup:
    incarnation, job_id, group, step, *rest = row
    rest[-1] = bool(rest[-1])
    return Cleanup(incarnation, job_id, group, CleanupStep(step), *rest)


def add(conn: Connection, job: Job, *, due_at_ms: int, targets_due_at_ms: int, now_ms: int) -> bool:
    """Record that a job's state is to be deleted. False: it is recorded already."""
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
    """Record that what the job left at some targets is to be deleted, while the job goes on."""
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
    """Store the secrets with which its targets are reached once the job has ended."""
    sealed = seal(conn, of_cleanup(incarnation), secrets)
    mine = cleanups.c.incarnation == incarnation
    conn.execute(update(cleanups).where(mine).values(sealed=sealed))


def secret_names(conn: Connection, incarnation: str) -> Sequence[str]:
    """Which secrets the record still has, as "<sink>.<option>"."""
    row = _SPEC_AND_SECRETS.row(conn, {"of": incarnation})
    return names_of(row[1]) if row else []


def get(conn: Connection, incarnation: str) -> Cleanup | None:
    row = _GET.row(conn, {"of": incarnation})
    return _to_cleanup(row) if row else None


def lock(conn: Connection, incarnation: str) -> Cleanup | None:
    """The record, which nobody else carries out or drops until the transaction ends."""
    row = _LOCK.row(conn, {"of": incarnation})
    return _to_cleanup(row) if row else None


def due(conn: Connection, *, now_ms: int, most: int) -> Sequence[str]:
    """Records that are due, the longest due first; then those that somebody asked for. Up to
    `most` of each."""
    due_now = _DUE.rows(conn, {"now_ms": now_ms, "most": most})
    return list(dict.fromkeys(of for (of,) in (*due_now, *_WANTED.rows(conn, {"most": most}))))


def counts(conn: Connection) -> Mapping[tuple[CleanupStep, bool], int]:
    """How many there are, by step and by whether the last try failed."""
    failing = cleanups.c.failures > 0
    grouped = select(cleanups.c.step, failing, func.count()).group_by(cleanups.c.step, failing)
    return {(CleanupStep(step), bool(bad)): int(n) for step, bad, n in conn.execute(grouped)}


def unrecorded_jobs(conn: Connection, *, most: int) -> Sequence[Job]:
    """Jobs that have ended and have no cleanup record (C5)."""
    return [to_job(row) for row in _UNRECORDED.rows(conn, {"most": most})]


def unrecorded_job(conn: Connection, incarnation: str) -> Job | None:
    """The job, locked, when it has ended and has no cleanup record."""
    row = _UNRECORDED_ONE.row(conn, {"of": incarnation})
    return to_job(row) if row else None


def drop(conn: Connection, incarnation: str) -> None:
    """Delete the record: it is done, or its job goes on."""
    if (cleanup := lock(conn, incarnation)) is not None:
        _delete_task(conn, cleanup)
        _DELETE.change(conn, {"of": incarnation})


def raw_spec(conn: Connection, incarnation: str) -> Mapping[str, Any]:
    """What the job's targets are, as it is stored."""
    spec, _ = _SPEC_AND_SECRETS.row(conn, {"of": incarnation}) or (None, None)
    return spec or {}


def spec_and_secrets_of(
    conn: Connection, incarnation: str
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What the job's targets are, once its rows are gone; and the secrets to reach them, once it
    has ended."""
    spec, secrets = _SPEC_AND_SECRETS.row(conn, {"of": incarnation}) or (None, None)
    return spec or {}, unseal(conn, of_cleanup(incarnation), secrets)


_WANT_AT_ONCE = PreparedStatement(
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
    """Ask for it to begin now. One that has begun, or failed, goes on as before."""
    _WANT_AT_ONCE.change(conn, {"of": incarnation})


def begin_at_once(conn: Connection, cleanup: Cleanup) -> None:
    """Begin what was asked for: it is due as `cleanup` says now."""
    conn.execute(
        _record(cleanup).values(
            wanted_at_once=0,
            due_at_ms=cleanup.due_at_ms,
            targets_due_at_ms=cleanup.targets_due_at_ms,
        )
    )


def postpone(conn: Connection, cleanup: Cleanup, *, due_at_ms: int) -> None:
    """Look at it again at `due_at_ms`."""
    conn.execute(_record(cleanup).values(due_at_ms=due_at_ms))


def began(conn: Connection, cleanup: Cleanup, *, task_id: str, due_at_ms: int) -> None:
    """Record that a control task was planned for it."""
    _delete_task(conn, cleanup)
    conn.execute(_record(cleanup).values(task_id=task_id, due_at_ms=due_at_ms))


def failed(
    conn: Connection, cleanup: Cleanup, *, failures: int, error: str, due_at_ms: int
) -> None:
    """Record that its task failed; it is tried again at `due_at_ms`."""
    _delete_task(conn, cleanup)
    conn.execute(
        _record(cleanup).values(task_id=None, failures=failures, error=error, due_at_ms=due_at_ms)
    )


def _record(cleanup: Cleanup) -> Update:
    """An UPDATE of this record, which the caller has locked."""
    return update(cleanups).where(cleanups.c.incarnation == cleanup.incarnation)


def _delete_task(conn: Connection, cleanup: Cleanup) -> None:
    """Delete its FORGET task, which belongs to no job, so that nothing else deletes it."""
    if cleanup.task_id is not None and cleanup.step is CleanupStep.TARGETS:
        delete_task(conn, cleanup.task_id)


_OWNED = PreparedStatement(
    select(*JOB_COLUMNS)
    .where(jobs.c.id == bindparam("job"), jobs.c.incarnation == bindparam("owner"))
    .with_for_update()
)


def owned_job(conn: Connection, cleanup: Cleanup) -> Job | None:
    """The job of the record, locked. None: it is gone, or another job has its id (C4)."""
    row = _OWNED.row(conn, {"job": cleanup.job_id, "owner": cleanup.incarnation})
    return to_job(row) if row else None


def begin_targets(
    conn: Connection,
    cleanup: Cleanup,
    *,
    up_to: int,
    spec: Mapping[str, Any],
) -> None:
    """Delete the job's rows. The record takes over what its targets are.

    Raises IllegalTransition for a record that is past its first step: its job id may be another's.
    """
    target = CleanupStep.TARGETS
    check_transition("cleanup", cleanup.incarnation, CLEANUP_TRANSITIONS, cleanup.step, target)
    begun = conn.execute(
        _record(cleanup)
        .where(may_become(cleanups.c.step, CLEANUP_TRANSITIONS, target))
        .values(
            step=target,
            due_at_ms=cleanup.targets_due_at_ms,
            up_to=up_to,
            spec=dict(spec),
            task_id=None,
            failures=0,
            error=None,
        )
    )
    if begun.rowcount == 1:
        delete_rows(conn, cleanup.job_id, cleanup.incarnation)


def delete_rows(conn: Connection, job_id: str, incarnation: str) -> None:
    """Delete all rows of a job that has ended, except its history, savepoints and logs."""
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
    """Every incarnation that this store knows. What any other left at a target is a stray."""
    query = select(jobs.c.incarnation).union(select(cleanups.c.incarnation)).limit(most)
    return [of for (of,) in conn.execute(query)]
