"""The floor of a group is kept, and what the user asked for is never edited (R5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.containers.container import Supports
from headrace.coordinator.groups.snapshot import NOT_NEEDED
from headrace.errors import HeadraceError
from headrace.model.groups import KeepSetting, LaunchStep
from tests.coordinator.groups.group_harness import GRACE_S, FakeContainer, GroupHarness
from tests.coordinator.leader_harness import LeaderHarness

FLOOR = 8
HOUR_S = 3600
HEALS = Supports(restart=False)


@pytest.fixture
def care(desk: LeaderHarness, place: FakeContainer) -> GroupHarness:
    made = GroupHarness(desk, place)
    made.group(min_parallelism=FLOOR, memory_mb=512)
    return made


def test_a_group_below_its_floor_asks_for_what_is_missing(
    care: GroupHarness, place: FakeContainer
) -> None:
    care.look()

    [made] = care.all()
    assert (made.threads, made.memory_mb, made.made_for) == (FLOOR, 512, "floor")
    assert place.started == [(made.id, 1)]


def test_what_boots_is_not_asked_for_again(care: GroupHarness) -> None:
    care.look()

    care.looks(seconds=GRACE_S - 20, step_s=20)

    assert len(care.all()) == 1


@pytest.mark.req("R5")
def test_orphans_being_restarted_are_not_provisioned_twice(care: GroupHarness) -> None:
    care.look()
    [made] = care.all()
    care.register(made.id, 1)
    care.look()
    care.die(f"w-{made.id}-1")

    care.looks(seconds=GRACE_S * 3, step_s=30)

    assert [r.id for r in care.all()] == [made.id]
    assert care.there(made.id).launch > 1


@pytest.mark.req("R5")
def test_a_floor_that_can_not_be_reached_has_an_effective_value_beside_it(
    desk: LeaderHarness, place: FakeContainer
) -> None:
    care = GroupHarness(desk, place, enabled=False, keep=KeepSetting(60_000, 2))
    care.group(min_parallelism=FLOOR)
    place.error = HeadraceError("no room")

    care.looks(seconds=3600, step_s=30)

    group = care.read_group()
    assert group.min_parallelism == FLOOR, "what was asked for is the user's"
    assert group.keeping.effective == 0
    assert f"did not bring it to {FLOOR} threads" in (group.keeping.reason or "")
    assert len(care.all()) == 2


@pytest.mark.req("R5")
def test_orphans_are_not_counted_as_capacity_when_the_floor_is_given_up(
    desk: LeaderHarness,
) -> None:
    place = FakeContainer()
    care = GroupHarness(desk, place, keep=KeepSetting(1_000, 1), max_retries=2)
    care.group(min_parallelism=FLOOR)
    care.resource("r1", threads=4)
    care.look()
    care.register("r1", 1)
    care.look()
    care.die("w-r1-1")
    place.error = HeadraceError("no room")

    care.looks(seconds=GRACE_S * 2, step_s=30)
    assert care.read_group().keeping.effective is None, "they may still come back"
    care.looks(seconds=GRACE_S * 4, step_s=30)

    assert care.read_group().keeping.effective == 0


def test_a_group_that_reached_its_floor_has_no_effective_value(care: GroupHarness) -> None:
    care.look()
    [made] = care.all()

    care.register(made.id, 1)
    care.look()

    assert care.read_group().keeping.effective is None


def test_a_removed_group_releases_its_resources_and_goes(
    care: GroupHarness, place: FakeContainer
) -> None:
    care.look()
    [made] = care.all()
    care.group(wanted_removed=1)

    for _ in range(4):
        care.look()

    assert place.stopped == [(made.id, 1)]
    with pytest.raises(AssertionError):
        care.read_group()


def test_a_container_that_is_not_configured_is_asked_for_nothing(desk: LeaderHarness) -> None:
    care = GroupHarness(desk)
    care.group(min_parallelism=FLOOR)

    care.looks(seconds=600, step_s=60)

    assert care.all() == []


@pytest.mark.req("R5")
def test_a_floor_out_of_reach_is_asked_for_once_an_hour(
    desk: LeaderHarness, place: FakeContainer
) -> None:
    care = GroupHarness(desk, place, enabled=False)
    care.group(min_parallelism=FLOOR)
    place.error = HeadraceError("no room")

    care.looks(seconds=5.75 * HOUR_S, step_s=60)

    assert len(care.all()) == care.keep.max_attempts + 5
    assert care.read_group().keeping.effective == 0


@pytest.mark.req("R5", "R6")
@pytest.mark.parametrize("enabled", [True, False])
def test_what_its_container_heals_is_not_asked_for_again_however_long_it_takes(
    desk: LeaderHarness, *, enabled: bool
) -> None:
    """A full cluster: the Deployment is there, and its pod comes up when there is room."""
    care = GroupHarness(desk, FakeContainer(supports=HEALS), enabled=enabled)
    care.group(min_parallelism=FLOOR)

    care.looks(seconds=10 * HOUR_S, step_s=120)
    [made] = care.all()
    care.register(made.id, 1)
    care.looks(seconds=HOUR_S, step_s=60)

    assert [each.threads for each in care.all()] == [FLOOR]
    assert care.read_group().keeping.effective is None


@pytest.mark.req("R5", "R6")
@pytest.mark.parametrize("enabled", [True, False])
def test_what_its_container_can_heal_no_more_is_asked_for_again_and_its_record_stays(
    desk: LeaderHarness, *, enabled: bool
) -> None:
    """Somebody has deleted the Deployment."""
    place = FakeContainer(supports=HEALS)
    care = GroupHarness(desk, place, enabled=enabled)
    care.group(min_parallelism=FLOOR)
    care.look()
    [made] = care.all()
    care.register(made.id, 1)
    care.looks(seconds=HOUR_S, step_s=60)
    place.gone.add((made.id, 1))
    care.die(f"w-{made.id}-1")

    care.looks(seconds=60)

    [gone] = [each for each in care.all() if each.id == made.id]
    [other] = [each for each in care.all() if each.id != made.id]
    assert (gone.attempts, gone.wanted_released, other.threads) == (0, False, FLOOR)
    assert gone.error == "there is no such Deployment"

    place.gone.clear()  # and made it anew
    care.register(made.id, 1)
    care.look()
    assert care.there(made.id).step is LaunchStep.STARTED


@pytest.mark.req("R5", "R6")
def test_what_its_container_heals_is_no_capacity_when_the_floor_is_given_up(
    desk: LeaderHarness,
) -> None:
    pods, place = (
        FakeContainer("pods", supports=HEALS),
        FakeContainer(error=HeadraceError("no room")),
    )
    care = GroupHarness(desk, place, pods, enabled=False)
    care.group(min_parallelism=FLOOR)
    care.resource("r1", container="pods", threads=4)

    care.looks(seconds=HOUR_S, step_s=60)

    assert {each.threads for each in care.all() if each.made_for == "floor"} == {FLOOR - 4}
    assert care.read_group().keeping.effective == 0


def test_a_large_floor_is_asked_for_in_resources_that_can_start(care: GroupHarness) -> None:
    care.group(min_parallelism=2500)

    care.look()

    assert sorted(each.threads for each in care.all()) == [500, 1000, 1000]


def with_orphans(
    desk: LeaderHarness, place: FakeContainer, *, floor: int, orphans: int
) -> GroupHarness:
    """Auto-restart was off, and one worker for the floor after the other died; now it is on."""
    care = GroupHarness(desk, place, enabled=False)
    care.group(min_parallelism=floor)
    for _ in range(orphans):
        before = {each.id for each in care.all()}
        care.look()
        [made] = [each for each in care.all() if each.id not in before]
        care.register(made.id, 1)
        care.look()
        care.die(f"w-{made.id}-1")
        care.desk.clock.advance(GRACE_S + 1)
    care.setting = replace(care.setting, enabled=True)
    care.take_over()
    return care


@pytest.mark.req("R1", "R5")
def test_auto_restart_turned_on_restarts_what_the_floor_lacks_and_releases_the_rest(
    desk: LeaderHarness, place: FakeContainer
) -> None:
    care = with_orphans(desk, place, floor=4, orphans=5)
    assert len(care.all()) == 5

    care.looks(seconds=GRACE_S + 30, step_s=10)

    [left] = care.all()
    assert (left.threads, left.launch, left.attempts) == (4, 2, 1)
    assert len(place.stopped) == 5, "nothing is left of the others, nor of its first launch"


@pytest.mark.req("R1")
def test_what_a_user_asked_for_is_restarted_whatever_the_floor_is(
    desk: LeaderHarness, place: FakeContainer
) -> None:
    care = GroupHarness(desk, place)
    care.group(min_parallelism=4)
    for name in ("r1", "r2", "r3"):
        care.resource(name)
        care.look()
        care.register(name, 1)
    care.look()
    for name in ("r1", "r2"):
        care.die(f"w-{name}-1")

    care.looks(seconds=GRACE_S + 30, step_s=10)

    assert [(each.id, each.launch) for each in care.all()] == [("r1", 2), ("r2", 2), ("r3", 1)]


@pytest.mark.req("R5")
def test_a_surplus_resource_whose_worker_registers_stays(
    desk: LeaderHarness, place: FakeContainer
) -> None:
    care = with_orphans(desk, place, floor=4, orphans=2)
    first, second = care.all()
    care.register(first.id, 1)
    care.register(second.id, 1)

    care.looks(seconds=2 * GRACE_S, step_s=10)

    assert [each.launch for each in care.all()] == [1, 1]


def test_a_floor_that_was_lowered_lets_the_next_one_that_dies_go(
    desk: LeaderHarness, place: FakeContainer
) -> None:
    care = GroupHarness(desk, place)
    care.group(min_parallelism=4)
    care.look()
    [made] = care.all()
    care.register(made.id, 1)
    care.look()
    care.group(min_parallelism=0)
    care.die(f"w-{made.id}-1")

    care.look()
    assert not care.there(made.id).wanted_released, "it may be back within its grace period"
    care.desk.clock.advance(GRACE_S)
    care.decide()

    assert care.there(made.id).told == NOT_NEEDED
    care.look()
    assert care.all() == []
