"""The floor of a group is kept, and what the user asked for is never edited (R5)."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError
from headrace.model.groups.capacity import KeepSetting
from tests.coordinator.desk import Desk
from tests.coordinator.groups.stand import GRACE_S, Care, Place

FLOOR = 8


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def care(desk: Desk, place: Place) -> Care:
    made = Care(desk, place)
    made.group(min_parallelism=FLOOR, memory_mb=512)
    return made


def test_a_group_below_its_floor_asks_for_what_is_missing(care: Care, place: Place) -> None:
    care.look()

    [made] = care.all()
    assert (made.threads, made.memory_mb, made.made_for) == (FLOOR, 512, "floor")
    assert place.started == [(made.id, 1)]


def test_what_boots_is_not_asked_for_again(care: Care) -> None:
    care.look()

    care.looks(seconds=GRACE_S - 20, step_s=20)

    assert len(care.all()) == 1


@pytest.mark.req("R5")
def test_orphans_being_restarted_are_not_provisioned_twice(care: Care) -> None:
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
    desk: Desk, place: Place
) -> None:
    care = Care(desk, place, enabled=False, keep=KeepSetting(60_000, 2))
    care.group(min_parallelism=FLOOR)
    place.error = HeadraceError("no room")

    care.looks(seconds=3600, step_s=30)

    group = care.read_group()
    assert group.min_parallelism == FLOOR, "what was asked for is the user's"
    assert group.keeping.effective == 0
    assert f"did not bring it to {FLOOR} threads" in (group.keeping.reason or "")
    assert len(care.all()) == 2


@pytest.mark.req("R5")
def test_orphans_are_not_counted_as_capacity_when_the_floor_is_given_up(desk: Desk) -> None:
    place = Place()
    care = Care(desk, place, keep=KeepSetting(1_000, 1), max_retries=2)
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


def test_a_group_that_reached_its_floor_has_no_effective_value(care: Care) -> None:
    care.look()
    [made] = care.all()

    care.register(made.id, 1)
    care.look()

    assert care.read_group().keeping.effective is None


def test_a_removed_group_releases_its_resources_and_goes(care: Care, place: Place) -> None:
    care.look()
    [made] = care.all()
    care.group(wanted_removed=1)

    for _ in range(4):
        care.look()

    assert place.stopped == [(made.id, 1)]
    with pytest.raises(AssertionError):
        care.read_group()


def test_a_container_that_is_not_configured_is_asked_for_nothing(desk: Desk) -> None:
    care = Care(desk)
    care.group(min_parallelism=FLOOR)

    care.looks(seconds=600, step_s=60)

    assert care.all() == []
