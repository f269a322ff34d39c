"""What a report changes. Every one is guarded by its claim, and said twice it changes nothing.

A report whose claim is no longer current is acknowledged all the same: the worker only needs to
know that it may forget it (C1).
"""

from __future__ import annotations

import logging
from typing import assert_never

from pydantic import ValidationError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from headrace.coordinator.attempts import Place, attempt_failed, finish, place_of
from headrace.model.epoch import EpochKind, EpochStatus
from headrace.model.job import PipelineStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.model.text import without_nul
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
from headrace.store.tasks import Task

log = logging.getLogger(__name__)

EpochReport = EpochPlanned | EpochPrepared | EpochCompleted


def apply(conn: Connection, report: EpochReport | TaskEnded, *, now_ms: int) -> Acknowledged:
    """Apply one report by itself. The writer batches the simple ones instead."""
    if not isinstance(report, TaskEnded):
        return apply_epoch(conn, report, now_ms=now_ms)
    task = tasks.current(conn, report.claim)
    if task is None:
        _late(report)
    elif task.kind is TaskKind.NOOP:
        finish(conn, task, TaskStatus(report.outcome), error=report.error, now_ms=now_ms)
    else:
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
    finish(conn, place.task, TaskStatus.SUCCESS, now_ms=now_ms)
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
        finish(conn, place.task, TaskStatus.SUCCESS, now_ms=now_ms)
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


def _late(report: EpochReport | TaskEnded) -> None:
    log.info(
        "report of an execution that is no longer current",
        extra={"report": report.kind, "execution": report.claim.execution},
    )
