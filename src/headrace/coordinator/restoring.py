"""Restore: from the savepoint of a job that ended, and a job file, to the job that goes on.

All of it is one transaction. Every pipeline continues above the highest epoch that any had, so
that no token is asked of a target twice, however the pipelines are numbered now. What each of them
had really completed is kept beside it: a target that holds more is newer than the store (E7).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from headrace.coordinator.former import Former, find_former, lock_former
from headrace.coordinator.former_sinks import record_former_sinks
from headrace.coordinator.known import now_of
from headrace.coordinator.unopened import UNOPENED, is_unopened
from headrace.errors import Refused
from headrace.model.epoch import EpochAt, EpochStatus
from headrace.model.jobspec import JobSpec, PipelineSpec
from headrace.model.restore import changes, check_restore
from headrace.store import checkpoints, cleanups, epochs, history, jobs, ready, restores
from headrace.store.history import Ended
from headrace.store.jobs import Job, Pipeline
from headrace.store.restores import Start
from headrace.store.savepoints import Savepoint


@dataclass(frozen=True, slots=True)
class Restored:
    job: Job | Ended  # as it was when it ended, when that is all there is by now
    notes: Sequence[str]  # what is new in the job file, for people
    begun: bool = True  # False: it was before, under the same key


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
    lock_former(conn, job_id)
    if (known := _restored_before(conn, job_id, submission_key)) is not None:
        return Restored(known, (), begun=False)
    former = find_former(conn, job_id)
    job, old = former.job, former.spec
    left_open = _prepared_ones(conn, job, now_ms=now_ms)
    check_restore(job_id, old, spec, left_open=left_open)
    starts = _starts(former, spec, left_open=left_open)
    record_former_sinks(conn, former, spec, now_ms=now_ms)
    # It goes on, so nothing else of it is to be deleted any more (C6).
    cleanups.drop(conn, job.incarnation)
    _begin_again(conn, former, spec, starts, key=submission_key, group=group, now_ms=now_ms)
    # Who was ready in an epoch that goes on is so still; who became so later is not (K3).
    ready.forget(conn, job.incarnation, but=left_open)
    _say_who_is_ready(conn, spec, former.made, starts)
    return Restored(jobs.get(conn, job_id) or job, changes(old, spec))


def _begin_again(
    conn: Connection,
    former: Former,
    spec: JobSpec,
    starts: Sequence[Start],
    *,
    key: str,
    group: str | None,
    now_ms: int,
) -> None:
    job = former.job
    if former.cleaned and not restores.insert_again(conn, job, spec, key=key, now_ms=now_ms):
        raise Refused(
            f"job {job.id!r} was submitted or restored by somebody else at this moment; look at "
            f"`headrace job show {job.id}`"
        )
    restores.begin_again(conn, job, spec, starts, key=key, group=group or job.group, now_ms=now_ms)
    epochs.forgive(conn, job.incarnation)  # its tasks are new, and so are all their retries


def _starts(former: Former, new: JobSpec, *, left_open: Collection[int]) -> Sequence[Start]:
    starts: list[Start] = []
    for pipeline in new.pipelines:
        if pipeline.number in left_open:
            starts.append(_resumed(pipeline, former.pipelines))
            continue
        epoch = UNOPENED if is_unopened(former, pipeline) else former.highest_of_any
        twin = _twin(pipeline, former.spec, former.pipelines)
        starts.append(_start(pipeline, former, twin, epoch=epoch))
    return starts


def _say_who_is_ready(
    conn: Connection, spec: JobSpec, made: Savepoint, starts: Sequence[Start]
) -> None:
    for pipeline, start in zip(spec.pipelines, starts, strict=True):
        at = EpochAt(made.incarnation, pipeline.number, start.epoch, "")
        ready.add(conn, at, {each.name for each in pipeline.sources} & set(made.ready))


def _restored_before(conn: Connection, job_id: str, key: str) -> Job | Ended | None:
    """The job, when it was restored under this key already. Keys of others are refused."""
    known = restores.by_key(conn, key)
    first = jobs.by_submission_key(conn, key) if known is None else None
    past = history.by_key(conn, key)
    ids = [each.id for each in (known, first) if each is not None]
    for other in [*ids, *([past.job_id] if past is not None else [])]:
        if other != job_id:
            raise Refused(
                f"the submission key belongs to job {other!r}, and {job_id!r} was asked to be "
                "restored; give each submission a key of its own"
            )
    # Once its rows were gone, a job goes on under the key of the restore that brought it back.
    if (past.run == 1) if past is not None else (first is not None):
        raise Refused(
            f"the submission key is the one under which job {job_id!r} was first submitted; give "
            "the restore a key of its own"
        )
    return known or (past and now_of(conn, past))


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


def _twin(pipeline: PipelineSpec, old: JobSpec, before: Sequence[Pipeline]) -> Pipeline | None:
    """The pipeline of the old job that had the same sources: its counters go on."""
    sources = {each.name for each in pipeline.sources}
    numbers = [p.number for p in old.pipelines if {each.name for each in p.sources} == sources]
    return next((p for p in before if p.number in numbers), None)


def _start(pipeline: PipelineSpec, former: Former, twin: Pipeline | None, *, epoch: int) -> Start:
    made = former.made
    names = [each.name for each in pipeline.sources]
    before = {name: rows for p in former.pipelines for name, rows in p.read.items()}
    sinks = [each.name for each in pipeline.sinks]
    written = {name: made.written[name] for name in sinks if name in made.written}
    return Start(
        number=pipeline.number,
        epoch=epoch,
        positions={name: made.positions[name] for name in names if name in made.positions},
        rows_in=twin.rows_in if twin else 0,
        rows_out=twin.rows_out if twin else sum(written.values()),
        commits=dict(twin.commits) if twin else {},
        written=written,
        read={name: before[name] for name in names if name in before},
        completed_epoch=_completed(pipeline, former, epoch=epoch),
    )


def _completed(pipeline: PipelineSpec, former: Former, *, epoch: int) -> int | None:
    """By its number, as marks are; None: it is `epoch`, or the number is new."""
    was = next((p for p in former.pipelines if p.number == pipeline.number), None)
    return None if was is None or was.really_completed == epoch else was.really_completed


def _resumed(pipeline: PipelineSpec, before: Sequence[Pipeline]) -> Start:
    """As it stands: what was prepared is finished first."""
    was = next(p for p in before if p.number == pipeline.number)
    counts = (was.rows_in, was.rows_out, was.commits, was.written, was.read)
    return Start(was.number, was.epoch, was.positions, *counts, was.completed_epoch)
