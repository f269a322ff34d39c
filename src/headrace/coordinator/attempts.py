"""How attempts end without success: given back, tried again, or failed for good.

A settle task is tried for a quarter of an hour, whatever its worker says: as long as it fails,
rows may lie staged and unseen, and a catalog that restarts must not decide that they stay so. So is
the commit of a table's process, unless its worker knows that no other try can land.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sqlalchemy import Connection

from headrace.coordinator import joblog
from headrace.model.epoch import EpochAt
from headrace.model.job import PipelineStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.store import jobs, tasks
from headrace.store.tasks import End, Failure, Task

log = logging.getLogger(__name__)

RETRIES_REFILLED_MS = 3_600_000  # an hour without a failure, and none of those before it counts
SETTLE_PAUSE_MS = 2_000  # after the first try at settling an epoch; doubled after each
SETTLE_PAUSE_MAX_MS = 60_000
SETTLE_TRIES_MAX = 20  # with these pauses, 15 min


LOST = "worker "  # how every reason begins that a lost worker is given up for


def was_lost(error: str | None) -> bool:
    """Whether an attempt ended with its worker, which could not say why."""
    return error is not None and error.startswith(LOST)


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
    return Place(*jobs.with_pipeline(conn, task.job_id, task.pipeline), task)


def give_back(conn: Connection, task: Task) -> None:
    """Let somebody else claim a task that never ran, or that its worker left in good order."""
    tasks.give_back(conn, task)
    if task.kind is TaskKind.PIPELINE and not task.stop:
        move_pipeline(conn, task, PipelineStatus.SCHEDULED)


def attempt_failed(conn: Connection, task: Task, error: str, *, retry: bool, now_ms: int) -> None:
    """An attempt failed, or its worker is gone: try again while the task may be tried again.

    One that was to stop has stopped: whatever it says of it is a consequence, not the reason.
    """
    if task.kind is TaskKind.PIPELINE and task.stop:
        finish(conn, task, TaskStatus.CANCELED, now_ms=now_ms)
        move_pipeline(conn, task, PipelineStatus.CANCELING)
        return
    before = _failures(conn, task, now_ms=now_ms)
    pause_ms = _pause_ms(task, before, retry=retry)
    log.warning(
        "attempt failed",
        extra={
            "execution": task.claim.execution,
            "kind": task.kind,
            "job": task.job_id,
            "pipeline": task.pipeline,
            "again": pause_ms is not None,
            "reason": error,
        },
    )
    if pause_ms is not None:
        tasks.give_back(conn, task, Failure(error, before + 1, now_ms, pause_ms))
        joblog.note_failed(conn, task, error, now_ms=now_ms, pause_ms=pause_ms)
        if task.kind is TaskKind.PIPELINE:
            move_pipeline(conn, task, PipelineStatus.SCHEDULED)
        return
    finish(conn, task, TaskStatus.FAILED, error=error, now_ms=now_ms)
    joblog.note_failed(conn, task, error, now_ms=now_ms)
    if task.kind is TaskKind.PIPELINE:
        move_pipeline(conn, task, PipelineStatus.FAILING, error=error)


def _failures(conn: Connection, task: Task, *, now_ms: int) -> int:
    """Those that count: a job that ran well for an hour may fail as often as a new one."""
    last_ms = tasks.failed_at_ms(conn, task.id) if task.failures else None
    if task.kind is TaskKind.PIPELINE and last_ms is not None:
        return 0 if now_ms - last_ms >= RETRIES_REFILLED_MS else task.failures
    return task.failures


def _pause_ms(task: Task, failures: int, *, retry: bool) -> int | None:
    """How long to wait before the next attempt; None: there is none."""
    if task.kind is TaskKind.SETTLE or (task.kind is TaskKind.COMMIT and retry):
        doubled_ms = min(SETTLE_PAUSE_MS << min(failures, 16), SETTLE_PAUSE_MAX_MS)
        return None if failures + 1 >= SETTLE_TRIES_MAX else doubled_ms
    if not retry or failures >= int(task.payload.get("retry_times", 0)):
        return None
    return 1000 * int(task.payload.get("retry_interval_s", 0))


def finish(
    conn: Connection, task: Task, status: TaskStatus, *, now_ms: int, error: str | None = None
) -> None:
    tasks.finish(conn, [End(task.claim, status, error)], now_ms=now_ms)


def move_pipeline(
    conn: Connection, task: Task, status: PipelineStatus, *, error: str | None = None
) -> None:
    assert task.job_id is not None
    assert task.pipeline is not None
    jobs.change_pipeline(conn, task.job_id, task.pipeline, status, error=error)
