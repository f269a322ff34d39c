"""Worker groups: capacity, the floor that is kept, and what becomes of resources without a worker.

Pure: values in, decisions out. Names and defaults of settings are Amoro's.

`keep` holds a group at its floor. One sum makes up the capacity of a group, so that nothing is
provisioned twice and nothing counts that does not work (R5). The floor is what the user asked for
(`min-parallelism`), and it is never edited. When it can't be reached after `max-keeping-attempts`,
an *effective* value stands beside it, with the reason.

`decide_orphan` says whether a resource without a worker is started again, given up, or left alone
(R1 to R8). It is one total function of what is known. The grace period counts from the first
detection, then from the latest start, so that a slow starter is not started twice; attempts count
within one orphanhood.

A group's properties are of two kinds, told apart by their names: those for its container, and the
defaults of its tables, for properties that neither a table nor its catalog sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

MINUTE_MS = 60_000
THREADS_MAX = 1000  # of one resource, and so of one worker
TABLE_PREFIX = "self-optimizing."  # properties of a group that are defaults of its tables
LOWERED_RETRY_MS = 60 * MINUTE_MS  # between two requests for a floor that was given up


class LaunchStep(StrEnum):
    """How far the latest launch of a resource has got."""

    INTENDED = "INTENDED"  # recorded; whether the container was called is unknown
    STARTED = "STARTED"  # the container confirmed it, and its details are recorded
    FAILED = "FAILED"  # the container raised: it counts as an attempt (R4)


# Within one launch. A launch is never intended a second time: whatever became of it, the next one
# begins at INTENDED under a number of its own.
LAUNCH_TRANSITIONS: Mapping[LaunchStep, frozenset[LaunchStep]] = {
    LaunchStep.INTENDED: frozenset({LaunchStep.STARTED, LaunchStep.FAILED}),
    # Its container knows nothing of it any more, and nobody starts it again (R6).
    LaunchStep.STARTED: frozenset({LaunchStep.FAILED}),
    # Its worker came up after all, or a start that was believed lost was answered.
    LaunchStep.FAILED: frozenset({LaunchStep.STARTED}),
}


class ResourceNotice(StrEnum):
    """What was last recorded and logged about a resource, so that it is logged once."""

    GAVE_UP = "GAVE_UP"  # its last restart failed: it is released
    NOT_NEEDED = "NOT_NEEDED"  # the floor that it was made for does without it: it is released
    GROUP_REMOVED = "GROUP_REMOVED"  # it is released with its group
    ISOLATED = "ISOLATED"  # left alone: its container is no longer configured (R7)
    OPTED_OUT = "OPTED_OUT"  # left alone: its container starts it again itself (R6)
    LEFT_TO_USER = "LEFT_TO_USER"  # left alone: its container leaves starting to users


class ResourceErrorKind(StrEnum):
    """What the error of a resource is about; recorded by whoever records the error."""

    NOT_STARTED = "NOT_STARTED"  # why its latest start failed
    ENDED = "ENDED"  # how its latest worker ended, or what keeps it from working
    NOT_STOPPED = "NOT_STOPPED"  # why it could not be stopped; it is tried again


@dataclass(frozen=True, slots=True)
class KeepSetting:
    """The settings `optimizer-group.*`: how a group's floor is kept."""

    check_interval_ms: int = 5 * MINUTE_MS
    max_attempts: int = 3

    @property
    def pause_max_ms(self) -> int:
        """The longest pause that there can be between two requests."""
        return max(self.check_interval_ms * self.max_attempts, LOWERED_RETRY_MS)


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of one resource, or of a worker started by hand, and where they count."""

    threads: int
    registered: bool = False
    draining: bool = False  # it takes no new tasks, and ends
    booting: bool = False  # launched, within its grace period, not registered yet
    restarting: bool = False  # going to be started again, by us or by its container


@dataclass(frozen=True, slots=True)
class Capacity:
    """The threads of a group, each counted once."""

    registered: int = 0  # and not draining: those that really work
    draining: int = 0
    booting: int = 0
    restarting: int = 0

    @staticmethod
    def of(parts: Iterable[Threads]) -> Capacity:
        total = Capacity()
        for each in parts:
            name = _counts_as(each)
            if name is not None:
                total = replace(total, **{name: getattr(total, name) + each.threads})
        return total

    @property
    def asked_for(self) -> int:
        """Threads that work, boot, or are going to be started again."""
        return self.registered + self.booting + self.restarting

    def missing(self, floor: int) -> int:
        """Threads still to be requested; those that boot or restart have been requested already."""
        return max(0, floor - self.asked_for)


def _counts_as(each: Threads) -> str | None:
    """The field of `Capacity` that these threads count in; None: in none."""
    if each.registered:
        return "draining" if each.draining else "registered"
    if each.booting:
        return "booting"
    return "restarting" if each.restarting else None


@dataclass(frozen=True, slots=True)
class Keeping:
    """How far keeping a group's floor has got; stored with the group."""

    attempts: int = 0  # requests in a row after which the floor was not reached
    next_at_ms: int = 0
    effective: int | None = None  # threads kept instead of the floor; None: the floor itself
    reason: str | None = None

    def due_at_ms(self, setting: KeepSetting, *, now_ms: int) -> int:
        """When threads are requested again.

        A time further ahead than the longest pause is not believed: it was written by a leader
        whose clock was ahead, or under another setting.
        """
        believed = self.next_at_ms <= now_ms + setting.pause_max_ms
        return max(now_ms, self.next_at_ms) if believed else now_ms


