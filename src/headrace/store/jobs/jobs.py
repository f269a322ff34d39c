"""Jobs and their pipelines: submitted, moved from status to status, advanced by epochs.

A move lands only along the transition map of its machine, and says whether it did (S1). That of a
job names the status that it was decided by: if somebody else has moved the job since, it does not
land. What has ended stays as it is (C1); only `store/jobs/restore.py` begins it again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
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

from headrace.errors import Refused
from headrace.model.jobs.needs import needs_of
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import (
    JOB_ENDED,
    PIPELINE_TRANSITIONS,
    JobStatus,
    PipelineStatus,
    check_job_transition,
)
from headrace.model.text import without_nul
from headrace.store.core.encryption import Sealed, of_job, seal, unseal
from headrace.store.core.engine import insert_new
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.core.schema import may_become
from headrace.store.jobs.queue import next_place
from headrace.store.jobs.schema import OPEN_JOB, job_secrets, jobs, pipelines


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is read, without its spec."""

    id: str
    incarnation: str
    name: str
    group: str
    status: JobStatus
    waits_for: str | None
    error: str | None
    wanted_cancel: bool
    wanted_savepoint: bool
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    run: int = 1  # each restore begins another one
    key: str = ""  # of the request that submitted or restored this run


@dataclass(frozen=True, slots=True)
class PipelineRow:
    """A pipeline as it is read."""

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
    written: Mapping[str, int]  # rows, by sink name
    read: Mapping[str, int] = field(default_factory=dict[str, int])  # rows, by source name
    completed_epoch: int | None = None  # set when a restore has put `epoch` above it

    @property
    def really_completed(self) -> int:
        """The last epoch that was completed, whatever a restore has set `epoch` to."""
        return self.epoch if self.completed_epoch is None else self.completed_epoch

    def as_record(self) -> dict[str, Any]:
        """The pipeline as history and savepoints keep it."""
        return {
            "number": self.number,
            "status": self.status.value,
            "epoch": self.epoch,
            "positions": dict(self.positions),
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "commits": dict(self.commits),
            "written": dict(self.written),
            "read": dict(self.read),
            "error": self.error,
        }


# A pass looks at a job that is written with this at once, whatever the clock of who wrote it says.
DUE: Mapping[str, Any] = {"due_at_ms": 0}

# The fields of a Job, in their order. Specs are wide, and rarely needed.
_READ = (
    *("id", "incarnation", "name", "group_name", "status", "waits_for", "error"),
    *("wanted_cancel", "wanted_savepoint", "created_at_ms", "started_at_ms", "ended_at_ms", "run"),
)
JOB_COLUMNS = (
    *(jobs.c[name] for name in _READ),
    func.coalesce(jobs.c.restore_key, jobs.c.submission_key),
)


def to_job(row: Sequence[Any]) -> Job:
    """The job of a row of JOB_COLUMNS."""
    job_id, incarnation, name, group, status, waits_for, error, cancel, savepoint, *rest = row
    about = (job_id, incarnation, name, group, JobStatus(status), waits_for, error)
    return Job(*about, bool(cancel), bool(savepoint), *rest)


# The fields of a PipelineRow, in their order. Whether it moved concerns `due_jobs` alone.
PIPELINE_COLUMNS = tuple(column for column in pipelines.c if column.name != "moved")


def to_pipeline(row: Sequence[Any]) -> PipelineRow:
    """The pipeline of a row of PIPELINE_COLUMNS."""
    job_id, number, status, *rest = row
    return PipelineRow(job_id, number, PipelineStatus(status), *rest)


