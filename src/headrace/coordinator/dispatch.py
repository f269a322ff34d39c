"""Answers workers. A whole batch of syncs is answered in one transaction.

For each worker, in this order: its reports are applied; what it holds is compared with what it
was given; free slots get tasks. What it was given and does not hold is given back, but only if it
has *seen* the answer that carried it: an answer that got lost is said again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.coordinator import payloads, reports
from headrace.coordinator.roster import Roster
from headrace.model.job import PipelineStatus
from headrace.model.task import Claim, Lane, TaskKind, TaskStatus
from headrace.protocol.messages import Acknowledged, Answer, Assignment, Sync, TaskEnded
from headrace.store import claims, jobs, tasks, workers
from headrace.store.claims import Assign
from headrace.store.fence import Term
from headrace.store.tasks import End, Task
from headrace.store.workers import Worker

SEEN_WRITE_INTERVAL_MS = 10_000  # seen_at_ms is for people; not worth a write at each sync


@dataclass(slots=True)
class _Draft:
    """An answer in the making."""

    sync: Sync
    number: int
    worker: Worker | None
    assigned: dict[Claim, Task] = field(default_factory=dict[Claim, Task])
    acknowledged: list[Acknowledged] = field(default_factory=list[Acknowledged])
    assignments: list[Assignment] = field(default_factory=list[Assignment])
    stop: list[Claim] = field(default_factory=list[Claim])

    def has_seen(self, task: Task) -> bool:
        """Whether the worker saw the answer that gave it this task."""
        seen = (self.sync.seen.term, self.sync.seen.number)
        return task.assigned is not None and task.assigned <= seen

    def answer(self, term: int) -> Answer:
        return Answer.model_construct(
            term=term,
            number=self.number,
            registered=self.worker is not None,
            assignments=tuple(self.assignments),
            stop=tuple(self.stop),
            acknowledged=tuple(self.acknowledged),
        )


@dataclass(slots=True)
class Touched:
    """What a batch changed that others should hear of, once it is committed."""

    jobs: set[str] = field(default_factory=set[str])
    running: bool = False  # an execution said that its epoch runs


class Dispatch:
    def __init__(self, term: Term, roster: Roster, clock: Clock) -> None:
        self._term, self._roster, self._clock = term, roster, clock
        self._progress: dict[Claim, object] = {}  # last written, so that it is written once

    def answer(self, conn: Connection, syncs: Sequence[Sync], touched: Touched) -> Sequence[Answer]:
        """Answer each sync, in the order given. The caller owns the fenced transaction."""
        now_ms = self._clock.wall_ms()
        known = workers.lock(conn, {sync.worker for sync in syncs})
        drafts = [
            _Draft(sync, self._roster.next_number(sync.worker), known.get(sync.worker))
            for sync in syncs
        ]
        by_worker = {draft.sync.worker: draft for draft in drafts}
        for task in claims.assigned_to(conn, by_worker):
            assert task.worker_id is not None
            by_worker[task.worker_id].assigned[task.claim] = task
        self._apply_reports(conn, drafts, touched, now_ms=now_ms)
        self._compare(conn, drafts, touched)
        self._note_progress(conn, drafts, touched)
        self._claim(conn, [d for d in drafts if d.worker], touched, now_ms=now_ms)
        stale = [w.id for w in known.values() if now_ms - w.seen_at_ms > SEEN_WRITE_INTERVAL_MS]
        if stale:
            workers.seen(conn, stale, now_ms=now_ms)
        return [draft.answer(self._term.epoch) for draft in drafts]

    def _apply_reports(
        self, conn: Connection, drafts: Sequence[_Draft], touched: Touched, *, now_ms: int
    ) -> None:
        simple: list[End] = []
        for draft in drafts:
            for report in draft.sync.reports:
                if not isinstance(report, TaskEnded):
                    draft.acknowledged.append(reports.apply_epoch(conn, report, now_ms=now_ms))
                    continue
                # Usually the worker's own task; after a restart of the worker its outbox may
                # speak of one that stands under its former name.
                task = draft.assigned.pop(report.claim, None) or tasks.current(conn, report.claim)
                draft.acknowledged.append(Acknowledged(seq=report.seq, held=task is not None))
                if task is None:
                    continue
                self._progress.pop(report.claim, None)
                if task.kind is TaskKind.NOOP:
                    simple.append(End(report.claim, TaskStatus(report.outcome), report.error))
                else:
                    reports.apply_end(conn, task, report, now_ms=now_ms)
                    touched.jobs.add(task.job_id or "")
        if simple:
            tasks.finish(conn, simple, now_ms=now_ms)

    def _compare(self, conn: Connection, drafts: Sequence[_Draft], touched: Touched) -> None:
        """Set what each worker holds against what it was given."""
        acked: list[Task] = []
        again: list[tuple[Claim, int]] = []
        for draft in drafts:
            ended = {r.claim for r in draft.sync.reports if isinstance(r, TaskEnded)}
            held = {h.claim for h in draft.sync.holds} - ended
            draft.stop += sorted(held - draft.assigned.keys())
            for claim, task in draft.assigned.items():
                if claim in held:
                    acked += [task] if task.status is TaskStatus.SCHEDULED else []
                    draft.stop += [claim] if task.stop else []
                elif draft.has_seen(task):
                    tasks.give_back(conn, claim)
                    touched.jobs.add(task.job_id or "")
                else:
                    again.append((claim, draft.number))
                    draft.assignments.append(payloads.assignment(conn, task, claim))
        if acked:
            claims.acknowledge(conn, [task.claim for task in acked])
            self._move_pipelines(conn, acked, PipelineStatus.INITIALIZING)
        if again:
            claims.resend(conn, again, term=self._term.epoch)

    def _note_progress(self, conn: Connection, drafts: Sequence[_Draft], touched: Touched) -> None:
        news = [
            (held.claim, held.progress)
            for draft in drafts
            for held in draft.sync.holds
            if held.progress is not None
            and held.claim in draft.assigned
            and self._progress.get(held.claim) != held.progress
        ]
        if news:
            claims.note_progress(conn, [(claim, p.model_dump(mode="json")) for claim, p in news])
            self._progress.update(news)
            touched.running |= any(p.epoch > 0 for _, p in news)

    def _claim(
        self, conn: Connection, drafts: Sequence[_Draft], touched: Touched, *, now_ms: int
    ) -> None:
        asking: Mapping[tuple[str, Lane], list[_Draft]] = defaultdict(list)
        for draft in drafts:
            assert draft.worker is not None
            for lane, free in draft.sync.free.items():
                used = sum(1 for task in draft.assigned.values() if task.lane is lane)
                spare = min(free, draft.worker.capacity(lane) - used)
                asking[draft.worker.group, lane] += [draft] * max(0, spare)
        picks: list[Assign] = []
        for (group, lane), seats in sorted(asking.items()):
            if not seats:
                continue
            found = claims.claimable(conn, group=group, lane=lane, now_ms=now_ms, most=len(seats))
            for task, draft in zip(found, _dealt(seats), strict=False):
                picks.append(Assign(task, draft.sync.worker, draft.number))
                claim = Claim(task.id, task.attempt + 1)
                draft.assignments.append(payloads.assignment(conn, task, claim))
        if picks:
            claims.assign(conn, picks, term=self._term.epoch, now_ms=now_ms)
            self._move_pipelines(conn, [p.task for p in picks], PipelineStatus.DEPLOYING)
            touched.jobs |= {p.task.job_id for p in picks if p.task.job_id}

    def _move_pipelines(
        self, conn: Connection, moved: Sequence[Task], status: PipelineStatus
    ) -> None:
        for task in moved:
            if task.kind is TaskKind.PIPELINE:
                place = reports.place_of(conn, task)
                # A quick worker's first plan comes with the very sync that says it holds the task.
                overtaken = (
                    status is PipelineStatus.INITIALIZING
                    and place.pipeline.status is PipelineStatus.RUNNING
                )
                if not place.task.stop and not overtaken:
                    jobs.change_pipeline(conn, place.job.id, place.pipeline.number, status)


def _dealt(seats: Sequence[_Draft]) -> Sequence[_Draft]:
    """Order the seats so that each worker gets one before any gets its second."""
    taken: dict[str, int] = defaultdict(int)
    ranked: list[tuple[int, int, _Draft]] = []
    for index, draft in enumerate(seats):
        ranked.append((taken[draft.sync.worker], index, draft))
        taken[draft.sync.worker] += 1
    return [draft for _, _, draft in sorted(ranked, key=lambda seat: seat[:2])]
