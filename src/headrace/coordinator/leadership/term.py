"""One leader term: all that runs while this coordinator leads, and only then.

A `LeaderTerm` is made anew for each term. Its writer answers workers, its reconcile thread makes a
pass over what is due, and its waker listens for commands that other nodes wrote.
"""

from __future__ import annotations

import logging
import threading

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.context import CoordinatorSettings, Metrics, run_once
from headrace.coordinator.groups.reconciler import GroupController
from headrace.coordinator.jobs import attempts, job_log
from headrace.coordinator.jobs.cleanup import CleanupReconciler, Expiry
from headrace.coordinator.jobs.passes import JobPasses
from headrace.coordinator.jobs.reconciler import JobReconciler
from headrace.coordinator.leadership.leader import Leadership
from headrace.coordinator.sync import reports
from headrace.coordinator.sync.answers import BatchEffects, Dispatch
from headrace.coordinator.sync.liveness import (
    StallReconciler,
    WorkerExpiry,
    WorkerLiveness,
    register,
)
from headrace.coordinator.sync.notifier import WorkerNotifier
from headrace.coordinator.sync.reports import LateReports
from headrace.coordinator.sync.writer import Writer
from headrace.coordinator.tables.controller import TableController
from headrace.coordinator.workforce import digest_of, plugins_text
from headrace.errors import Fenced, LeaderFenced, Unavailable
from headrace.model.ids import Ids
from headrace.protocol import versions
from headrace.protocol.messages import Goodbye, Register, Registered
from headrace.store.core.engine import reading
from headrace.store.core.notifications import open_waker
from headrace.store.core.transactions import Term
from headrace.store.tasks import claims, workers
from headrace.store.tasks.workers import Worker

log = logging.getLogger(__name__)

PASS_INTERVAL_S = 0.5  # between two full passes
WAKE_TIMEOUT_S = 0.5  # at most so long the waker's thread does not check the stop flag
STOP_TIMEOUT_S = 5.0  # for each thread of a term to end
ANSWER_TIMEOUT_S = 10.0  # for the writer to commit a request of a worker
WAKE_MAX = 1000  # tasks counted, and so workers woken, at a time


