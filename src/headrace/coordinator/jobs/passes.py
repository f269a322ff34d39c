"""The jobs' part of a pass: what is due, in pages; the lines; and the slow sweep behind them.

A pass looks at jobs that are marked or whose time has come (`store/jobs/due_jobs.py` has the rule),
and at the front of each line. Open jobs to which nothing happened cost it nothing. Each part ends
after a while even if there is more to do, so that silent workers, tables and groups have their
turn; the next pass follows at once, and goes on where this one ended.

Marks and times are read apart. A round over jobs that are marked goes by their ids, so it ends, and
a command waits for one round at most. A round over those that wait for a time ends, too: it takes
those that were due when it began, and a job that it looked at is due later than that. A job that
fails stays marked, and is passed over for a while (`failing_jobs.py`).

Behind that goes a sweep over all the other open jobs, a page in each full pass, about once a
minute; a new leader makes its first one as fast as it can. Whatever it finds due was not marked by
whoever changed it: it is counted, logged as a warning, and marked. That is a bug of ours, or the
work of an older program during an upgrade, and costs a job a minute instead of its life.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection, Engine

from headrace.clock import JUMP_MIN_MS, Clock
from headrace.coordinator.context import Metrics, Pass, run_once
from headrace.coordinator.jobs.admission import is_waiting
from headrace.coordinator.jobs.failing_jobs import FailingJobs
from headrace.coordinator.jobs.reconciler import STOPPING, STOPPING_LOOK_MS, JobReconciler
from headrace.errors import Fenced, Unavailable
from headrace.store.core.engine import reading
from headrace.store.core.transactions import Term, fenced
from headrace.store.jobs import due_jobs, queue
from headrace.store.jobs.due_jobs import FIRST, QuietJob

log = logging.getLogger(__name__)

PAGE_MAX = 200  # jobs read at a time
MARKS_MAX = 1000  # of each kind that are read to find one that does not fail
BUDGET_S = 0.15  # for each part of a pass; what is under way is ended
SWEEP_INTERVAL_S = 60.0  # from the begin of one sweep to that of the next

UNMARKED = "a job was due, and not marked"  # logged for each that the sweep finds

Place = TypeVar("Place")


class JobPasses:
    """Makes the jobs' part of each pass of one leader term, in its reconcile thread."""

    def __init__(
        self,
        engine: Engine,
        term: Term,
        reconciler: JobReconciler,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._engine, self._term, self.reconciler = engine, term, reconciler
        self._clock, self._metrics = clock, metrics
        self._fresh_after, self._moved_after, self._groups_after = "", "", ""
        self._timed_after, self._round_ms = FIRST, 0  # a round takes what was due when it began
        self._swept_up_to: str | None = None  # None: no sweep is under way
        self._next_sweep_s = clock.monotonic_s()
        self._is_first_sweep = True
        self._until_s = 0.0
        self._failing = FailingJobs(clock)
        self.more = False  # the last pass left something for the next one

    def run(self, *, everything: bool) -> Pass:
        """Reconcile the jobs that are due. `everything`: also those whose turn it may be by now,
        and a part of all the others."""
        self.more = False
        outcome, arrived = Pass(), dict[str, str]()
        with self.reconciler.admission.one_pass():
            self._begin_part()
            self._fresh_after = self._go_through(
                self._fresh, self._fresh_after, "", outcome, arrived
            )
            self._begin_part()
            self._moved_after = self._go_through(_moved, self._moved_after, "", outcome, arrived)
            self._begin_part()
            timed, after = self._timed, self._timed_after
            self._timed_after = self._go_through(timed, after, FIRST, outcome, arrived)
            self._begin_part()
            self._admit(arrived, outcome, everything=everything)
            if everything:
                self._begin_part()
                self._sweep(outcome)
        self._metrics.reconcile_failures.inc(len(outcome.failed))
        return outcome

    def any_due(self, conn: Connection) -> bool:
        """Whether there is a job that the next pass would look at. Any thread may ask. Behind a
        thousand that fail it is not searched for: the next full pass is never far."""
        now_ms = self._clock.wall_ms()
        found = due_jobs.marked(conn, now_ms=now_ms, most=MARKS_MAX)
        return any(not self._failing.is_paused(job_id) for job_id in found)

    def _begin_part(self) -> None:
        self._until_s = self._clock.monotonic_s() + BUDGET_S

    def _is_late(self) -> bool:
        """Whether the rest of this part is left to the next pass."""
        late = self._clock.monotonic_s() >= self._until_s
        self.more |= late
        return late

    def _fresh(self, conn: Connection, after: str) -> Mapping[str, str]:
        found = due_jobs.fresh(conn, after=after, most=PAGE_MAX)
        self._failing.note_canceled(id_ for id_, is_canceled in found.items() if is_canceled)
        return {id_: id_ for id_ in found}

    def _timed(self, conn: Connection, after: due_jobs.DueAt) -> Mapping[str, due_jobs.DueAt]:
        if after == FIRST:
            self._round_ms = self._clock.wall_ms()
        found = due_jobs.due(conn, now_ms=self._round_ms, after=after, most=PAGE_MAX)
        return {place[1]: place for place in found}

    def _go_through(
        self,
        read: Callable[[Connection, Place], Mapping[str, Place]],
        after: Place,
        first: Place,
        outcome: Pass,
        arrived: dict[str, str],
    ) -> Place:
        """Look at all jobs that `read` finds after a place, in pages. Returns the place after which
        the next pass goes on; `first`: it begins anew."""
        while True:
            with reading(self._engine) as conn:
                page = read(conn, after)
            if not page:
                return first
            after = list(page.values())[-1]
            tried = [job_id for job_id in page if not self._failing.is_paused(job_id)]
            if not tried:
                continue  # without a look at the clock: only so many jobs can be failing
            need_step = self._look(tried, outcome, arrived)
            for job_id in (each for each in page if each in need_step):
                self._step([job_id], outcome)
                if self._is_late():
                    return page[job_id]
            if self._is_late():
                return after

    def _look(self, page: Sequence[str], outcome: Pass, arrived: dict[str, str]) -> frozenset[str]:
        """Which of these jobs need a step; the others are at rest now. One that can't be looked at
        stops no other one (T6)."""
        try:
            with fenced(self._engine, self._term) as conn:
                found = self.reconciler.look(conn, page)
        except (Fenced, Unavailable):
            raise  # no job is to blame
        except Exception:
            if len(page) > 1:
                apart = [self._look([job_id], outcome, arrived) for job_id in page]
                return frozenset[str]().union(*apart)
            log.exception("job can't be looked at", extra=self._failed(page[0], outcome))
            return frozenset()
        arrived.update(found.arrived)
        return frozenset(found.need_step)

    def _failed(self, job_id: str, outcome: Pass) -> Mapping[str, object]:
        """Note that it can't be looked at; returns what is to be logged of it."""
        outcome.failed.append(job_id)
        return {"job": job_id, "next_try_in_s": self._failing.note_failure(job_id)}

    def _step(self, keys: Iterable[str], outcome: Pass, *, sure: bool = True) -> None:
        made = run_once(
            self._engine,
            self._term,
            self.reconciler,
            (key for key in keys if not self._failing.is_paused(key)),
            sure=sure,
            note_failure=self._failing.note_failure,
        )
        self._failing.note_success(made.done)
        outcome.done += made.done
        outcome.failed += made.failed

    def _admit(self, arrived: Mapping[str, str], outcome: Pass, *, everything: bool) -> None:
        """Admit whose turn it is. Jobs that are new further back are told what they wait for."""
        admission = self.reconciler.admission
        groups = set(arrived.values())
        if everything:
            with reading(self._engine) as conn:
                groups |= {*queue.groups(conn)}
        for group in sorted(groups, key=lambda name: (name <= self._groups_after, name)):
            self._step(
                self._in_time(admission.due_in_turn(self._engine, group)), outcome, sure=False
            )
            self._groups_after = group
            if self._is_late():  # reading takes time, also when nobody has a turn
                break
        self._begin_part()
        self._step(self._in_time(admission.not_tried(arrived)), outcome, sure=False)

    def _in_time(self, keys: Iterable[str]) -> Iterator[str]:
        for key in keys:
            yield key
            if self._is_late():
                return

    def _sweep(self, outcome: Pass) -> None:
        now_s = self._clock.monotonic_s()
        if self._swept_up_to is None:
            if now_s < self._next_sweep_s:
                return
            self._swept_up_to, self._next_sweep_s = "", now_s + SWEEP_INTERVAL_S
        while True:
            now_ms, after = self._clock.wall_ms(), self._swept_up_to
            with reading(self._engine) as conn:
                page = due_jobs.quiet(conn, now_ms=now_ms, after=after, most=PAGE_MAX)
            tried = [each for each in page if not self._failing.is_paused(each.job.id)]
            cut_after = self._sweep_page(tried, outcome)
            if cut_after is None and len(page) < PAGE_MAX:
                self._swept_up_to, self._is_first_sweep = None, False
                return
            self._swept_up_to = cut_after or page[-1].job.id
            if cut_after or not self._is_first_sweep or self._is_late():
                return

    def _sweep_page(self, page: Sequence[QuietJob], outcome: Pass) -> str | None:
        """Returns the job after which the next pass goes on; None: all of them are done."""
        try:
            with reading(self._engine) as conn:
                missed = self.unmarked(conn, page)
                outdated = self._outdated(conn, page)
        except (Fenced, Unavailable):
            raise
        except Exception:
            if len(page) > 1:
                return self._sweep_apart(page, outcome)
            log.exception("job can't be looked at", extra=self._failed(page[0].job.id, outcome))
            return None
        if missed:
            self._metrics.jobs_unmarked.inc(len(missed))
            for job_id in missed:
                log.warning(UNMARKED, extra={"job": job_id})
            with fenced(self._engine, self._term) as conn:
                due_jobs.mark(conn, missed)
            self.more = True
        for job_id in outdated:
            self._step([job_id], outcome, sure=False)
            if self._is_late():
                return job_id
        return None

    def _sweep_apart(self, page: Sequence[QuietJob], outcome: Pass) -> str | None:
        for each in page:
            self._sweep_page([each], outcome)
            if self._is_late():
                return each.job.id
        return None

    def unmarked(self, conn: Connection, page: Sequence[QuietJob]) -> Sequence[str]:
        """Those of these jobs that need a look, although nothing says so."""
        now_ms = self._clock.wall_ms()
        found = {each.job.id for each in page if _lost_its_time(each, now_ms=now_ms)}
        jobs = [each.job for each in page]
        found |= {job.id for job in jobs if is_waiting(job) and not job.waits_for}
        others = [job for job in jobs if not is_waiting(job) and job.status not in STOPPING]
        found |= self.reconciler.need_step(conn, others)
        # Somebody may have changed and marked it while we read. What we see is marked by now.
        return due_jobs.still_quiet(conn, found, now_ms=now_ms) if found else ()

    def _outdated(self, conn: Connection, page: Sequence[QuietJob]) -> Sequence[str]:
        """Jobs far back in their line that are told a place which they no longer have."""
        waiting = [each.job for each in page if is_waiting(each.job) and each.job.waits_for]
        return self.reconciler.admission.outdated(conn, waiting) if waiting else ()


def _moved(conn: Connection, after: str) -> Mapping[str, str]:
    return {id_: id_ for id_ in due_jobs.moved(conn, after=after, most=PAGE_MAX)}


def _lost_its_time(quiet: QuietJob, *, now_ms: int) -> bool:
    """Whether it is stopping, and is not looked at soon. A clock that made a small step back since
    then is nobody's fault."""
    if quiet.job.status not in STOPPING:
        return False
    latest_ms = now_ms + STOPPING_LOOK_MS + JUMP_MIN_MS
    return quiet.due_at_ms is None or quiet.due_at_ms > latest_ms
