"""What a report of a worker changes. Every report is guarded by its claim, and is idempotent.

A report whose claim is no longer current (its task has ended, is gone, or belongs to another
execution by now) changes nothing. It is acknowledged all the same, because the worker only needs to
know that it may forget it (C1). `LateReports` logs it once, however often a worker that missed the
answer repeats it.

A pipeline may end when all of its sources have read everything: then they are *ready to close*
(K1, K2).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import assert_never

from pydantic import ValidationError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from headrace.coordinator.jobs import job_log
from headrace.coordinator.jobs.attempts import (
    UNFIT_PAUSE_MS,
    TaskPlace,
    attempt_failed,
    finish,
    may_succeed_later,
    place_of,
    postpone,
    progressed,
)
from headrace.coordinator.tables import evaluation
from headrace.coordinator.tables.tasks import table_task
from headrace.logs import Once
from headrace.model.jobs.epoch import OPEN_MAX, EpochKind, EpochStatus
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import Claim, ForgetOrder, PipelineOrder, TaskKind, TaskStatus
from headrace.model.text import without_nul
from headrace.protocol.messages import (
    Acknowledged,
    End,
    EpochCompleted,
    EpochPlanned,
    EpochPrepared,
    Report,
    SettleResult,
    TaskEnded,
    TaskGivenBack,
)
from headrace.seams import seam
from headrace.store.jobs import cleanups, epochs, jobs
from headrace.store.tables import processes
from headrace.store.tasks import tasks as store_tasks
from headrace.store.tasks.tasks import Task

log = logging.getLogger(__name__)

EpochReport = EpochPlanned | EpochPrepared | EpochCompleted


def apply(conn: Connection, report: Report, *, now_ms: int) -> Acknowledged:
    """Apply one report. `Dispatch` batches the ends of simple tasks instead."""
    if not isinstance(report, End):
        return apply_epoch(conn, report, now_ms=now_ms)
    task = lock_ended(conn, report.claim)
    match report:
        case TaskEnded() if task is not None:
            apply_end(conn, task, report, now_ms=now_ms)
        case TaskGivenBack() if task is not None:
            postpone(conn, task, report.reason, now_ms=now_ms, pause_ms=UNFIT_PAUSE_MS)
        case _:
            pass
    return Acknowledged(seq=report.seq, held=task is not None)


def lock_ended(conn: Connection, claim: Claim, seen: Task | None = None) -> Task | None:
    """The task whose end is reported, locked, if `claim` is still its current attempt.

    `seen`: the task as it was read without a lock, if it was. A pass may have given it back since,
    and an end that is decided by it would leave a job half ended (C1).
    """
    seen = seen or store_tasks.get(conn, claim.task)
    if seen is not None and seen.process_id is not None:
        # Everybody locks a process before its tasks, and its table last: this avoids deadlock.
        processes.lock(conn, seen.process_id)
    return store_tasks.current(conn, claim)


def apply_apart(conn: Connection, report: Report, *, now_ms: int) -> Acknowledged:
    """As `apply`, but a report that can't be stored fails its task: it would be sent for ever."""
    try:
        with conn.begin_nested():
            return apply(conn, report, now_ms=now_ms)
    except OperationalError:
        raise  # the store is unavailable, and no report is to blame
    except Exception as error:
        log.exception("report can't be recorded", extra={"execution": report.claim.execution})
        # The text of a driver's error has the whole statement with its values: `orig` is enough.
        reason = error.orig if isinstance(error, DBAPIError) else error
        if (task := store_tasks.current(conn, report.claim)) is not None:
            message = f"its worker's report {report.kind} can't be recorded: {reason!r}"
            attempt_failed(conn, task, without_nul(message), retry=False, now_ms=now_ms)
        return Acknowledged(seq=report.seq, held=False)


def apply_epoch(conn: Connection, report: EpochReport, *, now_ms: int) -> Acknowledged:
    """Apply one step of an epoch, if the execution that reports it still has its task."""
    task = store_tasks.current(conn, report.claim)
    if task is None or task.kind is not TaskKind.PIPELINE:
        return Acknowledged(seq=report.seq, held=False)
    place = place_of(conn, task)
    match report:
        case EpochPlanned():
            return _planned(conn, place, report, now_ms=now_ms)
        case EpochPrepared():
            return _prepared(conn, place, report, now_ms=now_ms)
        case EpochCompleted():
            return _completed(conn, place, report, now_ms=now_ms)
    assert_never(report)


