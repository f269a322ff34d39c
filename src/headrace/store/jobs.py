"""Jobs and their pipelines."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Text,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from headrace.model.job import JOB_ENDED, PIPELINE_ENDED, JobStatus, PipelineStatus
from headrace.model.jobspec import JobSpec
from headrace.store.engine import insert_new
from headrace.store.job_rows import JOB_COLUMNS, Job, Pipeline, to_job, to_pipeline
from headrace.store.prepared import Prepared
from headrace.store.queue import next_place
from headrace.store.schema import OPEN_JOB, job_secrets, jobs, pipelines
from headrace.store.sealed import Sealed, of_job, seal, unseal

_BY_KEY = Prepared(select(*JOB_COLUMNS).where(jobs.c.submission_key == bindparam("key")))
_BY_ID = Prepared(select(*JOB_COLUMNS).where(jobs.c.id == bindparam("id")))
_SPEC = Prepared(select(jobs.c.spec).where(jobs.c.id == bindparam("id")))
_SPEC_AND_SECRETS = Prepared(
    select(jobs.c.spec, jobs.c.incarnation, job_secrets.c.sealed)
    .outerjoin(job_secrets, job_secrets.c.job_id == jobs.c.id)
    .where(jobs.c.id == bindparam("id"))
)


def by_submission_key(conn: Connection, key: str) -> Job | None:
    row = _BY_KEY.row(conn, {"key": key})
    return to_job(row) if row else None


def get(conn: Connection, job_id: str) -> Job | None:
    row = _BY_ID.row(conn, {"id": job_id})
    return to_job(row) if row else None


def spec_of(conn: Connection, job_id: str) -> JobSpec:
    """Fields that a newer program wrote are ignored: it lets us read, so we can do without."""
    row = _SPEC.row(conn, {"id": job_id})
    return JobSpec.model_validate(row[0] if row else None, extra="ignore")


def raw_spec(conn: Connection, job_id: str) -> Mapping[str, Any]:
    """As it is stored: without secrets, and perhaps of a newer program."""
    row = _SPEC.row(conn, {"id": job_id})
    return row[0] if row else {}


def spec_and_secrets_of(conn: Connection, job_id: str) -> tuple[JobSpec, Mapping[str, Any]]:
    """Of a job that has ended the secrets are gone: see `cleanups.reach`."""
    row = _SPEC_AND_SECRETS.row(conn, {"id": job_id})
    spec = JobSpec.model_validate(row[0] if row else None, extra="ignore")
    return spec, unseal(conn, of_job(row[1]), row[2]) if row else {}


def take_secrets(conn: Connection, job: Job) -> Sealed | None:
    """Its secrets as they were stored, and are no longer."""
    mine = job_secrets.c.job_id == job.id
    stored = conn.scalar(select(job_secrets.c.sealed).where(mine))
    if stored is not None:
        conn.execute(delete(job_secrets).where(mine))
    return stored


def put_secrets(
    conn: Connection, job_id: str, incarnation: str, secrets: Mapping[str, Any]
) -> None:
    """Those of a job that begins; it has none yet."""
    sealed = seal(conn, of_job(incarnation), secrets)
    if sealed is not None:
        conn.execute(insert(job_secrets).values(job_id=job_id, sealed=dict(sealed)))


def insert_job(
    conn: Connection,
    spec: JobSpec,
    *,
    job_id: str,
    incarnation: str,
    submission_key: str,
    group: str,
    now_ms: int,
    opening: Collection[int] = (),
) -> bool:
    """Write the job with its pipelines and secrets. False: its id or its key is there already.

    `opening`: pipelines that begin with epoch 0, in which sinks do what their save modes ask.
    """
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
        queue_number=next_place(),
    ):
        return False
    conn.execute(insert(pipelines), [_new(job_id, p.number, opening) for p in spec.pipelines])
    put_secrets(conn, job_id, incarnation, spec.secrets)
    return True


def _new(job_id: str, number: int, opening: Collection[int]) -> dict[str, Any]:
    """The row of a pipeline that has done nothing yet."""
    epoch = -1 if number in opening else 0
    named = {"job_id": job_id, "number": number, "status": PipelineStatus.CREATED}
    return {**named, "epoch": epoch, "positions": {}, "commits": {}}


def want_cancel(conn: Connection, job_id: str) -> bool:
    """False: there is no such job, or it has ended."""
    wanted = update(jobs).where(jobs.c.id == job_id, OPEN_JOB).values(wanted_cancel=1)
    return conn.execute(wanted).rowcount == 1


def want_savepoint(conn: Connection, job_id: str) -> None:
    conn.execute(update(jobs).where(jobs.c.id == job_id, OPEN_JOB).values(wanted_savepoint=1))


_OPEN_IDS = Prepared(
    select(jobs.c.id)
    .where(OPEN_JOB, jobs.c.id > bindparam("after"))
    .order_by(jobs.c.id)
    .limit(bindparam("most"))
)
_WANTED_IDS = Prepared(
    select(jobs.c.id)
    .where(
        OPEN_JOB,
        (jobs.c.status == JobStatus.CREATED)
        | (
            (jobs.c.wanted_cancel == 1)
            & (jobs.c.status != JobStatus.CANCELING)
            & (jobs.c.status != JobStatus.FAILING)
        )
        | ((jobs.c.wanted_savepoint == 1) & (jobs.c.status == JobStatus.RUNNING)),
    )
    .order_by(jobs.c.id)
    .limit(bindparam("most"))
)


def open_ids(conn: Connection, *, after: str = "", most: int) -> Sequence[str]:
    """Jobs that have not ended, in pages by id."""
    return [job_id for (job_id,) in _OPEN_IDS.rows(conn, {"after": after, "most": most})]


def wanted_ids(conn: Connection, *, most: int) -> Sequence[str]:
    """Jobs for which a command asked something that has not begun yet."""
    return [job_id for (job_id,) in _WANTED_IDS.rows(conn, {"most": most})]


def running(conn: Connection, *, most: int) -> Sequence[Job]:
    """Those that have not ended, newest first: history has the others (C7)."""
    newest_first = (jobs.c.created_at_ms.desc(), jobs.c.id)
    query = select(*JOB_COLUMNS).where(OPEN_JOB).order_by(*newest_first).limit(most)
    return [to_job(row) for row in conn.execute(query)]


def _kept(name: str, column: Any, kind: Any) -> Any:
    """The value that is given; without one the column stays as it is."""
    return func.coalesce(bindparam(name, type_=kind), column)


_CHANGE = Prepared(
    update(jobs)
    .where(jobs.c.id == bindparam("job"), jobs.c.status == bindparam("was"))
    .values(
        status=bindparam("target"),
        waits_for=bindparam("waits"),
        error=_kept("because", jobs.c.error, Text()),
        started_at_ms=_kept("started", jobs.c.started_at_ms, BigInteger()),
        ended_at_ms=_kept("ended", jobs.c.ended_at_ms, BigInteger()),
    )
)


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
    changed = _CHANGE.change(
        conn,
        {
            "job": job.id,
            "was": job.status,
            "target": target,
            "waits": waits_for,
            "because": error,
            "started": now_ms if target is JobStatus.RUNNING else None,
            "ended": now_ms if target in JOB_ENDED else None,
        },
    )
    return changed == 1


_PIPELINES_OF = Prepared(
    select(pipelines).where(pipelines.c.job_id == bindparam("job")).order_by(pipelines.c.number)
)
_ONE_PIPELINE = Prepared(
    select(pipelines).where(
        pipelines.c.job_id == bindparam("job"), pipelines.c.number == bindparam("place")
    )
)
_WITH_PIPELINE = Prepared(
    select(*JOB_COLUMNS, *pipelines.c)
    .join(pipelines, pipelines.c.job_id == jobs.c.id)
    .where(jobs.c.id == bindparam("job"), pipelines.c.number == bindparam("place"))
)
_CHANGE_PIPELINE = Prepared(
    update(pipelines)
    .where(
        pipelines.c.job_id == bindparam("job"),
        pipelines.c.number == bindparam("place"),
        *(pipelines.c.status != ended for ended in sorted(PIPELINE_ENDED)),
    )
    .values(
        status=bindparam("target"),
        task_id=_kept("task", pipelines.c.task_id, Text()),
        error=_kept("because", pipelines.c.error, Text()),
    )
)


def pipelines_of(conn: Connection, job_id: str) -> Sequence[Pipeline]:
    return [to_pipeline(row) for row in _PIPELINES_OF.rows(conn, {"job": job_id})]


def pipeline(conn: Connection, job_id: str, number: int) -> Pipeline:
    row = _ONE_PIPELINE.row(conn, {"job": job_id, "place": number})
    assert row is not None, "a job's pipelines are written with it, and stay"
    return to_pipeline(row)


def with_pipeline(conn: Connection, job_id: str, number: int) -> tuple[Job, Pipeline]:
    row = _WITH_PIPELINE.row(conn, {"job": job_id, "place": number})
    assert row is not None, "tasks refer to jobs that exist: a foreign key says so"
    return to_job(row[: len(JOB_COLUMNS)]), to_pipeline(row[len(JOB_COLUMNS) :])


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
    where = {"job": job_id, "place": number}
    to = {"target": target, "task": task_id, "because": error}
    return _CHANGE_PIPELINE.change(conn, {**where, **to}) == 1


_ADVANCE = Prepared(
    update(pipelines)
    .where(
        pipelines.c.job_id == bindparam("job"),
        pipelines.c.number == bindparam("place"),
        pipelines.c.epoch < bindparam("completed"),
    )
    .values(
        epoch=bindparam("completed"),
        completed_epoch=None,
        positions=bindparam("reached"),
        rows_in=pipelines.c.rows_in + bindparam("read", type_=BigInteger()),
        rows_out=pipelines.c.rows_out + bindparam("wrote", type_=BigInteger()),
        commits=bindparam("made"),
        written=bindparam("in_sinks"),
        read=bindparam("from_sources"),
    )
)


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
    written: Mapping[str, int],
    read: Mapping[str, int],
) -> bool:
    """Record a completed epoch. Guarded by the last one, so twice is once; ids may be skipped."""
    changed = _ADVANCE.change(
        conn,
        {
            "job": job_id,
            "place": number,
            "completed": epoch,
            "reached": dict(positions),
            "read": rows_in,
            "wrote": rows_out,
            "made": dict(commits),
            "in_sinks": dict(written),
            "from_sources": dict(read),
        },
    )
    return changed == 1
