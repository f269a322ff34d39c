"""A place that answers nothing holds up no other, and what waits for it is no attempt (R1, R4)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from headrace.containers.container import Launch, Launched, LaunchStatus, Supports
from headrace.coordinator.groups.container_calls import AT_ONCE_MAX, LOOKS_AT_ONCE_MAX
from headrace.coordinator.groups.snapshot import START_MAX_MS
from headrace.errors import Unavailable
from headrace.model.groups import LaunchStep
from headrace.store.core.engine import writing
from headrace.store.groups import resources
from tests.cli.machine import wait_until
from tests.coordinator.groups.group_harness import GRACE_S, WAIT_S, FakeContainer, GroupHarness
from tests.coordinator.leader_harness import LeaderHarness

START_MAX_S = START_MAX_MS / 1000


@dataclass(slots=True)
class Hangs(FakeContainer):
    """It answers no question how a launch does, and starts nothing, while the gate is shut."""

    gate: threading.Event = field(default_factory=threading.Event)
    starts: bool = True
    inside: list[str] = field(default_factory=list[str])

    def start(self, launch: Launch) -> Launched:
        if not self.starts:
            self.inside.append(launch.resource)
            assert self.gate.wait(WAIT_S)
        return FakeContainer.start(self, launch)

    def status(self, launch: Launch) -> LaunchStatus:
        self.inside.append(launch.resource)
        assert self.gate.wait(WAIT_S)
        raise Unavailable(f"no answer for {launch.resource}")


@pytest.fixture
def dead() -> Iterator[Hangs]:
    made = Hangs("pods", Supports(restart=False))
    yield made
    made.gate.set()


def looking(desk: LeaderHarness, dead: Hangs, well: FakeContainer) -> GroupHarness:
    """A leader with more orphans in a dead place than there are threads."""
    care = GroupHarness(desk, dead, well)
    care.group()
    for number in range(AT_ONCE_MAX * 3):
        care.resource(f"k{number:02}", container="pods")
    care.look()
    desk.clock.advance(GRACE_S + 100)
    care.decide()
    care.launching.run()
    wait_until(lambda: len(dead.inside) == LOOKS_AT_ONCE_MAX, "orphans are asked about")
    return care


@pytest.mark.req("R1", "R4")
@pytest.mark.parametrize("where", ["local", "pods"])
def test_orphans_in_a_place_that_does_not_answer_hold_up_no_start_there_or_elsewhere(
    desk: LeaderHarness, dead: Hangs, where: str
) -> None:
    well = FakeContainer()
    care = looking(desk, dead, well)
    care.resource("r1", container=where)

    care.decide()
    care.launching.run()

    place = well if where == "local" else dead
    wait_until(lambda: ("r1", 1) in place.started, "it is started")


@pytest.mark.req("R2", "R4")
def test_a_start_that_waits_behind_others_is_no_attempt_however_long_that_takes(
    desk: LeaderHarness,
) -> None:
    place = Hangs(starts=False)
    care = GroupHarness(desk, place)
    care.group()
    for number in range(AT_ONCE_MAX + 1):
        care.resource(f"r{number}")
    care.decide()
    care.launching.run()
    wait_until(lambda: len(place.inside) == AT_ONCE_MAX, "as many are asked for as may be")

    for _ in range(int((START_MAX_S + GRACE_S) * 3 / 30)):
        desk.clock.advance(30)
        care.decide()
        care.launching.run()

    waits = care.there(f"r{AT_ONCE_MAX}")
    assert (waits.launch, waits.attempts, waits.step) == (1, 0, LaunchStep.INTENDED)
    assert care.there("r0").attempts > 0
    place.gate.set()
    wait_until(lambda: (waits.id, 1) in place.started, "its turn comes")


@pytest.mark.req("R8")
def test_an_orphan_that_is_released_is_stopped_though_its_look_still_waits(
    desk: LeaderHarness, dead: Hangs
) -> None:
    care = looking(desk, dead, FakeContainer())
    waits = next(each.id for each in care.all() if each.id not in dead.inside)
    with writing(care.store) as conn:
        resources.want_released(conn, waits)

    care.launching.run()

    wait_until(lambda: care.read(waits) is None, "it is stopped, and its record gone")
    assert dead.stopped == [(waits, 1)]
