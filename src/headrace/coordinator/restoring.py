"""Restore: from the savepoint of a job that ended, and a job file, to the job that goes on.

All of it is one transaction. Every pipeline continues above the highest epoch that any had, so
that no token is asked of a target twice, however the pipelines are numbered now.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.payloads import unreadable
from headrace.coordinator.unopened import UNOPENED, is_unopened
from headrace.errors import NotFound, Refused
from headrace.model.epoch import EpochAt, EpochStatus
from headrace.model.job import JOB_ENDED, JobStatus
from headrace.model.jobspec import JobSpec, PipelineSpec
from headrace.model.restore import changes, check_restore
from headrace.store import checkpoints, epochs, jobs, ready, restores, savepoints
from headrace.store.jobs import Job, Pipeline
from headrace.store.restores import Start
from headrace.store.savepoints import Savepoint


@dataclass(frozen=True, slots=True)
class Restored:
    job: Job
    notes: Sequence[str]  # what is new in the job file, for people


def restore(
    conn: Connection,
    spec: JobSpec,
    *,
    job_id: str,
    submission_key: str,
    group: str | None,
    now_ms: int,
) -> Restored:
    """The job as it goes on; under a key that was used before, as it is by now."""
    job = restores.lock(conn, job_id)
    if (known := _restored_before(conn, job_id, submission_key)) is not None:
        return Restored(known, ())
    if job is None:
        raise NotFound("job", job_id)
    made, old = _savepoint_of(conn, job), _spec_of(conn, job_id)
    left_open = _prepared_ones(conn, job, now_ms=now_ms)
    check_restore(job_id, old, spec, left_open=left_open)
    starts = _starts(conn, job, made, old, spec, left_open=left_open)
    restores.begin_again(
        conn,
        job,
        spec,
        starts,
        key=submission_key,
        group=group or job.group,
        now_ms=now_ms,
    )
    # Who was ready in an epoch that goes on is so still; who became so later is not (K3).
    ready.forget(conn, job.incarnation, but=left_open)
    _say_who_is_ready(conn, spec, made, starts)
    return Restored(jobs.get(conn, job_id) or job, changes(old, spec))


def _starts(
    conn: Connection,
    job: Job,
    made: Savepoint,
    old: JobSpec,
    new: JobSpec,
    *,
    left_open: Collection[int],
) -> Sequence[Start]:
    before = jobs.pipelines_of(conn, job.id)
    highest = max(made.epoch, checkpoints.highest(conn, job.incarnation))
    starts: list[Start] = []
    for pipeline in new.pipelines:
        if pipeline.number in left_open:
            starts.append(_resumed(pipeline, before))
            continue
        epoch = UNOPENED if is_unopened(conn, job, pipeline, old, before) else highest
        starts.append(_start(pipeline, made, _twin(pipeline, old, before), epoch=epoch))
    return starts


def _say_who_is_ready(
    conn: Connection, spec: JobSpec, made: Savepoint, starts: Sequence[Start]
) -> None:
    for pipeline, start in zip(spec.pipelines, starts, strict=True):
        at = EpochAt(made.incarnation, pipeline.number, start.epoch, "")
        ready.add(conn, at, {each.name for each in pipeline.sources} & set(made.ready))


def _restored_before(conn: Connection, job_id: str, key: str) -> Job | None:
    """The job, when it was restored under this key already. Keys of others are refused."""
    restored, submitted = restores.by_key(conn, key), jobs.by_submission_key(conn, key)
    for known in (restored, submitted):
        if known is not None and known.id != job_id:
            raise Refused(
                f"the submission key belongs to job {known.id!r}, and {job_id!r} was asked to be "
                "restored; give each submission a key of its own"
            )
    if submitted is not None:
        raise Refused(
            f"the submission key is the one under which job {job_id!r} was first submitted; give "
            "the restore a key of its own"
        )
    return restored


def _prepared_ones(conn: Connection, job: Job, *, now_ms: int) -> Collection[int]:
    """Pipelines with a prepared epoch, which is finished first.

    One that is only planned is never run again: a settle task that was not heard of may have
    aborted it at some sink, or may do so yet, and whoever runs it could not commit it (E6).
    """
    kept: set[int] = set()
    for number in checkpoints.open_ones(conn, job.incarnation):
        for left in epochs.all_open(conn, job.incarnation, number):
            if left.status is EpochStatus.PREPARED:
                kept.add(number)
            else:
                at = EpochAt(job.incarnation, number, left.epoch, left.execution)
                epochs.abort(conn, at, now_ms=now_ms)
    return kept


def _savepoint_of(conn: Connection, job: Job) -> Savepoint:
    if job.status not in JOB_ENDED:
        raise Refused(
            f"job {job.id!r} is {job.status}: only a job that has ended can be restored; stop it "
            f"with `headrace job savepoint {job.id}` first"
        )
    made = savepoints.get(conn, job.id)
    if made is None:
        raise Refused(
            f"job {job.id!r} is {job.status} and left no savepoint{_WHY_NONE[job.status]}; "
            "run the file anew without --restore"
        )
    return made


_WHY_NONE = {
    JobStatus.FINISHED: ": all of it was read",
    JobStatus.CANCELED: ": a job that is canceled keeps none",
    JobStatus.FAILED: ": it failed before its first checkpoint was complete",
    JobStatus.SAVEPOINT_DONE: " any more: it was deleted",
}


def _spec_of(conn: Connection, job_id: str) -> JobSpec:
    try:
        return jobs.spec_of(conn, job_id)
    except ValidationError as error:
        raise unreadable(job_id, error) from error


def _twin(pipeline: PipelineSpec, old: JobSpec, before: Sequence[Pipeline]) -> Pipeline | None:
    """The pipeline of the old job that had the same sources: its counters go on."""
    sources = {each.name for each in pipeline.sources}
    numbers = [p.number for p in old.pipelines if {each.name for each in p.sources} == sources]
    return next((p for p in before if p.number in numbers), None)


def _start(pipeline: PipelineSpec, made: Savepoint, twin: Pipeline | None, *, epoch: int) -> Start:
    names = [each.name for each in pipeline.sources]
    written = {each.name: made.written.get(each.name, 0) for each in pipeline.sinks}
    return Start(
        number=pipeline.number,
        epoch=epoch,
        positions={name: made.positions[name] for name in names if name in made.positions},
        rows_in=twin.rows_in if twin else 0,
        rows_out=twin.rows_out if twin else sum(written.values()),
        commits=dict(twin.commits) if twin else {},
        written=written,
    )


def _resumed(pipeline: PipelineSpec, before: Sequence[Pipeline]) -> Start:
    """As it stands: what was prepared is finished first."""
    was = next(p for p in before if p.number == pipeline.number)
    counts = (was.rows_in, was.rows_out, was.commits, was.written)
    return Start(was.number, was.epoch, was.positions, *counts)
