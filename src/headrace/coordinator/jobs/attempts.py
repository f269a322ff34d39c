"""Retries: after an attempt without success, a task is given back, tried again, or failed.

A pipeline is tried again as long as it makes progress. Two things count against it. An *error*
counts up to `job.retry.times`, until an epoch with rows is completed. A *lost worker* counts up to
`job.lost-workers.max` in a row, until any epoch is completed. An epoch that was running on several
workers as each of them was lost is poison, and gets no further worker. `job.retry.times = 0` means
that there is no second attempt, whatever the cause (C8, K8).

A settle task is tried for a quarter of an hour with back-off, whatever its worker says: while it
fails, rows may lie staged and unseen, and a catalog that restarts must not decide that they stay
so. The same holds for the commit of a table's process, unless its worker knows that no other try
can succeed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from headrace.coordinator.jobs import job_log
from headrace.model.jobs.epoch import EpochAt, EpochStatus
from headrace.model.jobs.status import PipelineStatus
from headrace.model.task import (
    JVM_ENDS,
    JVM_GONE,
    LOSSES,
    POISON_WORKERS,
    FailureCause,
    PipelineOrder,
    RetryRule,
    TaskKind,
    TaskOrder,
    TaskStatus,
)
from headrace.protocol.task_types import task_type
from headrace.store.jobs import due_jobs, epochs, jobs
from headrace.store.jobs.epochs import Epoch
from headrace.store.tasks import claims, tasks
from headrace.store.tasks.tasks import Failure, Task, TaskEnd

log = logging.getLogger(__name__)

KEY_AWAY_PAUSE_MS = 2_000  # before a task whose secrets could not be decrypted is assigned again
UNFIT_PAUSE_MS = 2_000  # before a task that its worker could not run is assigned to another
# So often in a row a task is given back without counting, because its worker was gone before it
# acknowledged the task.
GIVEN_BACK_MAX = 20
SETTLE_PAUSE_MS = 2_000  # after the first try at settling an epoch; doubled after each
SETTLE_PAUSE_MAX_MS = 60_000
SETTLE_TRIES_MAX = 20  # with these pauses, 15 min
OPENING_EPOCH = 0  # does the save modes; a pipeline that completed no later one wrote no row


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A task of a pipeline, with its job and its pipeline."""

    job: jobs.Job
    pipeline: jobs.PipelineRow
    task: Task

    def at(self, epoch: int) -> EpochAt:
        return EpochAt(self.job.incarnation, self.pipeline.number, epoch, self.task.claim.execution)


def place_of(conn: Connection, task: Task) -> TaskPlace:
    assert task.job_id is not None
    assert task.pipeline is not None
    return TaskPlace(*jobs.with_pipeline(conn, task.job_id, task.pipeline), task)


def give_back(conn: Connection, task: Task, *, unheard: bool = False) -> None:
    """Let another worker claim a task that never ran, or that its worker left in good order.
    `unheard`: its worker never acknowledged it."""
    if tasks.give_back(conn, task, unheard=unheard):
        _waits_again(conn, task)


def postpone(
    conn: Connection, task: Task, reason: str, *, now_ms: int, pause_ms: int = KEY_AWAY_PAUSE_MS
) -> None:
    """Give back a task that was not begun: the coordinator lacks the key of its secrets right now,
    or its worker can't run it. It does not count as a failure, and waits a moment so that others go
    first."""
    counted = (task.failures, task.losses)
    cause = FailureCause.ERROR
    failure = Failure(reason, cause, *counted, now_ms, pause_ms)
    if tasks.give_back(conn, task, failure):
        _waits_again(conn, task)
    log.warning(
        "task postponed",
        extra={"execution": task.claim.execution, "job": task.job_id, "reason": reason},
    )


