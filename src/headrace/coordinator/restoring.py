"""Restore: from the savepoint of a job that ended, and a job file, to the job that goes on.

All of it is one transaction. Every pipeline continues above the highest epoch that any had, so
that no token is asked of a target twice, however the pipelines are numbered now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.payloads import unreadable
from headrace.errors import NotFound, Refused
from headrace.model.epoch import EpochAt
from headrace.model.job import JOB_ENDED, JobStatus
from headrace.model.jobspec import JobSpec, PipelineSpec
from headrace.model.restore import changes, check_restore
from headrace.store import checkpoints, jobs, ready, restores, savepoints
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
    if (known := jobs.by_submission_key(conn, submission_key)) is not None:
        return Restored(_same(known, job_id), ())
    if job is None:
        raise NotFound("job", job_id)
    made, old = _savepoint_of(conn, job), _spec_of(conn, job_id)
    left_open = checkpoints.open_ones(conn, job.incarnation).keys()
    check_restore(job_id, old, spec, left_open=left_open)
    before = jobs.pipelines_of(conn, job_id)
    highest = max(made.epoch, checkpoints.highest(conn, job.incarnation))
    starts = [
        _resumed(pipeline, before)
        if pipeline.number in left_open
        else _start(pipeline, made, _twin(pipeline, old, before), epoch=highest)
        for pipeline in spec.pipelines
    ]
    restores.begin_again(
        conn,
        job,
        spec,
        starts,
        submission_key=submission_key,
        group=group or job.group,
        now_ms=now_ms,
    )
    # Who was ready in an epoch that goes on is so still; who became so later is not (K3).
    ready.forget(conn, job.incarnation, but=left_open)
    _say_who_is_ready(conn, spec, made, starts)
    return Restored(jobs.get(conn, job_id) or job, changes(old, spec))


def _say_who_is_ready(
    conn: Connection, spec: JobSpec, made: Savepoint, starts: Sequence[Start]
) -> None:
    for pipeline, start in zip(spec.pipelines, starts, strict=True):
        at = EpochAt(made.incarnation, pipeline.number, start.epoch, "")
        ready.add(conn, at, {each.name for each in pipeline.sources} & set(made.ready))


def _same(known: Job, job_id: str) -> Job:
    if known.id != job_id:
        raise Refused(
            f"the submission key belongs to job {known.id!r}, and {job_id!r} was asked to be "
            "restored; give each submission a key of its own"
        )
    return known


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
    """As it stands: its open epoch is the one after its last, and is finished first."""
    was = next(p for p in before if p.number == pipeline.number)
    counts = (was.rows_in, was.rows_out, was.commits, was.written)
    return Start(was.number, was.epoch, was.positions, *counts)
