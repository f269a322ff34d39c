"""Jobs and their pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from headrace.model.job import JOB_ENDED, PIPELINE_ENDED, JobStatus, PipelineStatus
from headrace.model.jobspec import JobSpec
from headrace.store.engine import insert_new
from headrace.store.schema import OPEN_JOB, job_secrets, jobs, pipelines


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    incarnation: str
    name: str
    group: str
    status: JobStatus
    waits_for: str | None
    error: str | None
    wanted_cancel: bool
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Pipeline:
    job_id: str
    number: int
    status: PipelineStatus
    task_id: str | None
    epoch: int
    positions: Mapping[str, Any]
    rows_in: int
    rows_out: int
    commits: Mapping[str, Any]
    error: str | None


_JOB = [column for column in jobs.c if column.name != "spec"]  # specs are wide, and rarely read


def _job(row: Row[tuple[Any, ...]]) -> Job:
    return Job(
        id=row.id,
        incarnation=row.incarnation,
        name=row.name,
        group=row.group_name,
        status=JobStatus(row.status),
        waits_for=row.waits_for,
        error=row.error,
        wanted_cancel=bool(row.wanted_cancel),
        created_at_ms=row.created_at_ms,
        started_at_ms=row.started_at_ms,
        ended_at_ms=row.ended_at_ms,
    )


def _pipeline(row: Row[tuple[Any, ...]]) -> Pipeline:
    return Pipeline(
        job_id=row.job_id,
        number=row.number,
        status=PipelineStatus(row.status),
        task_id=row.task_id,
        epoch=row.epoch,
        positions=row.positions,
        rows_in=row.rows_in,
        rows_out=row.rows_out,
        commits=row.commits,
        error=row.error,
    )


def by_submission_key(conn: Connection, key: str) -> Job | None:
    row = conn.execute(select(*_JOB).where(jobs.c.submission_key == key)).one_or_none()
    return _job(row) if row else None


def get(conn: Connection, job_id: str) -> Job | None:
    row = conn.execute(select(*_JOB).where(jobs.c.id == job_id)).one_or_none()
    return _job(row) if row else None


def spec_of(conn: Connection, job_id: str) -> JobSpec:
    """Fields that a newer program wrote are ignored: it lets us read, so we can do without."""
    stored = conn.scalars(select(jobs.c.spec).where(jobs.c.id == job_id)).one()
    return JobSpec.model_validate(stored, extra="ignore")


def secrets_of(conn: Connection, job_id: str) -> Mapping[str, Any]:
    found = conn.scalar(select(job_secrets.c.secrets).where(job_secrets.c.job_id == job_id))
    return found or {}


def insert_job(
    conn: Connection,
    spec: JobSpec,
    *,
    job_id: str,
    incarnation: str,
    submission_key: str,
    group: str,
    now_ms: int,
) -> bool:
    """Write the job with its pipelines and secrets. False: its id or its key is there already."""
    if not insert_new(
        conn,
        jobs,
        id=job_id,
        incarnation=incarnation,
        submission_key=submission_key,
        name=spec.name,
        group_name=group,
        spec=spec.model_dump(mode="json", exclude={"secrets"}),
        status=JobStatus.CREATED,
        created_at_ms=now_ms,
    ):
        return False
    conn.execute(
        insert(pipelines),
        [
            {
                "job_id": job_id,
                "number": pipeline.number,
                "status": PipelineStatus.CREATED,
                "positions": {},
                "commits": {},
            }
            for pipeline in spec.pipelines
        ],
    )
    if spec.secrets:
        conn.execute(insert(job_secrets).values(job_id=job_id, secrets=spec.secrets))
    return True


def want_cancel(conn: Connection, job_id: str) -> None:
    conn.execute(update(jobs).where(jobs.c.id == job_id, OPEN_JOB).values(wanted_cancel=1))


def open_ids(conn: Connection, *, after: str = "", most: int) -> Sequence[str]:
    """Jobs that have not ended, in pages by id."""
    return list(
        conn.scalars(
            select(jobs.c.id).where(OPEN_JOB, jobs.c.id > after).order_by(jobs.c.id).limit(most)
        )
    )


def wanted_ids(conn: Connection, *, most: int) -> Sequence[str]:
    """Jobs for which a command asked something that has not begun yet."""
    begun = (JobStatus.CANCELING, JobStatus.FAILING)
    return list(
        conn.scalars(
            select(jobs.c.id)
            .where(
                OPEN_JOB,
                (jobs.c.status == JobStatus.CREATED)
                | ((jobs.c.wanted_cancel == 1) & jobs.c.status.not_in(begun)),
            )
            .order_by(jobs.c.id)
            .limit(most)
        )
    )


def listed(conn: Connection, *, open_only: bool, most: int) -> Sequence[Job]:
    query = select(*_JOB).order_by(jobs.c.created_at_ms.desc(), jobs.c.id).limit(most)
    if open_only:
        query = query.where(OPEN_JOB)
    return [_job(row) for row in conn.execute(query)]


def change(
    conn: Connection,
    job: Job,
    target: JobStatus,
    *,
    now_ms: int,
    error: str | None = None,
    waits_for: str | None = None,
) -> bool:
    """Move a job from the status it was read in. False: somebody moved it first."""
    values: dict[str, Any] = {"status": target, "waits_for": waits_for}
    if target is JobStatus.RUNNING:
        values["started_at_ms"] = now_ms
    if error is not None:
        values["error"] = error
    if target in JOB_ENDED:
        values["ended_at_ms"] = now_ms
        conn.execute(delete(job_secrets).where(job_secrets.c.job_id == job.id))
    result = conn.execute(
        update(jobs).where(jobs.c.id == job.id, jobs.c.status == job.status).values(values)
    )
    return result.rowcount == 1


def pipelines_of(conn: Connection, job_id: str) -> Sequence[Pipeline]:
    rows = conn.execute(
        select(pipelines).where(pipelines.c.job_id == job_id).order_by(pipelines.c.number)
    )
    return [_pipeline(row) for row in rows]


def pipeline(conn: Connection, job_id: str, number: int) -> Pipeline:
    row = conn.execute(
        select(pipelines).where(pipelines.c.job_id == job_id, pipelines.c.number == number)
    ).one()
    return _pipeline(row)


def change_pipeline(
    conn: Connection,
    job_id: str,
    number: int,
    target: PipelineStatus,
    *,
    task_id: str | None = None,
    error: str | None = None,
) -> bool:
    """Move a pipeline that has not ended. An ended one stays as it is (C1)."""
    values: dict[str, Any] = {"status": target}
    if task_id is not None:
        values["task_id"] = task_id
    if error is not None:
        values["error"] = error
    result = conn.execute(
        update(pipelines)
        .where(
            pipelines.c.job_id == job_id,
            pipelines.c.number == number,
            pipelines.c.status.not_in(sorted(PIPELINE_ENDED)),
        )
        .values(values)
    )
    return result.rowcount == 1


def advance(
    conn: Connection,
    job_id: str,
    number: int,
    *,
    epoch: int,
    positions: Mapping[str, Any],
    rows_in: int,
    rows_out: int,
    commits: Mapping[str, Any],
) -> bool:
    """Record a completed epoch. Guarded by the epoch before it, so twice is once."""
    result = conn.execute(
        update(pipelines)
        .where(
            pipelines.c.job_id == job_id,
            pipelines.c.number == number,
            pipelines.c.epoch == epoch - 1,
        )
        .values(
            epoch=epoch,
            positions=dict(positions),
            rows_in=pipelines.c.rows_in + rows_in,
            rows_out=pipelines.c.rows_out + rows_out,
            commits=dict(commits),
        )
    )
    return result.rowcount == 1
