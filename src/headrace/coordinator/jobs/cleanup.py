"""Cleanup: deletes the state of ended jobs, what they left at their targets, and what expires.

`CleanupReconciler` carries out the cleanup records of ended jobs when they are due, each once (C2
to C5). A record is read under its lock, and all that it decides on is read again in the transaction
that deletes: that the job with this id is still its owner, that it has ended, that nothing of it is
open. A failure is noted in the record and tried again with back-off; other records don't wait.

`want_settled` asks for a cleanup at once, for a `headrace run` whose coordinator ends with it. What
is open is settled at once by whoever leads. The marks, and the secrets with which they are reached,
go at once only when nobody is left who could commit (E6). That is known when each of the job's
executions reported its own end: an execution does so once nothing of it goes on, and a task that
was claimed once had no other execution. One that was lost, or failed and was tried again, may still
be paused somewhere in the middle of a commit: then the marks stay until no commit can be that old
(ADR 17).

`Expiry` deletes what is only kept for a while: history, log lines, savepoints, tasks and processes
of tables, blockers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError

from headrace.clock import Clock
from headrace.coordinator.jobs.job_end import KnownJob, end_job_again, sweep_unrecorded
from headrace.coordinator.planned_tasks import plan_task
from headrace.errors import Fenced, Refused, Unavailable
from headrace.model.ids import Ids
from headrace.model.jobs.epoch import JOB_LOG_LINES_MAX, CleanupStep, Retention, retry_pause_ms
from headrace.model.jobs.needs import needs_of
from headrace.model.jobs.status import JOB_ENDED
from headrace.model.tables.schedule import OCCUPATION_WINDOW_MS
from headrace.model.task import (
    ENDED,
    ForgetOrder,
    SettleOrder,
    TaskStatus,
)
from headrace.model.text import without_nul
from headrace.protocol import task_types
from headrace.protocol.task_types import Order, TaskType
from headrace.seams import seam
from headrace.store.core import leases
from headrace.store.core.engine import reading
from headrace.store.jobs import cleanups, epochs, history, job_logs, jobs, savepoints
from headrace.store.jobs.cleanups import Cleanup
from headrace.store.jobs.job_logs import LinesCounted
from headrace.store.jobs.jobs import Job, PipelineRow
from headrace.store.tables import lake_tables, processes, table_tasks
from headrace.store.tasks import tasks
from headrace.store.tasks.tasks import Task

log = logging.getLogger(__name__)

DUE_MAX = 200  # records carried out in one pass
SWEEP_INTERVAL_S = 60.0  # between two searches for jobs without a record: each reads all jobs
LOOK_AGAIN_MS = 30_000  # while a worker is at its task, or none has claimed it
TASKS_INTERVAL_S = 60.0  # after a search for ended tasks found none: it reads all of them
COUNT_INTERVAL_S = 60.0  # between two counts of all log lines
NOTHING_IS_OLD_MS = 0  # earlier than every time, so that nothing expires
COUNTED_AT_ONCE = 50_000  # log lines in one statement: it must end well within the ttl


class CleanupReconciler:
    """Carries out cleanup records: first the job's state, later what is left at its targets."""

    name = "cleanups"

    def __init__(self, clock: Clock, ids: Ids, *, retention: Retention) -> None:
        self._clock, self._ids, self._retention = clock, ids, retention
        self._sweep_at_s = clock.monotonic_s()  # a new leader sweeps at once

    def keys(self, engine: Engine) -> Sequence[str]:
        now_s = self._clock.monotonic_s()
        with reading(engine) as conn:
            lost: list[str] = []
            if now_s >= self._sweep_at_s:
                self._sweep_at_s = now_s + SWEEP_INTERVAL_S
                lost = [job.incarnation for job in cleanups.unrecorded_jobs(conn, most=DUE_MAX)]
            return [*lost, *cleanups.due(conn, now_ms=self._clock.wall_ms(), most=DUE_MAX)]

    def due(self, conn: Connection, key: str) -> bool:
        record = cleanups.get(conn, key)
        return record is None or record.wanted_at_once or record.due_at_ms <= self._clock.wall_ms()

    def reconcile(self, conn: Connection, key: str) -> None:
        record = cleanups.lock(conn, key)
        if record is None:
            self._sweep(conn, key)
            return
        if record.wanted_at_once:
            record = begin_at_once(conn, record, now_ms=self._clock.wall_ms())
        if record.due_at_ms <= self._clock.wall_ms():
            self._carry_out(conn, record)

    def _carry_out(self, conn: Connection, record: Cleanup) -> None:
        """Do one step. Whatever is wrong with its rows is noted in the record, and tried later."""
        step = self._clean_state if record.step is CleanupStep.STATE else self._clean_targets
        try:
            with conn.begin_nested():
                step(conn, record)
        except (Fenced, Unavailable, OperationalError):
            raise  # the store is unavailable, and no record is to blame
        except Exception as error:
            log.exception("cleanup broken off", extra=_facts(record.job_id, record.incarnation))
            # The text of a driver's error may have a whole row in it, with its secrets.
            reason = type(error.orig).__name__ if isinstance(error, DBAPIError) else repr(error)
            self._note_failure(conn, record, without_nul(reason))

    def _sweep(self, conn: Connection, incarnation: str) -> None:
        job = cleanups.unrecorded_job(conn, incarnation)
        if job is not None:
            log.warning("ended job had no cleanup record", extra=_facts(job.id, incarnation))
            sweep_unrecorded(conn, job, self._retention)

    def _clean_state(self, conn: Connection, record: Cleanup) -> None:
        job = cleanups.owned_job(conn, record)
        if job is None or job.status not in JOB_ENDED:
            # The job's rows are gone, or it was restored: the record may delete nothing here.
            log.warning("cleanup without its job", extra=_facts(record.job_id, record.incarnation))
            cleanups.drop(conn, record.incarnation)
        elif self._is_settled(conn, record, job):
            if record.task_id is not None or record.failures:
                end_job_again(conn, job)
                record = self._committed_late(record)
            self._delete_state(conn, record, job)

    def _is_settled(self, conn: Connection, record: Cleanup, job: Job) -> bool:
        """Whether the job has no open epoch. If it has, plan a task that settles it."""
        left_open = epochs.open_checkpoints(conn, job.incarnation)
        if self._must_wait(conn, record, tasks.of_job(conn, job.id)):
            return False
        if not left_open:
            return True
        # In turn: a pipeline whose sinks are unavailable must not block the others.
        pipeline = sorted(left_open)[record.failures % len(left_open)]
        order = SettleOrder(commit_deadline_s=self._retention.commit_deadline_s)
        self._plan_task(conn, record, task_types.SETTLE, order, job_id=job.id, pipeline=pipeline)
        return False

    def _committed_late(self, record: Cleanup) -> Cleanup:
        """Keep the marks longer: an epoch was settled after the end, and a second execution of the
        settle task may still be paused."""
        kept_until_ms = self._clock.wall_ms() + self._retention.marks_kept_ms
        return replace(record, targets_due_at_ms=max(record.targets_due_at_ms, kept_until_ms))

    def _delete_state(self, conn: Connection, record: Cleanup, job: Job) -> None:
        pipelines = jobs.pipelines_of(conn, job.id)
        # When a restore began after the rows were gone, only the pipelines know the epochs before.
        up_to = max(epochs.highest_checkpoint(conn, job.incarnation), *(p.epoch for p in pipelines))
        untouched = {p.number for p in pipelines if _is_untouched(conn, job, p)}
        claimed = job.run > 1 or any(p.task_id is not None for p in pipelines)
        began = claimed and len(untouched) < len(pipelines)
        seam("before state is deleted")
        spec = _without_pipelines(jobs.raw_spec(conn, job.id), untouched)
        cleanups.begin_targets(conn, record, up_to=up_to, spec=spec)
        if not began:  # no worker ever had it, so there is nothing at its targets
            cleanups.drop(conn, record.incarnation)
        seam("state deleted, in transaction")
        log.info("job cleaned", extra=_facts(job.id, job.incarnation))

    def _clean_targets(self, conn: Connection, record: Cleanup) -> None:
        task = tasks.get(conn, record.task_id) if record.task_id else None
        if not self._must_wait(conn, record, [task] if task else []):
            order = ForgetOrder(incarnation=record.incarnation)
            self._plan_task(conn, record, task_types.FORGET, order)

    def _must_wait(self, conn: Connection, record: Cleanup, planned: Sequence[Task]) -> bool:
        """Whether a task of this record runs, or just failed; postpones the record if so."""
        now_ms = self._clock.wall_ms()
        last = next((task for task in planned if task.id == record.task_id), None)
        if any(task.status not in ENDED for task in planned):
            cleanups.postpone(conn, record, due_at_ms=now_ms + LOOK_AGAIN_MS)
            return True
        if last is None or last.status is TaskStatus.SUCCESS:
            return False
        self._note_failure(
            conn, record, last.error or f"its task ended {last.status}, and nobody said why"
        )
        return True

    def _note_failure(self, conn: Connection, record: Cleanup, error: str) -> None:
        failures = record.failures + 1
        due_at_ms = self._clock.wall_ms() + retry_pause_ms(failures)
        cleanups.failed(conn, record, failures=failures, error=error, due_at_ms=due_at_ms)
        facts = {**_facts(record.job_id, record.incarnation), "failures": failures, "reason": error}
        log.warning("cleanup failed", extra=facts)

    def _plan_task(
        self,
        conn: Connection,
        record: Cleanup,
        kind: TaskType[Order, Any, Any],
        order: Order,
        *,
        job_id: str | None = None,
        pipeline: int | None = None,
    ) -> None:
        task_id, now_ms = self._ids.new(), self._clock.wall_ms()
        needs = (
            needs_of(jobs.raw_spec(conn, job_id))
            if job_id is not None
            else needs_of(cleanups.raw_spec(conn, record.incarnation), only="sink")
        )
        plan_task(
            conn,
            kind,
            order,
            task_id=task_id,
            group=record.group,
            job_id=job_id,
            pipeline=pipeline,
            needs=needs,
            now_ms=now_ms,
        )
        cleanups.began(conn, record, task_id=task_id, due_at_ms=now_ms + LOOK_AGAIN_MS)


