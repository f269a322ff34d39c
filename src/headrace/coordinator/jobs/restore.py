"""Restore: a job that has ended goes on from its savepoint, under a new job file.

All of it is one transaction. Every pipeline continues above the highest epoch that any pipeline
had, so that no token is asked of a target twice, however the pipelines are numbered now. What each
of them had really completed is kept beside it: a target that holds more is newer than the store
(E7).

The former job is found by its rows, or by its savepoint once they are gone. Its cleanup waits, or
is done: the cleanup record is locked before the job, in the same order as `jobs/cleanup.py` locks
them (avoids deadlock).

A restore drops the cleanup record of the run before it. Nobody would be left to forget the marks at
a sink that is not in the new job file, or that is another target under the same name. So those
sinks get a cleanup record of their own, as if the job had ended there; its key is made of the
incarnation and the run.

Epoch 0, which does the save modes, runs once in the life of a job. A restore runs it for a pipeline
only if nobody ever planned it, because a token of it may be spent otherwise. And only under the
number that the pipeline had, by which the target knows it: a pipeline that took the number over
must not drop rows that its own sinks hold already.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.jobs.job_end import current_job
from headrace.errors import NotFound, Refused, StoreUnavailable
from headrace.model.jobs.epoch import EpochAt, EpochKind, EpochStatus, former_key
from headrace.model.jobs.spec import JobSpec, PipelineSpec, PluginSpec, changes, check_restore
from headrace.model.jobs.status import JOB_ENDED, JobStatus, PipelineStatus
from headrace.plugins.catalog import opens
from headrace.store.jobs import cleanups, epochs, history, jobs, savepoints
from headrace.store.jobs.cleanups import Cleanup
from headrace.store.jobs.history import EndedRun
from headrace.store.jobs.jobs import Job, PipelineRow, unreadable
from headrace.store.jobs.restore import Start, begin_again, by_key, insert_again, lock_job
from headrace.store.jobs.savepoints import Savepoint
from headrace.store.tasks import tasks

_WHY_NONE = {
    JobStatus.FINISHED: ": all of it was read",
    JobStatus.CANCELED: ": a job that is canceled keeps none",
    JobStatus.FAILED: ": it failed before its first checkpoint was complete, or it has expired",
    JobStatus.SAVEPOINT_DONE: " any more: it was deleted, or has expired",
}
_ENDED_WITH = {
    EpochKind.SAVEPOINT: JobStatus.SAVEPOINT_DONE,
    EpochKind.CHECKPOINT: JobStatus.FAILED,
}

# Facts of a pipeline in a savepoint that are no columns of its row, or of another type there.
NO_COLUMNS = frozenset({"status", "highest", "failure_cause"})
UNOPENED = -1  # the epoch of a pipeline whose epoch 0 is still to come


@dataclass(frozen=True, slots=True)
class RestoredJob:
    """What a restore made, or had made before."""

    job: Job | EndedRun  # EndedRun: it has ended again, and its rows are gone
    notes: Sequence[str]  # what is new in the job file, for people
    begun: bool = True  # False: it was restored before, under the same key


@dataclass(frozen=True, slots=True)
class FormerJob:
    """A job that has ended, as a restore finds it."""

    job: Job
    savepoint: Savepoint
    spec: JobSpec
    pipelines: Sequence[PipelineRow]
    highest: Mapping[int, int]  # by pipeline: the highest id it ever used; -1: none
    cleaned: bool  # its rows are gone

    @property
    def highest_of_any(self) -> int:
        return max(self.savepoint.epoch, *self.highest.values())


def restore(
    conn: Connection,
    spec: JobSpec,
    *,
    job_id: str,
    submission_key: str,
    group: str | None,
    now_ms: int,
) -> RestoredJob:
    """Restore the job; under a key that was used before, return it as it is by now. Idempotent."""
    lock_former(conn, job_id)
    if (known := _restored_before(conn, job_id, submission_key)) is not None:
        return RestoredJob(known, (), begun=False)
    former = find_former(conn, job_id)
    job, old = former.job, former.spec
    left_open = _abort_planned_epochs(conn, job, now_ms=now_ms)
    check_restore(job_id, old, spec, left_open=left_open)
    starts = _starts(former, spec, left_open=left_open)
    record_former_sinks(conn, former, spec, now_ms=now_ms)
    # The job goes on, so nothing else of it may be deleted any more (C6).
    cleanups.drop(conn, job.incarnation)
    _begin_again(conn, former, spec, starts, key=submission_key, group=group, now_ms=now_ms)
    # Sources that were ready in an epoch that goes on still are; later ones are not (K3).
    epochs.forget_ready(conn, job.incarnation, but=left_open)
    _add_ready_sources(conn, spec, former.savepoint, starts)
    return RestoredJob(jobs.get(conn, job_id) or job, changes(old, spec))


def _begin_again(
    conn: Connection,
    former: FormerJob,
    spec: JobSpec,
    starts: Sequence[Start],
    *,
    key: str,
    group: str | None,
    now_ms: int,
) -> None:
    job = former.job
    begins = not former.cleaned or insert_again(conn, job, spec, key=key, now_ms=now_ms)
    if not begins or not begin_again(
        conn, job, spec, starts, key=key, group=group or job.group, now_ms=now_ms
    ):
        raise Refused(
            f"job {job.id!r} was submitted or restored by somebody else at this moment; look at "
            f"`headrace job show {job.id}`"
        )
    epochs.forget_lost_workers(
        conn, job.incarnation
    )  # its tasks are new, and so are their retry counters


def _restored_before(conn: Connection, job_id: str, key: str) -> Job | EndedRun | None:
    """The job, if it was restored under this key before; refuses a key of another job."""
    known = by_key(conn, key)
    first = jobs.by_submission_key(conn, key) if known is None else None
    past = history.by_key(conn, key)
    ids = [each.id for each in (known, first) if each is not None]
    for other in [*ids, *([past.job_id] if past is not None else [])]:
        if other != job_id:
            raise Refused(
                f"the submission key belongs to job {other!r}, and {job_id!r} was asked to be "
                "restored; give each submission a key of its own"
            )
    # A job whose rows were gone has the key of the restore that inserted them again.
    if (past.run == 1) if past is not None else (first is not None):
        raise Refused(
            f"the submission key is the one under which job {job_id!r} was first submitted; give "
            "the restore a key of its own"
        )
    return known or (past and current_job(conn, past))


def _abort_planned_epochs(conn: Connection, job: Job, *, now_ms: int) -> Collection[int]:
    """Abort epochs that are only planned; returns the pipelines with a prepared epoch, which is
    finished first.

    A planned epoch is never run again: a settle task whose report got lost may have aborted it at
    some sink, or may still do so, and then nobody could commit it (E6).
    """
    kept: set[int] = set()
    for number in epochs.open_checkpoints(conn, job.incarnation):
        for left in epochs.all_open(conn, job.incarnation, number):
            if left.status is EpochStatus.PREPARED:
                kept.add(number)
            else:
                at = EpochAt(job.incarnation, number, left.epoch, left.execution)
                epochs.abort(conn, at, now_ms=now_ms)
    return kept


def _add_ready_sources(
    conn: Connection, spec: JobSpec, savepoint: Savepoint, starts: Sequence[Start]
) -> None:
    for pipeline, start in zip(spec.pipelines, starts, strict=True):
        at = EpochAt(savepoint.incarnation, pipeline.number, start.epoch, "")
        epochs.add_ready(conn, at, {each.name for each in pipeline.sources} & set(savepoint.ready))


def _starts(former: FormerJob, new: JobSpec, *, left_open: Collection[int]) -> Sequence[Start]:
    starts: list[Start] = []
    for pipeline in new.pipelines:
        if pipeline.number in left_open:
            starts.append(_resumed_start(pipeline, former.pipelines))
            continue
        epoch = UNOPENED if is_unopened(former, pipeline) else former.highest_of_any
        twin = _twin(pipeline, former.spec, former.pipelines)
        starts.append(_new_start(pipeline, former, twin, epoch=epoch))
    return starts


def _new_start(
    pipeline: PipelineSpec, former: FormerJob, twin: PipelineRow | None, *, epoch: int
) -> Start:
    savepoint = former.savepoint
    names = [each.name for each in pipeline.sources]
    before = {name: rows for p in former.pipelines for name, rows in p.read.items()}
    sinks = [each.name for each in pipeline.sinks]
    written = {name: savepoint.written[name] for name in sinks if name in savepoint.written}
    return Start(
        number=pipeline.number,
        epoch=epoch,
        positions={
            name: savepoint.positions[name] for name in names if name in savepoint.positions
        },
        rows_in=twin.rows_in if twin else 0,
        rows_out=twin.rows_out if twin else sum(written.values()),
        commits=dict(twin.commits) if twin else {},
        written=written,
        read={name: before[name] for name in names if name in before},
        completed_epoch=_completed_epoch(pipeline, former, epoch=epoch),
    )


def _twin(
    pipeline: PipelineSpec, old: JobSpec, before: Sequence[PipelineRow]
) -> PipelineRow | None:
    """The pipeline of the former job with the same sources: its counters go on."""
    sources = {each.name for each in pipeline.sources}
    numbers = [p.number for p in old.pipelines if {each.name for each in p.sources} == sources]
    return next((p for p in before if p.number in numbers), None)


def _completed_epoch(pipeline: PipelineSpec, former: FormerJob, *, epoch: int) -> int | None:
    """What the pipeline of this number completed (marks go by number); None: the same as `epoch`,
    or the number is new."""
    was = next((p for p in former.pipelines if p.number == pipeline.number), None)
    return None if was is None or was.really_completed == epoch else was.really_completed


def _resumed_start(pipeline: PipelineSpec, before: Sequence[PipelineRow]) -> Start:
    """Start a pipeline as it is: its prepared epoch is finished first."""
    was = next(p for p in before if p.number == pipeline.number)
    counts = (was.rows_in, was.rows_out, was.commits, was.written, was.read)
    return Start(was.number, was.epoch, was.positions, *counts, was.completed_epoch)


def is_unopened(former: FormerJob, pipeline: PipelineSpec) -> bool:
    """Whether it begins with epoch 0; raises Refused when that is due but not possible any more."""
    if not opens(pipeline):
        return False
    sinks, job_id = _sinks(pipeline), former.job.id
    waiting = {was.number for was in former.pipelines if was.epoch == UNOPENED}
    due = [was for was in former.spec.pipelines if was.number in waiting and _sinks(was) & sinks]
    for was in due:
        if was.number != pipeline.number or _sinks(was) != sinks:
            raise Refused(
                f"pipeline {was.number} of job {job_id!r} has not done yet what the save modes of "
                f"its sinks ask for; to do so it must stay pipeline {was.number}, with sink "
                f"{_sink_names(was)} as before. Keep it so in the job file, or run the file anew "
                "without --restore"
            )
        if former.highest[was.number] >= 0:
            raise Refused(
                f"pipeline {was.number} of job {job_id!r} stopped while it did what the save modes "
                f"of its sink {_sink_names(was)} ask for: its epoch 0 was begun, and is not run "
                "twice. Run the file anew without --restore"
            )
    return bool(due)


def _sinks(pipeline: PipelineSpec) -> set[str]:
    return {sink.name for sink in pipeline.sinks}


def _sink_names(pipeline: PipelineSpec) -> str:
    return ", ".join(repr(sink.name) for sink in pipeline.sinks)


def lock_former(conn: Connection, job_id: str) -> None:
    """Lock the job against another restore, and against its cleanup, for this transaction."""
    if (job := jobs.get(conn, job_id)) is not None:
        record = _lock_record(conn, job.incarnation)
        if (locked := lock_job(conn, job_id)) is not None:
            if record is None and cleanups.get(conn, locked.incarnation) is not None:
                # It ended in between: a cleanup may hold the record, and wait for the job's lock.
                raise StoreUnavailable(f"job {job_id!r} ended at this moment; try again")
            return
    if (savepoint := savepoints.lock(conn, job_id)) is not None:
        _lock_record(conn, savepoint.incarnation)


def _lock_record(conn: Connection, incarnation: str) -> Cleanup | None:
    """Lock the record's task first, as a report about it does (avoids deadlock)."""
    record = cleanups.get(conn, incarnation)
    if record is not None and record.task_id is not None:
        tasks.lock(conn, [record.task_id])
    return cleanups.lock(conn, incarnation)


