"""One sum for the capacity of a group: nothing is provisioned twice, and nothing is pretended (R5).

The floor is what the user asked for (`min-parallelism`), and it is never edited. When it can't be
reached after `max-keeping-attempts`, an *effective* value stands beside it, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

MINUTE_MS = 60_000
THREADS_MAX = 1000  # of one resource: what a worker may have
LOWERED_RETRY_MS = 60 * MINUTE_MS  # between two tries of a floor that was given up


@dataclass(frozen=True, slots=True)
class KeepSetting:
    """`optimizer-group.*`."""

    check_interval_ms: int = 5 * MINUTE_MS
    max_attempts: int = 3

    @property
    def pause_max_ms(self) -> int:
        """The longest that there can be between two requests."""
        return max(self.check_interval_ms * self.max_attempts, LOWERED_RETRY_MS)


@dataclass(frozen=True, slots=True)
class Threads:
    """Of one resource, or of a worker that nobody of us started: where its threads count."""

    threads: int
    registered: bool = False
    draining: bool = False  # it takes nothing new, and goes
    booting: bool = False  # launched, within its grace period, not registered yet
    restarting: bool = False  # it is going to be started again, by us or by its container


@dataclass(frozen=True, slots=True)
class Capacity:
    registered: int = 0  # and not draining: what really works
    draining: int = 0
    booting: int = 0
    restarting: int = 0

    @staticmethod
    def of(parts: Iterable[Threads]) -> Capacity:
        found = Capacity()
        for each in parts:
            name = _counts_as(each)
            if name is not None:
                found = replace(found, **{name: getattr(found, name) + each.threads})
        return found

    @property
    def asked_for(self) -> int:
        """What works, boots, or is started again."""
        return self.registered + self.booting + self.restarting

    def missing(self, floor: int) -> int:
        """What is still to be asked for: what boots, or is started again, is asked for already."""
        return max(0, floor - self.asked_for)


def _counts_as(each: Threads) -> str | None:
    """Each thread is counted once."""
    if each.registered:
        return "draining" if each.draining else "registered"
    if each.booting:
        return "booting"
    return "restarting" if each.restarting else None


@dataclass(frozen=True, slots=True)
class Keeping:
    """How far keeping a group's floor has got; kept with the group."""

    attempts: int = 0  # requests in a row that did not bring the floor back
    next_at_ms: int = 0
    effective: int | None = None  # None: the floor itself
    reason: str | None = None

    def due_at_ms(self, setting: KeepSetting, *, now_ms: int) -> int:
        """When something is asked for again. No pause is longer than the longest: a later time was
        written by a leader whose clock was ahead, or under another setting."""
        believed = self.next_at_ms <= now_ms + setting.pause_max_ms
        return max(now_ms, self.next_at_ms) if believed else now_ms


@dataclass(frozen=True, slots=True)
class Kept:
    keeping: Keeping
    request: int = 0  # threads to ask the group's container for


def keep(
    floor: int, found: Capacity, before: Keeping, setting: KeepSetting, *, now_ms: int
) -> Kept:
    """What to ask for now, and how keeping stands afterwards."""
    if found.registered >= floor:
        return Kept(Keeping())
    if now_ms < before.due_at_ms(setting, now_ms=now_ms):
        return Kept(before)
    missing = found.missing(floor)
    if missing == 0:
        return Kept(before)
    if before.effective is not None:  # its pause is over: once more, and the next one begins
        lowered = _lowered(floor, found, before, now_ms=now_ms)
        return Kept(replace(lowered, attempts=before.attempts + 1), request=missing)
    if before.attempts >= setting.max_attempts:
        return Kept(_lowered(floor, found, before, now_ms=now_ms))
    attempts = before.attempts + 1
    next_at_ms = now_ms + setting.check_interval_ms * attempts
    return Kept(replace(before, attempts=attempts, next_at_ms=next_at_ms), request=missing)


def _lowered(floor: int, found: Capacity, before: Keeping, *, now_ms: int) -> Keeping:
    """Only what really works counts: an orphan that may come back satisfies nobody (R5)."""
    reason = (
        f"{before.attempts} requests did not bring it to {floor} threads; {found.registered} work. "
        "Look at the logs of its resources, then scale the group, or lower min-parallelism"
    )
    return Keeping(before.attempts, now_ms + LOWERED_RETRY_MS, found.registered, reason)


def shares(threads: int) -> list[int]:
    """Of a request: the threads of each resource, none larger than a worker may be."""
    full, rest = divmod(threads, THREADS_MAX)
    return [THREADS_MAX] * full + [rest] * (rest > 0)


def surplus(floor: int, others: int, made_for_it: Iterable[tuple[str, int]]) -> frozenset[str]:
    """Which of the resources that were made for the floor, and have no worker, it needs no more.

    They come with their threads, in the order in which they are started again; `others` are the
    threads of everything else that works or comes back.
    """
    found: set[str] = set()
    for name, threads in made_for_it:
        if others >= floor:
            found.add(name)
        else:
            others += threads
    return frozenset(found)