def _is_untouched(conn: Connection, job: Job, pipeline: PipelineRow) -> bool:
    """Whether its epoch 0 is still to come. A restore would begin with that, far below `up_to`: a
    FORGET task that does not know the pipeline can't take anything away from that run."""
    return pipeline.epoch < 0 and epochs.highest(conn, job.incarnation, pipeline.number) < 0


def _without_pipelines(spec: Mapping[str, Any], untouched: Collection[int]) -> Mapping[str, Any]:
    """The spec without these pipelines; not parsed, since a newer program may have written it."""
    if not untouched:
        return spec
    kept = [p for p in spec.get("pipelines", ()) if p.get("number") not in untouched]
    return {**spec, "pipelines": kept}


def _facts(job_id: str, incarnation: str) -> dict[str, object]:
    return {"job": job_id, "incarnation": incarnation}


def want_settled(conn: Connection, job: KnownJob) -> None:
    """Have the cleanup of a job's targets begin now, if it holds secrets or open epochs."""
    if job.status not in JOB_ENDED:
        job_id = job.id if isinstance(job, Job) else job.job_id
        raise Refused(
            f"job {job_id!r} is {job.status}: its targets are settled once it has ended; stop it "
            f"with `headrace job cancel {job_id}`"
        )
    incarnation = job.incarnation
    if cleanups.secret_names(conn, incarnation) or epochs.open_checkpoints(conn, incarnation):
        cleanups.want_at_once(conn, incarnation)


