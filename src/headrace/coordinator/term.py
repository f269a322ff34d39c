"""All that runs while this coordinator leads, and only then. Made anew for each term."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator import attempts, joblog, reports
from headrace.coordinator.bell import Bell
from headrace.coordinator.dispatch import Dispatch
from headrace.coordinator.drafts import Touched
from headrace.coordinator.groups.registering import register
from headrace.coordinator.groups.tending import GroupCare
from headrace.coordinator.late import LateNews
from headrace.coordinator.leader import Leadership
from headrace.coordinator.metrics import Metrics
from headrace.coordinator.options import Options
from headrace.coordinator.reconcile.cleaning import Cleaning
from headrace.coordinator.reconcile.executions import Executions
from headrace.coordinator.reconcile.expiry import Expiry
from headrace.coordinator.reconcile.jobs import Jobs
from headrace.coordinator.reconcile.loop import run_once
from headrace.coordinator.reconcile.workers import Workers
from headrace.coordinator.roster import Roster
from headrace.coordinator.tables.tending import Tables
from headrace.coordinator.writer import Writer
from headrace.errors import Fenced, LeaderFenced, Unavailable
from headrace.model.ids import Ids
from headrace.protocol.messages import Goodbye, Register, Registered
from headrace.store import claims, jobs, workers
from headrace.store.engine import reading
from headrace.store.fence import Term
from headrace.store.wake import open_waker
from headrace.store.workers import Worker

log = logging.getLogger(__name__)

PASS_INTERVAL_S = 0.5  # between two looks at everything, when nothing calls for one
WAKE_TIMEOUT_S = 0.5  # so long at most does the waker's thread not look at the stop flag
STOP_TIMEOUT_S = 5.0  # for each thread of a term to end
ANSWER_TIMEOUT_S = 10.0  # for the writer to do what a worker asked
RING_MAX = 1000  # waiting tasks counted at a time, and so workers woken
PAGE_MAX = 200  # open jobs read at a time


class LeaderTerm:
    def __init__(
        self,
        engine: Engine,
        leadership: Leadership,
        clock: Clock,
        ids: Ids,
        bell: Bell,
        metrics: Metrics,
        *,
        options: Options,
    ) -> None:
        self._engine, self._leadership, self._clock = engine, leadership, clock
        self._bell, self._metrics, self._options = bell, metrics, options
        self.roster = Roster(
            clock,
            timeout_s=options.heartbeat_timeout_s,
            stall_timeout_s=options.stall_timeout_s,
            ack_timeout_s=options.ack_timeout_s,
            execute_timeout_s=options.execute_timeout_s,
        )
        self.writer = Writer(
            engine,
            leadership.term,
            Dispatch(leadership.term, self.roster, clock, metrics),
            committed=self._committed,
            fenced=self._fenced,
            ended=self._end,
            metrics=metrics,
        )
        self._make_reconcilers(clock, ids)
        self._news = threading.Event()
        self._named: set[str] = set()
        self._tables_named = False
        self._lock = threading.Lock()
        self._waker = open_waker(engine)
        self._reconciling = threading.Thread(target=self._reconcile, name="reconcile", daemon=True)
        self._threads = [
            self._reconciling,
            threading.Thread(target=self._listen, name="waker", daemon=True),
        ]

    def _make_reconcilers(self, clock: Clock, ids: Ids) -> None:
        retention = self._options.retention
        self._jobs = Jobs(
            clock,
            ids,
            ring_worker=self._bell.ring_worker,
            retention=retention,
            schedule=self._options.schedule,
        )
        self._cleaning = Cleaning(clock, ids, retention=retention)
        self._expiry = Expiry(clock, retention)
        self._workers = Workers(self.roster, clock)
        self._executions = Executions(self.roster.watch, clock)
        self._tables = Tables(self._engine, clock, ids, self._metrics, self._options.tables)
        self._groups = GroupCare(
            self._engine,
            self._leadership.term,
            clock,
            ids,
            self._metrics,
            self._options.groups,
            trusted=lambda: self._leadership.trusted(clock.monotonic_s()),
        )

    def start(self) -> None:
        self.writer.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._leadership.over.set()
        self._bell.ring_all()  # a parked wait ends at once, not after the threads have
        self._news.set()
        self._waker.close()
        self._groups.stop()
        self.writer.stop(timeout_s=STOP_TIMEOUT_S)
        for thread in self._threads:
            thread.join(STOP_TIMEOUT_S)

    def works(self) -> bool:
        """Whether the threads that a term can't be without are there."""
        return self.writer.is_alive() and self._reconciling.is_alive()

    def look_at(self, job_ids: Iterable[str]) -> None:
        """These jobs may have something to do."""
        with self._lock:
            self._named |= set(job_ids)
        self._news.set()

    def register(self, said: Register) -> Registered:
        """Add a worker. Its term begins with it, and so does its silence."""
        now_ms = self._clock.wall_ms()
        worker = Worker(
            id=said.worker,
            group=said.group,
            slots=said.slots,
            control_slots=said.control_slots,
            version=said.version,
            host=said.host,
            pid=said.pid,
            spark_application=said.spark_application,
            registered_at_ms=now_ms,
            seen_at_ms=now_ms,
            resource_id=said.resource,
            launch=said.launch,
            memory_mb=said.memory_mb,
        )
        # Heard first: a pass that finds the row must not take it for one of long silence.
        self.roster.heard(said.worker, 0)
        self.writer.do(lambda conn: register(conn, worker, now_ms=now_ms)).result(ANSWER_TIMEOUT_S)
        log.info("worker registered", extra={"worker": said.worker, "group": said.group})
        self._news.set()
        return Registered(
            term=self._leadership.term.epoch,
            heartbeat_timeout_ms=int(self._options.heartbeat_timeout_s * 1000),
        )

    def goodbye(self, said: Goodbye) -> None:
        """A worker goes: take its last reports, then what it still holds goes to others."""
        now_ms = self._clock.wall_ms()

        def work(conn: Connection) -> None:
            lines = {said.worker: said.lines}
            joblog.Lines().take(conn, lines, now_ms=now_ms, apart=True)
            late = LateNews()
            for report in said.reports:
                late.note(report, reports.apply_apart(conn, report, now_ms=now_ms))
            workers.unregister(conn, said.worker)
            for task in claims.assigned_to(conn, [said.worker]):
                attempts.worker_left(conn, task, said.cause, now_ms=now_ms)

        self.writer.do(work).result(ANSWER_TIMEOUT_S)
        self.roster.forget(said.worker)
        log.info("worker left", extra={"worker": said.worker})
        self._news.set()

    def _committed(self, touched: Touched) -> None:
        self._tables_named |= touched.tables
        if touched.jobs or touched.tables:
            self.look_at(touched.jobs)

    def _fenced(self, error: LeaderFenced) -> None:
        log.warning("leader fenced", extra={"term": error.held, "current": error.current})
        self._end()

    def _end(self) -> None:
        self._leadership.over.set()
        self._bell.ring_all()
        self._news.set()

    def _listen(self) -> None:
        while not self._leadership.over.is_set():
            if self._waker.wait(WAKE_TIMEOUT_S):
                self._look_at_wanted()

    def _look_at_wanted(self) -> None:
        """Somebody wrote something, perhaps a command on another node."""
        try:
            with reading(self._engine) as conn:
                wanted = jobs.wanted_ids(conn, most=PAGE_MAX)
            if wanted:
                self.look_at(wanted)
        except Unavailable as error:
            log.warning("store away", extra={"reason": str(error)})

    def _reconcile(self) -> None:
        try:
            self._pass_while_trusted()
        finally:  # for whatever reason: a term without passes would lead, and do nothing
            self._end()

    def _pass_while_trusted(self) -> None:
        """The first pass is the recovery pass: it looks at everything this term inherits.

        So does one each interval, however much news there is: a worker that fell silent and a
        job that waits for a slot make none.
        """
        next_s = now_s = self._clock.monotonic_s()
        while self._leadership.trusted(now_s):
            everything = now_s >= next_s
            with self._lock:
                named, self._named = self._named, set()
            try:
                self._pass(named, everything=everything)
            except LeaderFenced as error:
                self._fenced(error)
                return
            except (Fenced, Unavailable) as error:
                log.warning("pass broken off", extra={"reason": str(error)})
            except Exception:
                log.exception("pass failed")
            now_s = self._clock.monotonic_s()
            if everything:
                next_s = now_s + PASS_INTERVAL_S
            self._news.wait(max(0.0, next_s - now_s))
            self._news.clear()
            now_s = self._clock.monotonic_s()

    def _pass(self, named: set[str], *, everything: bool) -> None:
        term = self._leadership.term
        if everything:
            run_once(self._engine, term, self._workers, self._workers.keys(self._engine))
            stuck = run_once(self._engine, term, self._executions, self._executions.keys())
            self._metrics.executions_stuck.inc(len(stuck.done))
        with self._jobs.admission.one_pass():
            for page in self._pages() if everything else [sorted(named)]:
                failed = run_once(self._engine, term, self._jobs, page).failed
                self._metrics.reconcile_failures.inc(len(failed))
        if everything or self._tables_named:
            self._tables_named = False
            self._tables.run(term)
        if everything:
            self._groups.run()
            self._clean(term)
        if groups := self._bell.groups():
            now_ms = self._clock.wall_ms()
            with reading(self._engine) as conn:
                planned = claims.planned_by_group(conn, groups, now_ms=now_ms, most=RING_MAX)
            self._bell.ring_for(planned)

    def _clean(self, term: Term) -> None:
        """After the jobs: what ends in this pass may be due at once."""
        cleaned = run_once(self._engine, term, self._cleaning, self._cleaning.keys(self._engine))
        expired = run_once(self._engine, term, self._expiry, self._expiry.keys)
        failed = [*cleaned.failed, *expired.failed]
        self._metrics.reconcile_failures.inc(len(failed))

    def _pages(self) -> Iterable[Iterable[str]]:
        """All open jobs; last those that wait for slots, in the order of their turns."""
        with reading(self._engine) as conn:
            waiting = self._jobs.admission.in_turn(conn)
        after, in_line = "", frozenset(waiting)
        while True:
            with reading(self._engine) as conn:
                page = jobs.open_ids(conn, after=after, most=PAGE_MAX)
            if not page:
                break
            yield [key for key in page if key not in in_line]
            after = page[-1]
        yield self._jobs.admission.turns(waiting)
