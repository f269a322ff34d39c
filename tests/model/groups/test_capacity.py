"""The capacity of a group is one sum: nothing is asked for twice, nothing pretended (R5)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.groups import (
    LOWERED_RETRY_MS,
    MINUTE_MS,
    THREADS_MAX,
    Capacity,
    Keeping,
    KeepSetting,
    Threads,
    keep,
    launch_properties,
    shares,
    surplus,
    table_defaults,
)
from tests.examples import examples

SETTING = KeepSetting()
NOW_MS = 1_000_000_000

parts = st.lists(
    st.builds(
        Threads,
        threads=st.integers(1, 64),
        registered=st.booleans(),
        draining=st.booleans(),
        booting=st.booleans(),
        restarting=st.booleans(),
    ),
    max_size=20,
)


@examples()
@given(parts)
def test_each_thread_is_counted_once_at_most(found: list[Threads]) -> None:
    sums = Capacity.of(found)
    counted = sums.registered + sums.draining + sums.booting + sums.restarting

    assert counted <= sum(each.threads for each in found)


@examples()
@given(parts, st.integers(0, 200))
def test_what_is_asked_for_brings_the_group_to_its_floor_and_no_further(
    found: list[Threads], floor: int
) -> None:
    sums = Capacity.of(found)

    missing = sums.missing(floor)

    on_the_way = sums.registered + sums.booting + sums.restarting
    assert missing == 0 or on_the_way + missing == floor


@pytest.mark.req("R5")
def test_orphans_being_restarted_are_not_asked_for_again() -> None:
    found = Capacity.of([Threads(4, registered=True), Threads(4, restarting=True)])

    assert keep(8, found, Keeping(), SETTING, now_ms=NOW_MS).request == 0


@pytest.mark.req("R5")
def test_orphans_are_no_capacity_when_the_floor_is_given_up() -> None:
    found = Capacity.of([Threads(2, registered=True), Threads(4, restarting=True)])
    tried = Keeping(attempts=SETTING.max_attempts)

    kept = keep(8, found, tried, SETTING, now_ms=NOW_MS)

    assert kept.request == 0
    assert kept.keeping.effective == 2
    assert kept.keeping.reason is not None


def test_what_drains_is_replaced() -> None:
    found = Capacity.of([Threads(4, registered=True, draining=True)])

    assert keep(4, found, Keeping(), SETTING, now_ms=NOW_MS).request == 4


def test_requests_come_later_and_later_and_then_no_more() -> None:
    keeping, now_ms, requests = Keeping(), NOW_MS, list[int]()
    for _ in range(SETTING.max_attempts):
        kept = keep(4, Capacity(), keeping, SETTING, now_ms=now_ms)
        requests.append(kept.request)
        assert keep(4, Capacity(), kept.keeping, SETTING, now_ms=now_ms).request == 0
        keeping, now_ms = kept.keeping, kept.keeping.next_at_ms

    lowered = keep(4, Capacity(), keeping, SETTING, now_ms=now_ms)

    assert requests == [4] * SETTING.max_attempts
    assert (lowered.request, lowered.keeping.effective) == (0, 0)


def test_the_floor_is_tried_again_an_hour_after_it_was_given_up() -> None:
    given_up = Keeping(3, NOW_MS + LOWERED_RETRY_MS, 0, "why")

    early = keep(4, Capacity(), given_up, SETTING, now_ms=NOW_MS + LOWERED_RETRY_MS - 1)
    late = keep(4, Capacity(), given_up, SETTING, now_ms=NOW_MS + LOWERED_RETRY_MS)

    assert (early.request, late.request) == (0, 4)


def test_a_floor_that_stays_out_of_reach_is_tried_once_an_hour() -> None:
    hours, keeping, asked_ms = 10, Keeping(), list[int]()
    for now_ms in range(NOW_MS, NOW_MS + hours * LOWERED_RETRY_MS, MINUTE_MS // 2):
        kept = keep(4, Capacity(registered=1), keeping, SETTING, now_ms=now_ms)
        if kept.request:
            asked_ms.append(now_ms)
        keeping = kept.keeping

    series, later = asked_ms[: SETTING.max_attempts], asked_ms[SETTING.max_attempts :]
    assert [each - NOW_MS for each in series] == [0, 5 * MINUTE_MS, 15 * MINUTE_MS]
    assert len(later) == hours - 1
    pauses_ms = [after - before for before, after in pairwise(later)]
    assert set(pauses_ms) == {LOWERED_RETRY_MS}
    assert (keeping.attempts, keeping.effective) == (len(asked_ms), 1)


def test_the_effective_floor_is_what_works_when_it_is_tried_again() -> None:
    given_up = Keeping(3, NOW_MS, 2, "why")

    tried = keep(8, Capacity(registered=1), given_up, SETTING, now_ms=NOW_MS)

    assert (tried.request, tried.keeping.effective) == (7, 1)
    assert "3 requests did not bring it to 8 threads; 1 work" in (tried.keeping.reason or "")


@examples()
@given(st.integers(0, 100_000))
def test_no_resource_has_more_threads_than_a_worker_may_have(threads: int) -> None:
    found = shares(threads)

    assert sum(found) == threads
    assert all(1 <= each <= THREADS_MAX for each in found)
    assert len(found) == -(-threads // THREADS_MAX), "and there are no more of them than it takes"


def test_a_group_that_has_its_floor_forgets_what_it_took() -> None:
    kept = keep(4, Capacity(registered=4), Keeping(2, NOW_MS, 1, "why"), SETTING, now_ms=NOW_MS)

    assert kept.keeping == Keeping()


@examples()
@given(parts, st.integers(0, 100), st.integers(0, 5), st.one_of(st.none(), st.integers(0, 100)))
def test_nothing_is_asked_for_beyond_what_is_missing(
    found: list[Threads], floor: int, attempts: int, effective: int | None
) -> None:
    sums = Capacity.of(found)

    kept = keep(floor, sums, Keeping(attempts, 0, effective), SETTING, now_ms=NOW_MS)

    assert 0 <= kept.request <= sums.missing(floor)


@pytest.mark.parametrize(
    ("others", "not_needed"),
    [(0, set[str]()), (4, {"c"}), (8, {"b", "c"}), (10, {"a", "b", "c"})],
)
def test_what_was_made_for_the_floor_is_surplus_once_others_reach_it(
    others: int, not_needed: set[str]
) -> None:
    made_for_it = [("a", 4), ("b", 2), ("c", 4)]

    assert surplus(10, others, made_for_it) == not_needed


def test_a_property_of_a_group_is_for_its_tables_or_for_its_container() -> None:
    properties = {"self-optimizing.enabled": "false", "spark-conf.spark.ui.enabled": "true"}

    assert table_defaults(properties) == {"self-optimizing.enabled": "false"}
    assert launch_properties(properties) == {"spark-conf.spark.ui.enabled": "true"}
