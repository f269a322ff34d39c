"""Restore: a job that has ended begins again, under its id and its incarnation.

Nobody else writes to a job that has ended, so no term is needed for it, as for a job that is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from headrace.model.job import JobStatus, PipelineStatus
from headrace.model.jobspec import JobSpec
from headrace.store.engine import insert_new
from headrace.store.job_rows import JOB_COLUMNS, Job, to_job
from headrace.store.jobs import put_secrets
from headrace.store.prepared import Prepared
from headrace.store.queue import next_place
from headrace.store.schema import job_secrets, jobs, pipelines, tasks


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


_LOCKED = Prepared(select(*JOB_COLUMNS).where(jobs.c.id == bindparam("of")).with_for_update())


def lock(conn: Connection, job_id: str) -> Job | None:
    """The job, which nobody else restores until the transaction ends."""
    row = _LOCKED.row(conn, {"of": job_id})
    return to_job(row) if row else None


_BY_KEY = Prepared(select(*JOB_COLUMNS).where(jobs.c.restore_key == bindparam("key")))


def by_key(conn: Connection, key: str) -> Job | None:
    """The job that was last restored under this key."""
    row = _BY_KEY.row(conn, {"key": key})
    return to_job(row) if row else None


def insert_again(conn: Connection, job: Job, spec: JobSpec, *, key: str, now_ms: int) -> bool:
    """The row of a job whose rows are gone, for `begin_again`. False: its id is another's.

    Its first key is in history, and may be somebody else's once that has expired.
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
    """Put the job back to CREATED with new pipelines. It was locked, and has ended."""
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
            queue_number=next_place(),
            started_at_ms=None,
            ended_at_ms=None,
        )
    )
    created = {"job_id": job.id, "status": PipelineStatus.CREATED}
    conn.execute(insert(pipelines), [{**created, **asdict(start)} for start in starts])
    put_secrets(conn, job.id, job.incarnation, spec.secrets)
