"""Admission: the queue of jobs that wait for slots, and whose turn it is.

A job needs a slot for each of its pipelines, and gets a task for each of them at once. Jobs of a
group are admitted in the order in which they were accepted. While the first in line waits for
slots, no job behind it gets any, so that a large job is not starved by small ones that always fit.
Only a job that needs more slots than its group has in all is skipped, until workers are added.

A pass may see thousands of waiting jobs. It reads the queue once, and asks for free slots only for
the first job of each group.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.coordinator.jobs import job_log
from headrace.errors import Refused
from headrace.model.ids import Ids
from headrace.model.jobs.epoch import Retention
from headrace.model.jobs.status import JobStatus, PipelineStatus, ScheduleStrategy
from headrace.model.task import Lane, PipelineOrder, TaskKind
from headrace.store.jobs import jobs, queue
from headrace.store.jobs.jobs import Job, unreadable
from headrace.store.jobs.queue import GroupSlots, QueuedJob
from headrace.store.tasks import tasks, workers

log = logging.getLogger(__name__)

# Up to this place a job's row says exactly how many are before it; further back, a round number.
# Otherwise each job that is admitted would cost a write for all that wait behind it.
EXACT_PLACES_MAX = 20
WAITING = frozenset({JobStatus.CREATED, JobStatus.PENDING})


class Admission:
    """Admits waiting jobs, or writes what they wait for. Used by the reconcile thread alone."""

    def __init__(
        self, clock: Clock, ids: Ids, *, schedule: ScheduleStrategy, retention: Retention
    ) -> None:
        self._clock, self._ids, self._schedule = clock, ids, schedule
        self._retention = retention
        self._in_pass, self._waiting_lines = False, WaitingLines((), {})
        self._judged: set[str] = set()  # in this pass: jobs for which it was decided

    @contextmanager
    def one_pass(self) -> Generator[None]:
        """Within it, all jobs are judged by the queue as it was read once."""
        self._in_pass, self._waiting_lines = True, WaitingLines((), {})
        self._judged.clear()
        try:
            yield
        finally:
            self._in_pass = False

    def read_queue(self, conn: Connection) -> Sequence[str]:
        """Read the queue: all waiting jobs, in the order in which they were accepted."""
        self._waiting_lines = lines = WaitingLines.read(conn)
        return lines.job_ids

    def due_in_turn(self, waiting: Sequence[str]) -> Iterator[str]:
        """Yield the jobs that `admit` may change, one after another. A job that can't even be
        judged loses its turn, so that it blocks nobody (T6)."""
        may_wait = self._schedule is ScheduleStrategy.WAIT
        for key in waiting:
            if may_wait and self._waiting_lines.wait_is_known(key):
                continue
            yield key
            if key not in self._judged:
                self._waiting_lines.had_its_turn(key)

    def due(self, conn: Connection, job: Job) -> bool:
        """Whether `admit` would change anything."""
        lines = self._current_lines(conn, job)
        if job.status is JobStatus.CREATED or job not in lines or self._is_refused(lines, job):
            return True
        waits_for = lines.waits_for(conn, job)
        self._judged.add(job.id)
        return waits_for != job.waits_for

    def admit(self, conn: Connection, job: Job) -> JobStatus:
        """Plan its tasks, or write what it waits for; returns the status that it has then."""
        lines = self._current_lines(conn, job)
        if job not in lines:
            return job.status  # a cancel was written since we read it
        waits_for = lines.waits_for(conn, job)
        self._judged.add(job.id)
        if waits_for is None:
            lines.had_its_turn(job.id)
            return self._plan(conn, job)
        if self._is_refused(lines, job):
            lines.had_its_turn(job.id)
            room, needed = queue.room(conn, job.group), lines.needed(job)
            return self._fail(conn, job, no_room_text(job.id, job.group, needed=needed, room=room))
        if job.status is JobStatus.PENDING:
            jobs.note_waits_for(conn, job, waits_for)
        else:  # logged once: the reason changes with every other job
            now_ms = self._clock.wall_ms()
            if jobs.change(conn, job, JobStatus.PENDING, now_ms=now_ms, waits_for=waits_for):
                job_log.note(conn, job.id, f"waits for {waits_for}", now_ms=now_ms)
        return JobStatus.PENDING

    def _current_lines(self, conn: Connection, job: Job) -> WaitingLines:
        """The queue as it was read in this pass; read again when the job came later."""
        if not self._in_pass or job not in self._waiting_lines:
            self._waiting_lines = WaitingLines.read(conn)
        return self._waiting_lines

    def _is_refused(self, lines: WaitingLines, job: Job) -> bool:
        """Whether it is its turn, or it is too large, and no job may wait."""
        if self._schedule is not ScheduleStrategy.REJECT:
            return False
        return lines.is_next(job.id) or lines.is_too_large(job.id)

    def _plan(self, conn: Connection, job: Job) -> JobStatus:
        now_ms = self._clock.wall_ms()
        try:
            env = jobs.spec_of(conn, job.id).env
        except ValidationError as error:  # a retry would not help
            return self._fail(conn, job, str(unreadable(job.id, error)))
        order = PipelineOrder(
            retry_times=env.retry_times,
            retry_interval_s=env.retry_interval_s,
            lost_workers_max=env.lost_workers_max,
            retained=env.checkpoint_retained,
            checkpoint_timeout_ms=env.checkpoint_timeout_ms,
            commit_deadline_s=self._retention.commit_deadline_s,
        )
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
                payload=order.stored(),
                now_ms=now_ms,
            )
            jobs.change_pipeline(
                conn, job.id, pipeline.number, PipelineStatus.SCHEDULED, task_id=task_id
            )
        jobs.change(conn, job, JobStatus.SCHEDULED, now_ms=now_ms)
        job_log.note(conn, job.id, "admitted: each pipeline has a slot", now_ms=now_ms)
        return JobStatus.SCHEDULED

    def _fail(self, conn: Connection, job: Job, error: str) -> JobStatus:
        """Fail a job that was never admitted: nothing runs, so its pipelines end at once."""
        log.error("job not admitted", extra={"job": job.id, "reason": error})
        for pipeline in jobs.pipelines_of(conn, job.id):
            failed = PipelineStatus.FAILED
            jobs.change_pipeline(conn, job.id, pipeline.number, failed, error=error)
        now_ms = self._clock.wall_ms()
        jobs.change(conn, job, JobStatus.FAILING, now_ms=now_ms, error=error)
        job_log.note_moved(conn, job, JobStatus.FAILING, error, now_ms=now_ms)
        return JobStatus.FAILING


def is_waiting(job: Job) -> bool:
    """Whether it waits to be admitted."""
    return job.status in WAITING and not job.wanted_cancel


class WaitingLines:
    """The queue of each group, as it was read at one moment."""

    def __init__(self, waiting: Sequence[QueuedJob], slots: Mapping[str, int]) -> None:
        self.job_ids = [each.job_id for each in waiting]
        self._waiting = {each.job_id: each for each in waiting}
        self._slots = slots
        self._lines: dict[str, list[QueuedJob]] = {}
        self._places: dict[str, int] = {}
        self._heads: dict[str, int] = {}  # by group: how many jobs of its line have had their turn
        for each in waiting:
            if each.needed <= slots.get(each.group, 0):
                line = self._lines.setdefault(each.group, [])
                self._heads[each.group] = 0
                self._places[each.job_id] = len(line)
                line.append(each)

    @classmethod
    def read(cls, conn: Connection) -> WaitingLines:
        return cls(queue.waiting(conn), workers.slots_by_group(conn))

    def __contains__(self, job: Job) -> bool:
        queued = self._waiting.get(job.id)
        return queued is not None and queued.group == job.group

    def waits_for(self, conn: Connection, job: Job) -> str | None:
        """What a queued job waits for; None: it can have all its slots now."""
        if not self.is_next(job.id):
            return self._wait_reason(job.id)
        room = queue.room(conn, job.group)  # read now: jobs before it have taken their slots
        return (
            _needs_text(self.needed(job), room, job.group) if room.free < self.needed(job) else None
        )

    def wait_is_known(self, job_id: str) -> bool:
        """Whether its row says already what it waits for, so that it can be skipped."""
        queued = self._waiting.get(job_id)
        return (
            queued is not None
            and not self.is_next(job_id)
            and queued.waits_for == self._wait_reason(job_id)
        )

    def is_next(self, job_id: str) -> bool:
        """Whether it is the first in its line."""
        return job_id in self._places and self._before(job_id) <= 0

    def is_too_large(self, job_id: str) -> bool:
        """Whether it needs more slots than its group has in all."""
        return job_id not in self._places

    def needed(self, job: Job) -> int:
        return self._waiting[job.id].needed

    def _before(self, job_id: str) -> int:
        return self._places[job_id] - self._heads[self._waiting[job_id].group]

    def _wait_reason(self, job_id: str) -> str:
        """What it waits for, without a look at the slots that are free now."""
        queued = self._waiting[job_id]
        if job_id not in self._places:
            return _needs_text(
                queued.needed, GroupSlots(self._slots.get(queued.group, 0), free=0), queued.group
            )
        return _turn_text(
            self._before(job_id), self._lines[queued.group][self._heads[queued.group]], queued.group
        )

    def had_its_turn(self, job_id: str) -> None:
        """If it was the first in line, the turn passes to the next job, whatever became of it."""
        place = self._places.get(job_id)
        if place is not None and place == self._heads[self._waiting[job_id].group]:
            self._heads[self._waiting[job_id].group] += 1


def _needs_text(needed: int, room: GroupSlots, group: str) -> str:
    if 0 < room.slots < needed:
        return (
            f"{needed} slots at once; group {group!r} has {room.slots} in all: add workers to the "
            "group, or cancel the job and submit it with fewer pipelines"
        )
    wanted = "a free slot" if needed == 1 else f"{needed} free slots"
    return f"{wanted} in group {group!r}; it has {room.free} of {room.slots}"


def _turn_text(before: int, first: QueuedJob, group: str) -> str:
    if before > EXACT_PLACES_MAX:
        return f"its turn: more than {_rounded(before)} jobs before it in group {group!r}"
    slots = "1 slot" if first.needed == 1 else f"{first.needed} slots"
    jobs = "1 job" if before == 1 else f"{before} jobs"
    who = f"first {first.job_id!r}" if before > 1 else repr(first.job_id)
    return f"its turn: {jobs} before it in group {group!r}, {who} which needs {slots}"


def _rounded(before: int) -> int:
    """A round number below it: one digit, then zeros."""
    zeros = 10 ** (len(str(before - 1)) - 1)
    return (before - 1) // zeros * zeros


def check_room(conn: Connection, job_id: str, group: str, *, needed: int) -> None:
    """Refuse a job that was inserted in this transaction, if it would have to wait."""
    room = queue.room(conn, group)
    spoken_for = queue.needed(conn, group) - needed  # by jobs that were accepted before
    room = GroupSlots(room.slots, free=max(0, room.free - spoken_for))
    if needed > room.free:
        raise Refused(no_room_text(job_id, group, needed=needed, room=room))


def no_room_text(job_id: str, group: str, *, needed: int, room: GroupSlots) -> str:
    slots = "a slot" if needed == 1 else f"{needed} slots at once"
    return (
        f"job {job_id!r} needs {slots}, and group {group!r} has {room.free} of {room.slots} "
        "free. This coordinator lets no job wait (`--job-schedule-strategy REJECT`): submit it "
        "again when other jobs have ended, or add workers to the group"
    )