def begin_at_once(conn: Connection, record: Cleanup, *, now_ms: int) -> Cleanup:
    """Make the record due now; its targets, too, if nobody can commit to them any more."""
    job = cleanups.owned_job(conn, record)
    safe = job is not None and job.status in JOB_ENDED and has_no_committer(conn, job)
    targets_due_at_ms = min(now_ms, record.targets_due_at_ms) if safe else record.targets_due_at_ms
    begun = replace(
        record, wanted_at_once=False, due_at_ms=now_ms, targets_due_at_ms=targets_due_at_ms
    )
    cleanups.begin_at_once(conn, begun)
    return begun


def has_no_committer(conn: Connection, job: Job) -> bool:
    """Whether each execution that the job ever had reported its own end, with success."""
    if job.run > 1:  # the tasks of the runs before it are gone
        return False
    claimed = [task for task in tasks.of_job(conn, job.id) if task.attempt > 0]
    return all(task.attempt == 1 and task.status is TaskStatus.SUCCESS for task in claimed)


@dataclass(frozen=True, slots=True)
class _KeptKind:
    """One kind of rows that expire: for how long they are kept, and how they are deleted."""

    kept_ms: int
    any_expired: Callable[..., bool]
    expire: Callable[..., int]
    interval_s: float = 0.0  # to wait after a search that found nothing