def find_former(conn: Connection, job_id: str) -> FormerJob:
    """Read the former job, which is locked; raises Refused when it has not ended, or left no
    savepoint."""
    job = jobs.get(conn, job_id)
    if job is None:
        return _former_by_savepoint(conn, job_id)
    if job.status not in JOB_ENDED:
        raise Refused(
            f"job {job.id!r} is {job.status}: only a job that has ended can be restored; stop it "
            f"with `headrace job savepoint {job.id}` first"
        )
    savepoint = savepoints.of_incarnation(conn, job.incarnation)
    if savepoint is None:
        raise _no_savepoint(job.id, job.status)
    pipelines = jobs.pipelines_of(conn, job.id)
    return FormerJob(
        job=job,
        savepoint=savepoint,
        spec=_spec(job_id, jobs.raw_spec(conn, job_id)),
        pipelines=pipelines,
        highest={p.number: epochs.highest(conn, job.incarnation, p.number) for p in pipelines},
        cleaned=False,
    )


def _former_by_savepoint(conn: Connection, job_id: str) -> FormerJob:
    savepoint = savepoints.get(conn, job_id)
    if savepoint is None:
        if (ended := history.latest(conn, job_id)) is not None:
            raise _no_savepoint(job_id, ended.status)
        raise NotFound("job", job_id)
    # A run that was canceled before it began has left the savepoint as it was.
    last = history.latest_run(conn, savepoint.incarnation)
    return FormerJob(
        job=Job(
            id=job_id,
            incarnation=savepoint.incarnation,
            name=savepoint.name,
            group=savepoint.group,
            status=_ENDED_WITH[savepoint.kind],
            waits_for=None,
            error=None,
            wanted_cancel=False,
            wanted_savepoint=False,
            created_at_ms=savepoint.made_at_ms,
            started_at_ms=None,
            ended_at_ms=savepoint.made_at_ms,
            run=max(savepoint.run, last.run if last else 0),
        ),
        savepoint=savepoint,
        spec=_spec(job_id, savepoint.spec),
        pipelines=[_pipeline_row(job_id, facts) for facts in savepoint.pipelines],
        highest={int(facts["number"]): int(facts["highest"]) for facts in savepoint.pipelines},
        cleaned=True,
    )


