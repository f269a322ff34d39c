"""Dispatch: answers the syncs of workers, a whole batch in one transaction.

For each worker, in this order: its reports are applied; what it holds is compared with what was
assigned to it; its free slots get tasks that it can run. A task that was assigned and is not held
is taken back, but only if the worker has *seen* the answer that carried it: an answer that got lost
is sent again.

`AnswerBuilder` collects the answer to each sync, `BatchEffects` what others need to know of the
batch once it is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.coordinator.context import Metrics
from headrace.coordinator.jobs import job_log
from headrace.coordinator.jobs.attempts import (
    UNFIT_PAUSE_MS,
    TaskPlace,
    attempt_failed,
    give_back,
    place_of,
    postpone,
)
from headrace.coordinator.sync import assignments, reports
from headrace.coordinator.sync.assignments import RepeatedAssignments
from headrace.coordinator.sync.liveness import WorkerLiveness
from headrace.coordinator.sync.reports import LateReports
from headrace.coordinator.sync.task_picker import FreeSlots, TaskPicker
from headrace.errors import KeyRefused, Refused
from headrace.model.jobs.status import PIPELINE_TRANSITIONS, PipelineStatus
from headrace.model.task import OF_TABLES, Claim, FailureCause, Lane, TaskKind, TaskStatus
from headrace.protocol import versions
from headrace.protocol.messages import (
    Acknowledged,
    Answer,
    Assignment,
    End,
    Progress,
    Report,
    Sync,
    TaskEnded,
    TaskGivenBack,
)
from headrace.protocol.versions import NotSaid
from headrace.seams import seam
from headrace.store.core.transactions import Term
from headrace.store.jobs import jobs
from headrace.store.tasks import claims, tasks, workers
from headrace.store.tasks.claims import Assign
from headrace.store.tasks.tasks import Task, TaskEnd
from headrace.store.tasks.workers import Worker

SEEN_WRITE_INTERVAL_MS = 10_000  # seen_at_ms is only shown to people: not worth a write each sync


@dataclass(slots=True)
class AnswerBuilder:
    """An answer to one sync, while it is put together."""

    sync: Sync
    number: int
    worker: Worker | None
    assigned: dict[Claim, Task] = field(default_factory=dict[Claim, Task])
    acknowledged: list[Acknowledged] = field(default_factory=list[Acknowledged])
    assignments: list[Assignment] = field(default_factory=list[Assignment])
    stop: list[Claim] = field(default_factory=list[Claim])
    savepoint: list[Claim] = field(default_factory=list[Claim])
    lines: int = 0  # the highest number of a log line that its worker may forget

    def has_seen(self, task: Task) -> bool:
        """Whether the worker saw the answer that assigned this task to it."""
        seen = (self.sync.seen.term, self.sync.seen.number)
        return task.assigned is not None and task.assigned <= seen

    def worker_now(self) -> Worker | None:
        """The worker, with the version that it speaks in this sync."""
        if self.worker is None or self.worker.protocol == self.sync.protocol:
            return self.worker
        return replace(self.worker, protocol=self.sync.protocol)

    def held_in(self, lane: Lane) -> int:
        return sum(1 for task in self.assigned.values() if task.lane is lane)

    def answer(self, term: int) -> Answer:
        return Answer(
            term=term,
            number=self.number,
            registered=self.worker is not None,
            assignments=tuple(self.assignments),
            stop=tuple(self.stop),
            savepoint=tuple(self.savepoint),
            acknowledged=tuple(self.acknowledged),
            lines=self.lines,
            protocol=versions.SPOKEN.newest,
        )


@dataclass(slots=True)
class BatchEffects:
    """What a batch changed, for those who act on it once it is committed."""

    jobs: set[str] = field(default_factory=set[str])
    tables: bool = False  # a task of a table ended, or was assigned
    running: bool = False  # an execution reported an epoch beyond 0
    assigned: bool = False  # a task was assigned to some worker
    acked: bool = False  # a worker reported for the first time that it holds a task
    repeated: list[Task] = field(default_factory=list[Task])  # assignments that are sent again
    # By worker: tasks that it can't run; True: nor any other of the same kind.
    unfit: list[tuple[str, Task, bool]] = field(default_factory=list[tuple[str, Task, bool]])
    # By worker: the progress of each task, as this batch stores it.
    stored_progress: dict[str, Mapping[Claim, Progress]] = field(
        default_factory=dict[str, Mapping[Claim, Progress]]
    )
    # By worker: every task assigned to it at its sync, with the progress that it reported.
    reported_progress: dict[str, Sequence[tuple[Task, Progress | None]]] = field(
        default_factory=dict[str, Sequence[tuple[Task, Progress | None]]]
    )

    def note_owner(self, task: Task) -> None:
        """Note that the job or table of this task may have something to do."""
        if task.job_id:
            self.jobs.add(task.job_id)
        self.tables |= task.kind in OF_TABLES


class Dispatch:
    """Answers syncs for one leader term; used by the writer's thread alone."""

    def __init__(
        self, term: Term, liveness: WorkerLiveness, clock: Clock, metrics: Metrics
    ) -> None:
        self._term, self._liveness, self._clock = term, liveness, clock
        self._repeated = RepeatedAssignments(term.epoch, metrics)
        self._late_reports = LateReports()
        self._picker = TaskPicker(liveness)
        self.log_writer = job_log.JobLogWriter()

    def committed(self, effects: BatchEffects) -> None:
        """Note in memory what a batch stored: after its commit, before its answers leave."""
        for worker, progress in effects.stored_progress.items():
            self._liveness.note_stored_progress(worker, progress)
        for worker, reported in effects.reported_progress.items():
            self._liveness.monitor.note_progress(worker, reported)
        for task in effects.repeated:
            self._repeated.note(task)
        for worker, task, whole_kind in effects.unfit:
            self._liveness.note_unfit(worker, task, whole_kind=whole_kind)
        if effects.assigned:
            seam("task assigned, before answer")
        if effects.acked:
            seam("task held, before answer")

    def answer(
        self, conn: Connection, syncs: Sequence[Sync], effects: BatchEffects, *, apart: bool = False
    ) -> Sequence[Answer]:
        """Answer each sync, in the order given. The caller owns the fenced transaction.

        `apart`: something in the sync can't be stored. Then each report is applied in a savepoint
        of its own, and the one to blame is refused, so that its worker does not send it for ever.
        """
        now_ms = self._clock.wall_ms()
        log_lines = {sync.worker: sync.lines for sync in syncs if sync.lines}
        lines_taken = self.log_writer.take(conn, log_lines, now_ms=now_ms, apart=apart)
        registered = workers.lock(conn, {sync.worker for sync in syncs})
        drafts = [
            AnswerBuilder(
                sync, self._liveness.next_number(sync.worker), registered.get(sync.worker)
            )
            for sync in syncs
        ]
        for draft in drafts:
            draft.lines = lines_taken.get(draft.sync.worker, 0)
        by_worker = {draft.sync.worker: draft for draft in drafts}
        if apart:
            self._apply_apart(conn, drafts, effects, now_ms=now_ms)
        for task in claims.assigned_to(conn, by_worker):
            assert task.worker_id is not None
            by_worker[task.worker_id].assigned[task.claim] = task
        if not apart:
            self._apply_reports(conn, drafts, effects, now_ms=now_ms)
        self._compare_holds(conn, drafts, effects, now_ms=now_ms)
        self._note_progress(conn, drafts, effects)
        self._claim(conn, [d for d in drafts if d.worker], effects, now_ms=now_ms)
        stale = [
            w.id for w in registered.values() if now_ms - w.seen_at_ms > SEEN_WRITE_INTERVAL_MS
        ]
        if stale:
            workers.note_seen(conn, stale, now_ms=now_ms)
        for draft in drafts:
            if draft.worker is not None and draft.worker.protocol != draft.sync.protocol:
                workers.note_protocol(conn, draft.worker.id, draft.sync.protocol)
        return [draft.answer(self._term.epoch) for draft in drafts]

    def _apply_apart(
        self,
        conn: Connection,
        drafts: Sequence[AnswerBuilder],
        effects: BatchEffects,
        *,
        now_ms: int,
    ) -> None:
        for draft in drafts:
            for report in draft.sync.reports:
                answer = reports.apply_apart(conn, report, now_ms=now_ms)
                draft.acknowledged.append(answer)
                self._late_reports.note(report, answer)
                task = tasks.get(conn, report.claim.task)
                if task is not None:
                    effects.note_owner(task)

    def _apply_reports(
        self,
        conn: Connection,
        drafts: Sequence[AnswerBuilder],
        effects: BatchEffects,
        *,
        now_ms: int,
    ) -> None:
        _lock_reported(conn, drafts)
        simple: list[TaskEnd] = []
        for draft in drafts:
            for report in draft.sync.reports:
                if not isinstance(report, TaskEnded):
                    _note_given_back(draft, report, effects)
                    answer = reports.apply(conn, report, now_ms=now_ms)
                    draft.acknowledged.append(answer)
                    self._late_reports.note(report, answer)
                    continue
                task = _take_ended(conn, draft, report.claim)
                answer = Acknowledged(seq=report.seq, held=task is not None)
                draft.acknowledged.append(answer)
                if task is None:
                    self._late_reports.note(report, answer)
                    continue
                if task.kind is TaskKind.NOOP:
                    simple.append(TaskEnd(report.claim, TaskStatus(report.outcome), report.error))
                else:
                    reports.apply_end(conn, task, report, now_ms=now_ms)
                    effects.note_owner(task)
        if simple:
            tasks.finish(conn, simple, now_ms=now_ms)

    def _compare_holds(
        self,
        conn: Connection,
        drafts: Sequence[AnswerBuilder],
        effects: BatchEffects,
        *,
        now_ms: int,
    ) -> None:
        """Compare what each worker holds with what is assigned to it."""
        acked: list[Task] = []
        unseen: list[tuple[AnswerBuilder, Task]] = []
        for draft in drafts:
            ended = {r.claim for r in draft.sync.reports if isinstance(r, End)}
            held = {h.claim for h in draft.sync.holds} - ended
            draft.stop += sorted(held - draft.assigned.keys())
            for claim, task in draft.assigned.items():
                if claim in held:
                    acked += [task] if task.status is TaskStatus.SCHEDULED else []
                    draft.stop += [claim] if task.stop else []
                    draft.savepoint += [claim] if task.savepoint else []
                elif draft.has_seen(task):
                    _take_back(conn, task, now_ms=now_ms)
                    effects.note_owner(task)
                else:
                    unseen.append((draft, task))
        if acked:
            claims.acknowledge(conn, [task.claim for task in acked])
            self._move_pipelines(conn, acked, PipelineStatus.INITIALIZING)
            effects.acked = True
        if unseen:
            effects.repeated += [task for _, task in unseen]
            again = [(task.claim, draft.number) for draft, task in unseen]
            claims.resend(conn, again, term=self._term.epoch)
            for draft, task in unseen:
                self._add_assignment(conn, draft, task, effects, now_ms=now_ms)

    def _note_progress(
        self, conn: Connection, drafts: Sequence[AnswerBuilder], effects: BatchEffects
    ) -> None:
        changed: list[tuple[Claim, Progress]] = []
        for draft in drafts:
            held = {h.claim: h.progress for h in draft.sync.holds if h.progress is not None}
            reported = [(task, held.get(claim)) for claim, task in draft.assigned.items()]
            # A sign of life (`activity`) alone is not worth a write.
            progress = {t.claim: p.model_copy(update={"activity": 0}) for t, p in reported if p}
            written = self._liveness.stored_progress(draft.sync.worker)
            changed += [(claim, p) for claim, p in progress.items() if written.get(claim) != p]
            effects.stored_progress[draft.sync.worker] = progress
            effects.reported_progress[draft.sync.worker] = reported
        if changed:
            claims.note_progress(conn, [(claim, p.model_dump(mode="json")) for claim, p in changed])
            effects.running |= any(p.epoch > 0 for _, p in changed)

    def _claim(
        self,
        conn: Connection,
        drafts: Sequence[AnswerBuilder],
        effects: BatchEffects,
        *,
        now_ms: int,
    ) -> None:
        free = [
            FreeSlots(worker, lane, spare)
            for draft in drafts
            if (worker := draft.worker_now()) is not None
            for lane, said in draft.sync.free.items()
            if (spare := min(said, worker.capacity(lane) - draft.held_in(lane))) > 0
        ]
        if not free:
            return
        by_worker = {draft.sync.worker: draft for draft in drafts}
        picked = self._picker.pick(conn, free, now_ms=now_ms)
        if picked:
            picks = [(by_worker[worker], task) for worker, task in picked]
            self._assign(conn, picks, effects, now_ms=now_ms)

    def _assign(
        self,
        conn: Connection,
        picks: Sequence[tuple[AnswerBuilder, Task]],
        effects: BatchEffects,
        *,
        now_ms: int,
    ) -> None:
        assigns = [Assign(task, draft.sync.worker, draft.number) for draft, task in picks]
        claims.assign(conn, assigns, term=self._term.epoch, now_ms=now_ms)
        effects.assigned = True
        assigned = [(draft, _as_assigned(task, draft.sync.worker)) for draft, task in picks]
        moved = [task for _, task in assigned]
        places = self._move_pipelines(conn, moved, PipelineStatus.DEPLOYING)
        for draft, task in assigned:
            place = places.get(task.id)
            if self._add_assignment(conn, draft, task, effects, now_ms=now_ms, place=place):
                job_log.note_given(conn, task, now_ms=now_ms)

    def _add_assignment(
        self,
        conn: Connection,
        draft: AnswerBuilder,
        task: Task,
        effects: BatchEffects,
        *,
        now_ms: int,
        place: TaskPlace | None = None,
    ) -> bool:
        """Add the assignment of a task to the answer; False when that was not possible.

        A task that can't be read fails, and stops no other one. One whose key is missing is
        postponed: the key file may only be out of reach. So is one that can't be said in the
        version of this worker, which is not given it again.
        """
        effects.note_owner(task)
        try:
            assignment = assignments.build_assignment(conn, task, place, now_ms=now_ms)
            versions.SPOKEN.check(assignment, draft.sync.protocol)
            draft.assignments.append(assignment)
        except KeyRefused as error:
            postpone(conn, task, str(error), now_ms=now_ms)
            return False
        except NotSaid as error:
            reason = (
                f"worker {draft.sync.worker} speaks protocol {draft.sync.protocol}, and {error}: "
                "upgrade it"
            )
            postpone(conn, task, reason, now_ms=now_ms, pause_ms=UNFIT_PAUSE_MS)
            effects.unfit.append((draft.sync.worker, task, False))
            return False
        except Refused as error:
            attempt_failed(conn, task, str(error), retry=False, now_ms=now_ms)
            return False
        return True

    def _move_pipelines(
        self, conn: Connection, moved: Sequence[Task], status: PipelineStatus
    ) -> Mapping[str, TaskPlace]:
        """Move the pipelines of these tasks to `status`; returns their places, by task."""
        places: dict[str, TaskPlace] = {}
        for task in moved:
            if task.kind is TaskKind.PIPELINE:
                place = places[task.id] = place_of(conn, task)
                # A quick worker's first plan comes with the same sync that acknowledges it: then
                # the pipeline is RUNNING, from where no step leads back.
                if not task.stop and status in PIPELINE_TRANSITIONS[place.pipeline.status]:
                    jobs.change_pipeline(conn, place.job.id, place.pipeline.number, status)
        return places


