"""Whose turn it is, under each policy, and that everybody's comes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.tables.schedule import (
    OCCUPATION_WINDOW_MS,
    STARVED_AFTER_MS,
    Demand,
    PendingTable,
    SchedulingPolicy,
    grants,
    occupation,
    quota_limit,
    rank,
)
from tests.examples import examples

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000


def waiting(table: str, **changes: float) -> PendingTable:
    return replace(PendingTable(table, 0.5, NOW_MS), **changes)  # pyright: ignore[reportArgumentType]


def order(policy: SchedulingPolicy, *candidates: PendingTable, threads: int = 8) -> list[str]:
    return [each.table for each in rank(policy, candidates, threads=threads, now_ms=NOW_MS)]


@pytest.mark.parametrize(
    ("quota", "threads", "limit"),
    [
        (0.5, 8, 4),
        (0.5, 7, 4),
        (1.0, 8, 8),
        (1.5, 8, 1),
        (3, 8, 3),
        (3.9, 8, 3),
        (20, 8, 20),
        (0.001, 8, 1),
        (0.5, 0, 1),
    ],
)
def test_a_quota_is_a_part_of_the_threads_or_so_many(
    quota: float, threads: int, limit: int
) -> None:
    assert quota_limit(quota, threads) == limit


def test_by_quota_the_least_occupied_part_comes_first() -> None:
    half = waiting("half", quota=0.5, task_ms=2 * OCCUPATION_WINDOW_MS)
    two = waiting("two", quota=2, task_ms=1.5 * OCCUPATION_WINDOW_MS)
    none = waiting("none", quota=0.1)

    assert [occupation(each, 8) for each in (half, two, none)] == [0.5, 0.75, 0]
    assert order(SchedulingPolicy.QUOTA, two, half, none) == ["none", "half", "two"]


def test_balanced_means_the_longest_not_optimized_first() -> None:
    tables = [
        waiting("today", optimized_ms=NOW_MS),
        waiting("never"),
        waiting("long ago", optimized_ms=5),
    ]

    assert order(SchedulingPolicy.BALANCED, *tables) == ["never", "long ago", "today"]


def test_by_benefit_the_most_spared_per_byte_comes_first() -> None:
    tables = [waiting("some", benefit=0.5), waiting("none"), waiting("most", benefit=3)]

    assert order(SchedulingPolicy.BENEFIT, *tables) == ["most", "some", "none"]


@pytest.mark.parametrize("policy", list(SchedulingPolicy))
def test_alike_tables_come_in_the_order_they_came_to_wait(policy: SchedulingPolicy) -> None:
    tables = [waiting("c", pending_since_ms=NOW_MS - 1), waiting("b"), waiting("a")]

    assert order(policy, *tables) == ["c", "a", "b"]


def test_a_table_that_rests_after_a_failure_has_no_turn() -> None:
    assert order(SchedulingPolicy.BALANCED, waiting("t", due_at_ms=NOW_MS + 1)) == []
    assert order(SchedulingPolicy.BALANCED, waiting("t", due_at_ms=NOW_MS)) == ["t"]


@pytest.mark.parametrize("policy", list(SchedulingPolicy))
def test_who_has_waited_too_long_goes_first_whatever_the_policy(policy: SchedulingPolicy) -> None:
    poor = {"task_ms": 9 * OCCUPATION_WINDOW_MS, "optimized_ms": NOW_MS, "benefit": 0}
    starved = waiting("starved", pending_since_ms=NOW_MS - STARVED_AFTER_MS, **poor)
    longer = waiting("longer", pending_since_ms=NOW_MS - STARVED_AFTER_MS - 1, **poor)
    almost = waiting("almost", pending_since_ms=NOW_MS - STARVED_AFTER_MS + 1, **poor)
    good = waiting("good", benefit=99)

    assert order(policy, almost, starved, good, longer) == ["longer", "starved", "good", "almost"]


@given(
    policy=st.sampled_from(SchedulingPolicy),
    rivals=st.integers(0, 12),
    arrivals=st.lists(st.integers(0, 3), min_size=1, max_size=60),
)
@examples(60)
def test_no_table_waits_longer_than_the_bound(
    policy: SchedulingPolicy, rivals: int, arrivals: list[int]
) -> None:
    """The least liked table, while every minute a rival is planned and better ones arrive: once it
    has waited its time, only those that were there before it can still pass it."""
    victim = waiting("victim", task_ms=9**12, optimized_ms=NOW_MS, benefit=-1)
    older = [waiting(f"old{n}", pending_since_ms=NOW_MS - 1, benefit=9) for n in range(rivals)]
    queue = [victim, *older]
    bound = STARVED_AFTER_MS // MINUTE_MS + rivals + 1
    for minute in range(bound):
        now_ms = NOW_MS + minute * MINUTE_MS
        new = arrivals[minute % len(arrivals)]
        queue += [
            waiting(f"new{minute}.{n}", pending_since_ms=now_ms + 1, benefit=9) for n in range(new)
        ]
        chosen = rank(policy, queue, threads=8, now_ms=now_ms)[0]
        queue.remove(chosen)
        if chosen is victim:
            return
    raise AssertionError(f"not planned within {bound} turns")


def test_threads_go_to_whoever_has_the_least_of_its_quota_at_work() -> None:
    demands = [Demand("a", 0.5, running=3, waiting=9), Demand("b", 0.5, running=0, waiting=9)]

    assert grants(demands, threads=8, free=1, break_quota=False) == {"a": 0, "b": 1}
    assert grants(demands, threads=8, free=5, break_quota=False) == {"a": 1, "b": 4}


def test_a_quota_is_broken_only_by_threads_that_nobody_else_can_use() -> None:
    alone = [Demand("a", 0.5, running=4, waiting=9)]
    assert grants(alone, threads=8, free=4, break_quota=False) == {"a": 0}
    assert grants(alone, threads=8, free=4, break_quota=True) == {"a": 4}

    both = [Demand("a", 2, running=2, waiting=9), Demand("b", 2, running=0, waiting=2)]
    assert grants(both, threads=8, free=2, break_quota=True) == {"a": 0, "b": 2}


any_demands = st.lists(
    st.tuples(st.sampled_from([0.1, 0.5, 1, 2, 5]), st.integers(0, 9), st.integers(0, 9)),
    max_size=6,
)


@given(
    shapes=any_demands,
    threads=st.integers(0, 16),
    free=st.integers(0, 16),
    break_quota=st.booleans(),
)
@examples(100)
def test_grants_keep_quotas_waste_nothing_and_invent_nothing(
    shapes: list[tuple[float, int, int]], threads: int, free: int, *, break_quota: bool
) -> None:
    demands = [Demand(f"t{n}", *shape) for n, shape in enumerate(shapes)]
    given_now = grants(demands, threads=threads, free=free, break_quota=break_quota)

    assert sum(given_now.values()) <= free
    usable = 0
    for each in demands:
        limit = quota_limit(each.quota, threads)
        most = each.waiting if break_quota else min(each.waiting, max(0, limit - each.running))
        assert 0 <= given_now[each.table] <= most
        usable += most
    assert sum(given_now.values()) == min(free, usable)