def _pipeline_row(job_id: str, facts: Mapping[str, object]) -> PipelineRow:
    columns = {key: value for key, value in facts.items() if key not in NO_COLUMNS}
    status = PipelineStatus(str(facts["status"]))
    return PipelineRow(job_id=job_id, status=status, task_id=None, **columns)  # pyright: ignore[reportArgumentType]


def _spec(job_id: str, stored: Mapping[str, object]) -> JobSpec:
    try:
        return JobSpec.model_validate(stored, extra="ignore")
    except ValidationError as error:
        raise unreadable(job_id, error) from error


def _no_savepoint(job_id: str, status: JobStatus) -> Refused:
    return Refused(
        f"job {job_id!r} is {status} and left no savepoint{_WHY_NONE[status]}; "
        "run the file anew without --restore"
    )


def record_former_sinks(conn: Connection, former: FormerJob, new: JobSpec, *, now_ms: int) -> None:
    """Record the cleanup of sinks that the new job does not have.

    Call it before the job's own record is dropped; without such a record, its cleanup is done.
    """
    record = cleanups.get(conn, former.job.incarnation)
    dropped = _dropped_sinks(former.spec, new)
    if record is None or not dropped:
        return
    cleanups.add_targets(
        conn,
        former.job,
        key=former_key(former.job.incarnation, former.job.run),
        spec=former.spec.model_copy(update={"pipelines": tuple(dropped)}).model_dump(
            mode="json", exclude={"secrets"}
        ),
        secrets=_secrets(conn, former, dropped),
        up_to=max(record.up_to, former.highest_of_any),
        due_at_ms=record.targets_due_at_ms,
        now_ms=now_ms,
    )


def _dropped_sinks(old: JobSpec, new: JobSpec) -> Sequence[PipelineSpec]:
    """The former pipelines, each with the sinks that the new job does not have."""
    kept = {(p.number, *_identity(sink)) for p in new.pipelines for sink in p.sinks}
    dropped: list[PipelineSpec] = []
    for pipeline in old.pipelines:
        gone = tuple(s for s in pipeline.sinks if (pipeline.number, *_identity(s)) not in kept)
        if gone:
            dropped.append(pipeline.model_copy(update={"sinks": gone}))
    return dropped


def _identity(sink: PluginSpec) -> tuple[str, str, str]:
    return sink.name, sink.plugin, repr(sorted(sink.options.items()))


def _secrets(
    conn: Connection, former: FormerJob, dropped: Sequence[PipelineSpec]
) -> Mapping[str, Any]:
    _, known = cleanups.spec_and_secrets_of(conn, former.job.incarnation)
    sinks = tuple(f"{sink.name}." for pipeline in dropped for sink in pipeline.sinks)
    return {path: value for path, value in known.items() if path.startswith(sinks)}
