"""Leader election by a lease in the store, and the clock that a leader counts by.

A leader leads for as long as the store says so, and stops believing it a little earlier.
`LeaderCandidate.step` and `Leadership.renew` are single steps; the loops in `service` that repeat
them only wait.

`LeaderClock` is the time of one term: the wall clock, as if nobody ever set it. Due times are
stored as wall time, so that they hold through any number of failovers. But a wall clock may be set,
by a person or by NTP; then everything that waits would wait for that much longer, or be due too
early. So a leader compares its wall clock with one that can't be set. When they diverge by more
than a few seconds it goes on counting as before, writes the difference (the offset) into the lease,
and hands over. The next term moves every due time by the offset before it does anything else, and
counts by the wall clock again: nobody writes between two terms, so no due time is moved twice, or
missed. Times that people read (when a job began, when it ended) are never moved; therefore things
that are deleted by age are kept for a while after a clock was set ahead (`Expiry` in
`jobs/cleanup.py`).

A machine that sleeps is not a clock that is set: what became due in its sleep is due.

A new leader may run on another machine, whose clock may be wrong; it can't know whose is right. If
it followed the former leader it knows that one's time, and moves due times by the difference.
Otherwise it never lets the store's time run backwards, and limits each due time to now plus the
longest pause of its kind: whatever a clock did, nothing waits longer than twice its pause.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine

from headrace.clock import JUMP_MIN_MS, Clock
from headrace.coordinator.context import CoordinatorSettings
from headrace.coordinator.jobs import cleanup
from headrace.coordinator.jobs.reconciler import STOPPING_LOOK_MS
from headrace.coordinator.tables import catalogs, commands, evaluation, processes, table_state
from headrace.errors import StoreBusy, StoreUnavailable
from headrace.model.jobs import epoch
from headrace.model.tables.schedule import wait_ms
from headrace.seams import seam
from headrace.store import due_time_shift
from headrace.store.core import leases
from headrace.store.core.engine import is_sqlite, reading, writing
from headrace.store.core.leases import LeaderTime, Lease, LeaseWatch, TakeoverLock
from headrace.store.core.transactions import Term, check_fence
from headrace.store.due_time_shift import LongestPauses

log = logging.getLogger(__name__)

CAMPAIGN_INTERVAL_S = 0.1  # between two reads of the lease
LOOK_GAP_MAX_S = 2.0  # between two reads; after a longer gap nobody knows when the row changed
BUSY_TIMES_MIN = 2  # in a row, before the holder counts as stuck in a transaction
RENEW_SHARE = 1 / 3  # of the ttl, between two renewals
MARGIN_SHARE = 1 / 6  # of the ttl: the leader stops trusting its lease so much earlier
# From such a jump on nothing expires by age for a while. A smaller jump does not matter beside the
# days for which things are kept, and machines whose clocks differ by less may alternate often.
SET_AHEAD_MIN_MS = 3_600_000
LIMIT_S = 1.0  # to search for due times that are too late: a third of the default ttl
FAILURES_MANY = 64  # in a row: the back-off of a table is at its maximum by then


@dataclass(slots=True)
class Leadership:
    """A term that was won, and until when this process may trust it without asking."""

    term: Term
    ttl_s: float
    trusted_until_s: float  # on the monotonic clock of this process
    renewals: int = 0
    offset_ms: int = 0  # as it was last written into the lease
    over: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def won(cls, term: Term, *, asked_at_s: float, ttl_s: float) -> Leadership:
        """Trust counts from before we asked: a slow answer must not lengthen the term."""
        return cls(term, ttl_s, asked_at_s + ttl_s * (1 - MARGIN_SHARE))

    def trusted(self, now_s: float) -> bool:
        return not self.over.is_set() and now_s < self.trusted_until_s

    def renew(self, engine: Engine, clock: LeaderClock) -> bool:
        """Renew the lease, and write our time into it. False: the term is over, because the store
        says so or because trust ran out.

        Trust that ran out does not come back: whatever relied on it has ended by then.
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
            # The outcome is unknown: the term lasts while it is trusted, and we try again.
            log.warning("lease not renewed", extra={"term": self.term.epoch, "reason": str(error)})
            return self.trusted(clock.monotonic_s())
        if held:
            self.offset_ms = time.offset_ms
            self.trusted_until_s = asked_at_s + self.ttl_s * (1 - MARGIN_SHARE)
        return held and self.trusted(clock.monotonic_s())


