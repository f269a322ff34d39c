"""The time that one term counts by: the wall clock, as if nobody set it.

Due times are written down as wall time, so that they hold through any number of failovers. A wall
clock may be set, by a person or by NTP: then all that waits would wait for as much longer, or be
due too early. So a leader compares its wall clock with one that can't be set. When they part by
more than a few seconds it goes on counting as before, tells the store by how much (the offset),
and hands over. The next term moves every due time by the offset before it does anything else, and
counts by the wall clock again: between two terms nobody writes under either, so no due time is
moved twice, or missed. What people read (when a job began, when it ended) is never moved; so what
is deleted by its age stays for a while when a clock was set ahead (reconcile/expiry.py).

A machine that sleeps is not a clock that is set: what became due meanwhile is due.

A new leader may run on another machine, whose clock may be wrong. It can't know whose is right. If
it followed the last one it knows that one's time, and moves what waits by the difference. Else it
never lets the time of the store run backwards, and takes no due time later than now and the
longest pause of its kind: whatever a clock did, nothing waits longer than twice its pause.
"""

from __future__ import annotations

import logging

from sqlalchemy import Engine

from headrace.clock import Clock
from headrace.coordinator.options import Options
from headrace.coordinator.reconcile import cleaning
from headrace.coordinator.tables import catalogs, closing, commands, evaluating, leftovers
from headrace.errors import StoreUnavailable
from headrace.model import cleanup
from headrace.model.tables.backoff import wait_ms
from headrace.seams import seam
from headrace.store import due_times, leases
from headrace.store.due_times import LongestPauses
from headrace.store.engine import writing
from headrace.store.fence import Term, check_fence
from headrace.store.leases import LeaderTime

log = logging.getLogger(__name__)

JUMP_MIN_MS = 5_000  # so much two clocks may part: NTP's small steps, and other machines
# From here on nothing expires by its age for a while. Less is nothing beside the days that things
# are kept, and machines that differ by as much may take turns each week.
SET_AHEAD_MIN_MS = 3_600_000
LIMIT_S = 1.0  # for all looks for times that are too late: a third of the usual ttl
FAILURES_MANY = 64  # after so many in a row a table waits as long as it ever does


class LeaderClock:
    """Of one term. All its threads read it."""

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
            self._last_ms = ahead_ms  # small steps are followed
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
    heard_ms: int | None = None,
    *,
    limit_s: float = LIMIT_S,
) -> None:
    """Bring the due times that this term inherits into its own time. Before anything else of it.

    `heard_ms`: the time of the former leader by now, if we followed it. `limit_s`: how long times
    that are too late may be looked for. A term whose due times are not moved must not go on; one
    that left some too late is better than none."""
    seam("before due times are moved")
    with writing(engine) as conn:
        check_fence(conn, term)
        now_ms = clock.wall_ms()
        known_ms, behind_ms = moved_by_ms(leases.time_of(conn), now_ms, heard_ms)
        by_ms = known_ms + behind_ms
        if by_ms or known_ms:
            due_times.move(conn, by_ms, known_ms=known_ms)
            before_ms = leases.set_ahead_at_ms(conn)
            far_ahead = by_ms >= SET_AHEAD_MIN_MS
            since_ms = now_ms if far_ahead else before_ms and before_ms + by_ms
            leases.note_set_ahead(conn, term, at_ms=since_ms)
        leases.tell_time(conn, term, LeaderTime(now_ms, offset_ms=0))
        seam("due times moved, in transaction")
    seam("due times moved")
    cut = _limit(engine, term, clock, longest, limit_s=limit_s)
    if by_ms or cut:
        facts = {"term": term.epoch, "moved_by_s": by_ms / 1000, "too_late": cut}
        log.warning("due times were of another clock", extra=facts)


def _limit(
    engine: Engine, term: Term, clock: LeaderClock, longest: LongestPauses, *, limit_s: float
) -> int:
    """Cut times that are too late, while there is time: the lease waits to be renewed. What is
    left of them is cut by a later term, or by those who wait for it."""
    cut, until_s = 0, clock.monotonic_s() + limit_s
    all_limits = due_times.limits(longest, now_ms=clock.wall_ms() + JUMP_MIN_MS)
    for table, limits in all_limits.items():
        left_ms = round(1000 * (until_s - clock.monotonic_s()))
        facts = {"term": term.epoch, "table": table.name}
        if left_ms <= 0:
            log.warning("due times not looked at: no time left", extra=facts)
            return cut
        try:
            with writing(engine) as conn:
                check_fence(conn, term)
                due_times.give_time(conn, left_ms)
                cut += due_times.limit(conn, table, limits)
        except StoreUnavailable as error:
            log.warning("due times not looked at", extra={**facts, "reason": str(error)})
    return cut


def moved_by_ms(
    told: LeaderTime | None, now_ms: int, heard_ms: int | None = None
) -> tuple[int, int]:
    """By how much due times are to be moved when somebody leads whose wall clock says `now_ms`:
    what is known of it, and what is a guess.

    Whoever followed the former leader knows. Others guess: after a jump that leader's wall clock
    and the time it counted by are two candidates for what is meant; the one that is nearer to ours
    is. What lies between it and now is taken for a time in which nobody led. It can't be less than
    nothing: then our clock is behind, or the former one was ahead of all others.
    """
    if heard_ms is not None:
        return (now_ms - heard_ms if abs(now_ms - heard_ms) > JUMP_MIN_MS else 0), 0
    if told is None:
        return 0, 0
    by_ms = min(0, -told.offset_ms, key=lambda by: abs(now_ms - (told.clock_ms + by)))
    behind_ms = now_ms - (told.clock_ms + by_ms)
    return by_ms, behind_ms if behind_ms < -JUMP_MIN_MS else 0


def longest_pauses(options: Options) -> LongestPauses:
    """How far ahead a time of each kind can be, when every clock is right."""
    retention, rest_ms = options.retention, wait_ms(FAILURES_MANY)
    retry_ms = max(cleanup.RETRY_PAUSE_MAX_MS, cleanup.RETRY_PAUSE_MS)
    return LongestPauses(
        discovery_ms=max(options.tables.discover_ms, catalogs.AWAY_MAX_MS),
        look_again_ms=evaluating.LOOK_AGAIN_MS,
        rest_ms=rest_ms,
        discard_ms=max(closing.DISCARD_PAUSE_MS, leftovers.LOOK_AGAIN_MS, retry_ms),
        block_ms=1000 * commands.BLOCK_MAX_S,
        cleanup_ms=max(
            retention.state_cleanup_delay_ms,
            retention.marks_kept_ms,
            retry_ms,
            cleaning.LOOK_AGAIN_MS,
        ),
        floor_ms=options.groups.keep.pause_max_ms,
    )
