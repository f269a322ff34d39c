"""A commit is too late by whichever clock says so first."""

from __future__ import annotations

import pytest

from headrace.model.jobs.epoch import Deadline, now
from tests.fakes import FakeClock


def test_a_deadline_has_not_passed_while_both_clocks_are_within_it() -> None:
    clock = FakeClock()
    deadline = Deadline(clock, now(clock), 60)
    clock.advance(60)
    assert not deadline.passed


@pytest.mark.req("C2", "E1")
def test_a_deadline_passes_by_the_monotonic_clock_when_the_wall_clock_was_put_back() -> None:
    clock = FakeClock()
    deadline = Deadline(clock, now(clock), 60)
    began_ms = clock.wall_ms()
    clock.advance(61)
    clock.set_wall(began_ms - 3_600_000)
    assert deadline.passed


@pytest.mark.req("C2", "E1")
def test_a_deadline_passes_by_the_wall_clock_when_the_machine_was_suspended() -> None:
    clock = FakeClock()
    deadline = Deadline(clock, now(clock), 60)
    clock.set_wall(clock.wall_ms() + 60_001)
    assert deadline.passed