def _waits_again(conn: Connection, task: Task) -> None:
    """Its task waits for a worker again. One that is to stop is ended by the next look at its
    job."""
    if task.kind is TaskKind.PIPELINE and not task.stop:
        move_pipeline(conn, task, PipelineStatus.SCHEDULED)
    else:
        mark_job(conn, task)


def worker_left(conn: Connection, task: Task, cause: FailureCause | None, *, now_ms: int) -> None:
    """A worker that held this task unregistered. `cause`: what its JVM died of, if it did."""
    if cause is None:
        give_back(conn, task)
        return
    error = f"Spark's JVM on worker {task.worker_id} {JVM_ENDS.get(cause, JVM_GONE)}"
    worker_lost(conn, task, error, cause=cause, now_ms=now_ms)


def worker_lost(
    conn: Connection, task: Task, error: str, *, cause: FailureCause, now_ms: int
) -> None:
    """The worker to which this task was assigned is gone.

    A worker begins a task at once, and acknowledges it a round trip later. Until then nothing of it
    is recorded: a pipeline plans no epoch, and so stages and commits nothing, before a report of it
    was acknowledged. So a task that the worker did not acknowledge is given back without counting;
    but not for ever, since the task itself may be what kills its workers so soon.
    """
    # Read again: the worker may have acknowledged it, and begun an epoch, since `task` was read.
    current = tasks.current(conn, task.claim)
    if current is None:
        return
    held = current.status is not TaskStatus.SCHEDULED
    if not held and tasks.times_unheard(conn, current) < GIVEN_BACK_MAX:
        give_back(conn, current, unheard=True)
    else:
        attempt_failed(conn, current, error, cause=cause, retry=True, now_ms=now_ms)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What becomes of a task after a failed attempt. `pause_ms` None: there is no further one."""

    task: Task  # with its counters as they are after this attempt
    error: str
    pause_ms: int | None


def attempt_failed(
    conn: Connection,
    task: Task,
    error: str,
    *,
    retry: bool,
    now_ms: int,
    cause: FailureCause = FailureCause.ERROR,
) -> None:
    """An attempt failed, or its worker is gone: try the task again while it may be tried again.

    `retry` False: never try it again. An attempt that was told to stop counts as stopped: its error
    is a consequence of the stop, not a failure.
    """
    # Read again: an epoch that was completed in this very transaction has reset the counters.
    current = tasks.current(conn, task.claim)
    if current is None:
        return
    if current.kind is TaskKind.PIPELINE and current.stop:
        finish(conn, current, TaskStatus.CANCELED, now_ms=now_ms)
        move_pipeline(conn, current, PipelineStatus.CANCELING)
        return
    verdict = _judge(conn, current, error, cause, retry=retry)
    log.warning(
        "attempt failed",
        extra={
            "execution": task.claim.execution,
            "kind": task.kind,
            "job": task.job_id,
            "pipeline": task.pipeline,
            "again": verdict.pause_ms is not None,
            "cause": cause,
            "reason": verdict.error,
        },
    )
    if verdict.pause_ms is None:
        _fail(conn, verdict, cause, now_ms=now_ms)
    else:
        _try_again(conn, verdict, verdict.pause_ms, cause, now_ms=now_ms)


def _fail(conn: Connection, verdict: _Verdict, cause: FailureCause, *, now_ms: int) -> None:
    task, error = verdict.task, verdict.error
    finish(conn, task, TaskStatus.FAILED, error=error, cause=cause, now_ms=now_ms)
    job_log.note_failed(conn, task, error, now_ms=now_ms)
    if task.kind is TaskKind.PIPELINE:
        move_pipeline(conn, task, PipelineStatus.FAILING, error=error)


def _try_again(
    conn: Connection, verdict: _Verdict, pause_ms: int, cause: FailureCause, *, now_ms: int
) -> None:
    task, error = verdict.task, verdict.error
    counted = (task.failures, task.losses)
    tasks.give_back(conn, task, Failure(error, cause, *counted, now_ms, pause_ms))
    following = _next_attempt_text(conn, task, cause)
    job_log.note_retried(conn, task, error, following, now_ms=now_ms, pause_ms=pause_ms)
    if task.kind is TaskKind.PIPELINE:
        move_pipeline(conn, task, PipelineStatus.SCHEDULED)
    else:
        mark_job(conn, task)


def _next_attempt_text(conn: Connection, task: Task, cause: FailureCause) -> str:
    """The number of the next attempt, for people. `task` counts the failed one already."""
    if task.kind is not TaskKind.PIPELINE:
        return f"attempt {task.failures + 1} of {SETTLE_TRIES_MAX}"
    order = PipelineOrder.of(task.payload)
    number, most = task.failures + 1, order.retry_times + 1
    if cause in LOSSES:
        number, most = task.losses + 1, order.lost_workers_max
    return f"attempt {number} of {most}, from epoch {place_of(conn, task).pipeline.epoch + 1}"


def _judge(
    conn: Connection, task: Task, error: str, cause: FailureCause, *, retry: bool
) -> _Verdict:
    if task.kind is TaskKind.PIPELINE and cause in LOSSES:
        return _judge_loss(conn, task, error, cause, retry=retry)
    counted = replace(task, failures=task.failures + 1)
    if task.kind is TaskKind.SETTLE and not retry and wrote_nothing(conn, place_of(conn, task)):
        return _Verdict(counted, error, None)
    return _Verdict(counted, error, _pause_ms(task, task.failures, retry=retry))


def wrote_nothing(conn: Connection, place: TaskPlace) -> bool:
    """Whether no epoch of a pipeline is completed or prepared.

    Nobody commits an epoch before its handles are recorded under a current claim. So an epoch that
    is PLANNED after its execution has ended is committed nowhere, and never will be: the job may
    end without settling it, which a misspelled target would never allow. Its cleanup does that.
    """
    open_epochs = epochs.all_open(conn, place.job.incarnation, place.pipeline.number)
    planned = all(epoch.status is EpochStatus.PLANNED for epoch in open_epochs)
    return planned and place.pipeline.epoch <= OPENING_EPOCH


def _judge_loss(
    conn: Connection, task: Task, error: str, cause: FailureCause, *, retry: bool
) -> _Verdict:
    """A worker that ran a pipeline was lost: no error of the pipeline, unless it repeats."""
    counted, order = replace(task, losses=task.losses + 1), PipelineOrder.of(task.payload)
    poison = _note_lost_epochs(conn, task, cause)
    if not retry or order.retry_times == 0:
        return _Verdict(counted, error, None)
    if poison is not None:
        return _Verdict(counted, f"{_poison_text(poison)}. The last of them: {error}", None)
    if counted.losses >= order.lost_workers_max:
        message = (
            f"{error}; {counted.losses} workers in a row were lost without a completed epoch, and "
            f"job.lost-workers.max is {order.lost_workers_max}: find out in their logs what ends "
            "them, then restore the job"
        )
        return _Verdict(counted, message, None)
    return _Verdict(counted, error, 1000 * order.retry_interval_s)


def _note_lost_epochs(conn: Connection, task: Task, cause: FailureCause) -> Epoch | None:
    """Record that the running epochs were lost with this worker; returns one that is poison."""
    place, poison = place_of(conn, task), None
    for epoch in _running_epochs(conn, place):
        lost_on = {**epoch.lost_on, task.worker_id or "": cause}
        epochs.note_lost_workers(conn, place.at(epoch.epoch), lost_on)
        if poison is None and len(lost_on) >= POISON_WORKERS:
            poison = replace(epoch, lost_on=lost_on)
    return poison


def _running_epochs(conn: Connection, place: TaskPlace) -> Sequence[Epoch]:
    """The epochs that this attempt was working on: one that it staged and was to commit, one that
    it reported as committing for an earlier attempt, and the first of those that it was granted. A
    further one was granted ahead, and nobody had begun it."""
    claim = place.task.claim
    open_epochs = epochs.all_open(conn, place.job.incarnation, place.pipeline.number)
    prepared = [e for e in open_epochs if e.status is EpochStatus.PREPARED]
    planned = [e for e in open_epochs if e.status is EpochStatus.PLANNED][:1]
    committing = claims.progress_of(conn, claim).get("committing")
    return [
        e for e in (*prepared, *planned) if e.execution == claim.execution or e.epoch == committing
    ]


def _poison_text(poison: Epoch) -> str:
    workers = [
        f"{worker} (its JVM {how})" if (how := JVM_ENDS.get(FailureCause(cause))) else worker
        for worker, cause in poison.lost_on.items()
    ]
    return (
        f"epoch {poison.epoch} was running on {len(workers)} workers as each was lost: "
        f"{', '.join(workers)}. It takes no further one along: give workers more memory "
        "(--conf spark.driver.memory=…), or the epoch fewer rows by a shorter checkpoint.interval, "
        "then restore the job"
    )


def _pause_ms(task: Task, failures: int, *, retry: bool) -> int | None:
    """The back-off before the next attempt; None: there is no next attempt."""
    rule = task_type(task.kind).retry
    if rule is RetryRule.ALWAYS or (rule is RetryRule.UNLESS_REFUSED and retry):
        doubled_ms = min(SETTLE_PAUSE_MS << min(failures, 16), SETTLE_PAUSE_MAX_MS)
        return None if failures + 1 >= SETTLE_TRIES_MAX else doubled_ms
    order = TaskOrder.of(task.payload)
    if not retry or failures >= order.retry_times:
        return None
    return 1000 * order.retry_interval_s


def may_succeed_later(conn: Connection, task: Task, cause: FailureCause) -> bool:
    """Whether an error that is permanent by itself is worth another attempt all the same.

    A pipeline that has completed an epoch worked with these very options: whoever took its target
    or its permissions away may give them back. One that has completed none fails at once; what it
    left prepared is settled (D3). A store that is older than its targets stays so (E7).
    """
    if task.kind is not TaskKind.PIPELINE or cause is FailureCause.STORE_OLDER:
        return False
    return place_of(conn, task).pipeline.epoch > OPENING_EPOCH


def progressed(conn: Connection, task: Task, *, had_rows: bool) -> None:
    """An epoch of a pipeline was completed: reset what counts against it (K8).

    An empty epoch does not reset errors: a stream completes one each interval, also while the rows
    that it fails at wait for the next epoch.
    """
    if task.kind is TaskKind.PIPELINE:
        tasks.note_epoch_completed(conn, task, failures=0 if had_rows else task.failures)


def finish(
    conn: Connection,
    task: Task,
    status: TaskStatus,
    *,
    now_ms: int,
    error: str | None = None,
    cause: FailureCause | None = None,
) -> bool:
    """End a task. False: this attempt is no longer the current one, and nothing is changed."""
    end = TaskEnd(task.claim, status, error, cause=cause)
    if not tasks.finish(conn, [end], now_ms=now_ms):
        return False
    mark_job(conn, task)
    return True


def mark_job(conn: Connection, task: Task) -> None:
    """Have a pass look at the job of this task, if it has one: its next step may depend on it."""
    if task.job_id is not None and task.pipeline is not None:
        due_jobs.mark_pipeline(conn, task.job_id, task.pipeline)


def move_pipeline(
    conn: Connection, task: Task, status: PipelineStatus, *, error: str | None = None
) -> None:
    """Move the pipeline of this task, if its map has the step from where it is; a pass looks at its
    job either way, since the task has changed."""
    assert task.job_id is not None
    assert task.pipeline is not None
    if not jobs.change_pipeline(conn, task.job_id, task.pipeline, status, error=error):
        mark_job(conn, task)
