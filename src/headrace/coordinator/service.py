"""One coordinator: what starts and stops, and in which order.

It campaigns for as long as it runs. While it leads, a `LeaderTerm` lives; everything else
(reads, commands) works on any node, and needs none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from headrace.clock import Clock
from headrace.coordinator.answers import LoopAnswers
from headrace.coordinator.bell import Bell
from headrace.coordinator.commands import Commands
from headrace.coordinator.groups.commands import GroupCommands
from headrace.coordinator.leader import (
    CAMPAIGN_INTERVAL_S,
    RENEW_SHARE,
    Candidate,
    Leadership,
)
from headrace.coordinator.metrics import Metrics
from headrace.coordinator.options import Options
from headrace.coordinator.tables.commands import TableCommands
from headrace.coordinator.term import LeaderTerm
from headrace.errors import NotLeader, ProgramTooOld, StoreUnavailable
from headrace.model.ids import Ids
from headrace.store import leases
from headrace.store.engine import open_store, reading, writing
from headrace.store.hint import open_hint
from headrace.store.leases import Lease
from headrace.store.migrate import prepare_store

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0  # for the leader's thread to hand over and end
STORE_AWAY_PAUSE_S = 1.0  # between two looks at a store that is away
FAILED_PAUSE_S = 1.0  # after an error that nobody foresaw


class Coordinator:
    def __init__(self, options: Options, clock: Clock, ids: Ids) -> None:
        self.options = options
        self.engine = open_store(options.store_url, ttl_s=options.ttl_s)
        prepare_store(self.engine)
        # Renewals have their own connections: a long pass or a full pool must not lose the lease.
        self._lease_engine = open_store(options.store_url, ttl_s=options.ttl_s)
        self._hint = open_hint(self._lease_engine)
        self._clock, self._ids = clock, ids
        self.bell = Bell()
        self.answers = LoopAnswers()
        self.metrics = Metrics()
        self.commands = Commands(self.engine, clock, ids, schedule=options.schedule)
        self._stopping = self.commands.stopping
        self.tables = TableCommands(self.engine, clock, ids, stopping=self._stopping)
        self.groups = GroupCommands(
            self.engine,
            clock,
            ids,
            containers=options.groups.containers,
            stopping=self._stopping,
        )
        self._led: LeaderTerm | None = None
        self._leadership: Leadership | None = None
        self._seen: Lease | None = None
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin_stop(self) -> None:
        """Hand over at once; `stop` then waits for it. Safe to call from a signal handler."""
        self._stopping.set()

    def stop(self) -> None:
        self.begin_stop()
        self._thread.join(STOP_TIMEOUT_S)
        self._hint.release()
        self._lease_engine.dispose()
        self.engine.dispose()

    @property
    def leading(self) -> Leadership | None:
        """The current term, while it can be trusted."""
        leadership = self._leadership
        trusted = leadership is not None and leadership.trusted(self._clock.monotonic_s())
        return leadership if trusted else None

    def led(self) -> LeaderTerm:
        """The running term, for those who speak to the leader; NotLeader says where it is."""
        term = self._led
        if term is None or self.leading is None:
            raise NotLeader(self.leader_address())
        return term

    def led_now(self) -> LeaderTerm:
        """As `led`, without asking the store where the leader is: for the event loop's thread."""
        term = self._led
        if term is None or self.leading is None:
            raise NotLeader(self._last_seen_leader())
        return term

    def look_at(self, job_id: str) -> None:
        """A command came in here: when this node leads, it need not wait to hear of it."""
        if (term := self._led) is not None:
            term.look_at([job_id])

    def _last_seen_leader(self) -> str | None:
        seen = self._seen
        usable = seen is not None and seen.address not in {"", self.options.address}
        return seen.address if seen is not None and usable else None

    def leader_address(self) -> str | None:
        if self.leading is not None:
            return self.options.address
        with reading(self.engine) as conn:
            self._seen = leases.read(conn)
        return self._last_seen_leader()

    def _run(self) -> None:
        """Nothing ends it but a stop, or an upgrade under us: reads go on, leading doesn't (L4)."""
        # One candidate for all campaigns: what it saw of the lease must outlive a failed look.
        candidate = Candidate(
            self._lease_engine,
            self._hint,
            self._clock,
            holder=leases.this_process(),
            address=self.options.address,
            ttl_s=self.options.ttl_s,
        )
        while not self._stopping.is_set():
            try:
                self._serve_a_term(candidate)
            except ProgramTooOld as error:
                log.error("may not lead", extra={"reason": str(error)})  # noqa: TRY400
                self._hint.release()
                return
            except Exception:
                log.exception("campaign failed")
                self._stopping.wait(FAILED_PAUSE_S)

    def _serve_a_term(self, candidate: Candidate) -> None:
        leadership = self._campaign(candidate)
        if leadership is None:
            return
        try:
            self._lead(leadership)
        finally:
            self._step_down(leadership)

    def _campaign(self, candidate: Candidate) -> Leadership | None:
        while not self._stopping.wait(CAMPAIGN_INTERVAL_S):
            try:
                won = candidate.step()
            except StoreUnavailable as error:
                log.warning("store away", extra={"reason": str(error)})
                self._stopping.wait(STORE_AWAY_PAUSE_S)
                continue
            self._seen = candidate.seen
            self.metrics.term.set(candidate.seen.epoch if candidate.seen else 0)
            if won is not None:
                return won
        return None

    def _lead(self, leadership: Leadership) -> None:
        log.info("leading", extra={"term": leadership.term.epoch, "address": self.options.address})
        term = LeaderTerm(
            self.engine,
            leadership,
            self._clock,
            self._ids,
            self.bell,
            self.metrics,
            options=self.options,
        )
        self._led = term
        term.start()
        self._leadership = leadership
        self.metrics.leading.set(1)
        self.metrics.term.set(leadership.term.epoch)
        interval_s = self.options.ttl_s * RENEW_SHARE
        while not self._stopping.wait(interval_s):
            if not term.works() or not leadership.renew(self._lease_engine, self._clock):
                log.warning("no longer leading", extra={"term": leadership.term.epoch})
                return

    def _step_down(self, leadership: Leadership) -> None:
        """Each step is done whatever becomes of the others; the lease runs out by itself, too."""
        self.metrics.leading.set(0)
        term, self._led, self._leadership = self._led, None, None
        steps: list[Callable[[], None]] = [lambda: self._resign(leadership), self._hint.release]
        for step in [term.stop, *steps] if term is not None else steps:
            try:
                step()
            except StoreUnavailable as error:
                log.warning("lease not resigned", extra={"reason": str(error)})
            except Exception:
                log.exception("stepping down failed", extra={"term": leadership.term.epoch})

    def _resign(self, leadership: Leadership) -> None:
        with writing(self._lease_engine) as conn:
            if leases.resign(conn, leadership.term):
                log.info("handed over", extra={"term": leadership.term.epoch})
