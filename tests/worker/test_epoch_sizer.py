"""How large epochs become, from how long the last one took, and when the next one is due."""

from __future__ import annotations

import random

import pytest

from headrace.model.jobs.spec import EnvSpec
from headrace.worker.pipeline import CHANGE_MAX, FIRST_ROWS, ROWS_MIN, EpochSizer
from tests.fakes import FakeClock


def batch(interval_ms: int | None, *, min_pause_ms: int | None = None) -> EpochSizer:
    env = EnvSpec(checkpoint_interval_ms=interval_ms, checkpoint_min_pause_ms=min_pause_ms)
    return EpochSizer(env, FakeClock())


def streaming(clock: FakeClock, **fields: int) -> EpochSizer:
    return EpochSizer(EnvSpec.model_validate({"job_mode": "STREAMING", **fields}), clock)


def test_without_an_interval_an_epoch_is_all_there_is() -> None:
    pace = batch(None)
    pace.took(3.0, 10)
    assert pace.rows_max is None


def run(pace: EpochSizer, epochs: int, *, fixed_s: float, rows_per_s: float) -> float:
    """How long the last epoch took."""
    took_s = 0.0
    for _ in range(epochs):
        assert pace.rows_max is not None
        took_s = fixed_s + pace.rows_max / rows_per_s
        pace.took(took_s, pace.rows_max)
    return took_s


@pytest.mark.parametrize("rows_per_s", [5_000, 1_000_000])
@pytest.mark.parametrize("fixed_s", [0.0, 0.2, 2.0])
def test_epochs_come_to_take_about_the_interval(fixed_s: float, rows_per_s: float) -> None:
    took_s = run(batch(10_000), 12, fixed_s=fixed_s, rows_per_s=rows_per_s)
    assert abs(took_s - 10.0) < 0.5


@pytest.mark.parametrize("rows_per_s", [20_000, 1_000_000])
def test_an_interval_shorter_than_an_epoch_costs_still_gives_rows_half_of_the_time(
    rows_per_s: float,
) -> None:
    pace = batch(100)
    pace.took(30.0, pace.rows_max)  # cold: it says nothing about the others
    took_s = run(pace, 20, fixed_s=2.0, rows_per_s=rows_per_s)
    assert abs(took_s - 4.0) < 0.5


def test_one_epoch_changes_the_next_by_a_bounded_factor() -> None:
    pace = batch(10_000)
    pace.took(0.0, None)
    assert pace.rows_max == FIRST_ROWS * CHANGE_MAX
    pace.took(1e9, None)
    assert pace.rows_max == FIRST_ROWS


def test_an_epoch_has_some_rows_however_slow_they_are() -> None:
    pace = batch(1)
    for _ in range(50):
        assert pace.rows_max is not None
        pace.took(pace.rows_max * 10.0, None)
    assert pace.rows_max == ROWS_MIN


def test_epochs_of_different_speed_leave_their_size_within_bounds() -> None:
    pace, noise = batch(1_000), random.Random(5)
    for _ in range(500):
        assert pace.rows_max is not None
        took_s = 0.3 + pace.rows_max / 200_000 * noise.uniform(0.3, 3.0)
        pace.took(took_s, pace.rows_max)
        assert ROWS_MIN <= pace.rows_max <= 5_000_000


def test_an_epoch_without_rows_says_nothing() -> None:
    pace = batch(10_000)
    pace.took(0.0, 0)
    assert pace.rows_max == FIRST_ROWS


def test_epochs_of_a_batch_job_take_as_long_as_the_pause_it_asks_for() -> None:
    pace, rows_per_s = batch(1_000, min_pause_ms=4_000), 100_000.0
    assert run(pace, 10, fixed_s=0.1, rows_per_s=rows_per_s) == pytest.approx(4.0, rel=0.05)
    assert pace.due_in_s == 0


def test_a_streaming_job_has_an_epoch_every_interval() -> None:
    clock = FakeClock()
    pace = streaming(clock, checkpoint_interval_ms=5_000)
    assert pace.due_in_s == 0
    pace.began()
    clock.advance(2.0)
    pace.completed()
    assert pace.due_in_s == 3.0
    clock.advance(4.0)
    assert pace.due_in_s == 0


def test_a_streaming_job_pauses_after_an_epoch_that_took_too_long() -> None:
    clock = FakeClock()
    pace = streaming(clock, checkpoint_interval_ms=5_000, checkpoint_min_pause_ms=2_000)
    pace.began()
    clock.advance(9.0)
    pace.completed()
    assert pace.due_in_s == 2.0


def test_a_streaming_job_without_an_interval_has_one_all_the_same() -> None:
    clock = FakeClock()
    pace = streaming(clock)
    pace.began()
    assert pace.due_in_s == 10.0
    assert pace.rows_max == FIRST_ROWS
