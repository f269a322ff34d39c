"""The job reconciler: brings a job one step nearer to what is wanted, or to its end.

admit     all pipelines get a task at once, when all of them can have a slot
stop      a job that fails or is canceled has its executions stopped
settle    what an ended execution left open is completed or aborted, by a control task (E6)
save      the executions of a job that is to end with a savepoint are told so
end       the job's status follows from its pipelines', and what a restore needs is kept

`look` finds out for a whole page of jobs which of them need a step, and sets the others to rest
until they are marked (`store/jobs/due_jobs.py`). A job that is stopping also waits for deadlines of
this leader's own clock, and for workers to come: it is looked at every few seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.coordinator.jobs import job_log
from headrace.coordinator.jobs.admission import Admission, is_waiting
from headrace.coordinator.jobs.attempts import TaskPlace, attempt_failed, wrote_nothing
from headrace.coordinator.jobs.job_end import end_job, is_saved, saving_waits_for
from headrace.coordinator.planned_tasks import plan_task
from headrace.coordinator.workforce import PluginSets, Workforce
from headrace.model.ids import Ids
from headrace.model.jobs.epoch import EpochStatus, Retention
from headrace.model.jobs.needs import needs_of
from headrace.model.jobs.status import (
    JOB_ENDED,
    PIPELINE_ENDED,
    JobStatus,
    PipelineStatus,
    ScheduleStrategy,
    next_job_status,
)
from headrace.model.task import (
    ASSIGNED,
    ENDED,
    FailureCause,
    SettleOrder,
    TaskKind,
    TaskStatus,
)
from headrace.protocol import task_types
from headrace.seams import seam
from headrace.store.jobs import due_jobs, epochs, jobs
from headrace.store.jobs.due_jobs import LookedAt
from headrace.store.jobs.epochs import EpochBrief
from headrace.store.jobs.jobs import Job, PipelineRow
from headrace.store.tasks import tasks
from headrace.store.tasks.tasks import Task, TaskEnd

log = logging.getLogger(__name__)

STOP_DEADLINE_S = 600.0  # after it, an execution that was told to stop is given up
# If no worker settles a job for so long, it ends unsettled. Sooner when its group has no worker and
# no epoch is prepared: then there is nothing to commit, and its cleanup sweeps the rest later (C8).
SETTLE_DEADLINE_S = 900.0
SETTLE_ALONE_DEADLINE_S = 30.0
SETTLE_HELD_DEADLINE_S = 3600.0  # the limit when a worker holds the settle task
SETTLE_DEADLINES_S = (SETTLE_ALONE_DEADLINE_S, SETTLE_DEADLINE_S, SETTLE_HELD_DEADLINE_S)
STOPPING_LOOK_MS = 5_000  # between two looks at a job that is stopping, unless it is marked
ENDING = frozenset({JobStatus.CANCELING, JobStatus.FAILING})
STOPPING = ENDING | {JobStatus.DOING_SAVEPOINT}
# An error of a pipeline is not the reason why a job has one of these.
UNBLAMED = frozenset({JobStatus.CANCELING, JobStatus.FINISHED, JobStatus.SAVEPOINT_DONE})


@dataclass(frozen=True, slots=True)
class _View:
    """A job with its pipelines and tasks, as they were read at one moment."""

    job: Job
    pipelines: Sequence[PipelineRow]
    tasks: Sequence[Task]
    saved: bool
    # By incarnation and pipeline, if the job waits for somebody to settle it.
    open_epochs: Mapping[tuple[str, int], Sequence[EpochBrief]] = field(
        default_factory=dict[tuple[str, int], Sequence[EpochBrief]]
    )

    @classmethod
    def read(cls, conn: Connection, job_id: str) -> _View | None:
        job = _open_job(conn, job_id)
        return cls.of(conn, job) if job else None

    @classmethod
    def of(cls, conn: Connection, job: Job) -> _View:
        pipelines = jobs.pipelines_of(conn, job.id)
        view = cls(job, pipelines, tasks.of_job(conn, job.id), is_saved(conn, job, pipelines))
        return _with_open_epochs(conn, {job.id: view})[job.id]

    @classmethod
    def of_all(cls, conn: Connection, some: Collection[Job]) -> Mapping[str, _View]:
        """Views of many jobs, by id, with few queries. Tasks are read only of those that are
        stopping: no step of another job depends on them."""
        pipelines = due_jobs.pipelines_of_all(conn, [job.id for job in some])
        stopping = [job.id for job in some if job.status in STOPPING]
        held = tasks.of_jobs(conn, stopping)
        views = {
            job.id: cls(
                job,
                pipelines[job.id],
                held.get(job.id, ()),
                is_saved(conn, job, pipelines[job.id]),
            )
            for job in some
        }
        return _with_open_epochs(conn, views)

    def next_status(self) -> JobStatus:
        return next_job_status(
            self.job.status,
            [p.status for p in self.pipelines],
            cancel_wanted=self.job.wanted_cancel,
            savepoint_wanted=self.job.wanted_savepoint,
            saved=self.saved,
        )

    def task_of(self, pipeline: PipelineRow, kind: TaskKind) -> Task | None:
        matching = [t for t in self.tasks if t.pipeline == pipeline.number and t.kind is kind]
        return matching[-1] if matching else None

    def settling(self) -> Sequence[tuple[PipelineRow, Task]]:
        settle_tasks = [(p, self.task_of(p, TaskKind.SETTLE)) for p in self.pipelines]
        return [(p, t) for p, t in settle_tasks if t is not None and p.status not in PIPELINE_ENDED]

    def waits_to_be_settled(self) -> Sequence[PipelineRow]:
        return [p for p, settle in self.settling() if settle.status is TaskStatus.PLANNED]

    def open_of(self, pipeline: int) -> Sequence[EpochBrief]:
        """Its open epochs, in their order, if it waits for somebody to settle it."""
        return self.open_epochs.get((self.job.incarnation, pipeline), ())

    def has_no_settler(self, settle: Task, workforce: Workforce) -> bool:
        """Whether its group has no worker that can settle it, and it has nothing to commit."""
        assert settle.pipeline is not None
        able = workforce.able(settle.group, settle.needs, settle.kind)
        return not able and all(
            epoch.status is EpochStatus.PLANNED for epoch in self.open_of(settle.pipeline)
        )

    def runs_no_more(self, pipeline: PipelineRow) -> bool:
        """Whether it has not ended yet, but no execution of it is left."""
        running = self.task_of(pipeline, TaskKind.PIPELINE)
        return pipeline.status not in PIPELINE_ENDED and (
            running is None or running.status in ENDED
        )


def _with_open_epochs(conn: Connection, views: Mapping[str, _View]) -> Mapping[str, _View]:
    waiting = [view.job.incarnation for view in views.values() if view.waits_to_be_settled()]
    if not waiting:
        return views
    found = epochs.open_of_all(conn, waiting)
    return {id_: replace(view, open_epochs=found) for id_, view in views.items()}


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a page of jobs found."""

    need_step: Sequence[str]
    arrived: Mapping[str, str]  # the group, by job that is new in its line


