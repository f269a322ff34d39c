"""A leader that takes over judges nobody by the time in which nobody led (R2, R4)."""

from __future__ import annotations

import pytest

from headrace.coordinator.groups.snapshot import ARRIVAL_MAX_MS, START_MAX_MS
from headrace.model.groups import LaunchStep
from tests.coordinator.groups.group_harness import GRACE_S, FakeContainer, GroupHarness, lost
from tests.coordinator.leader_harness import LeaderHarness

ARRIVAL_S, START_MAX_S = ARRIVAL_MAX_MS / 1000, START_MAX_MS / 1000


@pytest.fixture
def last_try(desk: LeaderHarness, place: FakeContainer) -> GroupHarness:
    """Whose only restart is under way."""
    care = GroupHarness(desk, place, max_retries=1)
    care.group()
    lost(care)
    return care


@pytest.mark.req("R2", "R4")
def test_a_worker_that_could_not_register_while_nobody_led_is_not_given_up(
    last_try: GroupHarness,
) -> None:
    last_try.looks(seconds=GRACE_S + 10)
    assert (last_try.there().launch, last_try.there().attempts) == (2, 1)

    last_try.desk.clock.advance(GRACE_S * 2)
    last_try.take_over()
    last_try.looks(seconds=ARRIVAL_S - 1, step_s=1)
    assert not last_try.there().wanted_released
    last_try.register("r1", 2)
    last_try.looks(seconds=GRACE_S * 2)

    assert (last_try.there().launch, last_try.there().attempts) == (2, 0)


@pytest.mark.req("R3")
def test_one_that_does_not_register_with_the_new_leader_either_is_given_up(
    last_try: GroupHarness,
) -> None:
    last_try.looks(seconds=GRACE_S + 10)
    last_try.desk.clock.advance(GRACE_S * 2)

    last_try.take_over()
    last_try.looks(seconds=ARRIVAL_S + 10)

    assert last_try.read() is None


@pytest.mark.req("R2", "R4")
def test_a_start_that_was_intended_before_an_outage_is_made_after_it(
    last_try: GroupHarness, place: FakeContainer
) -> None:
    last_try.desk.clock.advance(GRACE_S + 1)
    last_try.decide()
    assert last_try.there().step is LaunchStep.INTENDED

    last_try.desk.clock.advance(START_MAX_S + GRACE_S * 2)
    last_try.take_over()
    last_try.looks(seconds=GRACE_S - 10)

    assert place.started == [("r1", 1), ("r1", 2)]
    assert (last_try.there().launch, last_try.there().attempts) == (2, 1)


@pytest.mark.req("R8")
def test_a_leader_that_loses_its_trust_while_it_ends_an_earlier_launch_starts_nothing(
    care: GroupHarness, place: FakeContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost(care)

    def stop(*_: object, **__: object) -> None:
        care.trusted = False

    monkeypatch.setattr(FakeContainer, "stop", stop)
    care.looks(seconds=GRACE_S + 10)

    assert place.started == [("r1", 1)]
    assert (care.there().launch, care.there().step) == (2, LaunchStep.INTENDED)
