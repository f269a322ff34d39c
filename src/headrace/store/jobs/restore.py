"""Restore: a job that has ended begins its next run. Only a restore may import this.

No step of the job's state machine leads out of an end, and this is none: it begins another run,
with new pipelines, new tasks, and CREATED as its status. So it is kept apart from what moves jobs,
as resetting a table is (T8), and an import contract says who may use it.

A restored job keeps its id and its incarnation. Nobody else writes to a job that has ended, so a
restore needs no term, just as a new job needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus, PipelineStatus, check_restorable
from headrace.store.core.engine import insert_new
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.jobs.jobs import DUE, JOB_COLUMNS, Job, put_secrets, stored_spec, to_job
from headrace.store.jobs.queue import next_place
from headrace.store.jobs.schema import job_secrets, jobs, pipelines
from headrace.store.tasks.schema import tasks


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
    """Write the row of a job whose rows are gone, as it ended, for `begin_again`. False: another
    job has its id.

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
        status=job.status,
        run=job.run,
        created_at_ms=now_ms,
        ended_at_ms=job.ended_at_ms,
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
) -> bool:
    """Put the job back to CREATED with new pipelines. The caller has locked it. False: it is no
    longer as it was read.

    Raises IllegalTransition for a job that can't be restored from where it is.
    """
    check_restorable(job.id, job.status)
    begun = conn.execute(
        update(jobs)
        .where(jobs.c.id == job.id, jobs.c.status == job.status)
        .values(
            restore_key=key,
            run=job.run + 1,
            name=spec.name,
            group_name=group,
            **stored_spec(spec),
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
    if begun.rowcount == 0:
        return False
    for rows in (tasks, pipelines, job_secrets):
        conn.execute(delete(rows).where(rows.c.job_id == job.id))
    created = {"job_id": job.id, "status": PipelineStatus.CREATED}
    conn.execute(insert(pipelines), [{**created, **asdict(start)} for start in starts])
    put_secrets(conn, job.id, job.incarnation, spec.secrets)
    return True