def _planned(
    conn: Connection, place: TaskPlace, report: EpochPlanned, *, now_ms: int
) -> Acknowledged:
    at = place.at(report.epoch)
    existing = epochs.get(conn, at)
    if existing is None:
        if not _is_next(conn, place, report.epoch):
            return Acknowledged(seq=report.seq, held=False)
        kind = EpochKind.OPENING if report.epoch == 0 else EpochKind.CHECKPOINT
        job = place.job.id
        epochs.plan(conn, at, job_id=job, slices=report.plan, now_ms=now_ms, kind=kind)
    elif existing.status is not EpochStatus.PLANNED:
        return Acknowledged(seq=report.seq, held=False)
    elif existing.execution != at.execution:
        epochs.grant_again(conn, at)
    _mark_running(conn, place)
    # An earlier execution may have planned this epoch. Its plan is the one to run: its rows may be
    # staged already, and the same slices give the same rows.
    plan = report.plan if existing is None else dict(existing.plan)
    return Acknowledged(seq=report.seq, held=True, plan=plan)


def _is_next(conn: Connection, place: TaskPlace, epoch: int) -> bool:
    """Whether `epoch` is the next id, and not too many epochs are open."""
    open_epochs = epochs.all_open(conn, place.job.incarnation, place.pipeline.number)
    return epoch == _next_id(conn, place) and len(open_epochs) < OPEN_MAX


def _next_id(conn: Connection, place: TaskPlace) -> int:
    """The id above every epoch there ever was: targets also refuse tokens that an abort spent."""
    highest = epochs.highest(conn, place.job.incarnation, place.pipeline.number)
    return max(place.pipeline.epoch, highest) + 1


def _prepared(
    conn: Connection, place: TaskPlace, report: EpochPrepared, *, now_ms: int
) -> Acknowledged:
    at = place.at(report.epoch)
    open_epochs = epochs.all_open(conn, place.job.incarnation, place.pipeline.number)
    if any(e.epoch < at.epoch and e.status is EpochStatus.PLANNED for e in open_epochs):
        return Acknowledged(seq=report.seq, held=False)  # else the older one could be skipped
    if epochs.prepare(conn, at, handles=report.handles, read=report.read, now_ms=now_ms):
        epochs.add_ready(conn, at, report.ready)
        seam("epoch prepared, in transaction")
        return Acknowledged(seq=report.seq, held=True)
    existing = epochs.get(conn, at)
    repeated = (
        existing is not None
        and existing.execution == at.execution
        and existing.status in {EpochStatus.PREPARED, EpochStatus.COMPLETED}
    )
    return Acknowledged(seq=report.seq, held=repeated)


def _completed(
    conn: Connection, place: TaskPlace, report: EpochCompleted, *, now_ms: int
) -> Acknowledged:
    if complete(conn, place, report, now_ms=now_ms):
        _mark_running(conn, place)
        return Acknowledged(seq=report.seq, held=True)
    existing = epochs.get(conn, place.at(report.epoch))
    repeated = existing is not None and existing.status is EpochStatus.COMPLETED
    return Acknowledged(seq=report.seq, held=repeated)


def complete(conn: Connection, place: TaskPlace, done: EpochCompleted, *, now_ms: int) -> bool:
    """Record that an epoch is committed at every sink. False: it is recorded already, or an older
    epoch is still open."""
    at = place.at(done.epoch)
    oldest = epochs.oldest_open(conn, place.job.incarnation, place.pipeline.number)
    if oldest is None or oldest.epoch != done.epoch:
        return False
    # Counted by the execution that prepared it, which may be gone by now.
    rows_in = done.rows_in if oldest.read is None else sum(oldest.read.values())
    if not epochs.complete(conn, at, rows_in=rows_in, rows_out=done.rows_out, now_ms=now_ms):
        return False
    progressed(conn, place.task, had_rows=rows_in > 0 or done.rows_out > 0)
    if (retained := PipelineOrder.of(place.task.payload).retained) is not None:
        epochs.forget(conn, at, retained=retained)
    jobs.advance(
        conn,
        place.job.id,
        place.pipeline.number,
        epoch=done.epoch,
        positions=done.positions,
        rows_in=rows_in,
        rows_out=done.rows_out,
        # An epoch without rows has no commits: those of the epochs before it stay.
        commits={**place.pipeline.commits, **done.commits},
        written=done.written,
        read=_sum_by_name(place.pipeline.read, oldest.read or {}),
    )
    evaluation.notice_commits(conn, done.commits, now_ms=now_ms)
    return True


