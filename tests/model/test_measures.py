"""Sizes, times and counts read as a person would say them."""

from __future__ import annotations

import pytest

from headrace.model.text import ago, count, partition, short_worker, size, span, until

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (479_400, "479.4 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (134_217_728, "134.2 MB"),
        (3_400_000_000, "3.4 GB"),
        (10**19, "10000.0 PB"),
    ],
)
def test_a_size_has_the_unit_that_leaves_few_digits(number: int, said: str) -> None:
    assert size(number) == said


@pytest.mark.parametrize(
    ("lasted_ms", "said"),
    [
        (-5, "0 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (3_660_000, "1 h 1 min"),
        (86_400_000, "1 d"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(lasted_ms: int, said: str) -> None:
    assert span(lasted_ms) == said


def test_a_moment_is_told_by_its_distance_and_its_date() -> None:
    assert until(NOW + 60_000, NOW) == "in 1 min (2023-11-14T22:14:20Z)"
    assert until(NOW, NOW) == "now"
    assert ago(NOW - 60_000, NOW) == "1 min ago (2023-11-14T22:12:20Z)"


def test_a_count_agrees_with_its_noun() -> None:
    assert [count(1, "file"), count(1200, "file")] == ["1 file", "1,200 files"]
    assert [count(1, "try", "tries"), count(0, "try", "tries")] == ["1 try", "0 tries"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("0/", "the whole table"),
        ("", "the whole table"),
        ("unpartitioned (spec 0)", "the whole table"),
        ("2/", "the whole table (spec 2)"),
        ("0/day=2026-01-31", "day=2026-01-31"),
        ("1/day=1/b=2", "day=1/b=2 (spec 1)"),
        ("day=1 (spec 3)", "day=1 (spec 3)"),
        ("day=1", "day=1"),
    ],
)
def test_a_partition_is_told_without_what_goes_without_saying(told: str, said: str) -> None:
    assert partition(told) == said


def test_a_worker_is_told_by_the_beginning_of_its_name() -> None:
    assert [short_worker("31f1e8afae1046c7"), short_worker("w1")] == ["31f1e8af", "w1"]