_BY_KEY = PreparedStatement(select(*JOB_COLUMNS).where(jobs.c.submission_key == bindparam("key")))
_BY_ID = PreparedStatement(select(*JOB_COLUMNS).where(jobs.c.id == bindparam("id")))
_SPEC = PreparedStatement(select(jobs.c.spec).where(jobs.c.id == bindparam("id")))
_SPEC_AND_SECRETS = PreparedStatement(
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
    """The spec. Fields that a newer program wrote are ignored: since it lets us use the store,
    we can do without them."""
    row = _SPEC.row(conn, {"id": job_id})
    return JobSpec.model_validate(row[0] if row else None, extra="ignore")


def raw_spec(conn: Connection, job_id: str) -> Mapping[str, Any]:
    """The spec as it is stored: without secrets, and perhaps written by a newer program."""
    row = _SPEC.row(conn, {"id": job_id})
    return row[0] if row else {}


def spec_and_secrets_of(conn: Connection, job_id: str) -> tuple[JobSpec, Mapping[str, Any]]:
    """Spec and secrets of an open job. One that has ended has none: see
    `cleanups.spec_and_secrets_of`."""
    row = _SPEC_AND_SECRETS.row(conn, {"id": job_id})
    spec = JobSpec.model_validate(row[0] if row else None, extra="ignore")
    return spec, unseal(conn, of_job(row[1]), row[2]) if row else {}


def take_secrets(conn: Connection, job: Job) -> Sealed | None:
    """Delete the job's secrets, and return them as they were stored."""
    mine = job_secrets.c.job_id == job.id
    stored = conn.scalar(select(job_secrets.c.sealed).where(mine))
    if stored is not None:
        conn.execute(delete(job_secrets).where(mine))
    return stored


def put_secrets(
    conn: Connection, job_id: str, incarnation: str, secrets: Mapping[str, Any]
) -> None:
    """Store the secrets of a job that begins; it has none yet."""
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

    `opening`: pipelines that begin with epoch 0, in which sinks do what their save modes ask for.
    """
    if not insert_new(
        conn,
        jobs,
        id=job_id,
        incarnation=incarnation,
        submission_key=submission_key,
        name=spec.name,
        group_name=group,
        **stored_spec(spec),
        status=JobStatus.CREATED,
        created_at_ms=now_ms,
        queue_number=next_place(group),
        **DUE,
    ):
        return False
    conn.execute(
        insert(pipelines), [_new_pipeline(job_id, p.number, opening) for p in spec.pipelines]
    )
    put_secrets(conn, job_id, incarnation, spec.secrets)
    return True


def stored_spec(spec: JobSpec) -> dict[str, Any]:
    """The columns that follow from the spec of a job alone."""
    stored = spec.model_dump(mode="json", exclude={"secrets"})
    return {"spec": stored, "needs": needs_of(stored)}


def _new_pipeline(job_id: str, number: int, opening: Collection[int]) -> dict[str, Any]:
    """The row of a pipeline that has done nothing yet."""
    epoch = -1 if number in opening else 0
    named = {"job_id": job_id, "number": number, "status": PipelineStatus.CREATED}
    return {**named, "epoch": epoch, "positions": {}, "commits": {}}


def want_cancel(conn: Connection, job_id: str) -> bool:
    """Ask for the end of a job. False: there is no such job, or it has ended."""
    wanted = update(jobs).where(jobs.c.id == job_id, OPEN_JOB).values(wanted_cancel=1, **DUE)
    return conn.execute(wanted).rowcount == 1


def want_savepoint(conn: Connection, job_id: str) -> bool:
    """Ask for the end of a job with a savepoint. False: there is no such job, or it has ended."""
    wanted = update(jobs).where(jobs.c.id == job_id, OPEN_JOB).values(wanted_savepoint=1, **DUE)
    return conn.execute(wanted).rowcount == 1


_OPEN_IDS = PreparedStatement(
    select(jobs.c.id)
    .where(OPEN_JOB, jobs.c.id > bindparam("after"))
    .order_by(jobs.c.id)
    .limit(bindparam("most"))
)


def open_ids(conn: Connection, *, after: str = "", most: int) -> Sequence[str]:
    """Ids of jobs that have not ended, in pages."""
    return [job_id for (job_id,) in _OPEN_IDS.rows(conn, {"after": after, "most": most})]


def open_jobs(conn: Connection, *, most: int) -> Sequence[Job]:
    """Jobs that have not ended, the newest first. The others are in history (C7)."""
    newest_first = (jobs.c.created_at_ms.desc(), jobs.c.id)
    query = select(*JOB_COLUMNS).where(OPEN_JOB).order_by(*newest_first).limit(most)
    return [to_job(row) for row in conn.execute(query)]


def _given_or_kept(name: str, column: Any, kind: Any) -> Any:
    """The value of the parameter; without one the column stays as it is."""
    return func.coalesce(bindparam(name, type_=kind), column)


_CHANGE = PreparedStatement(
    update(jobs)
    .where(jobs.c.id == bindparam("job"), jobs.c.status == bindparam("was"))
    .values(
        status=bindparam("target"),
        waits_for=bindparam("waits"),
        error=_given_or_kept("because", jobs.c.error, Text()),
        started_at_ms=_given_or_kept("started", jobs.c.started_at_ms, BigInteger()),
        ended_at_ms=_given_or_kept("ended", jobs.c.ended_at_ms, BigInteger()),
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
    """Move a job from the status it was read in. False: somebody else moved it first.

    Raises IllegalTransition when the map has no such step from there.
    """
    check_job_transition(job.id, job.status, target)
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


_NOTE_WAITS_FOR = PreparedStatement(
    update(jobs)
    .where(jobs.c.id == bindparam("job"), jobs.c.status == bindparam("was"))
    .values(waits_for=bindparam("waits"))
)


def note_waits_for(conn: Connection, job: Job, waits_for: str | None) -> bool:
    """Write what a job waits for in the status it was read in. False: somebody moved it."""
    values = {"job": job.id, "was": job.status, "waits": waits_for}
    return _NOTE_WAITS_FOR.change(conn, values) == 1


_PIPELINES_OF = PreparedStatement(
    select(*PIPELINE_COLUMNS)
    .where(pipelines.c.job_id == bindparam("job"))
    .order_by(pipelines.c.number)
)
_ONE_PIPELINE = PreparedStatement(
    select(*PIPELINE_COLUMNS).where(
        pipelines.c.job_id == bindparam("job"), pipelines.c.number == bindparam("place")
    )
)
_WITH_PIPELINE = PreparedStatement(
    select(*JOB_COLUMNS, *PIPELINE_COLUMNS)
    .join(pipelines, pipelines.c.job_id == jobs.c.id)
    .where(jobs.c.id == bindparam("job"), pipelines.c.number == bindparam("place"))
)
_CHANGE_PIPELINE = {
    target: PreparedStatement(
        update(pipelines)
        .where(
            pipelines.c.job_id == bindparam("job"),
            pipelines.c.number == bindparam("place"),
            may_become(pipelines.c.status, PIPELINE_TRANSITIONS, target),
        )
        .values(
            status=target,
            task_id=_given_or_kept("task", pipelines.c.task_id, Text()),
            error=_given_or_kept("because", pipelines.c.error, Text()),
            moved=1,
        )
    )
    for target in PipelineStatus
}


def pipelines_of(conn: Connection, job_id: str) -> Sequence[PipelineRow]:
    return [to_pipeline(row) for row in _PIPELINES_OF.rows(conn, {"job": job_id})]


def pipeline(conn: Connection, job_id: str, number: int) -> PipelineRow:
    row = _ONE_PIPELINE.row(conn, {"job": job_id, "place": number})
    assert row is not None, "a job's pipelines are written with it, and stay"
    return to_pipeline(row)


def with_pipeline(conn: Connection, job_id: str, number: int) -> tuple[Job, PipelineRow]:
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
    """Move a pipeline, whatever it was when the caller read it. False: the map has no step from
    where it is by now, so it stays as it is (C1)."""
    values = {"job": job_id, "place": number, "task": task_id, "because": error}
    return _CHANGE_PIPELINE[target].change(conn, values) == 1


_ADVANCE = PreparedStatement(
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
    """Record a completed epoch. Idempotent: guarded by the last completed one. Ids may be
    skipped."""
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


def unreadable(job_id: str | None, error: Exception) -> Refused:
    """The error for a job whose stored form can't be read."""
    return Refused(
        f"what the store holds of job {job_id!r} can't be read: {why_unreadable(error)}; was it "
        "written by a newer headrace? upgrade the coordinators, then submit the job again"
    )


def why_unreadable(error: Exception) -> str:
    """What is wrong with a stored value, without the value: there may be a secret in it."""
    if not isinstance(error, ValidationError):
        return without_nul(repr(error))
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
