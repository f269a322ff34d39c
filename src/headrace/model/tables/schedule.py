"""Whose turn it is: which table is planned next, and how many tasks each may have under way.

Policies are orders over plain values, so the same call that decides also answers "which rank have
I". No policy can starve a table: one that has waited for `STARVED_AFTER_MS` goes before every table
that has not, longest wait first. From then on it is passed only by tables that had waited longer
already: with k of these it is the k+1st to be planned at the latest, whatever else comes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

STARVED_AFTER_MS = 30 * 60_000
OCCUPATION_WINDOW_MS = 3_600_000  # Amoro's: how far back the time of tasks counts


class SchedulingPolicy(StrEnum):
    QUOTA = "quota"  # the least occupied part of its quota first
    BALANCED = "balanced"  # the longest not optimized first
    BENEFIT = "benefit"  # the most spared to readers per byte rewritten first


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pending table, as a policy sees it."""

    table: str
    quota: float
    pending_since_ms: int
    task_ms: int = 0  # run time of its tasks within the window, finished and running
    optimized_ms: int | None = None  # the latest of its minor, major and full; None: never
    benefit: float = 0.0  # Gain.benefit of its pending input
    due_at_ms: int = 0  # not before: it failed, or was planned a moment ago


def quota_limit(quota: float, threads: int) -> int:
    """Threads a table may have: up to 1 a part of the group's, above 1 so many. At least one, or a
    small quota in a small group would mean never."""
    share = int(quota) if quota > 1 else math.ceil(quota * threads)
    return max(1, share)


def occupation(candidate: Candidate, threads: int) -> float:
    """How much of its quota a table has used within the window: 1 is all of it."""
    return candidate.task_ms / OCCUPATION_WINDOW_MS / quota_limit(candidate.quota, threads)


def rank(
    policy: SchedulingPolicy,
    candidates: Sequence[Candidate],
    *,
    threads: int,
    now_ms: int,
    starved_after_ms: int = STARVED_AFTER_MS,
) -> Sequence[Candidate]:
    """Those that may be planned now, in the order of their turn."""
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


def _preference(policy: SchedulingPolicy, candidate: Candidate, threads: int) -> float:
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
    """Tasks of a running process: how many run, counted from their rows, and how many wait."""

    table: str
    quota: float
    running: int
    waiting: int


def grants(
    demands: Sequence[Demand], *, threads: int, free: int, break_quota: bool
) -> Mapping[str, int]:
    """How many more tasks each table may start now.

    Each free thread goes to the table that has the least of its quota at work, the earlier one of
    two alike: a table with nothing at work is never passed by one that has something. A quota is
    broken (`break-quota-limit-enabled`) only by threads that nobody could use within theirs.
    """
    given = dict.fromkeys((each.table for each in demands), 0)
    for _ in range(free):
        hungry = [each for each in demands if given[each.table] < each.waiting]
        shares = [(_at_work(each, given, threads), n) for n, each in enumerate(hungry)]
        least, place = min(shares, default=(math.inf, 0))
        if not hungry or (least >= 1 and not break_quota):
            break
        given[hungry[place].table] += 1
    return given


def _at_work(demand: Demand, given: Mapping[str, int], threads: int) -> float:
    """The part of its quota that a table has at work: from 1 on, one more would exceed it."""
    return (demand.running + given[demand.table]) / quota_limit(demand.quota, threads)
