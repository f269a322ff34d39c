"""How often a table is looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.tables.schedule import BASE_INTERVAL_MS, RefreshPace
from tests.examples import examples

STEP_MS = 30_000


def test_the_interval_grows_by_steps_up_to_the_most_and_halves_down_to_the_base() -> None:
    pace = RefreshPace(most_ms=2 * BASE_INTERVAL_MS, step_ms=STEP_MS)

    assert pace.next_interval_ms(BASE_INTERVAL_MS, demand=False) == BASE_INTERVAL_MS + STEP_MS
    assert pace.next_interval_ms(2 * BASE_INTERVAL_MS, demand=False) == 2 * BASE_INTERVAL_MS
    assert pace.next_interval_ms(2 * BASE_INTERVAL_MS, demand=True) == BASE_INTERVAL_MS
    assert pace.next_interval_ms(BASE_INTERVAL_MS, demand=True) == BASE_INTERVAL_MS


@examples()
@given(
    most_ms=st.integers(min_value=-1, max_value=10**9),
    step_ms=st.integers(min_value=-1, max_value=10**9),
    interval_ms=st.integers(min_value=0, max_value=10**10),
    demand=st.booleans(),
)
def test_whatever_the_properties_say_the_interval_keeps_its_bounds(
    most_ms: int, step_ms: int, interval_ms: int, *, demand: bool
) -> None:
    found_ms = RefreshPace(most_ms, step_ms).next_interval_ms(interval_ms, demand=demand)

    assert BASE_INTERVAL_MS <= found_ms <= max(BASE_INTERVAL_MS, most_ms)


@pytest.mark.parametrize(
    ("look_at_ms", "due_ms"),
    [
        (None, 1_000_000),
        (2_000_000, 1_000_000),  # not before the interval is over
        (500_000, 500_000),  # a rule by time
        (0, BASE_INTERVAL_MS),  # one that was due already: not at once again
    ],
)
def test_a_rule_by_time_brings_the_next_look_forward(look_at_ms: int | None, due_ms: int) -> None:
    assert RefreshPace().due_at_ms(0, 1_000_000, look_at_ms=look_at_ms) == due_ms
