"""Admission: the queue of jobs that wait for slots, and whose turn it is.

A job needs a slot for each of its pipelines, and gets a task for each of them at once. Jobs of a
group are admitted in the order in which they were accepted. While the first in line waits for
slots, no job behind it gets any, so that a large job is not starved by small ones that always fit.
Only a job that needs more slots than its group has in all is skipped, until workers are added. For
a job only the slots of workers count that have all the plug-ins it needs.

Thousands may wait. A pass reads only the front of each group's line, the jobs whose rows say their
exact place: whoever frees a slot, adds a worker or cancels the first in line need not tell anybody.
Behind jobs that are all too large it searches further, so many in each pass, and remembers how far.
A longer part of a line is read for jobs that are new in it, and for the slow sweep, which brings
the round numbers up to date that jobs further back are told.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager

from pydantic import ValidationError
from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.jobs import job_log
from headrace.coordinator.planned_tasks import plan_task
from headrace.coordinator.workforce import PluginSets, WorkersSignature, Workforce
from headrace.errors import Refused
from headrace.model.ids import Ids
from headrace.model.jobs.epoch import Retention
from headrace.model.jobs.status import JOB_WAITING, JobStatus, PipelineStatus, ScheduleStrategy
from headrace.model.task import PipelineOrder
from headrace.protocol import task_types
from headrace.store.core.engine import reading
from headrace.store.jobs import jobs, queue
from headrace.store.jobs.jobs import Job, unreadable
from headrace.store.jobs.queue import FittingJobs, GroupSlots, Place, QueuedJob

log = logging.getLogger(__name__)

# Up to this place a job's row says exactly how many are before it; further back, a round number.
# Otherwise each job that is admitted would cost a write for all that wait behind it.
EXACT_PLACES_MAX = 20
FRONT_MAX = EXACT_PLACES_MAX + 1  # jobs of a line that each pass reads
PLACES_MAX = 1000  # further back, a job is only told that there are more before it


class Admission:
    """Admits waiting jobs, or writes what they wait for. Used by the reconcile thread alone."""

    def __init__(
        self, clock: Clock, ids: Ids, *, schedule: ScheduleStrategy, retention: Retention
    ) -> None:
        self._clock, self._ids, self._schedule = clock, ids, schedule
        self._retention = retention
        self._in_pass = False
        self._plugin_sets = PluginSets()
        self._workforce: Workforce | None = None  # as read in this pass
        self._lines: dict[str, WaitingLine] = {}  # by group, likewise
        # By group with very many of them: which workers it has, and up to where in its line all
        # jobs need more. It holds over passes: later jobs stand behind it, or are new (`_line_of`).
        self._too_large_up_to: dict[str, tuple[WorkersSignature, Place]] = {}
        self._judged: set[str] = set()  # in this pass: jobs for which it was decided
        self._tried: set[str] = set()  # and for which that was tried

    @contextmanager
    def one_pass(self) -> Generator[None]:
        """Within it, the front of each line is read once, unless all of it was admitted."""
        self._forget()
        self._in_pass = True
        try:
            yield
        finally:
            self._in_pass = False

    def _forget(self) -> None:
        self._workforce, self._lines = None, {}
        self._judged.clear()
        self._tried.clear()

    def due_in_turn(self, engine: Engine, group: str) -> Iterator[str]:
        """Yield the jobs at the front that `admit` may change, one after another. A job that can't
        even be judged loses its turn, so that it blocks nobody (T6)."""
        may_wait = self._schedule is ScheduleStrategy.WAIT
        passed_over: set[str] = set()
        with reading(engine) as conn:
            line = self._read(conn, group, most=FRONT_MAX)
            line.read_room(conn)
        while True:
            if line.is_used_up:
                with reading(engine) as conn:
                    passed_over = {*queue.some(conn, passed_over)}  # others were admitted
                    # As many again as there were in vain: thousands are not read 21 by 21.
                    most = min(max(FRONT_MAX, len(passed_over)), PLACES_MAX)
                    line = self._read(conn, group, most=most, but=passed_over)
            for queued in line.jobs:
                if may_wait and line.wait_is_known(queued):
                    continue
                self._tried.add(queued.job_id)
                yield queued.job_id
                passed_over.add(queued.job_id)
                if queued.job_id not in self._judged:
                    line.had_its_turn(queued)
            if not line.is_used_up:
                return

    def not_tried(self, arrived: Collection[str]) -> Sequence[str]:
        """Those of these jobs that were not at the front of a line in this pass."""
        return sorted(set(arrived) - self._tried)

    def outdated(self, conn: Connection, waiting: Collection[Job]) -> Sequence[str]:
        """Those of these jobs whose rows do not say what they wait for, far back in line, too."""
        found = queue.some(conn, [job.id for job in waiting])
        for queued in found.values():
            self._see_again(conn, queued)
        for group in {queued.group for queued in found.values()}:
            self._read(conn, group, most=PLACES_MAX + 1)
        return sorted(
            queued.job_id
            for queued in found.values()
            if self._is_refused(line := self._lines[queued.group], queued)
            or not (line.is_next(queued) or line.wait_is_known(queued))
        )

    def due(self, conn: Connection, job: Job) -> bool:
        """Whether `admit` would change anything."""
        queued = queue.some(conn, [job.id]).get(job.id)
        if queued is None:
            return False  # a cancel was written since we read it, and its mark with it
        line = self._line_of(conn, queued)
        if job.waits_for is None or self._is_refused(line, queued):
            return True
        waits_for = line.waits_for(conn, queued)
        self._judged.add(job.id)
        return waits_for != job.waits_for

    def admit(self, conn: Connection, job: Job) -> JobStatus:
        """Plan its tasks, or write what it waits for; returns the status that it has then."""
        queued = queue.some(conn, [job.id]).get(job.id)
        if queued is None:
            return job.status  # a cancel was written since we read it
        line = self._line_of(conn, queued)
        waits_for = line.waits_for(conn, queued)
        self._judged.add(job.id)
        if waits_for is None:
            line.had_its_turn(queued)
            return self._plan(conn, job, needs=queued.needs)
        if self._is_refused(line, queued):
            line.had_its_turn(queued)
            error = line.no_room_text(conn, queued)
            return self._fail(conn, job, error)
        if job.status is JobStatus.PENDING:
            jobs.note_waits_for(conn, job, waits_for)
        else:  # logged once: the reason changes with every other job
            now_ms = self._clock.wall_ms()
            if jobs.change(conn, job, JobStatus.PENDING, now_ms=now_ms, waits_for=waits_for):
                job_log.note(conn, job.id, f"waits for {waits_for}", now_ms=now_ms)
        return JobStatus.PENDING

    def _line_of(self, conn: Connection, queued: QueuedJob) -> WaitingLine:
        """The line as it was read in this pass; read further, or again when the job came later."""
        line = self._lines.get(queued.group) if self._in_pass else None
        self._see_again(conn, queued)
        if line is None or not line.knows(queued):
            if not self._in_pass:
                self._forget()
            line = self._read(conn, queued.group, most=PLACES_MAX + 1)
        return line

    def _read(
        self, conn: Connection, group: str, *, most: int, but: Collection[str] = ()
    ) -> WaitingLine:
        """Read the front of a line; `but`: jobs that have had their turn already."""
        workforce = self._read_workforce(conn)
        most += len(but)
        front = queue.front(conn, group, most=most)
        whole = len(front) < most
        too_large = [e for e in front if e.needed > workforce.slots(group, e.needs)]
        if not whole and too_large:
            found = self._search(conn, workforce, group, most=most)
            front = [*too_large, *found.jobs]
            whole = found.read_up_to is None and len(found.jobs) < most
            if found.read_up_to and all(each.job_id in but for each in found.jobs):
                self._too_large_up_to[group] = workforce.signature(group), found.read_up_to
                whole = True  # as far as this pass is concerned: the next one goes on from there
        front = [each for each in front if each.job_id not in but]
        self._lines[group] = line = WaitingLine(group, workforce, front, whole=whole)
        return line

    def _search(
        self, conn: Connection, workforce: Workforce, group: str, *, most: int
    ) -> FittingJobs:
        """Jobs of a line that the group's workers could run, if all of them were free."""
        if workforce.slots(group) == 0:
            return FittingJobs((), read_up_to=None)
        known, after = self._too_large_up_to.get(group, (None, queue.FIRST))
        if known is not None and known != workforce.signature(group):
            del self._too_large_up_to[group]
            after = queue.FIRST
        return workforce.fitting(conn, group, after=after, most=most)

    def _see_again(self, conn: Connection, queued: QueuedJob) -> None:
        """Search its line from the front if it stands where all were too large, and is not: it came
        there late, through another node, or it failed when it had its turn."""
        if queued.group not in self._too_large_up_to:
            return
        _, up_to = self._too_large_up_to[queued.group]
        slots = self._read_workforce(conn).slots(queued.group, queued.needs)
        if queued.needed <= slots and queued.place <= up_to:
            del self._too_large_up_to[queued.group]

    def _read_workforce(self, conn: Connection) -> Workforce:
        """The workers as they were first read in this pass."""
        if self._workforce is None:
            self._workforce = Workforce.read(conn, self._plugin_sets)
        return self._workforce

    def _is_refused(self, line: WaitingLine, queued: QueuedJob) -> bool:
        """Whether it is its turn, or it is too large, and no job may wait."""
        if self._schedule is not ScheduleStrategy.REJECT:
            return False
        return line.is_next(queued) or line.is_too_large(queued)

    def _plan(self, conn: Connection, job: Job, *, needs: str | None) -> JobStatus:
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
            plan_task(
                conn,
                task_types.PIPELINE,
                order,
                task_id=task_id,
                group=job.group,
                job_id=job.id,
                pipeline=pipeline.number,
                needs=needs,
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
    return job.status in JOB_WAITING and not job.wanted_cancel


class WaitingLine:
    """The front of one group's queue, as it was read at one moment."""

    def __init__(
        self, group: str, workforce: Workforce, front: Sequence[QueuedJob], *, whole: bool
    ) -> None:
        """`whole`: all jobs that fit into the group's slots are there."""
        self.jobs = front
        # By what jobs need, as it was when the line was read, if it was asked for.
        self._rooms: dict[str | None, GroupSlots] = {}
        self._group, self._workforce, self._whole = group, workforce, whole
        self._fitting = [each for each in front if not self.is_too_large(each)]
        self._places = {each.job_id: place for place, each in enumerate(self._fitting)}
        self._head = 0  # how many of them have had their turn

    def read_room(self, conn: Connection) -> None:
        """Read what is free for the first in line."""
        for first in self._fitting[:1]:
            self._rooms[first.needs] = self._workforce.room(conn, self._group, first.needs)

    @property
    def is_used_up(self) -> bool:
        """Whether all that was read have had their turn, and there are more."""
        return not self._whole and self._head >= len(self._fitting)

    def knows(self, queued: QueuedJob) -> bool:
        """Whether its place was read, or is so far back that it does not matter."""
        if self.is_too_large(queued) or queued.job_id in self._places:
            return True
        return not self._whole and len(self._fitting) > PLACES_MAX

    def waits_for(self, conn: Connection, queued: QueuedJob) -> str | None:
        """What a queued job waits for; None: it can have all its slots now."""
        if not self.is_next(queued):
            return self._wait_reason(queued)
        # Read now: jobs before it have taken their slots.
        room = self._workforce.room(conn, self._group, queued.needs)
        return None if room.free >= queued.needed else self._needs_text(queued, room)

    def wait_is_known(self, queued: QueuedJob) -> bool:
        """Whether its row says already what it waits for, so that it can be skipped."""
        if not self.is_next(queued):
            return queued.waits_for == self._wait_reason(queued)
        # While nobody had a turn, the slots that are free are those that were read.
        room = self._rooms.get(queued.needs)
        if room is None or self._head or queued.needed <= room.free:
            return False
        return queued.waits_for == self._needs_text(queued, room)

    def is_next(self, queued: QueuedJob) -> bool:
        """Whether it is the first in its line."""
        return not self.is_too_large(queued) and self._before(queued) <= 0

    def is_too_large(self, queued: QueuedJob) -> bool:
        """Whether it needs more slots than its group has in all, on workers that can run it."""
        return queued.needed > self._workforce.slots(self._group, queued.needs)

    def _before(self, queued: QueuedJob) -> int:
        return self._places.get(queued.job_id, PLACES_MAX + 1 + self._head) - self._head

    def _wait_reason(self, queued: QueuedJob) -> str:
        """What it waits for, without a look at the slots that are free now."""
        if self.is_too_large(queued):
            slots = self._workforce.slots(self._group, queued.needs)
            return self._needs_text(queued, GroupSlots(slots, free=0))
        before = self._before(queued)
        if before > EXACT_PLACES_MAX:
            more_than = _rounded(min(before, PLACES_MAX + 1))
            return f"its turn: more than {more_than} jobs before it in group {self._group!r}"
        return _turn_text(before, self._fitting[self._head], self._group)

    def had_its_turn(self, queued: QueuedJob) -> None:
        """If it was the first in line, the turn passes to the next job, whatever became of it."""
        if self._places.get(queued.job_id) == self._head:
            self._head += 1

    def _needs_text(self, queued: QueuedJob, room: GroupSlots) -> str:
        needed, group = queued.needed, self._group
        if (lacking := self._workforce.lacks(group, queued.needs)) is not None:
            return lacking
        where = self._workforce.only_some(group, queued.needs)
        if 0 < room.slots < needed:
            return (
                f"{needed} slots at once{where}; group {group!r} has {room.slots} in all: add "
                "workers to the group, or cancel the job and submit it with fewer pipelines"
            )
        wanted = "a free slot" if needed == 1 else f"{needed} free slots"
        return f"{wanted}{where} in group {group!r}; it has {room.free} of {room.slots}"

    def no_room_text(self, conn: Connection, queued: QueuedJob) -> str:
        """Why it is refused where no job may wait."""
        return _refusal_text(conn, self._workforce, queued, spoken_for=0)


def _turn_text(before: int, first: QueuedJob, group: str) -> str:
    slots = "1 slot" if first.needed == 1 else f"{first.needed} slots"
    jobs = "1 job" if before == 1 else f"{before} jobs"
    who = f"first {first.job_id!r}" if before > 1 else repr(first.job_id)
    return f"its turn: {jobs} before it in group {group!r}, {who} which needs {slots}"


def _rounded(before: int) -> int:
    """A round number below it: one digit, then zeros."""
    zeros = 10 ** (len(str(before - 1)) - 1)
    return (before - 1) // zeros * zeros


def check_room(conn: Connection, job_id: str) -> None:
    """Refuse a job that was inserted in this transaction, if it would have to wait."""
    queued, workforce = queue.some(conn, [job_id])[job_id], Workforce.read(conn)
    spoken_for = queue.needed(conn, queued.group) - queued.needed  # by jobs accepted before
    room = workforce.room(conn, queued.group, queued.needs)
    if queued.needed > room.free - spoken_for:
        raise Refused(_refusal_text(conn, workforce, queued, spoken_for=spoken_for))


def _refusal_text(
    conn: Connection, workforce: Workforce, queued: QueuedJob, *, spoken_for: int
) -> str:
    group, needed = queued.group, queued.needed
    room, where = (
        workforce.room(conn, group, queued.needs),
        workforce.only_some(group, queued.needs),
    )
    slots = "a slot" if needed == 1 else f"{needed} slots at once"
    why = (
        f"{slots}{where}, and group {group!r} has {max(0, room.free - spoken_for)} of "
        f"{room.slots} free"
    )
    return (
        f"job {queued.job_id!r} needs {workforce.lacks(group, queued.needs) or why}. This "
        "coordinator lets no job wait (`--job-schedule-strategy REJECT`): submit it again when "
        "other jobs have ended, or add workers to the group"
    )
