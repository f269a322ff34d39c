"""When time alone will make a rule fire, so that nobody has to look at a table before that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.model.tables.evaluation import (
    PartitionClock,
    evaluate,
    fires_at_ms,
    forced,
    needs_clock,
)
from headrace.model.tables.settings import INTEGER_MAX, OptimizingSettings
from headrace.model.tables.status import OptimizingType
from tests.model.tables.samples import HERE, NOW_MS, SETTINGS, files, table

HOUR_MS = 3_600_000
FULL = replace(SETTINGS, full_interval_ms=24 * HOUR_MS)
INTERVAL_MS = SETTINGS.minor_interval_ms


@pytest.mark.parametrize(
    ("sizes", "clock", "expected"),
    [
        # Minor: more than one fragment, one millisecond after the interval.
        ((1, 1), PartitionClock(minor_ms=NOW_MS - 5), NOW_MS - 5 + INTERVAL_MS + 1),
        ((1, 1), PartitionClock(seen_ms=NOW_MS), NOW_MS + INTERVAL_MS + 1),
        ((1, 1), PartitionClock(minor_ms=5, seen_ms=NOW_MS), NOW_MS + INTERVAL_MS + 1),
        ((1,), PartitionClock(minor_ms=NOW_MS), None),  # nothing to join
        ((1, 1), PartitionClock(), None),  # has fired: never done is due at once
        ((1, 1), PartitionClock(minor_ms=NOW_MS - INTERVAL_MS - 1), None),  # has fired
        (
            (1, 1),
            PartitionClock(minor_ms=NOW_MS - INTERVAL_MS),
            NOW_MS + 1,
        ),  # fires the next moment
    ],
)
def test_the_next_time_a_rule_can_fire_is_known_to_the_millisecond(
    sizes: tuple[int, ...], clock: PartitionClock, expected: int | None
) -> None:
    found = table(files(*sizes))
    (here,) = evaluate(found, SETTINGS, {HERE: clock}, now_ms=NOW_MS)

    at_ms = fires_at_ms(here.measured, SETTINGS, clock, now_ms=NOW_MS)

    assert at_ms == expected
    if at_ms is not None:
        before, then = (
            evaluate(found, SETTINGS, {HERE: clock}, now_ms=at)[0].type for at in (at_ms - 1, at_ms)
        )
        assert (before, then) == (None, OptimizingType.MINOR)


def test_the_earlier_of_minor_and_full_counts_and_an_interval_below_zero_never_does() -> None:
    found = table(files(1, 1))
    clock = PartitionClock(minor_ms=NOW_MS, full_ms=NOW_MS - 24 * HOUR_MS + 60_000)
    (here,) = evaluate(found, FULL, {HERE: clock}, now_ms=NOW_MS)

    def fires(chosen: OptimizingSettings) -> int | None:
        return fires_at_ms(here.measured, chosen, clock, now_ms=NOW_MS)

    assert fires(FULL) == NOW_MS + 60_001
    assert fires(replace(FULL, full_interval_ms=-1)) == NOW_MS + HOUR_MS + 1
    assert fires(replace(FULL, full_interval_ms=-1, minor_interval_ms=-1)) is None
    assert fires(replace(FULL, mse_tolerance_bytes=1_000)) is None


def test_a_partition_needs_a_clock_only_when_something_in_it_can_be_overdue() -> None:
    def of(*sizes: int) -> bool:
        (here,) = evaluate(table(files(*sizes)), FULL, {}, now_ms=NOW_MS)
        return needs_clock(here.measured)

    assert of(1)
    assert of(50)
    assert not of(120, 128)


def test_what_somebody_asks_for_is_the_least_and_a_stronger_type_stays() -> None:
    found = evaluate(
        table(files(1, 1)), SETTINGS, {HERE: PartitionClock(minor_ms=NOW_MS)}, now_ms=NOW_MS
    )
    assert [each.type for each in found] == [None]

    asked = forced(found, OptimizingType.MAJOR)

    assert [each.type for each in asked] == [OptimizingType.MAJOR]
    assert [each.type for each in forced(asked, OptimizingType.MINOR)] == [OptimizingType.MAJOR]


def test_the_longest_interval_ends_at_a_time_that_a_store_can_hold() -> None:
    """Long.MAX is said for "never", and a time beyond it would fail the whole round of tables."""
    longest = str(INTEGER_MAX)
    settings, flaws = OptimizingSettings.read({"self-optimizing.minor.trigger.interval": longest})
    clock = PartitionClock(minor_ms=NOW_MS)
    (here,) = evaluate(table(files(1, 1)), settings, {HERE: clock}, now_ms=NOW_MS)

    at_ms = fires_at_ms(here.measured, settings, clock, now_ms=NOW_MS)

    assert not flaws
    assert at_ms is not None
    assert NOW_MS < at_ms <= INTEGER_MAX