class JobReconciler:
    """Reconciles open jobs, one fenced transaction each."""

    name = "jobs"

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        *,
        wake_worker: Callable[[str], None],
        retention: Retention | None = None,
        schedule: ScheduleStrategy = ScheduleStrategy.WAIT,
    ) -> None:
        self._clock, self._ids, self._wake_worker = clock, ids, wake_worker
        self._plugin_sets = PluginSets()
        self._retention = retention or Retention()
        self.admission = Admission(clock, ids, schedule=schedule, retention=self._retention)
        # By job: when this leader first saw it stopping, or settling.
        self._stopping_since_s: dict[str, float] = {}
        self._settling_since_s: dict[str, float] = {}

    def due(self, conn: Connection, key: str) -> bool:
        if (job := _open_job(conn, key)) is None:
            return False
        if is_waiting(job):
            return self.admission.due(conn, job)
        return self._needs_step(_View.of(conn, job), Workforce.read(conn, self._plugin_sets))

    def look(self, conn: Connection, ids: Collection[str]) -> Look:
        """Look at these jobs, which are marked or whose time has come. Those that need no step are
        at rest afterwards, in the same transaction. One that somebody changes right now is left
        out: it stays marked, for the next pass."""
        seen = due_jobs.lock(conn, ids)
        open_jobs = [each.job for each in seen if each.job.status not in JOB_ENDED]
        arrived = {job.id: job.group for job in open_jobs if is_waiting(job) and not job.waits_for}
        need_step = self.need_step(conn, (job for job in open_jobs if not is_waiting(job)))
        idle = [s for s in seen if s.job.id not in need_step and s.job.id not in arrived]
        self._set_to_rest(conn, idle)
        return Look(sorted(need_step), arrived)

    def need_step(self, conn: Connection, some: Iterable[Job]) -> set[str]:
        """Those of these jobs, none of which waits for slots, that `reconcile` would change."""
        views = _View.of_all(conn, list(some))
        if not views:
            return set()
        workforce = Workforce.read(conn, self._plugin_sets)
        return {id_ for id_, view in views.items() if self._needs_step(view, workforce)}

    def _set_to_rest(self, conn: Connection, idle: Collection[LookedAt]) -> None:
        due_jobs.set_quiet(conn, [(each, self._next_look_ms(each)) for each in idle])

    def _next_look_ms(self, seen: LookedAt) -> int | None:
        """When a job at rest is looked at again, though nobody marks it; None: never."""
        job = seen.job
        if job.status in JOB_ENDED:
            return seen.due_at_ms  # its row stays as it is
        if job.status not in STOPPING:
            return None
        now_s, pauses_s = self._clock.monotonic_s(), [STOPPING_LOOK_MS / 1000]
        if (since_s := self._stopping_since_s.get(job.id)) is not None:
            pauses_s.append(since_s + STOP_DEADLINE_S - now_s)
        if (since_s := self._settling_since_s.get(job.id)) is not None:
            pauses_s += [since_s + deadline_s - now_s for deadline_s in SETTLE_DEADLINES_S]
        return self._clock.wall_ms() + ceil(1000 * min(each for each in pauses_s if each > 0))

    def _needs_step(self, view: _View, workforce: Workforce) -> bool:
        if view.next_status() is not view.job.status:
            return True
        if view.job.status in STOPPING and _end_waits_for(view, workforce) != view.job.waits_for:
            return True
        return view.job.status in ENDING and (
            bool(self._unstopped(view))
            or any(self._is_given_up(view, settle, workforce) for _, settle in view.settling())
            or _needs_winding_down(view)
        )

    def reconcile(self, conn: Connection, key: str) -> None:
        view = _View.read(conn, key)
        if view is None:
            return
        if is_waiting(view.job):
            target = self.admission.admit(conn, view.job)
        elif (target := view.next_status()) is not view.job.status:
            self._move(conn, view, target)
        if target in ENDING and (view := _View.read(conn, key)):
            self._wind_down(conn, view)
        if target in STOPPING:
            self._note_what_it_waits_for(conn, key)

    def _move(self, conn: Connection, view: _View, target: JobStatus) -> None:
        if target in JOB_ENDED:
            seam("before job ends")
        error = next((p.error for p in view.pipelines if p.error), None)
        if target in UNBLAMED:
            error = None
        now_ms = self._clock.wall_ms()
        if not jobs.change(conn, view.job, target, now_ms=now_ms, error=error):
            return
        if target is JobStatus.DOING_SAVEPOINT:
            for worker in tasks.want_savepoint(conn, view.job.id):
                self._wake_worker(worker)
        elif target in JOB_ENDED:
            self._stopping_since_s.pop(view.job.id, None)
            self._settling_since_s.pop(view.job.id, None)
            end_job(conn, view.job.id, view.pipelines, self._retention)
            seam("job ended, in transaction")
        job_log.note_moved(conn, view.job, target, error, now_ms=now_ms)
        log.info("job moved", extra={"job": view.job.id, "from": view.job.status, "to": target})

    def _wind_down(self, conn: Connection, view: _View) -> None:
        """Stop what runs, settle what is open, and end each pipeline that has nothing left."""
        now_ms = self._clock.wall_ms()
        for task in self._unstopped(view):
            if (held := tasks.current(conn, task.claim)) is not None:
                log.warning("execution did not stop", extra={"execution": task.claim.execution})
                attempt_failed(conn, held, "it did not stop", retry=False, now_ms=now_ms)
        for worker in tasks.want_stop(conn, view.job.id):
            self._wake_worker(worker)
        tasks.cancel_unclaimed(conn, view.job.id, now_ms=now_ms)
        # Read again: a report may have moved a pipeline while the tasks' locks were waited for.
        view = _View.of(conn, view.job)
        for pipeline in view.pipelines:
            if view.runs_no_more(pipeline):
                self._settle(conn, view, pipeline, now_ms=now_ms)

    def _settle(self, conn: Connection, view: _View, pipeline: PipelineRow, *, now_ms: int) -> None:
        open_epoch = epochs.oldest_open(conn, view.job.incarnation, pipeline.number)
        settle = view.task_of(pipeline, TaskKind.SETTLE)
        failing = pipeline.status is PipelineStatus.FAILING
        end = PipelineStatus.FAILED if failing else PipelineStatus.CANCELED
        if open_epoch is None:
            jobs.change_pipeline(conn, view.job.id, pipeline.number, end)
        elif settle is None:
            order = SettleOrder(commit_deadline_s=self._retention.commit_deadline_s)
            plan_task(
                conn,
                task_types.SETTLE,
                order,
                task_id=self._ids.new(),
                group=view.job.group,
                job_id=view.job.id,
                pipeline=pipeline.number,
                needs=needs_of(jobs.raw_spec(conn, view.job.id)),
                now_ms=now_ms,
            )
        elif because := self._why_unsettled(conn, view, settle, now_ms=now_ms):
            unsettled = f"epoch {open_epoch.epoch} is left open, it could not be settled: {because}"
            if settle.status in ENDED and wrote_nothing(
                conn, TaskPlace(view.job, pipeline, settle)
            ):
                # The job's own error is also why nothing can be settled. Whether a target holds
                # something newer than the store is not known here.
                unsettled = "no epoch was completed"
            error = "; ".join(reason for reason in (pipeline.error, unsettled) if reason)
            jobs.change_pipeline(conn, view.job.id, pipeline.number, end, error=error)

    def _why_unsettled(
        self, conn: Connection, view: _View, settle: Task, *, now_ms: int
    ) -> str | None:
        """Why the settle task will never succeed; None while it still may."""
        if settle.status in ENDED:
            return settle.error or "its task has ended before it"
        return self._give_up(conn, view, settle, now_ms=now_ms)

    def _unstopped(self, view: _View) -> Sequence[Task]:
        """Executions that a worker still holds too long after it was told to stop them. Whatever
        they still commit is refused by the target, or was to be committed anyway."""
        now_s = self._clock.monotonic_s()
        since_s = self._stopping_since_s.setdefault(view.job.id, now_s)
        if now_s - since_s < STOP_DEADLINE_S:
            return ()
        running = [t for t in view.tasks if t.kind is TaskKind.PIPELINE and t.stop]
        return [task for task in running if task.status in ASSIGNED]

    def _is_given_up(self, view: _View, settle: Task, workforce: Workforce) -> bool:
        """Whether settling takes too long. A leader counts from when it first saw the task, by its
        own clock: the clocks of two leaders may be an hour apart."""
        now_s = self._clock.monotonic_s()
        for_s = now_s - self._settling_since_s.setdefault(view.job.id, now_s)
        if settle.status is TaskStatus.PLANNED:
            alone = for_s >= SETTLE_ALONE_DEADLINE_S and view.has_no_settler(settle, workforce)
            return alone or for_s >= SETTLE_DEADLINE_S
        return settle.status in ASSIGNED and for_s >= SETTLE_HELD_DEADLINE_S

    def _give_up(self, conn: Connection, view: _View, settle: Task, *, now_ms: int) -> str | None:
        """Fail the settle task if it takes too long; returns the reason, or None."""
        if not self._is_given_up(view, settle, Workforce.read(conn, self._plugin_sets)):
            return None
        if settle.status is TaskStatus.PLANNED:
            error = settle.error or f"no worker in group {settle.group!r} took it in time"
            failed = tasks.fail_unclaimed(conn, settle.id, error=error, now_ms=now_ms)
            return error if failed else None
        error = f"worker {settle.worker_id} did not get it done in {SETTLE_HELD_DEADLINE_S:g} s"
        end = TaskEnd(settle.claim, TaskStatus.FAILED, error, cause=FailureCause.ERROR)
        return error if tasks.finish(conn, [end], now_ms=now_ms) else None

    def _note_what_it_waits_for(self, conn: Connection, key: str) -> None:
        if (view := _View.read(conn, key)) is None:
            return
        waits_for = _end_waits_for(view, Workforce.read(conn, self._plugin_sets))
        if waits_for != view.job.waits_for:
            jobs.note_waits_for(conn, view.job, waits_for)