class LeaderTerm:
    """The threads, reconcilers and worker requests of one term; ended by `stop` or by the fence."""

    def __init__(
        self,
        engine: Engine,
        leadership: Leadership,
        clock: Clock,
        ids: Ids,
        notifier: WorkerNotifier,
        metrics: Metrics,
        *,
        options: CoordinatorSettings,
    ) -> None:
        self._engine, self._leadership, self._clock = engine, leadership, clock
        self._notifier, self._metrics, self._options = notifier, metrics, options
        self.liveness = WorkerLiveness(
            clock,
            timeout_s=options.heartbeat_timeout_s,
            stall_timeout_s=options.stall_timeout_s,
            ack_timeout_s=options.ack_timeout_s,
            execute_timeout_s=options.execute_timeout_s,
        )
        self.writer = Writer(
            engine,
            leadership.term,
            Dispatch(leadership.term, self.liveness, clock, metrics),
            committed=self._committed,
            fenced=self._fenced,
            ended=self._end,
            metrics=metrics,
        )
        self._make_reconcilers(clock, ids)
        self._news = threading.Event()
        self._tables_named = False
        self._waker = open_waker(engine)
        self._reconciling = threading.Thread(target=self._reconcile, name="reconcile", daemon=True)
        self._threads = [
            self._reconciling,
            threading.Thread(target=self._listen, name="waker", daemon=True),
        ]

    def _make_reconcilers(self, clock: Clock, ids: Ids) -> None:
        retention = self._options.retention
        self._jobs = JobReconciler(
            clock,
            ids,
            wake_worker=self._notifier.wake_worker,
            retention=retention,
            schedule=self._options.schedule,
        )
        self._job_passes = JobPasses(
            self._engine, self._leadership.term, self._jobs, clock, self._metrics
        )
        self._cleaning = CleanupReconciler(clock, ids, retention=retention)
        self._expiry = Expiry(clock, retention)
        self._workers = WorkerExpiry(self.liveness, clock)
        self._executions = StallReconciler(self.liveness.monitor, clock)
        self._tables = TableController(
            self._engine, clock, ids, self._metrics, self._options.tables
        )
        self._groups = GroupController(
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
        self._notifier.wake_all()  # first, so that parked waits need not last until the threads end
        self._news.set()
        self._waker.close()
        self._groups.stop()
        self.writer.stop(timeout_s=STOP_TIMEOUT_S)
        for thread in self._threads:
            thread.join(STOP_TIMEOUT_S)

    def works(self) -> bool:
        """Whether the threads that a term can't do without are alive."""
        return self.writer.is_alive() and self._reconciling.is_alive()

    def look_again(self) -> None:
        """Make a pass soon: jobs were marked (`store/jobs/due_jobs.py`)."""
        self._news.set()

    def register(self, request: Register) -> Registered:
        """Add a worker. Its heartbeat timeout counts from now."""
        now_ms = self._clock.wall_ms()
        plugins = plugins_text(request.plugins) if request.plugins is not None else None
        worker = Worker(
            id=request.worker,
            group=request.group,
            slots=request.slots,
            control_slots=request.control_slots,
            version=request.version,
            host=request.host,
            pid=request.pid,
            spark_application=request.spark_application,
            registered_at_ms=now_ms,
            seen_at_ms=now_ms,
            resource_id=request.resource,
            launch=request.launch,
            memory_mb=request.memory_mb,
            protocol=request.protocol,
            plugins_digest=digest_of(plugins) if plugins is not None else None,
        )
        # Noted first: a pass that finds the row must not take the worker for a silent one.
        self.liveness.note_sync(request.worker, 0)
        self.writer.do(lambda conn: register(conn, worker, plugins, now_ms=now_ms)).result(
            ANSWER_TIMEOUT_S
        )
        log.info("worker registered", extra={"worker": request.worker, "group": request.group})
        self._news.set()
        return Registered(
            term=self._leadership.term.epoch,
            heartbeat_timeout_ms=int(self._options.heartbeat_timeout_s * 1000),
            protocol=versions.SPOKEN.newest,
        )

    def goodbye(self, message: Goodbye) -> None:
        """A worker leaves: apply its last reports, then give back the tasks that it still holds."""
        now_ms = self._clock.wall_ms()

        def work(conn: Connection) -> None:
            lines = {message.worker: message.lines}
            job_log.JobLogWriter().take(conn, lines, now_ms=now_ms, apart=True)
            late_reports = LateReports()
            for report in message.reports:
                late_reports.note(report, reports.apply_apart(conn, report, now_ms=now_ms))
            workers.unregister(conn, message.worker)
            for task in claims.assigned_to(conn, [message.worker]):
                attempts.worker_left(conn, task, message.cause, now_ms=now_ms)

        self.writer.do(work).result(ANSWER_TIMEOUT_S)
        self.liveness.forget(message.worker)
        log.info("worker left", extra={"worker": message.worker})
        self._news.set()

    def _committed(self, effects: BatchEffects) -> None:
        self._tables_named |= effects.tables
        if effects.jobs or effects.tables:
            self.look_again()

    def _fenced(self, error: LeaderFenced) -> None:
        log.warning("leader fenced", extra={"term": error.held, "current": error.current})
        self._end()

    def _end(self) -> None:
        self._leadership.over.set()
        self._notifier.wake_all()
        self._news.set()

    def _listen(self) -> None:
        while not self._leadership.over.is_set():
            if self._waker.wait(WAKE_TIMEOUT_S):
                self._look_for_marks()

    def _look_for_marks(self) -> None:
        """Make a pass soon if a job is marked: another node may have written a command."""
        try:
            with reading(self._engine) as conn:
                any_due = self._job_passes.any_due(conn)
            if any_due:
                self.look_again()
        except Unavailable as error:
            log.warning("store away", extra={"reason": str(error)})

    def _reconcile(self) -> None:
        try:
            self._pass_while_trusted()
        finally:  # whatever the reason: a leader without passes would do nothing
            self._end()

    def _pass_while_trusted(self) -> None:
        """Make passes until the term ends. The first one is the recovery pass. It needs to look
        only at what is due, since that was written down by whoever changed it; what an older
        program did not write down is found by the sweep, which begins with this pass.

        One pass each interval looks at everything, however often news wake this loop in between: a
        worker that fell silent and a job that waits for a slot notify nobody.
        """
        next_s = now_s = self._clock.monotonic_s()
        while self._leadership.trusted(now_s):
            everything = now_s >= next_s
            try:
                self.make_pass(everything=everything)
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
            if not self._job_passes.more:
                self._news.wait(max(0.0, next_s - now_s))
            self._news.clear()
            now_s = self._clock.monotonic_s()

    def make_pass(self, *, everything: bool) -> None:
        """Make one pass: silent workers first, so that they wait for nobody."""
        term = self._leadership.term
        if everything:
            run_once(self._engine, term, self._workers, self._workers.keys(self._engine))
            stalled = run_once(self._engine, term, self._executions, self._executions.keys())
            self._metrics.executions_stuck.inc(len(stalled.done))
        self._job_passes.run(everything=everything)
        if everything or self._tables_named:
            self._tables_named = False
            self._tables.run(term)
        if everything:
            self._groups.run()
            self._clean(term)
        if groups := self._notifier.groups():
            now_ms = self._clock.wall_ms()
            with reading(self._engine) as conn:
                planned = claims.planned_by_group(conn, groups, now_ms=now_ms, most=WAKE_MAX)
            self._notifier.wake_for(planned)

    def _clean(self, term: Term) -> None:
        """Clean up and expire, after the jobs: what ends in this pass may be due at once."""
        cleaned = run_once(self._engine, term, self._cleaning, self._cleaning.keys(self._engine))
        expired = run_once(self._engine, term, self._expiry, self._expiry.keys)
        failed = [*cleaned.failed, *expired.failed]
        self._metrics.reconcile_failures.inc(len(failed))
