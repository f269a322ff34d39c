"""What a report changes. Every one is guarded by its claim, and said twice it changes nothing.

A report whose claim is no longer current is acknowledged all the same: the worker only needs to
know that it may forget it (C1).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import assert_never

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.model.epoch import EpochAt, EpochKind, EpochStatus
from headrace.model.job import PipelineStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.protocol.messages import (
    Acknowledged,
    EpochCompleted,
    EpochPlanned,
    EpochPrepared,
    Json,
    TaskEnded,
)
from headrace.seams import seam
from headrace.store import epochs, jobs, tasks
from headrace.store.tasks import End, Task

log = logging.getLogger(__name__)

SETTLE_FAILURES_MAX = 5  # tries at settling an epoch before the job ends without it
SETTLE_PAUSE_MS = 2_000  # between two of them

EpochReport = EpochPlanned | EpochPrepared | EpochCompleted


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pipeline task belongs."""

    job: jobs.Job
    pipeline: jobs.Pipeline
    task: Task

    def at(self, epoch: int) -> EpochAt:
        return EpochAt(self.job.incarnation, self.pipeline.number, epoch, self.task.claim.execution)


def place_of(conn: Connection, task: Task) -> Place:
    assert task.job_id is not None
    assert task.pipeline is not None
    job = jobs.get(conn, task.job_id)
    assert job is not None, "tasks refer to jobs that exist: a foreign key says so"
    return Place(job, jobs.pipeline(conn, task.job_id, task.pipeline), task)


def apply(conn: Connection, report: EpochReport | TaskEnded, *, now_ms: int) -> Acknowledged:
    """Apply one report by itself. The writer batches the simple ones instead."""
    if not isinstance(report, TaskEnded):
        return apply_epoch(conn, report, now_ms=now_ms)
    task = tasks.current(conn, report.claim)
    if task is None:
        _late(report)
    elif task.kind is TaskKind.NOOP:
        _finish(conn, task, TaskStatus(report.outcome), error=report.error, now_ms=now_ms)
    else:
        apply_end(conn, task, report, now_ms=now_ms)
    return Acknowledged(seq=report.seq, held=task is not None)


def apply_epoch(conn: Connection, report: EpochReport, *, now_ms: int) -> Acknowledged:
    """Take one step of an epoch, if the execution that reports it still holds its task."""
    task = tasks.current(conn, report.claim)
    if task is None or task.kind is not TaskKind.PIPELINE:
        _late(report)
        return Acknowledged(seq=report.seq, held=False)
    place = place_of(conn, task)
    match report:
        case EpochPlanned():
            answer = _planned(conn, place, report, now_ms=now_ms)
        case EpochPrepared():
            answer = _prepared(conn, place, report, now_ms=now_ms)
        case EpochCompleted():
            answer = _completed(conn, place, report, now_ms=now_ms)
        case _:
            assert_never(report)
    if not answer.held:
        _late(report)
    return answer


def _planned(conn: Connection, place: Place, report: EpochPlanned, *, now_ms: int) -> Acknowledged:
    at = place.at(report.epoch)
    existing = epochs.get(conn, at)
    if existing is None:
        if report.epoch != place.pipeline.epoch + 1:
            return Acknowledged(seq=report.seq, held=False)
        epochs.plan(conn, at, job_id=place.job.id, slices=report.plan, now_ms=now_ms)
    _running(conn, place)
    # An earlier execution may have planned this epoch: its plan is the one to run, because its
    # rows may be staged already, and the same slices give the same rows.
    plan = report.plan if existing is None else dict(existing.plan)
    return Acknowledged(seq=report.seq, held=True, plan=plan)


def _prepared(
    conn: Connection, place: Place, report: EpochPrepared, *, now_ms: int
) -> Acknowledged:
    at = place.at(report.epoch)
    if epochs.prepare(conn, at, handles=report.handles, now_ms=now_ms):
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
    at = place.at(report.epoch)
    if epochs.complete(conn, at, rows_in=report.rows_in, rows_out=report.rows_out, now_ms=now_ms):
        advance(conn, place, report)
        _running(conn, place)
        return Acknowledged(seq=report.seq, held=True)
    existing = epochs.get(conn, at)
    repeated = existing is not None and existing.status is EpochStatus.COMPLETED
    return Acknowledged(seq=report.seq, held=repeated)


def advance(conn: Connection, place: Place, report: EpochCompleted) -> None:
    jobs.advance(
        conn,
        place.job.id,
        place.pipeline.number,
        epoch=report.epoch,
        positions=report.positions,
        rows_in=report.rows_in,
        rows_out=report.rows_out,
        commits=report.commits,
    )


def _running(conn: Connection, place: Place) -> None:
    if place.pipeline.status is not PipelineStatus.RUNNING and not place.task.stop:
        jobs.change_pipeline(conn, place.job.id, place.pipeline.number, PipelineStatus.RUNNING)


