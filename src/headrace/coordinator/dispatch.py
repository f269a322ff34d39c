"""Answers workers. A whole batch of syncs is answered in one transaction.

For each worker, in this order: its reports are applied; what it holds is compared with what it
was given; free slots get tasks. What it was given and does not hold is given back, but only if it
has *seen* the answer that carried it: an answer that got lost is said again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.coordinator import joblog, payloads, reports
from headrace.coordinator.attempts import (
    Place,
    attempt_failed,
    give_back,
    place_of,
    postpone,
)
from headrace.coordinator.drafts import Draft, Touched
from headrace.coordinator.late import LateNews
from headrace.coordinator.metrics import Metrics
from headrace.coordinator.redeploys import Redeploys
from headrace.coordinator.roster import Roster
from headrace.errors import KeyRefused, Refused
from headrace.model.job import PipelineStatus
from headrace.model.task import Claim, FailureCause, Lane, TaskKind, TaskStatus
from headrace.protocol.messages import (
    Acknowledged,
    Answer,
    Progress,
    Sync,
    TaskEnded,
)
from headrace.seams import seam
from headrace.store import claims, jobs, savepoints, tasks, workers
from headrace.store.claims import Assign
from headrace.store.fence import Term
from headrace.store.tasks import End, Task

SEEN_WRITE_INTERVAL_MS = 10_000  # seen_at_ms is for people; not worth a write at each sync


class Dispatch:
    def __init__(self, term: Term, roster: Roster, clock: Clock, metrics: Metrics) -> None:
        self._term, self._roster, self._clock = term, roster, clock
        self._redeploys = Redeploys(term.epoch, metrics)
        self._late = LateNews()
        self.lines = joblog.Lines()

    def committed(self, touched: Touched) -> None:
        """Before the answers leave."""
        for worker, progress in touched.progress.items():
            self._roster.wrote(worker, progress)
        for worker, heard in touched.heard.items():
            self._roster.watch.heard(worker, heard)
        for task in touched.again:
            self._redeploys.note(task)
        if touched.assigned:
            seam("task assigned, before answer")
        if touched.acked:
            seam("task held, before answer")

    def answer(
        self, conn: Connection, syncs: Sequence[Sync], touched: Touched, *, apart: bool = False
    ) -> Sequence[Answer]:
        """Answer each sync, in the order given. The caller owns the fenced transaction.

        `apart`: something in it can't be recorded. Each report is applied by itself, and the one
        to blame is refused, so that its worker need not say it for ever.
        """
        now_ms = self._clock.wall_ms()
        said = {sync.worker: sync.lines for sync in syncs if sync.lines}
        taken = self.lines.take(conn, said, now_ms=now_ms, apart=apart)
        known = workers.lock(conn, {sync.worker for sync in syncs})
        drafts = [
            Draft(sync, self._roster.next_number(sync.worker), known.get(sync.worker))
            for sync in syncs
        ]
        for draft in drafts:
            draft.lines = taken.get(draft.sync.worker, 0)
        by_worker = {draft.sync.worker: draft for draft in drafts}
        if apart:
            self._apply_apart(conn, drafts, touched, now_ms=now_ms)
        for task in claims.assigned_to(conn, by_worker):
            assert task.worker_id is not None
            by_worker[task.worker_id].assigned[task.claim] = task
        if not apart:
            self._apply_reports(conn, drafts, touched, now_ms=now_ms)
        self._compare(conn, drafts, touched, now_ms=now_ms)
        self._note_progress(conn, drafts, touched)
        self._claim(conn, [d for d in drafts if d.worker], touched, now_ms=now_ms)
        stale = [w.id for w in known.values() if now_ms - w.seen_at_ms > SEEN_WRITE_INTERVAL_MS]
        if stale:
            workers.seen(conn, stale, now_ms=now_ms)
        return [draft.answer(self._term.epoch) for draft in drafts]

    def _apply_apart(
        self, conn: Connection, drafts: Sequence[Draft], touched: Touched, *, now_ms: int
    ) -> None:
        for draft in drafts:
            for report in draft.sync.reports:
                answer = reports.apply_apart(conn, report, now_ms=now_ms)
                draft.acknowledged.append(answer)
                self._late.note(report, answer)
                task = tasks.get(conn, report.claim.task)
                if task is not None:
                    touched.see(task)

    def _apply_reports(
        self, conn: Connection, drafts: Sequence[Draft], touched: Touched, *, now_ms: int
    ) -> None:
        _lock_reported(conn, drafts)
        simple: list[End] = []
        for draft in drafts:
            for report in draft.sync.reports:
                if not isinstance(report, TaskEnded):
                    answer = reports.apply_epoch(conn, report, now_ms=now_ms)
                    draft.acknowledged.append(answer)
                    self._late.note(report, answer)
                    continue
                # Usually the worker's own task; after a restart of the worker its outbox may
                # speak of one that stands under its former name.
                task = draft.assigned.pop(report.claim, None) or tasks.current(conn, report.claim)
                answer = Acknowledged(seq=report.seq, held=task is not None)
                draft.acknowledged.append(answer)
                if task is None:
                    self._late.note(report, answer)
                    continue
                if task.kind is TaskKind.NOOP:
                    simple.append(End(report.claim, TaskStatus(report.outcome), report.error))
                else:
                    reports.apply_end(conn, task, report, now_ms=now_ms)
                    touched.see(task)
        if simple:
            tasks.finish(conn, simple, now_ms=now_ms)

    def _compare(
        self, conn: Connection, drafts: Sequence[Draft], touched: Touched, *, now_ms: int
    ) -> None:
        """Set what each worker holds against what it was given."""
        acked: list[Task] = []
        unseen: list[tuple[Draft, Task]] = []
        for draft in drafts:
            ended = {r.claim for r in draft.sync.reports if isinstance(r, TaskEnded)}
            held = {h.claim for h in draft.sync.holds} - ended
            draft.stop += sorted(held - draft.assigned.keys())
            for claim, task in draft.assigned.items():
                if claim in held:
                    acked += [task] if task.status is TaskStatus.SCHEDULED else []
                    draft.stop += [claim] if task.stop else []
                    draft.savepoint += [claim] if savepoints.MARK in task.payload else []
                elif draft.has_seen(task):
                    _not_held(conn, task, now_ms=now_ms)
                    touched.see(task)
                else:
                    unseen.append((draft, task))
        if acked:
            claims.acknowledge(conn, [task.claim for task in acked])
            self._move_pipelines(conn, acked, PipelineStatus.INITIALIZING)
            touched.acked = True
        if unseen:
            touched.again += [task for _, task in unseen]
            again = [(task.claim, draft.number) for draft, task in unseen]
            claims.resend(conn, again, term=self._term.epoch)
            for draft, task in unseen:
                self._give(conn, draft, task, task.claim, touched, now_ms=now_ms)

    def _note_progress(self, conn: Connection, drafts: Sequence[Draft], touched: Touched) -> None:
        news: list[tuple[Claim, Progress]] = []
        for draft in drafts:
            held = {h.claim: h.progress for h in draft.sync.holds if h.progress is not None}
            heard = [(task, held.get(claim)) for claim, task in draft.assigned.items()]
            # A sign of life alone is not worth a write.
            said = {t.claim: p.model_copy(update={"activity": 0}) for t, p in heard if p}
            written = self._roster.written(draft.sync.worker)
            news += [(claim, p) for claim, p in said.items() if written.get(claim) != p]
            touched.progress[draft.sync.worker] = said
            touched.heard[draft.sync.worker] = heard
        if news:
            claims.note_progress(conn, [(claim, p.model_dump(mode="json")) for claim, p in news])
            touched.running |= any(p.epoch > 0 for _, p in news)

    def _claim(
        self, conn: Connection, drafts: Sequence[Draft], touched: Touched, *, now_ms: int
    ) -> None:
        asking: Mapping[tuple[str, Lane], list[Draft]] = defaultdict(list)
        for draft in drafts:
            assert draft.worker is not None
            for lane, free in draft.sync.free.items():
                used = sum(1 for task in draft.assigned.values() if task.lane is lane)
                spare = min(free, draft.worker.capacity(lane) - used)
                asking[draft.worker.group, lane] += [draft] * max(0, spare)
        picks: list[tuple[Draft, Task]] = []
        for (group, lane), seats in sorted(asking.items()):
            if not seats:
                continue
            found = claims.claimable(conn, group=group, lane=lane, now_ms=now_ms, most=len(seats))
            for task, draft in zip(found, _dealt(seats), strict=False):
                picks.append((draft, task))
        if picks:
            self._assign(conn, picks, touched, now_ms=now_ms)

    def _assign(
        self,
        conn: Connection,
        picks: Sequence[tuple[Draft, Task]],
        touched: Touched,
        *,
        now_ms: int,
    ) -> None:
        assigns = [Assign(task, draft.sync.worker, draft.number) for draft, task in picks]
        claims.assign(conn, assigns, term=self._term.epoch, now_ms=now_ms)
        touched.assigned = True
        picked = [task for _, task in picks]
        places = self._move_pipelines(conn, picked, PipelineStatus.DEPLOYING)
        for draft, task in picks:
            claim, place = Claim(task.id, task.attempt + 1), places.get(task.id)
            if self._give(conn, draft, task, claim, touched, now_ms=now_ms, place=place):
                joblog.note_given(conn, task, claim, draft.sync.worker, now_ms=now_ms)

    def _give(
        self,
        conn: Connection,
        draft: Draft,
        task: Task,
        claim: Claim,
        touched: Touched,
        *,
        now_ms: int,
        place: Place | None = None,
    ) -> bool:
        """Put an assigned task into the answer. One that can't be read fails, and stops nobody; one
        whose key is missing is tried later: its file may only be out of reach. False: either."""
        touched.see(task)
        given = replace(task, attempt=claim.attempt, worker_id=draft.sync.worker)
        try:
            draft.assignments.append(payloads.assignment(conn, task, claim, place, now_ms=now_ms))
        except KeyRefused as error:
            postpone(conn, given, str(error), now_ms=now_ms)
            return False
        except Refused as error:
            attempt_failed(conn, given, str(error), retry=False, now_ms=now_ms)
            return False
        return True

    def _move_pipelines(
        self, conn: Connection, moved: Sequence[Task], status: PipelineStatus
    ) -> Mapping[str, Place]:
        """By task: where it belongs, as it was read."""
        places: dict[str, Place] = {}
        for task in moved:
            if task.kind is TaskKind.PIPELINE:
                place = places[task.id] = place_of(conn, task)
                # A quick worker's first plan comes with the very sync that says it holds the task.
                overtaken = (
                    status is PipelineStatus.INITIALIZING
                    and place.pipeline.status is PipelineStatus.RUNNING
                )
                if not place.task.stop and not overtaken:
                    jobs.change_pipeline(conn, place.job.id, place.pipeline.number, status)
        return places


def _lock_reported(conn: Connection, drafts: Sequence[Draft]) -> None:
    """Those of jobs: a pass may lock several tasks of a job, too."""
    ids = {
        report.claim.task
        for draft in drafts
        for report in draft.sync.reports
        if (task := draft.assigned.get(report.claim)) is None or task.job_id
    }
    if len(ids) > 1:
        tasks.lock(conn, ids)


def _not_held(conn: Connection, task: Task, *, now_ms: int) -> None:
    """A worker was given a task and does not have it. One that it had, it lost without a word:
    that counts, or a worker which can't say how a task ends would be given it for ever. It counts
    as an error does: the worker lives, and what it did not say may be just that."""
    if task.status is TaskStatus.SCHEDULED:
        give_back(conn, task)
    else:
        error = f"worker {task.worker_id} lost it and did not say how it ended"
        untold = FailureCause.UNTOLD
        attempt_failed(conn, task, error, cause=untold, retry=True, now_ms=now_ms)


def _dealt(seats: Sequence[Draft]) -> Sequence[Draft]:
    """Order the seats so that each worker gets one before any gets its second."""
    taken: dict[str, int] = defaultdict(int)
    ranked: list[tuple[int, int, Draft]] = []
    for index, draft in enumerate(seats):
        ranked.append((taken[draft.sync.worker], index, draft))
        taken[draft.sync.worker] += 1
    return [draft for _, _, draft in sorted(ranked, key=lambda seat: seat[:2])]