class LeaderCandidate:
    """Watches the lease until it may be taken, then takes it."""

    def __init__(
        self,
        engine: Engine,
        takeover_lock: TakeoverLock,
        clock: Clock,
        *,
        holder: str,
        address: str,
        ttl_s: float,
    ) -> None:
        self._engine, self._takeover_lock, self._clock = engine, takeover_lock, clock
        self._holder, self._address, self._ttl_s = holder, address, ttl_s
        self._watch = LeaseWatch(clock, ttl_s=ttl_s)
        self._busy = 0  # how often in a row a stale lease could not be taken: the store was locked
        self.seen: Lease | None = None
        self.lease_is_live = False  # the holder of `seen` has renewed it in time
        self._looked_at_s = float("-inf")
        self._leader_time: tuple[int, float] | None = None  # as last written, and when we read it

    def leader_now_ms(self) -> int | None:
        """The (former) leader's time by now, had it gone on; None when it is not known."""
        if self._leader_time is None:
            return None
        clock_ms, at_s = self._leader_time
        return clock_ms + round(1000 * (self._clock.elapsed_s() - at_s))

    def _note_leader_time(self, before: Lease | None, seen: Lease | None) -> None:
        """Note when the leader wrote its time: between two reads in a row that differ in it."""
        now_s, last_s = self._clock.elapsed_s(), self._looked_at_s
        self._looked_at_s = now_s
        if now_s - last_s > LOOK_GAP_MAX_S:
            self._leader_time = None
        elif before is not None and seen is not None and seen.clock_ms != before.clock_ms:
            self._leader_time = seen.clock_ms, now_s

    def step(self) -> Leadership | None:
        """Read the lease once; take it if it was resigned, is stale, or its holder is dead."""
        asked_at_s = self._clock.monotonic_s()
        before = self.seen
        with reading(self._engine) as conn:
            self.seen = seen = leases.read(conn)
        self._note_leader_time(before, seen)
        stale = self._watch.free_to_take(seen)
        self.lease_is_live = not stale
        has_lock = self._takeover_lock.try_acquire()
        if not stale and not (has_lock and seen is not None and seen.hinted):
            self._busy = 0
            return None
        seam("before the lease is taken")
        try:
            with writing(self._engine) as conn:
                term = leases.take(
                    conn, seen, holder=self._holder, address=self._address, hinted=has_lock
                )
        except StoreUnavailable as error:
            self._busy = self._busy + 1 if stale and isinstance(error, StoreBusy) else 0
            if seen is not None and self._busy >= BUSY_TIMES_MIN:
                self._free_the_store(seen)
            return None
        self._busy = 0
        return term and Leadership.won(term, asked_at_s=asked_at_s, ttl_s=self._ttl_s)

    def _free_the_store(self, stale: Lease) -> None:
        """Kill a stuck holder: on SQLite, a process stopped in a write transaction stops all."""
        file = Path(str(self._engine.url.database))
        if is_sqlite(self._engine) and leases.kill_stuck_holder(stale.holder, file):
            log.warning(
                "killed the former leader: its lease is stale and it holds the store's lock",
                extra={"holder": stale.holder, "term": stale.epoch},
            )


