"""What a report changes. Every one is guarded by its claim, and said twice it changes nothing.

A report whose claim is no longer current is acknowledged all the same: the worker only needs to
know that it may forget it (C1); `late` tells of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import assert_never

from pydantic import ValidationError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from headrace.coordinator import joblog
from headrace.coordinator.attempts import (
    Place,
    attempt_failed,
    finish,
    may_succeed_later,
    place_of,
    progressed,
)
from headrace.coordinator.ready import not_ready
from headrace.coordinator.tables import ends, news
from headrace.model.epoch import OPEN_MAX, EpochKind, EpochStatus
from headrace.model.job import JobStatus, PipelineStatus
from headrace.model.task import OF_TABLES, TaskKind, TaskStatus
from headrace.model.text import without_nul
from headrace.protocol.messages import (
    Acknowledged,
    EpochCompleted,
    EpochPlanned,
    EpochPrepared,
    TaskEnded,
)
from headrace.protocol.payloads import Settled
from headrace.seams import seam
from headrace.store import cleanups, epochs, jobs, ready, tasks
from headrace.store.tasks import Task

log = logging.getLogger(__name__)

EpochReport = EpochPlanned | EpochPrepared | EpochCompleted


def apply(conn: Connection, report: EpochReport | TaskEnded, *, now_ms: int) -> Acknowledged:
    """Apply one report by itself. The writer batches the simple ones instead."""
    if not isinstance(report, TaskEnded):
        return apply_epoch(conn, report, now_ms=now_ms)
    task = tasks.current(conn, report.claim)
    if task is not None and task.kind is TaskKind.NOOP:
        finish(conn, task, TaskStatus(report.outcome), error=report.error, now_ms=now_ms)
    elif task is not None:
        apply_end(conn, task, report, now_ms=now_ms)
    return Acknowledged(seq=report.seq, held=task is not None)


def apply_apart(conn: Connection, report: EpochReport | TaskEnded, *, now_ms: int) -> Acknowledged:
    """As `apply`; a report that can't be recorded fails its task, or it would come for ever."""
    try:
        with conn.begin_nested():
            return apply(conn, report, now_ms=now_ms)
    except OperationalError:
        raise  # the store is away, and no report is to blame
    except Exception as error:
        log.exception("report can't be recorded", extra={"execution": report.claim.execution})
        # An error of the driver repeats the statement with all its values; its reason is enough.
        reason = error.orig if isinstance(error, DBAPIError) else error
        if (task := tasks.current(conn, report.claim)) is not None:
            told = f"its worker's report {report.kind} can't be recorded: {reason!r}"
            attempt_failed(conn, task, without_nul(told), retry=False, now_ms=now_ms)
        return Acknowledged(seq=report.seq, held=False)


def apply_epoch(conn: Connection, report: EpochReport, *, now_ms: int) -> Acknowledged:
    """Take one step of an epoch, if the execution that reports it still holds its task."""
    task = tasks.current(conn, report.claim)
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
        case _:
            assert_never(report)


def _planned(conn: Connection, place: Place, report: EpochPlanned, *, now_ms: int) -> Acknowledged:
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
    _running(conn, place)
    # An earlier execution may have planned this epoch: its plan is the one to run, because its
    # rows may be staged already, and the same slices give the same rows.
    plan = report.plan if existing is None else dict(existing.plan)
    return Acknowledged(seq=report.seq, held=True, plan=plan)


def _is_next(conn: Connection, place: Place, epoch: int) -> bool:
    """Whether it follows the last one there ever was, and not too many are open."""
    left = epochs.all_open(conn, place.job.incarnation, place.pipeline.number)
    return epoch == _next_id(conn, place) and len(left) < OPEN_MAX


def _next_id(conn: Connection, place: Place) -> int:
    """Above every one there ever was: also a token that an abort spent is refused."""
    highest = epochs.highest(conn, place.job.incarnation, place.pipeline.number)
    return max(place.pipeline.epoch, highest) + 1


def _prepared(
    conn: Connection, place: Place, report: EpochPrepared, *, now_ms: int
) -> Acknowledged:
    at = place.at(report.epoch)
    left = epochs.all_open(conn, place.job.incarnation, place.pipeline.number)
    if any(e.epoch < at.epoch and e.status is EpochStatus.PLANNED for e in left):
        return Acknowledged(seq=report.seq, held=False)  # or one could be skipped for good
    if epochs.prepare(conn, at, handles=report.handles, read=report.read, now_ms=now_ms):
        ready.add(conn, at, report.ready)
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
    conn: Connection, place: Place, report: EpochCompleted, *, now_ms: int
) -> Acknowledged:
    if complete(conn, place, report, now_ms=now_ms):
        _running(conn, place)
        return Acknowledged(seq=report.seq, held=True)
    existing = epochs.get(conn, place.at(report.epoch))
    repeated = existing is not None and existing.status is EpochStatus.COMPLETED
    return Acknowledged(seq=report.seq, held=repeated)


