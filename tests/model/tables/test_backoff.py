"""What fails is tried later and later, and at last left out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.tables.schedule import (
    FIRST_WAIT_MS,
    WAIT_MAX_MS,
    blamed,
    due_at_ms,
    left_out,
    wait_ms,
)
from tests.examples import examples


def test_a_failing_table_waits_twice_as_long_each_time_up_to_the_limit() -> None:
    minutes = [wait_ms(failures) / 60_000 for failures in range(12)]

    assert minutes == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360]
    assert due_at_ms(1_000, 2) == 1_000 + 2 * FIRST_WAIT_MS


@given(failures=st.integers(0, 10**12), first_ms=st.integers(1, 10**9), most=st.integers(1, 10**12))
@examples(100)
def test_a_wait_grows_and_keeps_its_limit_however_often_it_failed(
    failures: int, first_ms: int, most: int
) -> None:
    waits = [wait_ms(n, first_ms=first_ms, most_ms=most) for n in (failures, failures + 1)]

    assert 0 <= waits[0] <= waits[1] <= most
    if failures:
        assert waits[1] == min(most, 2 * waits[0])


def test_a_wait_never_exceeds_six_hours() -> None:
    assert wait_ms(10**9) == WAIT_MAX_MS


def test_a_file_that_failed_three_times_is_left_out() -> None:
    failures = dict[str, int]()
    for _ in range(2):
        failures = dict(blamed(failures, ["a", "b"], named="a"))
    assert left_out(failures) == frozenset()

    failures = dict(blamed(failures, ["a", "c"], named="a"))

    assert failures == {"a": 3}
    assert left_out(failures) == {"a"}


def test_a_failure_that_names_no_file_of_its_own_counts_for_each() -> None:
    assert blamed({"a": 1}, ["a", "b"]) == {"a": 2, "b": 1}
    assert blamed({"a": 1}, ["a", "b"], named="elsewhere") == {"a": 2, "b": 1}