def _open_job(conn: Connection, job_id: str) -> Job | None:
    job = jobs.get(conn, job_id)
    return job if job is not None and job.status not in JOB_ENDED else None


def _needs_winding_down(view: _View) -> bool:
    """Whether an ending job needs a step of ours, and does not only wait for its workers."""
    running = [t for t in view.tasks if t.kind is TaskKind.PIPELINE and t.status not in ENDED]
    if any(task.status is TaskStatus.PLANNED or not task.stop for task in running):
        return True
    settling = [view.task_of(p, TaskKind.SETTLE) for p in view.pipelines if view.runs_no_more(p)]
    return any(settle is None or settle.status in ENDED for settle in settling)


def _end_waits_for(view: _View, workforce: Workforce) -> str | None:
    """What a job that is to end waits for: a worker, when its group has none that can settle it."""
    if view.job.status is JobStatus.DOING_SAVEPOINT:
        return saving_waits_for(view.job, view.tasks, workforce)
    group, waiting = view.job.group, view.waits_to_be_settled()
    if not waiting:
        return None
    if group in workforce:
        settle = view.task_of(waiting[0], TaskKind.SETTLE)
        return workforce.lacks(group, settle and settle.needs, TaskKind.SETTLE)
    oldest = next(iter(view.open_of(waiting[0].number)), None)
    epoch = f"epoch {oldest.epoch} of " if oldest else ""
    return f"a worker in group {group!r} to settle {epoch}pipeline {waiting[0].number}"
