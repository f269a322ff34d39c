"""Savepoints and restore: where a stopped job can go on, and how it begins again there.

There is one savepoint for each incarnation, the latest. A savepoint, and the last checkpoint of a
failed job, outlive the cleanup of the job.

A restored job keeps its id and its incarnation. Nobody else writes to a job that has ended, so a
restore needs no term, just as a new job needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, not_, select, update
from sqlalchemy import delete as delete_from

from headrace.model.jobs.epoch import EpochKind
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import ENDED, FailureCause, TaskKind
from headrace.store.core.engine import insert_new
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.jobs.jobs import DUE, JOB_COLUMNS, Job, put_secrets, to_job
from headrace.store.jobs.queue import next_place
from headrace.store.jobs.schema import OPEN_JOB, job_secrets, jobs, pipelines, savepoints
from headrace.store.tasks.schema import tasks

MARK = "savepoint"  # in the payload of a task: its execution shall end with a savepoint


@dataclass(frozen=True, slots=True)
class Savepoint:
    """Where a stopped or failed job can be restored."""

    incarnation: str
    job_id: str
    kind: EpochKind  # SAVEPOINT, or the last CHECKPOINT of a failed job
    epoch: int  # the highest of any of its pipelines
    positions: Mapping[str, Any]  # by source name
    ready: Sequence[str]  # names of sources that have read everything
    written: Mapping[str, int]  # rows, by sink name
    made_at_ms: int
    name: str
    group: str
    run: int  # the one that made it
    spec: Mapping[str, Any]  # without secrets
    # As they ended, with `failure_cause`, and `highest`: no epoch id up to that is used again, not
    # even an aborted one.
    pipelines: Sequence[Mapping[str, Any]]

    @property
    def store_is_older(self) -> bool:
        """Whether the job ended because its targets know more than the store (E7). They stop a
        restore in the same way, until a newer copy of the store takes this one's place."""
        causes = {pipeline.get("failure_cause") for pipeline in self.pipelines}
        return FailureCause.STORE_OLDER in causes


_DELETE = PreparedStatement(
    delete_from(savepoints).where(savepoints.c.incarnation == bindparam("of"))
)
_DELETE_ALL = PreparedStatement(
    delete_from(savepoints).where(savepoints.c.job_id == bindparam("of"))
)
_LATEST_FIRST = (savepoints.c.made_at_ms.desc(), savepoints.c.incarnation)
_LATEST = (
    select(savepoints)
    .where(savepoints.c.job_id == bindparam("of"))
    .order_by(*_LATEST_FIRST)
    .limit(1)
)
_LATEST_OF_JOB, _LATEST_LOCKED = (
    PreparedStatement(_LATEST),
    PreparedStatement(_LATEST.with_for_update()),
)
_OF_INCARNATION = PreparedStatement(
    select(savepoints).where(savepoints.c.incarnation == bindparam("of"))
)
# Only of jobs that are not open: an open job replaces or drops its savepoint itself.
_EXPIRED = (
    savepoints.c.made_at_ms <= bindparam("until_ms"),
    not_(
        select(jobs.c.id).where(jobs.c.incarnation == savepoints.c.incarnation, OPEN_JOB).exists()
    ),
)
_ANY_EXPIRED = PreparedStatement(select(savepoints.c.incarnation).where(*_EXPIRED).limit(1))
_EXPIRE = PreparedStatement(delete_from(savepoints).where(*_EXPIRED))


def put(conn: Connection, savepoint: Savepoint) -> None:
    """Keep the savepoint, in place of an earlier one of the same incarnation."""
    delete_savepoint(conn, savepoint.incarnation)
    values = asdict(savepoint)
    values["group_name"] = values.pop("group")
    conn.execute(insert(savepoints).values(**values))


def get(conn: Connection, job_id: str) -> Savepoint | None:
    """The latest savepoint of any job that had this id."""
    row = _LATEST_OF_JOB.row(conn, {"of": job_id})
    return _to_savepoint(row) if row else None


def lock(conn: Connection, job_id: str) -> Savepoint | None:
    """Like `get`; nobody else restores from it until the transaction ends."""
    row = _LATEST_LOCKED.row(conn, {"of": job_id})
    return _to_savepoint(row) if row else None


def of_incarnation(conn: Connection, incarnation: str) -> Savepoint | None:
    """The savepoint of this incarnation."""
    row = _OF_INCARNATION.row(conn, {"of": incarnation})
    return _to_savepoint(row) if row else None


def _to_savepoint(row: Sequence[Any]) -> Savepoint:
    incarnation, job_id, kind, *rest = row
    return Savepoint(incarnation, job_id, EpochKind(kind), *rest)


