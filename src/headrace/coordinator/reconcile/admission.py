"""Admission: a job gets a task for each of its pipelines at once, when it is its turn.

A pass looks at thousands that wait. It reads the queue once, and asks for free slots only for the
first of each group.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.coordinator import joblog
from headrace.coordinator.payloads import unreadable
from headrace.coordinator.schedule import Lines, no_room
from headrace.model.cleanup import Retention
from headrace.model.ids import Ids
from headrace.model.job import JobStatus, PipelineStatus
from headrace.model.schedule import ScheduleStrategy
from headrace.model.task import Lane, TaskKind
from headrace.store import jobs, queue, tasks
from headrace.store.jobs import Job

log = logging.getLogger(__name__)

WAITING = frozenset({JobStatus.CREATED, JobStatus.PENDING})


class Admission:
    def __init__(
        self, clock: Clock, ids: Ids, *, schedule: ScheduleStrategy, retention: Retention
    ) -> None:
        self._clock, self._ids, self._schedule = clock, ids, schedule
        self._retention = retention
        self._in_pass, self._read = False, Lines((), {})
        self._judged: set[str] = set()  # in this pass: jobs that may be admitted, or know why not

    @contextmanager
    def one_pass(self) -> Generator[None]:
        """Whoever is looked at in here is looked at in one state of the queue."""
        self._in_pass, self._read = True, Lines((), {})
        self._judged.clear()
        try:
            yield
        finally:
            self._in_pass = False

    def in_turn(self, conn: Connection) -> Sequence[str]:
        """All that wait, in the order in which they came."""
        self._read = lines = Lines.read(conn)
        return lines.in_turn

    def turns(self, waiting: Sequence[str]) -> Iterator[str]:
        """Those for which there may be news, one after another. A job that can't even be looked
        at stops nobody (T6)."""
        may_wait = self._schedule is ScheduleStrategy.WAIT
        for key in waiting:
            if may_wait and self._read.is_told(key):
                continue
            yield key
            if key not in self._judged:
                self._read.had_its_turn(key)

    def due(self, conn: Connection, job: Job) -> bool:
        """Whether `admit` would change anything."""
        lines = self._lines(conn, job)
        if job.waits_for is None or job not in lines or self._is_refused(lines, job):
            return True
        waits_for = lines.waits_for(conn, job)
        self._judged.add(job.id)
        return waits_for != job.waits_for

    def admit(self, conn: Connection, job: Job) -> JobStatus:
        """Plan its tasks, or say what it waits for. Returns the status it has then."""
        lines = self._lines(conn, job)
        if job not in lines:
            return job.status  # somebody wants it canceled, since we read it
        waits_for = lines.waits_for(conn, job)
        self._judged.add(job.id)
        if waits_for is None:
            lines.had_its_turn(job.id)
            return self._plan(conn, job)
        if self._is_refused(lines, job):
            lines.had_its_turn(job.id)
            room, needed = queue.room(conn, job.group), lines.needed(job)
            return self._fail(conn, job, no_room(job.id, job.group, needed=needed, room=room))
        now_ms = self._clock.wall_ms()
        jobs.change(conn, job, JobStatus.PENDING, now_ms=now_ms, waits_for=waits_for)
        if job.waits_for is None:  # once: what it waits for changes with every other job
            joblog.note(conn, job.id, f"waits for {waits_for}", now_ms=now_ms)
        return JobStatus.PENDING

    def _lines(self, conn: Connection, job: Job) -> Lines:
        """As they were read in this pass; anew when the job has come since."""
        if not self._in_pass or job not in self._read:
            self._read = Lines.read(conn)
        return self._read

    def _is_refused(self, lines: Lines, job: Job) -> bool:
        """Whether it may not wait, and it is its turn."""
        if self._schedule is not ScheduleStrategy.REJECT:
            return False
        return lines.is_next(job.id) or lines.is_beside(job.id)

    def _plan(self, conn: Connection, job: Job) -> JobStatus:
        now_ms = self._clock.wall_ms()
        try:
            env = jobs.spec_of(conn, job.id).env
        except ValidationError as error:  # no other try will read it
            return self._fail(conn, job, str(unreadable(job.id, error)))
        for pipeline in jobs.pipelines_of(conn, job.id):
            task_id = self._ids.new()
            tasks.plan(
                conn,
                task_id=task_id,
                kind=TaskKind.PIPELINE,
                lane=Lane.SLOT,
                group=job.group,
                job_id=job.id,
                pipeline=pipeline.number,
                payload={
                    "retry_times": env.retry_times,
                    "retry_interval_s": env.retry_interval_s,
                    "lost_workers_max": env.lost_workers_max,
                    "retained": env.checkpoint_retained,
                    "checkpoint_timeout_ms": env.checkpoint_timeout_ms,
                    "commit_deadline_s": self._retention.commit_deadline_s,
                },
                now_ms=now_ms,
            )
            jobs.change_pipeline(
                conn, job.id, pipeline.number, PipelineStatus.SCHEDULED, task_id=task_id
            )
        jobs.change(conn, job, JobStatus.SCHEDULED, now_ms=now_ms)
        joblog.note(conn, job.id, "admitted: each pipeline has a slot", now_ms=now_ms)
        return JobStatus.SCHEDULED

    def _fail(self, conn: Connection, job: Job, error: str) -> JobStatus:
        """It was never admitted: there is nothing to stop, and its pipelines end at once."""
        log.error("job not admitted", extra={"job": job.id, "reason": error})
        for pipeline in jobs.pipelines_of(conn, job.id):
            failed = PipelineStatus.FAILED
            jobs.change_pipeline(conn, job.id, pipeline.number, failed, error=error)
        now_ms = self._clock.wall_ms()
        jobs.change(conn, job, JobStatus.FAILING, now_ms=now_ms, error=error)
        joblog.note_moved(conn, job, JobStatus.FAILING, error, now_ms=now_ms)
        return JobStatus.FAILING


def is_waiting(job: Job) -> bool:
    """Whether it is to be admitted, and was not yet."""
    return job.status in WAITING and not job.wanted_cancel
