"""Lead for as long as the store says so, and stop believing it a little earlier.

`Candidate.step` and `Leadership.renew` are single steps; the loops that repeat them only wait.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine

from headrace.clock import Clock
from headrace.coordinator.leader_clock import LeaderClock
from headrace.errors import StoreBusy, StoreUnavailable
from headrace.seams import seam
from headrace.store import leases
from headrace.store.engine import is_sqlite, reading, writing
from headrace.store.fence import Term
from headrace.store.hint import Hint
from headrace.store.leases import Lease, Watch

log = logging.getLogger(__name__)

CAMPAIGN_INTERVAL_S = 0.1  # between two looks at the lease
HEARD_GAP_MAX_S = 2.0  # between two looks, for a candidate to know when the row changed
BUSY_TIMES_MIN = 2  # in a row, before anybody is taken for stuck
RENEW_SHARE = 1 / 3  # of the ttl, between two renewals
MARGIN_SHARE = 1 / 6  # of the ttl: so much earlier does a leader stop believing


@dataclass(slots=True)
class Leadership:
    """A term that was won, and until when this process may trust it without asking."""

    term: Term
    ttl_s: float
    trusted_until_s: float  # on the monotonic clock of this process
    renewals: int = 0
    offset_ms: int = 0  # as the store knows it
    over: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def won(cls, term: Term, *, asked_at_s: float, ttl_s: float) -> Leadership:
        """Count from before the question: a slow answer must not lengthen the term."""
        return cls(term, ttl_s, asked_at_s + ttl_s * (1 - MARGIN_SHARE))

    def trusted(self, now_s: float) -> bool:
        return not self.over.is_set() and now_s < self.trusted_until_s

    def renew(self, engine: Engine, clock: LeaderClock) -> bool:
        """Show that we live, and tell our time. False: the term is over, by the store's word or by
        the clock's.

        Trust that ran out does not come back: what the term did by its clock has ended by then.
        """
        asked_at_s = clock.monotonic_s()
        if not self.trusted(asked_at_s):
            return False
        self.renewals += 1
        time = clock.time()
        try:
            with writing(engine) as conn:
                held = leases.renew(conn, self.term, renewals=self.renewals, time=time)
        except StoreUnavailable as error:
            # Not an answer. The term lasts while it is trusted, and is asked for again.
            log.warning("lease not renewed", extra={"term": self.term.epoch, "reason": str(error)})
            return self.trusted(clock.monotonic_s())
        if held:
            self.offset_ms = time.offset_ms
            self.trusted_until_s = asked_at_s + self.ttl_s * (1 - MARGIN_SHARE)
        return held and self.trusted(clock.monotonic_s())


class Candidate:
    """Looks at the lease until it may be taken, then takes it."""

    def __init__(
        self, engine: Engine, hint: Hint, clock: Clock, *, holder: str, address: str, ttl_s: float
    ) -> None:
        self._engine, self._hint, self._clock = engine, hint, clock
        self._holder, self._address, self._ttl_s = holder, address, ttl_s
        self._watch = Watch(clock, ttl_s=ttl_s)
        self._busy = 0  # so often in a row was the store locked when a stale lease was to be taken
        self.seen: Lease | None = None
        self.led = False  # by whoever holds the lease that was seen: he has renewed it in time
        self._looked_at_s = float("-inf")
        self._heard: tuple[int, float] | None = None  # the leader's time, and when we heard it

    def heard_ms(self) -> int | None:
        """What the leader would say that the time is, had it gone on. None: nobody was heard."""
        if self._heard is None:
            return None
        clock_ms, at_s = self._heard
        return clock_ms + round(1000 * (self._clock.elapsed_s() - at_s))

    def _hear(self, before: Lease | None, seen: Lease | None) -> None:
        """Two looks in a row, with another time in the row, tell when it was written."""
        now_s, last_s = self._clock.elapsed_s(), self._looked_at_s
        self._looked_at_s = now_s
        if now_s - last_s > HEARD_GAP_MAX_S:
            self._heard = None
        elif before is not None and seen is not None and seen.clock_ms != before.clock_ms:
            self._heard = seen.clock_ms, now_s

    def step(self) -> Leadership | None:
        """Look once; take the lease if it was resigned, is stale, or its holder is dead."""
        asked_at_s = self._clock.monotonic_s()
        before = self.seen
        with reading(self._engine) as conn:
            self.seen = seen = leases.read(conn)
        self._hear(before, seen)
        stale = self._watch.free_to_take(seen)
        self.led = not stale
        hinted = self._hint.try_acquire()
        if not stale and not (hinted and seen is not None and seen.hinted):
            self._busy = 0
            return None
        seam("before the lease is taken")
        try:
            with writing(self._engine) as conn:
                term = leases.take(
                    conn, seen, holder=self._holder, address=self._address, hinted=hinted
                )
        except StoreUnavailable as error:
            self._busy = self._busy + 1 if stale and isinstance(error, StoreBusy) else 0
            if seen is not None and self._busy >= BUSY_TIMES_MIN:
                self._free_the_store(seen)
            return None
        self._busy = 0
        return term and Leadership.won(term, asked_at_s=asked_at_s, ttl_s=self._ttl_s)

    def _free_the_store(self, stale: Lease) -> None:
        """On SQLite a process stopped inside a write transaction stops everybody."""
        file = Path(str(self._engine.url.database))
        if is_sqlite(self._engine) and leases.kill_stuck_holder(stale.holder, file):
            log.warning(
                "killed the former leader: its lease is stale and it holds the store's lock",
                extra={"holder": stale.holder, "term": stale.epoch},
            )