def _take_ended(conn: Connection, draft: AnswerBuilder, claim: Claim) -> Task | None:
    """The task whose end is reported, if the claim is current; locked, unless it does nothing.

    Usually it is assigned to this worker; after a restart of the worker, its outbox may report one
    that is assigned to its former name.
    """
    task = draft.assigned.pop(claim, None)
    if task is None or task.kind is not TaskKind.NOOP:
        task = reports.lock_ended(conn, claim, task)
    return task


def _lock_reported(conn: Connection, drafts: Sequence[AnswerBuilder]) -> None:
    """Lock the reported tasks of jobs in one go: a pass may lock several of a job, too."""
    ids = {
        report.claim.task
        for draft in drafts
        for report in draft.sync.reports
        if (task := draft.assigned.get(report.claim)) is None or task.job_id
    }
    if len(ids) > 1:
        tasks.lock(conn, ids)


def _note_given_back(draft: AnswerBuilder, report: Report, effects: BatchEffects) -> None:
    """Note what its worker can't run, if that is what it reports."""
    if not isinstance(report, TaskGivenBack):
        return
    task = draft.assigned.pop(report.claim, None)
    if task is not None:
        effects.unfit.append((draft.sync.worker, task, report.whole_kind))
        effects.note_owner(task)


def _as_assigned(task: Task, worker_id: str) -> Task:
    """A picked task as `claims.assign` has written it for this worker."""
    return replace(task, status=TaskStatus.SCHEDULED, attempt=task.attempt + 1, worker_id=worker_id)


def _take_back(conn: Connection, task: Task, *, now_ms: int) -> None:
    """Take a task back from a worker that does not hold it, although it saw the assignment.

    A task that the worker once held ended without a report. That counts as an error, because the
    worker lives and the end it did not report may be one; if it did not count, a worker that can't
    report how a task ends would get it again for ever.
    """
    if task.status is TaskStatus.SCHEDULED:
        give_back(conn, task)
    else:
        error = f"worker {task.worker_id} lost it and did not say how it ended"
        untold = FailureCause.UNTOLD
        attempt_failed(conn, task, error, cause=untold, retry=True, now_ms=now_ms)
