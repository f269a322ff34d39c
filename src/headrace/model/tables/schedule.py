"""Table scheduling: planning order, quotas, evaluation intervals, and back-off after failures.

Which table is planned next, and how many tasks each may have at work. Policies are orders over
plain values, so the same call that decides also answers "what is my rank". No policy can starve a
table: one that has waited for `STARVED_AFTER_MS` goes before every table that has not, longest wait
first. From then on it is overtaken only by tables that had waited longer already: with k of these
it is planned as the k+1st at the latest, whatever else comes.

How often a table is evaluated: seldom while nothing is found, soon again when something is. That is
Amoro's adaptive interval (additive increase, multiplicative decrease), by its two properties. It is
stored with the table, so a restart doesn't begin again with every table at its shortest interval.

Back-off: Amoro plans a table with a poison file again every minute, for ever, and loses the whole
process each time. Here a failing table waits twice as long after each failure in a row, up to a
limit, and a file that took part in too many failures is no longer planned, and named to the user.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

STARVED_AFTER_MS = 30 * 60_000
OCCUPATION_WINDOW_MS = 3_600_000  # how far back the time of tasks counts, as in Amoro
BASE_INTERVAL_MS = 60_000  # Amoro's `refresh-tables.interval`
DISCOVER_INTERVAL_MS = 3 * 60_000  # Amoro's `refresh-external-catalogs.interval`
FIRST_WAIT_MS = 60_000  # back-off after the first failure: Amoro's min-plan-interval
WAIT_MAX_MS = 6 * 3_600_000  # the longest back-off: a mended table is tried within this
FILE_FAILURES_MAX = 3  # failures that a file took part in, until it is left out


class SchedulingPolicy(StrEnum):
    """In which order the pending tables of a group are planned."""

    QUOTA = "quota"  # those first that have used the least of their quota
    BALANCED = "balanced"  # those first that were not optimized for longest
    BENEFIT = "benefit"  # those first that spare readers most per byte rewritten


@dataclass(frozen=True, slots=True)
class PendingTable:
    """A pending table, as a policy sees it."""

    table: str
    quota: float
    pending_since_ms: int
    task_ms: int = 0  # run time of its tasks within the window, finished and running
    optimized_ms: int | None = None  # the latest of its minor, major and full; None: never
    benefit: float = 0.0  # Gain.benefit of its pending input
    due_at_ms: int = 0  # not planned before: it failed, or was planned a moment ago


def quota_limit(quota: float, threads: int) -> int:
    """How many threads a table may use.

    A quota up to 1 is a part of the group's threads, one above 1 is their number. At least one
    thread is allowed, or a small quota in a small group would mean never.
    """
    share = int(quota) if quota > 1 else math.ceil(quota * threads)
    return max(1, share)


def occupation(candidate: PendingTable, threads: int) -> float:
    """How much of its quota a table has used within the window: 1 is all of it."""
    return candidate.task_ms / OCCUPATION_WINDOW_MS / quota_limit(candidate.quota, threads)


def rank(
    policy: SchedulingPolicy,
    candidates: Sequence[PendingTable],
    *,
    threads: int,
    now_ms: int,
    starved_after_ms: int = STARVED_AFTER_MS,
) -> Sequence[PendingTable]:
    """The tables that may be planned now, in the order of their turns."""
    due = [each for each in candidates if each.due_at_ms <= now_ms]
    starved = {c.table for c in due if now_ms - c.pending_since_ms >= starved_after_ms}
    waiting = sorted(
        (each for each in due if each.table in starved),
        key=lambda each: (each.pending_since_ms, each.table),
    )
    others = sorted(
        (each for each in due if each.table not in starved),
        key=lambda each: (_preference(policy, each, threads), each.pending_since_ms, each.table),
    )
    return [*waiting, *others]


def _preference(policy: SchedulingPolicy, candidate: PendingTable, threads: int) -> float:
    match policy:
        case SchedulingPolicy.QUOTA:
            return occupation(candidate, threads)
        case SchedulingPolicy.BALANCED:
            return -1 if candidate.optimized_ms is None else candidate.optimized_ms
        case SchedulingPolicy.BENEFIT:
            return -candidate.benefit
    assert_never(policy)


@dataclass(frozen=True, slots=True)
class Demand:
    """Tasks of a running process: how many run, by their rows in the store, and how many wait."""

    table: str
    quota: float
    running: int
    waiting: int


def grants(
    demands: Sequence[Demand], *, threads: int, free: int, break_quota: bool
) -> Mapping[str, int]:
    """How many more tasks each table may start now.

    Each free thread goes to the table that uses the least of its quota, the earlier one of two
    alike: a table with no task at work is never overtaken by one that has some. A quota is broken
    (`break-quota-limit-enabled`) only by threads that no table could use within its own.
    """
    granted = dict.fromkeys((each.table for each in demands), 0)
    for _ in range(free):
        wanting = [each for each in demands if granted[each.table] < each.waiting]
        shares = [(_at_work(each, granted, threads), n) for n, each in enumerate(wanting)]
        least, place = min(shares, default=(math.inf, 0))
        if not wanting or (least >= 1 and not break_quota):
            break
        granted[wanting[place].table] += 1
    return granted


def _at_work(demand: Demand, granted: Mapping[str, int], threads: int) -> float:
    """The part of its quota that a table uses: from 1 on, one more task would exceed it."""
    return (demand.running + granted[demand.table]) / quota_limit(demand.quota, threads)


@dataclass(frozen=True, slots=True)
class RefreshPace:
    """The adaptive evaluation interval: `self-optimizing.refresh-table.adaptive.*`."""

    most_ms: int = 0  # the longest interval; up to the base interval, it does not adapt
    step_ms: int = 30_000
    base_ms: int = BASE_INTERVAL_MS

    def next_interval_ms(self, interval_ms: int, *, demand: bool) -> int:
        """The interval after an evaluation; `demand`: it found input to rewrite."""
        next_ms = interval_ms // 2 if demand else interval_ms + max(0, self.step_ms)
        return max(self.base_ms, min(next_ms, self.most_ms))

    def due_at_ms(self, now_ms: int, interval_ms: int, *, look_at_ms: int | None) -> int:
        """When a table is evaluated next; sooner when a rule fires by time at `look_at_ms`."""
        due_ms = now_ms + interval_ms
        if look_at_ms is None or look_at_ms >= due_ms:
            return due_ms
        return max(look_at_ms, now_ms + self.base_ms)


def wait_ms(failures: int, *, first_ms: int = FIRST_WAIT_MS, most_ms: int = WAIT_MAX_MS) -> int:
    """The back-off of a table after this many failures in a row; 0 after none."""
    if failures <= 0:
        return 0
    doublings = failures - 1
    # Beyond so many doublings the limit holds anyway, and the shifted number would only grow.
    if first_ms.bit_length() + doublings > most_ms.bit_length() + 1:
        return most_ms
    return min(most_ms, first_ms << doublings)


def due_at_ms(failed_at_ms: int, failures: int) -> int:
    return failed_at_ms + wait_ms(failures)


def blamed(
    failures: Mapping[str, int], rewritten: Collection[str], *, named: str | None = None
) -> Mapping[str, int]:
    """The failure counts of files after a rewrite of `rewritten` failed.

    `named` is the file that the error is about; without one, any of them may be the cause and
    each is counted.
    """
    guilty = {named} if named is not None and named in rewritten else set(rewritten)
    return {**failures, **{path: failures.get(path, 0) + 1 for path in guilty}}


def left_out(failures: Mapping[str, int], *, most: int = FILE_FAILURES_MAX) -> frozenset[str]:
    """The files that failed too often and are not planned any more."""
    return frozenset(path for path, count in failures.items() if count >= most)
