"""The coordinator process: what starts and stops, and in which order.

A coordinator campaigns for leadership for as long as it runs. While it leads, a `LeaderTerm` lives.
Everything else (reads and commands) works on any node, whether it leads or not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy import Engine

from headrace.clock import Clock
from headrace.coordinator.context import CoordinatorSettings, Metrics
from headrace.coordinator.groups.commands import GroupCommands
from headrace.coordinator.jobs.commands import Commands
from headrace.coordinator.leadership.leader import (
    CAMPAIGN_INTERVAL_S,
    RENEW_SHARE,
    LeaderCandidate,
    LeaderClock,
    Leadership,
    begin_time,
    longest_pauses,
)
from headrace.coordinator.leadership.term import LeaderTerm
from headrace.coordinator.sync.notifier import WorkerNotifier
from headrace.coordinator.sync.writer import LoopAnswers
from headrace.coordinator.tables.commands import TableCommands
from headrace.errors import (
    Fenced,
    KeyRefused,
    NotLeader,
    ProgramTooOld,
    StoreUnavailable,
    Unavailable,
)
from headrace.model.ids import Ids
from headrace.plugins.catalog import catalog
from headrace.store.core import leases
from headrace.store.core.encryption import check_key
from headrace.store.core.engine import (
    LOCK_SHARE,
    keyring_of,
    open_store,
    reading,
    with_keyring,
    write_failed_s_ago,
    writing,
)
from headrace.store.core.leases import Lease, open_takeover_lock
from headrace.store.migrate import prepare_store

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0  # for the leader's thread to hand over and end
STORE_AWAY_PAUSE_S = 1.0  # between two tries, while the store is unavailable
FAILED_PAUSE_S = 1.0  # after an unexpected error
KEY_PAUSE_S = 10.0  # before the key file is read again, when a key was missing
WRITE_FAILURE_SHOWN_S = 10.0  # a failed write counts as a problem, if none was tried since


class Coordinator:
    """One coordinator process: its store, its commands, and its term while it leads."""

    def __init__(self, options: CoordinatorSettings, clock: Clock, ids: Ids) -> None:
        self.options = options
        self.engine = self._open()
        prepare_store(self.engine)
        # Renewals have their own connections: a long pass or a full pool must not lose the lease.
        # Both engines share one keyring: a key that was read at a take-over serves both, even if
        # its file is gone by now.
        self._lease_engine = with_keyring(self._open(), keyring_of(self.engine))
        self._takeover_lock = open_takeover_lock(self._lease_engine)
        self._clock, self._ids = clock, ids
        self.notifier = WorkerNotifier()
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
        self._leader_term: LeaderTerm | None = None
        self._leadership: Leadership | None = None
        self._seen: Lease | None = None
        self._seen_lease_is_live = False  # whether its holder still renews the lease
        self._looked_at_s = clock.monotonic_s()  # when the lease was last read
        self._may_lead = True
        self._refused: KeyRefused | None = None  # why it could not lead: a missing key
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    def _open(self) -> Engine:
        options = self.options
        return open_store(options.store_url, ttl_s=options.ttl_s, keys=options.secret_keys)

    def start(self) -> None:
        catalog()  # now, and not in the midst of a later installation
        self._thread.start()

    def begin_stop(self) -> None:
        """Begin to hand over; `stop` then waits for it. Safe to call from a signal handler."""
        self._stopping.set()

    def stop(self) -> None:
        self.begin_stop()
        self._thread.join(STOP_TIMEOUT_S)
        self._takeover_lock.release()
        self._lease_engine.dispose()
        self.engine.dispose()

    @property
    def leading(self) -> Leadership | None:
        """The current leadership, while it can be trusted; None when this node does not lead."""
        leadership = self._leadership
        trusted = leadership is not None and leadership.trusted(self._clock.monotonic_s())
        return leadership if trusted else None

    def leader_term(self) -> LeaderTerm:
        """The running term, for requests to the leader; raises NotLeader with its address."""
        term = self._leader_term
        if term is None or self.leading is None:
            raise NotLeader(self.leader_address())
        return term

    def leader_term_now(self) -> LeaderTerm:
        """As `leader_term`, but never reads the store: safe on the event loop's thread."""
        term = self._leader_term
        if term is None or self.leading is None:
            raise NotLeader(self._last_seen_leader())
        return term

    def look_again(self) -> None:
        """Make a pass soon, if this node leads: a command for a job came in here."""
        if (term := self._leader_term) is not None:
            term.look_again()

    def _last_seen_leader(self) -> str | None:
        seen = self._seen
        usable = seen is not None and seen.address not in {"", self.options.address}
        return seen.address if seen is not None and usable else None

    def problems(self) -> tuple[str, ...]:
        """What keeps this coordinator, or all of them, from their work.

        Reads only what its threads noted, so a health check never waits for the store.
        """
        reasons: list[str] = []
        failed_s = [write_failed_s_ago(each) for each in (self.engine, self._lease_engine)]
        leading, refused = self.leading is not None, self._refused
        pause_s = self.options.ttl_s if refused is None else self.options.ttl_s + KEY_PAUSE_S
        silent = self._clock.monotonic_s() - self._looked_at_s > pause_s
        if any(ago_s is not None and ago_s < WRITE_FAILURE_SHOWN_S for ago_s in failed_s):
            reasons.append("the store can't be written")
        elif not leading and self._may_lead and silent:
            reasons.append("the store does not answer")
        if not self._may_lead:
            reasons.append("this program is too old to lead on this store, and only answers")
            return tuple(reasons)
        if refused is not None:
            reasons.append(f"the store's key {refused.key_id} is not held here: it only answers")
        if not leading and (silent or not self._seen_lease_is_live):
            reasons.append("nobody leads")
        return tuple(reasons)

    def leader_known(self) -> str | None:
        """As `leader_address`, as far as it is known without reading the store."""
        return self.options.address if self.leading is not None else self._last_seen_leader()

    def leader_address(self) -> str | None:
        if self.leading is not None:
            return self.options.address
        with reading(self.engine) as conn:
            self._seen = leases.read(conn)
        return self._last_seen_leader()

    def _run(self) -> None:
        """Campaign and lead until `stop`, or until another program upgrades the store.

        After such an upgrade this node still answers reads, but never leads again (L4).
        """
        # One candidate for all campaigns: what it saw of the lease must outlive a failed read.
        candidate = LeaderCandidate(
            self._lease_engine,
            self._takeover_lock,
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
                self._may_lead = False
                self._takeover_lock.release()
                return
            except KeyRefused as error:  # others may lead; the key file may be updated later
                log.error("may not lead", extra={"reason": str(error)})  # noqa: TRY400
                self._refused, self._seen_lease_is_live = error, False
                self._takeover_lock.release()
                self._stopping.wait(KEY_PAUSE_S)
            except Exception:
                log.exception("campaign failed")
                self._stopping.wait(FAILED_PAUSE_S)

    def _serve_a_term(self, candidate: LeaderCandidate) -> None:
        leadership = self._campaign(candidate)
        if leadership is None:
            return
        try:
            self._lead(leadership, candidate.leader_now_ms())
        finally:
            self._step_down(leadership)

    def _campaign(self, candidate: LeaderCandidate) -> Leadership | None:
        while not self._stopping.wait(CAMPAIGN_INTERVAL_S):
            try:
                won = candidate.step()
            except StoreUnavailable as error:
                log.warning("store away", extra={"reason": str(error)})
                self._stopping.wait(STORE_AWAY_PAUSE_S)
                continue
            self._seen, self._seen_lease_is_live = candidate.seen, candidate.lease_is_live
            self._looked_at_s = self._clock.monotonic_s()
            self._look_for_key()
            self.metrics.term.set(candidate.seen.epoch if candidate.seen else 0)
            if won is not None:
                return won
        return None

    def _look_for_key(self) -> None:
        """Check again for a missing key.

        Another node may lead by now; then no take-over of ours would ask for the key.
        """
        if self._refused is None:
            return
        try:
            with reading(self._lease_engine) as conn:
                check_key(conn)
        except KeyRefused as error:
            self._refused = error
        except StoreUnavailable as error:
            log.warning("store away", extra={"reason": str(error)})
        else:
            self._refused = None

    def _lead(self, leadership: Leadership, leader_now_ms: int | None) -> None:
        epoch, clock = leadership.term.epoch, LeaderClock(self._clock)
        log.info("leading", extra={"term": epoch, "address": self.options.address})
        try:
            begin_time(
                self.engine,
                leadership.term,
                clock,
                longest_pauses(self.options),
                leader_now_ms,
                limit_s=self.options.ttl_s * LOCK_SHARE,
            )
        except (Fenced, Unavailable) as error:
            log.warning("term broken off", extra={"term": epoch, "reason": str(error)})
            return
        term = LeaderTerm(
            self.engine,
            leadership,
            clock,
            self._ids,
            self.notifier,
            self.metrics,
            options=self.options,
        )
        self._leader_term = term
        term.start()
        self._leadership = leadership
        self.metrics.leading.set(1)
        self.metrics.term.set(epoch)
        interval_s = self.options.ttl_s * RENEW_SHARE
        while not self._stopping.wait(interval_s):
            if not term.works() or not leadership.renew(self._lease_engine, clock):
                log.warning("no longer leading", extra={"term": epoch})
                return
            if leadership.offset_ms:  # stored by now: the next term moves due times
                facts = {"term": epoch, "set_by_s": -leadership.offset_ms / 1000}
                log.warning("handing over: the wall clock was set", extra=facts)
                return

    def _step_down(self, leadership: Leadership) -> None:
        """Do each step even if another fails; without a resignation the lease just expires."""
        self.metrics.leading.set(0)
        term, self._leader_term, self._leadership = self._leader_term, None, None
        steps: list[Callable[[], None]] = [
            lambda: self._resign(leadership),
            self._takeover_lock.release,
        ]
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