def apply_end(conn: Connection, task: Task, report: TaskEnded, *, now_ms: int) -> None:
    """Record the end of a pipeline or settle task. `task` is current and locked."""
    match task.kind, report.outcome:
        case TaskKind.PIPELINE, "SUCCESS":
            _finished(conn, place_of(conn, task), now_ms=now_ms)
        case _, "SUCCESS":
            _settled(conn, place_of(conn, task), report, now_ms=now_ms)
        case _:
            error = report.error or f"its worker said {report.outcome} and gave no reason"
            attempt_failed(conn, task, error, retry=report.retry, now_ms=now_ms)


def _finished(conn: Connection, place: Place, *, now_ms: int) -> None:
    """The completed point: an epoch with the next id and no slices, and FINISHED with it."""
    if (left := _open(conn, place)) is not None:
        error = f"its worker said SUCCESS with epoch {left.epoch} still {left.status}"
        attempt_failed(conn, place.task, error, retry=True, now_ms=now_ms)
        return
    at = place.at(place.pipeline.epoch + 1)
    epochs.plan(conn, at, job_id=place.job.id, slices={}, now_ms=now_ms, kind=EpochKind.COMPLETED)
    jobs.advance(
        conn,
        place.job.id,
        place.pipeline.number,
        epoch=at.epoch,
        positions=place.pipeline.positions,
        rows_in=0,
        rows_out=0,
        commits=place.pipeline.commits,
    )
    _finish(conn, place.task, TaskStatus.SUCCESS, now_ms=now_ms)
    jobs.change_pipeline(conn, place.job.id, place.pipeline.number, PipelineStatus.FINISHED)


def _settled(conn: Connection, place: Place, report: TaskEnded, *, now_ms: int) -> None:
    """A settle task finished a prepared epoch, or aborted a planned one (E6)."""
    result, left = report.result or {}, _open(conn, place)
    if result.get("outcome") == "committed" and (done := _done(result)) is not None:
        at = place.at(done.epoch)
        if epochs.complete(conn, at, rows_in=done.rows_in, rows_out=done.rows_out, now_ms=now_ms):
            advance(conn, place, done)
    elif result.get("outcome") == "aborted" and left is not None:
        epochs.abort(conn, place.at(left.epoch), now_ms=now_ms)
    if (left := _open(conn, place)) is None:
        _finish(conn, place.task, TaskStatus.SUCCESS, now_ms=now_ms)
    else:  # or the job would wait for ever: nobody else is going to settle it
        error = f"its worker said SUCCESS with epoch {left.epoch} still {left.status}"
        attempt_failed(conn, place.task, error, retry=True, now_ms=now_ms)


def _done(result: Json) -> EpochCompleted | None:
    try:
        return EpochCompleted.model_validate(result.get("completed"))
    except ValidationError as error:
        log.warning("settle result can't be read", extra={"reason": str(error)})
        return None


def _open(conn: Connection, place: Place) -> epochs.Epoch | None:
    return epochs.open_one(conn, place.job.incarnation, place.pipeline.number)


def attempt_failed(conn: Connection, task: Task, error: str, *, retry: bool, now_ms: int) -> None:
    """An attempt failed, or its worker is gone: try again while the task may be tried again.

    One that was to stop has stopped: whatever it says of it is a consequence, not the reason.
    """
    if task.kind is TaskKind.PIPELINE and task.stop:
        _finish(conn, task, TaskStatus.CANCELED, now_ms=now_ms)
        _move_pipeline(conn, place_of(conn, task), PipelineStatus.CANCELING, None)
        return
    if task.kind is TaskKind.SETTLE:
        times, pause_ms = SETTLE_FAILURES_MAX, SETTLE_PAUSE_MS
    else:
        times = int(task.payload.get("retry_times", 0))
        pause_ms = 1000 * int(task.payload.get("retry_interval_s", 0))
    again = retry and task.failures < times
    log.warning(
        "attempt failed",
        extra={
            "execution": task.claim.execution,
            "kind": task.kind,
            "job": task.job_id,
            "pipeline": task.pipeline,
            "again": again,
            "reason": error,
        },
    )
    if again:
        tasks.give_back(conn, task.claim, failed=True, error=error, not_before_ms=now_ms + pause_ms)
        if task.kind is TaskKind.PIPELINE:
            _move_pipeline(conn, place_of(conn, task), PipelineStatus.SCHEDULED, None)
        return
    _finish(conn, task, TaskStatus.FAILED, error=error, now_ms=now_ms)
    if task.kind is TaskKind.PIPELINE:
        _move_pipeline(conn, place_of(conn, task), PipelineStatus.FAILING, error)


def _finish(
    conn: Connection, task: Task, status: TaskStatus, *, now_ms: int, error: str | None = None
) -> None:
    tasks.finish(conn, [End(task.claim, status, error)], now_ms=now_ms)


def _move_pipeline(
    conn: Connection, place: Place, status: PipelineStatus, error: str | None
) -> None:
    jobs.change_pipeline(conn, place.job.id, place.pipeline.number, status, error=error)


def _late(report: EpochReport | TaskEnded) -> None:
    log.info(
        "report of an execution that is no longer current",
        extra={"report": report.kind, "execution": report.claim.execution},
    )
