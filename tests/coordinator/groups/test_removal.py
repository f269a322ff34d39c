"""A group that is removed takes its workers along, also those that are well."""

from __future__ import annotations

import pytest

from headrace.containers.launching import Launch, Supports
from headrace.coordinator.groups.commands import GroupCommands
from headrace.coordinator.groups.launching import ASK_PAUSE_S
from headrace.errors import BadSetting, LaunchOver, Unavailable
from headrace.model.groups.resource import LaunchStep
from headrace.store import claims, groups, resources, workers
from headrace.store.engine import reading, writing
from tests.coordinator.desk import Desk
from tests.coordinator.groups.stand import GRACE_S, GROUP, Care, Place


@pytest.mark.req("R3")
def test_a_removed_group_ends_workers_that_are_registered(care: Care, place: Place) -> None:
    care.resource()
    care.look()
    care.register("r1", 1)
    care.look()
    care.group(wanted_removed=1)

    for _ in range(3):  # released and drained, stopped, forgotten
        care.look()

    assert place.stopped == [("r1", 1)]
    with reading(care.store) as conn:
        assert groups.get(conn, GROUP) is None


@pytest.mark.parametrize("error", [Unavailable, OSError])
def test_a_stop_that_breaks_off_is_said_again_after_a_pause(
    care: Care, place: Place, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    asked: list[Launch] = []

    def broken(launch: Launch, *, grace_s: float) -> None:
        del grace_s
        asked.append(launch)
        raise error("no answer")

    care.resource()
    care.look()
    with monkeypatch.context() as away:
        away.setattr(Place, "stop", staticmethod(broken))
        care.group(wanted_removed=1)
        care.looks(seconds=ASK_PAUSE_S * 2, step_s=1)

    assert 2 <= len(asked) <= 3
    care.looks(seconds=ASK_PAUSE_S * 2, step_s=1)
    assert place.stopped == [("r1", 1)]


def holds_one(*_: object) -> list[str]:
    return ["a task"]


def test_a_resource_whose_container_is_gone_is_released_once_its_worker_holds_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    care = Care(desk, Place("local"), Place("other"))
    care.group()
    care.resource(container="other")
    care.look()
    care.register("r1", 1)
    del care.places["other"]
    care.begin()
    with writing(care.store) as conn:
        resources.want_released(conn, "r1")
    with monkeypatch.context() as busy:
        busy.setattr(claims, "held_by", holds_one)
        care.looks(seconds=60)
        with reading(care.store) as conn:
            assert workers.of_resource(conn, "r1") is not None

    care.look()

    assert care.read() is None


@pytest.mark.req("R6")
def test_a_first_start_that_fails_in_a_container_that_heals_itself_is_asked_again(
    desk: Desk,
) -> None:
    place = Place(supports=Supports(restart=False), error=Unavailable("503"))
    care = Care(desk, place)
    care.group()
    care.resource()
    care.looks(seconds=GRACE_S * 2)
    assert (care.there().error, care.there().attempts, place.started) == ("503", 0, [])

    place.error = None
    care.looks(seconds=ASK_PAUSE_S * 2)

    assert place.started == [("r1", 1)]
    assert care.there().step is LaunchStep.STARTED


def test_a_worker_of_another_group_is_refused(care: Care) -> None:
    care.resource()
    care.look()

    with pytest.raises(LaunchOver, match="of group 'g', not 'other'"):
        care.register("r1", 1, group="other")


def test_a_resource_is_named_as_containers_can_name_it(care: Care) -> None:
    commands = GroupCommands(care.store, care.desk.clock, care.desk.ids, containers=care.places)

    with pytest.raises(BadSetting, match="1 to 63 letters"):
        commands.scale(GROUP, threads=1, key="r" * 64)
