"""Jobs: one step nearer to what was asked, or to the end.

admit     all pipelines get a task at once, when all of them can have a slot
stop      a job that fails or is cancelled has its executions stopped
settle    what an ended execution left open is finished or aborted, by a control task (E6)
save      a job that is to end with a savepoint has its executions told
end       the job's status follows from its pipelines', and what a restore needs is kept
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.coordinator.payloads import unreadable
from headrace.coordinator.reconcile.saving import is_saved, keep, saving_waits_for
from headrace.model.ids import Ids
from headrace.model.job import (
    JOB_ENDED,
    PIPELINE_ENDED,
    JobStatus,
    PipelineStatus,
    check_job_transition,
    next_job_status,
)
from headrace.model.task import ENDED, Lane, TaskKind, TaskStatus
from headrace.store import epochs, jobs, savepoints, tasks, workers
from headrace.store.jobs import Job, Pipeline
from headrace.store.tasks import Task

log = logging.getLogger(__name__)

WAITING = frozenset({JobStatus.CREATED, JobStatus.PENDING})
SETTLE_DEADLINE_S = 900.0  # without anybody to settle it for so long, a job ends without it
ENDING = frozenset({JobStatus.CANCELING, JobStatus.FAILING})
STOPPING = ENDING | {JobStatus.DOING_SAVEPOINT}
# What a pipeline said in the meantime is not why the job is so.
UNBLAMED = frozenset({JobStatus.CANCELING, JobStatus.FINISHED, JobStatus.SAVEPOINT_DONE})


@dataclass(frozen=True, slots=True)
class _View:
    job: Job
    pipelines: Sequence[Pipeline]
    tasks: Sequence[Task]
    saved: bool

    @classmethod
    def read(cls, conn: Connection, job_id: str) -> _View | None:
        job = _open_job(conn, job_id)
        return cls.of(conn, job) if job else None

    @classmethod
    def of(cls, conn: Connection, job: Job) -> _View:
        pipelines = jobs.pipelines_of(conn, job.id)
        return cls(job, pipelines, tasks.of_job(conn, job.id), is_saved(conn, job, pipelines))

    def next_status(self) -> JobStatus:
        return next_job_status(
            self.job.status,
            [p.status for p in self.pipelines],
            cancel_wanted=self.job.wanted_cancel,
            savepoint_wanted=self.job.wanted_savepoint,
            saved=self.saved,
        )

    def task_of(self, pipeline: Pipeline, kind: TaskKind) -> Task | None:
        found = [t for t in self.tasks if t.pipeline == pipeline.number and t.kind is kind]
        return found[-1] if found else None

    def settling(self) -> Sequence[tuple[Pipeline, Task]]:
        found = [(p, self.task_of(p, TaskKind.SETTLE)) for p in self.pipelines]
        return [(p, t) for p, t in found if t is not None and p.status not in PIPELINE_ENDED]

    def runs_no_more(self, pipeline: Pipeline) -> bool:
        """It has not ended yet, and no execution of it is left."""
        running = self.task_of(pipeline, TaskKind.PIPELINE)
        return pipeline.status not in PIPELINE_ENDED and (
            running is None or running.status in ENDED
        )


class Jobs:
    name = "jobs"

    def __init__(self, clock: Clock, ids: Ids, *, ring_worker: Callable[[str], None]) -> None:
        self._clock, self._ids, self._ring_worker = clock, ids, ring_worker
        self._settling_since_s: dict[str, float] = {}  # by job: when we first saw it do so

    def due(self, conn: Connection, key: str) -> bool:
        if (job := _open_job(conn, key)) is None:
            return False
        if (waiting := _is_waiting(job)) and job.waits_for is None:
            return True  # nobody has looked at it yet
        view = _View.of(conn, job)
        if waiting:
            return _waits_for(conn, view) != job.waits_for
        if view.next_status() is not view.job.status:
            return True
        if view.job.status in STOPPING and _end_waits_for(conn, view) != view.job.waits_for:
            return True
        return view.job.status in ENDING and (
            _unwound(view) or any(self._is_given_up(settle) for _, settle in view.settling())
        )

    def reconcile(self, conn: Connection, key: str) -> None:
        view = _View.read(conn, key)
        if view is None:
            return
        if _is_waiting(view.job):
            target = self._admit(conn, view)
        elif (target := view.next_status()) is not view.job.status:
            self._move(conn, view, target)
        if target in ENDING and (view := _View.read(conn, key)):
            self._wind_down(conn, view)
        if target in STOPPING:
            self._tell_what_it_waits_for(conn, key)

    def _move(self, conn: Connection, view: _View, target: JobStatus) -> None:
        check_job_transition(view.job.id, view.job.status, target)
        error = next((p.error for p in view.pipelines if p.error), None)
        if target in UNBLAMED:
            error = None
        now_ms = self._clock.wall_ms()
        if not jobs.change(conn, view.job, target, now_ms=now_ms, error=error):
            return
        if target is JobStatus.DOING_SAVEPOINT:
            for worker in savepoints.mark_tasks(conn, view.job.id):
                self._ring_worker(worker)
        elif target in JOB_ENDED:
            self._settling_since_s.pop(view.job.id, None)
            keep(conn, view.job, view.pipelines, target, now_ms=now_ms)
        log.info("job moved", extra={"job": view.job.id, "from": view.job.status, "to": target})

    def _admit(self, conn: Connection, view: _View) -> JobStatus:
        """Plan its tasks, or say what it waits for. Returns the status it has then."""
        waits_for = _waits_for(conn, view)
        now_ms = self._clock.wall_ms()
        if waits_for is not None:
            jobs.change(conn, view.job, JobStatus.PENDING, now_ms=now_ms, waits_for=waits_for)
            return JobStatus.PENDING
        try:
            env = jobs.spec_of(conn, view.job.id).env
        except ValidationError as error:  # no other try will read it
            self._fail_unread(conn, view, str(unreadable(view.job.id, error)))
            return JobStatus.FAILING
        for pipeline in view.pipelines:
            task_id = self._ids.new()
            tasks.plan(
                conn,
                task_id=task_id,
                kind=TaskKind.PIPELINE,
                lane=Lane.SLOT,
                group=view.job.group,
                job_id=view.job.id,
                pipeline=pipeline.number,
                payload={
                    "retry_times": env.retry_times,
                    "retry_interval_s": env.retry_interval_s,
                    "retained": env.checkpoint_retained,
                    "checkpoint_timeout_ms": env.checkpoint_timeout_ms,
                },
                now_ms=now_ms,
            )
            jobs.change_pipeline(
                conn, view.job.id, pipeline.number, PipelineStatus.SCHEDULED, task_id=task_id
            )
        jobs.change(conn, view.job, JobStatus.SCHEDULED, now_ms=now_ms)
        return JobStatus.SCHEDULED

    def _fail_unread(self, conn: Connection, view: _View, error: str) -> None:
        """It was never admitted: there is nothing to stop, and its pipelines end at once."""
        log.error("job can't be read", extra={"job": view.job.id, "reason": error})
        for pipeline in view.pipelines:
            failed = PipelineStatus.FAILED
            jobs.change_pipeline(conn, view.job.id, pipeline.number, failed, error=error)
        now_ms = self._clock.wall_ms()
        jobs.change(conn, view.job, JobStatus.FAILING, now_ms=now_ms, error=error)

    def _wind_down(self, conn: Connection, view: _View) -> None:
        """Stop what runs, settle what is open, and end each pipeline that has nothing left."""
        now_ms = self._clock.wall_ms()
        for worker in tasks.want_stop(conn, view.job.id):
            self._ring_worker(worker)
        tasks.cancel_unclaimed(conn, view.job.id, now_ms=now_ms)
        # Read again: a report may have moved a pipeline while the tasks' locks were waited for.
        pipelines = jobs.pipelines_of(conn, view.job.id)
        view = replace(view, pipelines=pipelines, tasks=tasks.of_job(conn, view.job.id))
        for pipeline in view.pipelines:
            if view.runs_no_more(pipeline):
                self._settle(conn, view, pipeline, now_ms=now_ms)

    def _settle(self, conn: Connection, view: _View, pipeline: Pipeline, *, now_ms: int) -> None:
        open_epoch = _oldest_open(conn, view.job, pipeline)
        settle = view.task_of(pipeline, TaskKind.SETTLE)
        failing = pipeline.status is PipelineStatus.FAILING
        end = PipelineStatus.FAILED if failing else PipelineStatus.CANCELED
        if open_epoch is None:
            jobs.change_pipeline(conn, view.job.id, pipeline.number, end)
        elif settle is None:
            tasks.plan(
                conn,
                task_id=self._ids.new(),
                kind=TaskKind.SETTLE,
                lane=Lane.CONTROL,
                group=view.job.group,
                job_id=view.job.id,
                pipeline=pipeline.number,
                now_ms=now_ms,
            )
        elif settle.status is TaskStatus.FAILED or self._give_up(conn, settle, now_ms=now_ms):
            because = settle.error or f"no worker in group {view.job.group!r} took it in time"
            unsettled = f"epoch {open_epoch.epoch} is left open, it could not be settled: {because}"
            error = "; ".join(reason for reason in (pipeline.error, unsettled) if reason)
            jobs.change_pipeline(conn, view.job.id, pipeline.number, end, error=error)

    def _is_given_up(self, settle: Task) -> bool:
        """Whether nobody holds the settle task, and nobody did for too long. A leader counts from
        when it first saw it, by its own clock: those of two leaders may be an hour apart."""
        assert settle.job_id is not None
        now_s = self._clock.monotonic_s()
        since_s = self._settling_since_s.setdefault(settle.job_id, now_s)
        return settle.status is TaskStatus.PLANNED and now_s - since_s >= SETTLE_DEADLINE_S

    def _give_up(self, conn: Connection, settle: Task, *, now_ms: int) -> bool:
        return self._is_given_up(settle) and tasks.fail_unclaimed(
            conn, settle.id, error=settle.error or "no worker took it in time", now_ms=now_ms
        )

    def _tell_what_it_waits_for(self, conn: Connection, key: str) -> None:
        if (view := _View.read(conn, key)) is None:
            return
        waits_for = _end_waits_for(conn, view)
        if waits_for != view.job.waits_for:
            now_ms, status = self._clock.wall_ms(), view.job.status
            jobs.change(conn, view.job, status, now_ms=now_ms, waits_for=waits_for)


def _open_job(conn: Connection, job_id: str) -> Job | None:
    job = jobs.get(conn, job_id)
    return job if job is not None and job.status not in JOB_ENDED else None


def _oldest_open(conn: Connection, job: Job, pipeline: Pipeline) -> epochs.Epoch | None:
    return next(iter(epochs.all_open(conn, job.incarnation, pipeline.number)), None)


def _is_waiting(job: Job) -> bool:
    return job.status in WAITING and not job.wanted_cancel


def _unwound(view: _View) -> bool:
    """Whether an ending job has something left for us, and not only for its workers."""
    running = [t for t in view.tasks if t.kind is TaskKind.PIPELINE and t.status not in ENDED]
    if any(task.status is TaskStatus.PLANNED or not task.stop for task in running):
        return True
    settling = [view.task_of(p, TaskKind.SETTLE) for p in view.pipelines if view.runs_no_more(p)]
    return any(settle is None or settle.status in ENDED for settle in settling)


def _end_waits_for(conn: Connection, view: _View) -> str | None:
    """What a job that is to end waits for: a worker, when there is none."""
    if view.job.status is JobStatus.DOING_SAVEPOINT:
        return saving_waits_for(conn, view.job, view.tasks)
    group = view.job.group
    waiting = [p for p, settle in view.settling() if settle.status is TaskStatus.PLANNED]
    if not waiting or group in workers.slots_by_group(conn):
        return None
    found = _oldest_open(conn, view.job, waiting[0])
    epoch = f"epoch {found.epoch} of " if found else ""
    return f"a worker in group {group!r} to settle {epoch}pipeline {waiting[0].number}"


def _waits_for(conn: Connection, view: _View) -> str | None:
    """What the job waits for, or None when it can be admitted."""
    group, needed = view.job.group, len(view.pipelines)
    slots = workers.slots_by_group(conn).get(group, 0)
    free = slots - tasks.busy_by_group(conn).get(group, 0)
    if free >= needed:
        return None
    wanted = "a free slot" if needed == 1 else f"{needed} free slots"
    return f"{wanted} in group {group!r}; it has {max(0, free)} of {slots}"