def complete(conn: Connection, place: Place, done: EpochCompleted, *, now_ms: int) -> bool:
    """Record that an epoch is committed everywhere. False: it is, or it is not its turn."""
    at = place.at(done.epoch)
    oldest = epochs.open_one(conn, place.job.incarnation, place.pipeline.number)
    if oldest is None or oldest.epoch != done.epoch:
        return False
    # Counted by whoever prepared it, which may be an execution that is gone by now.
    rows_in = done.rows_in if oldest.read is None else sum(oldest.read.values())
    if not epochs.complete(conn, at, rows_in=rows_in, rows_out=done.rows_out, now_ms=now_ms):
        return False
    progressed(conn, place.task, had_rows=rows_in > 0 or done.rows_out > 0)
    if (retained := place.task.payload.get("retained")) is not None:
        epochs.forget(conn, at, retained=int(retained))
    jobs.advance(
        conn,
        place.job.id,
        place.pipeline.number,
        epoch=done.epoch,
        positions=done.positions,
        rows_in=rows_in,
        rows_out=done.rows_out,
        # An epoch without rows has no commits: what the last one says still stands.
        commits={**place.pipeline.commits, **done.commits},
        written=done.written,
        read=_added(place.pipeline.read, oldest.read or {}),
    )
    news.written(conn, done.commits, now_ms=now_ms)
    return True


def _added(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + more.get(name, 0) for name in {**before, **more}}


def _running(conn: Connection, place: Place) -> None:
    if place.pipeline.status is not PipelineStatus.RUNNING and not place.task.stop:
        jobs.change_pipeline(conn, place.job.id, place.pipeline.number, PipelineStatus.RUNNING)


def apply_end(conn: Connection, task: Task, report: TaskEnded, *, now_ms: int) -> None:
    """Record the end of a task. `task` is current and locked."""
    if task.kind in OF_TABLES:
        ends.apply_end(conn, task, report, now_ms=now_ms)
        return
    match task.kind, report.outcome:
        case TaskKind.PIPELINE, "SUCCESS":
            _finished(conn, place_of(conn, task), now_ms=now_ms)
        case TaskKind.FORGET, "SUCCESS":
            _forgotten(conn, task)
        case TaskKind.PIPELINE, "SAVEPOINT":
            _saved(conn, place_of(conn, task), now_ms=now_ms)
        case _, "SUCCESS":
            _settled(conn, place_of(conn, task), report, now_ms=now_ms)
        case _:
            error = report.error or f"its worker said {report.outcome} and gave no reason"
            retry = report.retry or may_succeed_later(conn, task, report.cause)
            attempt_failed(conn, task, error, cause=report.cause, retry=retry, now_ms=now_ms)


def _finished(conn: Connection, place: Place, *, now_ms: int) -> None:
    """The completed point: every source has read everything, and it is committed."""
    if waiting := not_ready(conn, place):
        error = f"its worker said SUCCESS, and not all is read of {', '.join(waiting)}"
        attempt_failed(conn, place.task, error, retry=True, now_ms=now_ms)
        return
    _end_with(conn, place, EpochKind.COMPLETED, now_ms=now_ms)


def _saved(conn: Connection, place: Place, *, now_ms: int) -> None:
    """A savepoint: the job may be restored from here. Nobody else may end a pipeline so."""
    if place.job.status is not JobStatus.DOING_SAVEPOINT:
        error = f"its worker said SAVEPOINT, and the job is {place.job.status}"
        attempt_failed(conn, place.task, error, retry=True, now_ms=now_ms)
        return
    _end_with(conn, place, EpochKind.SAVEPOINT, now_ms=now_ms)


def _end_with(conn: Connection, place: Place, kind: EpochKind, *, now_ms: int) -> None:
    """An epoch with the next id and no slices, and the end of the pipeline with it."""
    if left := _left_open(conn, place):
        error = f"its worker said that it is done, and {left}"
        attempt_failed(conn, place.task, error, retry=True, now_ms=now_ms)
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
    finish(conn, place.task, TaskStatus.SUCCESS, now_ms=now_ms)
    jobs.change_pipeline(conn, place.job.id, place.pipeline.number, PipelineStatus.FINISHED)
    joblog.note_done(conn, place.task, kind, now_ms=now_ms)


def _settled(conn: Connection, place: Place, report: TaskEnded, *, now_ms: int) -> None:
    """A settle task finished prepared epochs, or aborted planned ones (E6)."""
    result = _result(report)
    for done in result.completed:
        complete(conn, place, done, now_ms=now_ms)
        place = place_of(conn, place.task)
    for epoch in result.aborted:
        epochs.abort(conn, place.at(epoch), now_ms=now_ms)
    if left := _left_open(conn, place):  # or the job would wait for ever: nobody else settles it
        error = f"its worker said SUCCESS, and {left}"
        attempt_failed(conn, place.task, error, retry=True, now_ms=now_ms)
    else:
        finish(conn, place.task, TaskStatus.SUCCESS, now_ms=now_ms)
        joblog.note_settled(conn, place.task, result, now_ms=now_ms)


def _forgotten(conn: Connection, task: Task) -> None:
    """Nothing of a job is left at its targets: that was the last step, and its task goes, too."""
    incarnation = str(task.payload.get("incarnation"))
    cleanups.drop(conn, incarnation)
    tasks.delete(conn, task.id)
    seam("targets forgotten, in transaction")
    log.info("targets cleaned", extra={"incarnation": incarnation})


def _result(report: TaskEnded) -> Settled:
    try:
        return Settled.model_validate(report.result)
    except ValidationError as error:
        log.warning("settle result can't be read", extra={"reason": str(error)})
        return Settled()


def _left_open(conn: Connection, place: Place) -> str | None:
    left = epochs.open_one(conn, place.job.incarnation, place.pipeline.number)
    return left and f"epoch {left.epoch} is still {left.status}"
