"""Of a resource one launch is left at a time, also when one of them could not be ended at once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headrace.containers.container import Elsewhere, Launch
from headrace.coordinator.groups.container_calls import ASK_PAUSE_S
from headrace.errors import Unavailable
from headrace.store.core.engine import writing
from headrace.store.groups import resources
from tests.coordinator.groups.group_harness import GRACE_S, FakeContainer, GroupHarness, lost
from tests.coordinator.leader_harness import LeaderHarness


@dataclass(slots=True)
class Deaf(FakeContainer):
    """It can't be reached while something of launch 1 is to be stopped there."""

    reached: bool = False

    def stop(self, launch: Launch, *, grace_s: float) -> None:
        if launch.number == 1 and not self.reached:
            raise Unavailable("no answer; see whether the container can be reached")
        FakeContainer.stop(self, launch, grace_s=grace_s)


@pytest.mark.req("R8")
def test_a_launch_that_could_not_be_ended_is_ended_before_any_later_one_begins(
    desk: LeaderHarness,
) -> None:
    """The start that was to end it failed for that, and the next one follows the failed one."""
    place = Deaf()
    care = GroupHarness(desk, place)
    care.group()
    lost(care)
    care.looks(seconds=GRACE_S * 2 + 30)  # two restarts
    assert care.there().launch == 3
    assert place.started == [("r1", 1)]

    place.reached = True
    care.looks(seconds=GRACE_S + 10)

    assert place.stopped == [("r1", 1), ("r1", 2), ("r1", 3)]
    assert place.started == [("r1", 1), ("r1", 4)]


@pytest.mark.req("R3")
def test_a_record_stays_until_nothing_is_left_of_any_launch_of_it(desk: LeaderHarness) -> None:
    place = Deaf()
    care = GroupHarness(desk, place)
    care.group()
    lost(care)
    care.looks(seconds=GRACE_S + 30)
    assert care.there().launch == 2
    with writing(care.store) as conn:
        resources.want_released(conn, "r1")

    care.look()
    assert care.read() is not None

    place.reached = True
    care.looks(seconds=ASK_PAUSE_S, step_s=ASK_PAUSE_S)
    assert place.stopped == [("r1", 1), ("r1", 2)]
    assert care.read() is None


@dataclass(slots=True)
class Abroad(FakeContainer):
    """What it started runs on a machine that is gone."""

    def stop(self, launch: Launch, *, grace_s: float) -> None:
        del grace_s
        raise Elsewhere(f"launch {launch.number} runs on another machine")


@pytest.mark.req("R1", "R3")
def test_what_runs_on_a_machine_that_is_gone_comes_back_here_and_can_be_released(
    desk: LeaderHarness,
) -> None:
    place = Abroad()
    care = GroupHarness(desk, place)
    care.group()
    lost(care)
    care.looks(seconds=GRACE_S + 30)
    assert place.started == [("r1", 1), ("r1", 2)]

    with writing(care.store) as conn:
        resources.want_released(conn, "r1")
    care.look()

    assert care.read() is None