def _sum_by_name(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + more.get(name, 0) for name in {**before, **more}}


def _mark_running(conn: Connection, place: TaskPlace) -> None:
    if place.pipeline.status is not PipelineStatus.RUNNING and not place.task.stop:
        jobs.change_pipeline(conn, place.job.id, place.pipeline.number, PipelineStatus.RUNNING)


def apply_end(conn: Connection, task: Task, report: TaskEnded, *, now_ms: int) -> None:
    """Apply the end of a task. `task` is current and locked."""
    match task.kind:
        case TaskKind.PIPELINE:
            _pipeline_ended(conn, task, report, now_ms=now_ms)
        case TaskKind.SETTLE if report.outcome == "SUCCESS":
            _settled(conn, place_of(conn, task), report, now_ms=now_ms)
        case TaskKind.FORGET if report.outcome == "SUCCESS":
            _forgotten(conn, task)
        case TaskKind.SETTLE | TaskKind.FORGET:
            _failed(conn, task, report, now_ms=now_ms)
        case TaskKind.NOOP:
            finish(conn, task, TaskStatus(report.outcome), error=report.error, now_ms=now_ms)
        case _:
            table_task(task.kind).ended(conn, task, report, now_ms=now_ms)


def _pipeline_ended(conn: Connection, task: Task, report: TaskEnded, *, now_ms: int) -> None:
    match report.outcome:
        case "SUCCESS":
            _finished(conn, place_of(conn, task), now_ms=now_ms)
        case "SAVEPOINT":
            _saved(conn, place_of(conn, task), now_ms=now_ms)
        case "FAILED" | "CANCELED":
            _failed(conn, task, report, now_ms=now_ms)
        case _:
            assert_never(report.outcome)


def _failed(conn: Connection, task: Task, report: TaskEnded, *, now_ms: int) -> None:
    error = report.error or f"its worker said {report.outcome} and gave no reason"
    retry = report.retry or may_succeed_later(conn, task, report.cause)
    attempt_failed(conn, task, error, cause=report.cause, retry=retry, now_ms=now_ms)


def _finished(conn: Connection, place: TaskPlace, *, now_ms: int) -> None:
    """The completed point: every source has read everything, and all of it is committed."""
    if waiting := not_ready(conn, place):
        error = f"its worker said SUCCESS, and not all is read of {', '.join(waiting)}"
        attempt_failed(conn, place.task, error, retry=True, now_ms=now_ms)
        return
    _end_with(conn, place, EpochKind.COMPLETED, now_ms=now_ms)


def _saved(conn: Connection, place: TaskPlace, *, now_ms: int) -> None:
    """A savepoint: the job may be restored from here. Only a job in DOING_SAVEPOINT may end so."""
    if place.job.status is not JobStatus.DOING_SAVEPOINT:
        error = f"its worker said SAVEPOINT, and the job is {place.job.status}"
        attempt_failed(conn, place.task, error, retry=True, now_ms=now_ms)
        return
    _end_with(conn, place, EpochKind.SAVEPOINT, now_ms=now_ms)


def _end_with(conn: Connection, place: TaskPlace, kind: EpochKind, *, now_ms: int) -> None:
    """End a pipeline with an epoch of `kind`, which has the next id and no slices."""
    if left := _left_open(conn, place):
        error = f"its worker said that it is done, and {left}"
        attempt_failed(conn, place.task, error, retry=True, now_ms=now_ms)
        return
    if not finish(conn, place.task, TaskStatus.SUCCESS, now_ms=now_ms):
        return
    at = place.at(_next_id(conn, place))
    epochs.plan(conn, at, job_id=place.job.id, slices={}, now_ms=now_ms, kind=kind)
    jobs.advance(
        conn,
        place.job.id,
        place.pipeline.number,
        epoch=at.epoch,
        positions=place.pipeline.positions,
        rows_in=0,
        rows_out=0,
        commits=place.pipeline.commits,
        written=place.pipeline.written,
        read=place.pipeline.read,
    )
    jobs.change_pipeline(conn, place.job.id, place.pipeline.number, PipelineStatus.FINISHED)
    job_log.note_done(conn, place.task, kind, now_ms=now_ms)


