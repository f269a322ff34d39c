"""One coordinator: what starts and stops, and in which order.

It campaigns for as long as it runs. While it leads, a `LeaderTerm` lives; everything else
(reads, commands) works on any node, and needs none.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy import Engine

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
from headrace.coordinator.leader_clock import LeaderClock, begin_time, longest_pauses
from headrace.coordinator.metrics import Metrics
from headrace.coordinator.options import Options
from headrace.coordinator.tables.commands import TableCommands
from headrace.coordinator.term import LeaderTerm
from headrace.errors import (
    Fenced,
    KeyRefused,
    NotLeader,
    ProgramTooOld,
    StoreUnavailable,
    Unavailable,
)
from headrace.model.ids import Ids
from headrace.store import leases
from headrace.store.engine import (
    LOCK_SHARE,
    keyring_of,
    open_store,
    reading,
    with_keyring,
    write_failed_s_ago,
    writing,
)
from headrace.store.hint import open_hint
from headrace.store.leases import Lease
from headrace.store.migrate import prepare_store
from headrace.store.sealed import check_key

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0  # for the leader's thread to hand over and end
STORE_AWAY_PAUSE_S = 1.0  # between two looks at a store that is away
FAILED_PAUSE_S = 1.0  # after an error that nobody foresaw
KEY_PAUSE_S = 10.0  # until a key that was changed is looked for again
WRITE_FAILURE_TOLD_S = 10.0  # so long a write that failed is a problem, if none was tried since


class Coordinator:
    def __init__(self, options: Options, clock: Clock, ids: Ids) -> None:
        self.options = options
        self.engine = self._open()
        prepare_store(self.engine)
        # Renewals have their own connections: a long pass or a full pool must not lose the lease.
        # But the same keys: one that a take-over found is there for all, also without its file.
        self._lease_engine = with_keyring(self._open(), keyring_of(self.engine))
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
        self._led_by_seen = False  # whether its holder still renews it
        self._looked_at_s = clock.monotonic_s()  # at the lease, the last time that it was answered
        self._may_lead = True
        self._refused: KeyRefused | None = None  # the key that was missing when it was to lead
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    def _open(self) -> Engine:
        options = self.options
        return open_store(options.store_url, ttl_s=options.ttl_s, keys=options.secret_keys)

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

    def problems(self) -> tuple[str, ...]:
        """What keeps this coordinator, or all of them, from their work.

        From what its threads found out by themselves: whoever asks need not wait for a store.
        """
        found: list[str] = []
        failed_s = [write_failed_s_ago(each) for each in (self.engine, self._lease_engine)]
        leading, refused = self.leading is not None, self._refused
        pause_s = self.options.ttl_s if refused is None else self.options.ttl_s + KEY_PAUSE_S
        silent = self._clock.monotonic_s() - self._looked_at_s > pause_s
        if any(ago_s is not None and ago_s < WRITE_FAILURE_TOLD_S for ago_s in failed_s):
            found.append("the store can't be written")
        elif not leading and self._may_lead and silent:
            found.append("the store does not answer")
        if not self._may_lead:
            found.append("this program is too old to lead on this store, and only answers")
            return tuple(found)
        if refused is not None:
            found.append(f"the store's key {refused.key_id} is not held here: it only answers")
        if not leading and (silent or not self._led_by_seen):
            found.append("nobody leads")
        return tuple(found)

    def leader_known(self) -> str | None:
        """As `leader_address`, as far as it is known without asking the store."""
        return self.options.address if self.leading is not None else self._last_seen_leader()

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
                self._may_lead = False
                self._hint.release()
                return
            except KeyRefused as error:  # others lead; its key file may have the new one later
                log.error("may not lead", extra={"reason": str(error)})  # noqa: TRY400
                self._refused, self._led_by_seen = error, False
                self._hint.release()
                self._stopping.wait(KEY_PAUSE_S)
            except Exception:
                log.exception("campaign failed")
                self._stopping.wait(FAILED_PAUSE_S)

    def _serve_a_term(self, candidate: Candidate) -> None:
        leadership = self._campaign(candidate)
        if leadership is None:
            return
        try:
            self._lead(leadership, candidate.heard_ms())
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
            self._seen, self._led_by_seen = candidate.seen, candidate.led
            self._looked_at_s = self._clock.monotonic_s()
            self._look_for_key()
            self.metrics.term.set(candidate.seen.epoch if candidate.seen else 0)
            if won is not None:
                return won
        return None

    def _look_for_key(self) -> None:
        """Others may lead by now, so that nobody would ask for the key that was missing."""
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

    def _lead(self, leadership: Leadership, heard_ms: int | None) -> None:
        epoch, clock = leadership.term.epoch, LeaderClock(self._clock)
        log.info("leading", extra={"term": epoch, "address": self.options.address})
        try:
            begin_time(
                self.engine,
                leadership.term,
                clock,
                longest_pauses(self.options),
                heard_ms,
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
            self.bell,
            self.metrics,
            options=self.options,
        )
        self._led = term
        term.start()
        self._leadership = leadership
        self.metrics.leading.set(1)
        self.metrics.term.set(epoch)
        interval_s = self.options.ttl_s * RENEW_SHARE
        while not self._stopping.wait(interval_s):
            if not term.works() or not leadership.renew(self._lease_engine, clock):
                log.warning("no longer leading", extra={"term": epoch})
                return
            if leadership.offset_ms:  # the store knows by now, and the next term moves its times
                facts = {"term": epoch, "set_by_s": -leadership.offset_ms / 1000}
                log.warning("handing over: the wall clock was set", extra=facts)
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