@dataclass(frozen=True, slots=True)
class Kept:
    """The outcome of one pass of `keep`."""

    keeping: Keeping
    request: int = 0  # threads to request from the group's container


def keep(
    floor: int, capacity: Capacity, before: Keeping, setting: KeepSetting, *, now_ms: int
) -> Kept:
    """How many threads to request now, and the state to store afterwards."""
    if capacity.registered >= floor:
        return Kept(Keeping())
    if now_ms < before.due_at_ms(setting, now_ms=now_ms):
        return Kept(before)
    missing = capacity.missing(floor)
    if missing == 0:
        return Kept(before)
    if before.effective is not None:  # its pause is over: request once more, and pause again
        lowered = _lowered(floor, capacity, before, now_ms=now_ms)
        return Kept(replace(lowered, attempts=before.attempts + 1), request=missing)
    if before.attempts >= setting.max_attempts:
        return Kept(_lowered(floor, capacity, before, now_ms=now_ms))
    attempts = before.attempts + 1
    next_at_ms = now_ms + setting.check_interval_ms * attempts
    return Kept(replace(before, attempts=attempts, next_at_ms=next_at_ms), request=missing)


def _lowered(floor: int, capacity: Capacity, before: Keeping, *, now_ms: int) -> Keeping:
    """Give the floor up for now, in favour of the threads that really work (R5).

    An orphan that may come back does not count.
    """
    reason = (
        f"{before.attempts} requests did not bring it to {floor} threads; {capacity.registered} "
        "work. Look at the logs of its resources, then scale the group, or lower min-parallelism"
    )
    return Keeping(before.attempts, now_ms + LOWERED_RETRY_MS, capacity.registered, reason)


def shares(threads: int) -> list[int]:
    """Split a request into resources: the threads of each, at most as many as a worker may have."""
    full, rest = divmod(threads, THREADS_MAX)
    return [THREADS_MAX] * full + [rest] * (rest > 0)


def surplus(floor: int, others: int, made_for_it: Iterable[tuple[str, int]]) -> frozenset[str]:
    """Which of the resources that were made for the floor, and have no worker, are not needed.

    `made_for_it` are these resources with their threads, in the order in which they would be
    started again; `others` are the threads of everything else that works or comes back.
    """
    names: set[str] = set()
    for name, threads in made_for_it:
        if others >= floor:
            names.add(name)
        else:
            others += threads
    return frozenset(names)