def delete_all(conn: Connection, job_id: str) -> int:
    """Delete the savepoints of every job that had this id. Returns how many there were."""
    return _DELETE_ALL.change(conn, {"of": job_id})


def any_expired(conn: Connection, *, until_ms: int) -> bool:
    return _ANY_EXPIRED.row(conn, {"until_ms": until_ms}) is not None


def expire(conn: Connection, *, until_ms: int) -> int:
    """Delete savepoints that were made by then. Returns how many there were."""
    return _EXPIRE.change(conn, {"until_ms": until_ms})


def delete_savepoint(conn: Connection, incarnation: str) -> None:
    _DELETE.change(conn, {"of": incarnation})


# In the order in which a sync locks the tasks that it reports: two orders would deadlock.
_OPEN_TASKS = PreparedStatement(
    select(tasks.c.id, tasks.c.payload, tasks.c.worker_id)
    .where(
        tasks.c.job_id == bindparam("of"),
        tasks.c.kind == TaskKind.PIPELINE,
        *(tasks.c.status != ended for ended in sorted(ENDED)),
    )
    .order_by(tasks.c.id)
    .with_for_update()
)
_MARK = PreparedStatement(
    update(tasks).where(tasks.c.id == bindparam("task")).values(payload=bindparam("marked"))
)


def mark_tasks(conn: Connection, job_id: str) -> Sequence[str]:
    """Have the job's pipelines end with a savepoint; return the workers that hold one.

    The mark is in the payload, which every sync reads anyway. A task that nobody holds is still
    given to a worker: it may have an epoch to finish first.
    """
    rows = _OPEN_TASKS.rows(conn, {"of": job_id})
    for task, payload, _ in rows:
        _MARK.change(conn, {"task": task, "marked": {**payload, MARK: True}})
    return [worker for _, _, worker in rows if worker is not None]


@dataclass(frozen=True, slots=True)
class Start:
    """Where a pipeline of the restored job begins."""

    number: int
    epoch: int
    positions: Mapping[str, Any]
    rows_in: int
    rows_out: int
    commits: Mapping[str, Any]
    written: Mapping[str, int]
    read: Mapping[str, int]
    completed_epoch: int | None  # None: it is `epoch`


_LOCKED_JOB = PreparedStatement(
    select(*JOB_COLUMNS).where(jobs.c.id == bindparam("of")).with_for_update()
)


def lock_job(conn: Connection, job_id: str) -> Job | None:
    """The job, which nobody else restores until the transaction ends."""
    row = _LOCKED_JOB.row(conn, {"of": job_id})
    return to_job(row) if row else None


_BY_KEY = PreparedStatement(select(*JOB_COLUMNS).where(jobs.c.restore_key == bindparam("key")))


def by_key(conn: Connection, key: str) -> Job | None:
    """The job that was last restored under this key."""
    row = _BY_KEY.row(conn, {"key": key})
    return to_job(row) if row else None


def insert_again(conn: Connection, job: Job, spec: JobSpec, *, key: str, now_ms: int) -> bool:
    """Write the row of a job whose rows are gone, for `begin_again`. False: another job has its id.

    The job's first submission key is in history, and may be used by somebody else once that has
    expired; so the row gets the key of the restore.
    """
    return insert_new(
        conn,
        jobs,
        id=job.id,
        incarnation=job.incarnation,
        submission_key=key,
        name=spec.name,
        group_name=job.group,
        spec={},
        status=JobStatus.CREATED,
        run=job.run,
        created_at_ms=now_ms,
    )


def begin_again(
    conn: Connection,
    job: Job,
    spec: JobSpec,
    starts: Sequence[Start],
    *,
    key: str,
    group: str,
    now_ms: int,
) -> None:
    """Put the job back to CREATED with new pipelines. The caller has locked it, and it has
    ended."""
    for rows in (tasks, pipelines, job_secrets):
        conn.execute(delete(rows).where(rows.c.job_id == job.id))
    conn.execute(
        update(jobs)
        .where(jobs.c.id == job.id)
        .values(
            restore_key=key,
            run=job.run + 1,
            name=spec.name,
            group_name=group,
            spec=spec.model_dump(mode="json", exclude={"secrets"}),
            status=JobStatus.CREATED,
            waits_for=None,
            error=None,
            wanted_cancel=0,
            wanted_savepoint=0,
            created_at_ms=now_ms,
            queue_number=next_place(group),
            started_at_ms=None,
            ended_at_ms=None,
            **DUE,
        )
    )
    created = {"job_id": job.id, "status": PipelineStatus.CREATED}
    conn.execute(insert(pipelines), [{**created, **asdict(start)} for start in starts])
    put_secrets(conn, job.id, job.incarnation, spec.secrets)