class LeaderClock:
    """The time of one term, shared by all its threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_ms = self._last_ms = clock.wall_ms() - self._elapsed_ms()

    def wall_ms(self) -> int:
        return self.time().clock_ms

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    def elapsed_s(self) -> float:
        return self._clock.elapsed_s()

    def time(self) -> LeaderTime:
        wall_ms = self._clock.wall_ms()
        ahead_ms = wall_ms - self._elapsed_ms()
        if abs(ahead_ms - self._begun_ms) <= JUMP_MIN_MS:
            self._last_ms = ahead_ms  # follow small steps
            return LeaderTime(wall_ms, offset_ms=0)
        offset_ms = self._last_ms - ahead_ms
        return LeaderTime(wall_ms + offset_ms, offset_ms)

    def _elapsed_ms(self) -> int:
        return round(self._clock.elapsed_s() * 1000)


def begin_time(
    engine: Engine,
    term: Term,
    clock: LeaderClock,
    longest: LongestPauses,
    leader_now_ms: int | None = None,
    *,
    limit_s: float = LIMIT_S,
) -> None:
    """Convert the due times that this term inherits into its own time, before all else.

    `leader_now_ms`: the time of the former leader by now, if we followed it. `limit_s`: how long to
    search for times that are too late. A term whose due times could not be moved must not go on;
    one that left some too late may, since that is better than no leader.
    """
    seam("before due times are moved")
    with writing(engine) as conn:
        check_fence(conn, term)
        now_ms = clock.wall_ms()
        known_ms, behind_ms = moved_by_ms(leases.leader_time(conn), now_ms, leader_now_ms)
        by_ms = known_ms + behind_ms
        if by_ms or known_ms:
            due_time_shift.move(conn, by_ms, known_ms=known_ms)
            before_ms = leases.set_ahead_at_ms(conn)
            far_ahead = by_ms >= SET_AHEAD_MIN_MS
            since_ms = now_ms if far_ahead else before_ms and before_ms + by_ms
            leases.note_set_ahead(conn, term, at_ms=since_ms)
        leases.record_time(conn, term, LeaderTime(now_ms, offset_ms=0))
        seam("due times moved, in transaction")
    seam("due times moved")
    cut = _limit(engine, term, clock, longest, limit_s=limit_s)
    if by_ms or cut:
        facts = {"term": term.epoch, "moved_by_s": by_ms / 1000, "too_late": cut}
        log.warning("due times were of another clock", extra=facts)


def moved_by_ms(
    last_time: LeaderTime | None, now_ms: int, leader_now_ms: int | None = None
) -> tuple[int, int]:
    """By how much a new leader, whose wall clock says `now_ms`, moves due times: the part that is
    known, and the part that is a guess.

    Whoever followed the former leader knows. Others guess: after a jump, the former leader's time
    is either its wall clock or the time that it counted by; we take the one nearer to ours. What
    lies between that and now counts as a time in which nobody led. It can't be negative: then our
    clock is behind, or the former one was ahead of all others.
    """
    if leader_now_ms is not None:
        return (now_ms - leader_now_ms if abs(now_ms - leader_now_ms) > JUMP_MIN_MS else 0), 0
    if last_time is None:
        return 0, 0
    by_ms = min(0, -last_time.offset_ms, key=lambda by: abs(now_ms - (last_time.clock_ms + by)))
    behind_ms = now_ms - (last_time.clock_ms + by_ms)
    return by_ms, behind_ms if behind_ms < -JUMP_MIN_MS else 0


def _limit(
    engine: Engine, term: Term, clock: LeaderClock, longest: LongestPauses, *, limit_s: float
) -> int:
    """Limit due times that are too late; returns how many were. It stops after `limit_s`, because
    the lease must be renewed. A later term, or whoever waits for them, limits the rest."""
    cut, until_s = 0, clock.monotonic_s() + limit_s
    all_limits = due_time_shift.limits(longest, now_ms=clock.wall_ms() + JUMP_MIN_MS)
    for table, limits in all_limits.items():
        left_ms = round(1000 * (until_s - clock.monotonic_s()))
        facts = {"term": term.epoch, "table": table.name}
        if left_ms <= 0:
            log.warning("due times not looked at: no time left", extra=facts)
            return cut
        try:
            with writing(engine) as conn:
                check_fence(conn, term)
                due_time_shift.set_statement_timeout(conn, left_ms)
                cut += due_time_shift.cut_to_limits(conn, table, limits)
        except StoreUnavailable as error:
            log.warning("due times not looked at", extra={**facts, "reason": str(error)})
    return cut


def longest_pauses(options: CoordinatorSettings) -> LongestPauses:
    """How far ahead a due time of each kind can be, when every clock is right."""
    retention, rest_ms = options.retention, wait_ms(FAILURES_MANY)
    retry_ms = max(epoch.RETRY_PAUSE_MAX_MS, epoch.RETRY_PAUSE_MS)
    return LongestPauses(
        discovery_ms=max(options.tables.discover_ms, catalogs.AWAY_MAX_MS),
        look_again_ms=evaluation.LOOK_AGAIN_MS,
        rest_ms=rest_ms,
        discard_ms=max(table_state.DISCARD_PAUSE_MS, processes.LOOK_AGAIN_MS, retry_ms),
        block_ms=1000 * commands.BLOCK_MAX_S,
        stopping_ms=STOPPING_LOOK_MS,
        cleanup_ms=max(
            retention.state_cleanup_delay_ms,
            retention.marks_kept_ms,
            retry_ms,
            cleanup.LOOK_AGAIN_MS,
        ),
        floor_ms=options.groups.keep.pause_max_ms,
    )