class Expiry:
    """Deletes rows by age, a limited number of each kind in one pass."""

    name = "expiry"

    def __init__(
        self, clock: Clock, retention: Retention, *, log_lines_max: int = JOB_LOG_LINES_MAX
    ) -> None:
        self._clock = clock
        self._lines = _LineCount(clock, most=log_lines_max)
        self._kept: Mapping[str, _KeptKind] = {
            "history": _KeptKind(retention.history_expire_ms, history.any_expired, history.expire),
            "log lines": _KeptKind(
                retention.job_log_expire_ms, self._any_lines_expired, self._expire_lines
            ),
            "savepoints": _KeptKind(
                retention.savepoint_expire_ms, savepoints.any_expired, savepoints.expire
            ),
            # Kept as long as the time of a task counts against the quota of its table.
            "tasks of tables": _KeptKind(
                OCCUPATION_WINDOW_MS,
                table_tasks.any_expired,
                table_tasks.expire,
                TASKS_INTERVAL_S,
            ),
            "processes": _KeptKind(
                retention.process_expire_ms, processes.any_expired, processes.expire
            ),
            "blockers": _KeptKind(0, lake_tables.any_expired_blocker, lake_tables.expire_blockers),
        }
        self.keys = tuple(self._kept)
        self._next_look_s = dict.fromkeys(self.keys, 0.0)

    def due(self, conn: Connection, key: str) -> bool:
        kept, now_s = self._kept[key], self._clock.monotonic_s()
        if now_s < self._next_look_s[key]:
            return False
        any_expired = kept.any_expired(conn, until_ms=self._until_ms(conn, kept))
        if not any_expired:
            self._next_look_s[key] = now_s + kept.interval_s
        return any_expired

    def reconcile(self, conn: Connection, key: str) -> None:
        kept = self._kept[key]
        gone = kept.expire(conn, until_ms=self._until_ms(conn, kept))
        if gone:
            log.info("expired", extra={"what": key, "count": gone})

    def _until_ms(self, conn: Connection, kept: _KeptKind) -> int:
        """The time before which a row must have ended to be old enough."""
        until_ms = self._clock.wall_ms() - kept.kept_ms
        # A row that ended before the clock was set ahead only looks old; any other is too young.
        return NOTHING_IS_OLD_MS if until_ms < leases.set_ahead_at_ms(conn) else until_ms

    def _any_lines_expired(self, conn: Connection, *, until_ms: int) -> bool:
        too_many = self._lines.count_step(conn)
        ahead = job_logs.any_ahead(conn, now_ms=self._clock.wall_ms())
        return too_many > 0 or ahead or job_logs.any_expired(conn, until_ms=until_ms)

    def _expire_lines(self, conn: Connection, *, until_ms: int) -> int:
        job_logs.set_right(conn, now_ms=self._clock.wall_ms())
        gone = job_logs.expire(conn, until_ms=until_ms, too_many=self._lines.too_many)
        self._lines.note_deleted(gone)
        return gone


class _LineCount:
    """Counts how many log lines there are beyond the limit for all jobs.

    Each pass counts some of them; after the last one, the count starts again at an interval.
    """

    def __init__(self, clock: Clock, *, most: int) -> None:
        self._clock, self._most = clock, most
        self.too_many = 0  # as far as is known
        self._counted = LinesCounted()
        self._next_s = clock.monotonic_s()

    def count_step(self, conn: Connection) -> int:
        """Do one step of the count, if it is due; returns how many lines are too many."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return self.too_many
        self._counted = job_logs.count(conn, self._counted, most=COUNTED_AT_ONCE)
        if self._counted.up_to is None:
            self.too_many = max(0, self._counted.lines - self._most)
            self._counted, self._next_s = LinesCounted(), now_s + COUNT_INTERVAL_S
        return self.too_many

    def note_deleted(self, lines: int) -> None:
        """Note that so many of the oldest lines were deleted. In the middle of a count they may not
        have been counted yet: then too few are deleted, and the next count finds the rest."""
        self.too_many = max(0, self.too_many - lines)
        counted = self._counted.lines
        self._counted = replace(self._counted, lines=max(0, counted - lines))