def _left_open(conn: Connection, place: TaskPlace) -> str | None:
    left = epochs.oldest_open(conn, place.job.incarnation, place.pipeline.number)
    return left and f"epoch {left.epoch} is still {left.status}"


def _settled(conn: Connection, place: TaskPlace, report: TaskEnded, *, now_ms: int) -> None:
    """A settle task completed prepared epochs, or aborted planned ones (E6)."""
    result = _settle_result(report)
    for done in result.completed:
        complete(conn, place, done, now_ms=now_ms)
        place = place_of(conn, place.task)
    for epoch in result.aborted:
        epochs.abort(conn, place.at(epoch), now_ms=now_ms)
    if left := _left_open(conn, place):  # must fail, since nobody else settles it
        error = f"its worker said SUCCESS, and {left}"
        attempt_failed(conn, place.task, error, retry=True, now_ms=now_ms)
    elif finish(conn, place.task, TaskStatus.SUCCESS, now_ms=now_ms):
        job_log.note_settled(conn, place.task, result, now_ms=now_ms)


def _settle_result(report: TaskEnded) -> SettleResult:
    try:
        return SettleResult.model_validate(report.result)
    except ValidationError as error:
        log.warning("settle result can't be read", extra={"reason": str(error)})
        return SettleResult()


def _forgotten(conn: Connection, task: Task) -> None:
    """Nothing of a job is left at its targets: drop its cleanup record, and the FORGET task."""
    incarnation = ForgetOrder.of(task.payload).incarnation
    cleanups.drop(conn, incarnation)
    store_tasks.delete(conn, task.id)
    seam("targets forgotten, in transaction")
    log.info("targets cleaned", extra={"incarnation": incarnation})


def ready_of(conn: Connection, place: TaskPlace, spec: JobSpec) -> Sequence[str]:
    """The sources of the pipeline that are ready to close. Unknown names are logged, and ignored.

    Raises `ValueError` when the stored set is impossible: a guess would lose rows, or hang (K4).
    """
    sources = _sources(place, spec)
    ready = epochs.ready_of(conn, place.job.incarnation, place.pipeline.number)
    newest = place.pipeline.epoch + OPEN_MAX
    for name, epoch in ready.items():
        if not 0 <= epoch <= newest:
            raise ValueError(
                f"source {name!r} is ready to close since epoch {epoch}, and {newest} is the "
                "newest there can be"
            )
    for stranger in (name for name in ready if name not in sources):
        facts = {"job": place.job.id, "pipeline": place.pipeline.number, "source": stranger}
        log.warning("ready to close, but no source of the pipeline", extra=facts)
    return [name for name in sources if name in ready]


def not_ready(conn: Connection, place: TaskPlace) -> Sequence[str]:
    """The sources of the pipeline that still have something to read."""
    spec = jobs.spec_of(conn, place.job.id)
    ready = ready_of(conn, place, spec)
    return [name for name in _sources(place, spec) if name not in ready]


def _sources(place: TaskPlace, spec: JobSpec) -> Sequence[str]:
    pipeline = next(p for p in spec.pipelines if p.number == place.pipeline.number)
    return [source.name for source in pipeline.sources]


class LateReports:
    """Logs late reports. Lives for one leader term; used by the thread that applies reports."""

    def __init__(self) -> None:
        self._once = Once()

    def note(self, report: Report, answer: Acknowledged) -> None:
        """Log a report that was not applied. Its task may be gone, so its claim is all there is."""
        if answer.held or not self._once.first((report.claim, report.kind)):
            return
        log.info(
            "late report",
            extra={
                "report": report.kind,
                "task": report.claim.task,
                "execution": report.claim.execution,
                "epoch": None if isinstance(report, End) else report.epoch,
            },
        )