class OrphanVerdict(StrEnum):
    """What to do about a resource."""

    NOTHING = "nothing"  # it has a worker, or nothing is to be done about it
    NOTICE = "notice"  # seen without a worker for the first time: its grace period begins
    WAIT = "wait"  # its grace period is not over
    RESTART = "restart"
    REMOVE = "remove"  # restarted often enough without success: its record is deleted
    SURPLUS = "surplus"  # the floor it was made for needs it no more: release it instead
    OPTED_OUT = (
        "opted out"  # its container restarts it (R6): logged once, never restarted or removed
    )
    ISOLATED = "isolated"  # its container is no longer configured (R7): logged once, left alone
    RECOVERED = "recovered"  # its worker is back: attempts start at 0 again


@dataclass(frozen=True, slots=True)
class AutoRestart:
    """The settings `optimizer.auto-restart-*`."""

    enabled: bool = False
    max_retries: int = 5
    grace_ms: int = 5 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class ResourceState:
    """What is known of one resource at one moment."""

    alive: bool  # a worker with its id is registered
    released: bool = False  # its release was requested
    orphaned_since_ms: int | None = None  # first seen without a worker, in this orphanhood
    started_at_ms: int | None = None  # its latest launch, be it the first one
    judged_from_ms: int = 0  # not judged before: the current leader has not led for long enough
    attempts: int = 0  # restarts in this orphanhood
    configured: bool = True  # its container is configured here
    restartable: bool = True  # its container lets us start it again
    needed: bool = True  # False: it was made for the floor, which others reach without it


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with its details."""

    verdict: OrphanVerdict
    until_ms: int | None = None  # of WAIT
    attempt: int = 0  # of RESTART: which one it is


def decide_orphan(
    resource: ResourceState, setting: AutoRestart, *, leads: bool, now_ms: int
) -> Decision:
    """What to do about a resource.

    Only the leader acts (R8); with the default setting nothing is restarted or removed (R2).
    """
    if not leads:
        return Decision(OrphanVerdict.NOTHING)
    if resource.alive:
        orphaned = resource.orphaned_since_ms is not None or resource.attempts > 0
        return Decision(OrphanVerdict.RECOVERED if orphaned else OrphanVerdict.NOTHING)
    if resource.released:
        return Decision(OrphanVerdict.NOTHING)
    if resource.orphaned_since_ms is None:
        return Decision(OrphanVerdict.NOTICE)
    if not resource.configured:
        return Decision(OrphanVerdict.ISOLATED)
    if not resource.restartable:
        return Decision(OrphanVerdict.OPTED_OUT)
    if not setting.enabled:
        return Decision(OrphanVerdict.NOTHING)
    return _due(resource, resource.orphaned_since_ms, setting, now_ms)


def _due(
    resource: ResourceState, orphaned_since_ms: int, setting: AutoRestart, now_ms: int
) -> Decision:
    grace_over_ms = max(orphaned_since_ms, resource.started_at_ms or 0) + setting.grace_ms
    until_ms = max(grace_over_ms, resource.judged_from_ms)
    if now_ms < until_ms:
        return Decision(OrphanVerdict.WAIT, until_ms=until_ms)
    if resource.attempts >= setting.max_retries:
        return Decision(OrphanVerdict.REMOVE)
    if not resource.needed:
        return Decision(OrphanVerdict.SURPLUS)
    return Decision(OrphanVerdict.RESTART, attempt=resource.attempts + 1)


def table_defaults(properties: Mapping[str, str]) -> dict[str, str]:
    """The table properties among a group's properties: the defaults of its tables."""
    return {name: value for name, value in properties.items() if name.startswith(TABLE_PREFIX)}


def launch_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that are passed to the group's container with each launch."""
    return {name: value for name, value in properties.items() if not name.startswith(TABLE_PREFIX)}
