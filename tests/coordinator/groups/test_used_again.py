"""An id that is used again, a clock that was ahead, a text that no longer holds."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from headrace.api.group_views import group_view
from headrace.client.groups import GroupView
from headrace.containers.container import Supports
from headrace.coordinator.context import CoordinatorSettings, GroupOptions
from headrace.coordinator.groups.commands import GroupCommands
from headrace.coordinator.groups.snapshot import DRAIN_MAX_MS
from headrace.errors import BadSetting, LaunchOver, Refused
from headrace.store.core import leases
from headrace.store.core.engine import reading, writing
from headrace.store.core.leases import LeaderTime
from headrace.store.core.transactions import fenced
from headrace.store.groups import groups, resources
from headrace.store.tasks import claims
from tests.coordinator.groups.group_harness import GRACE_S, GROUP, FakeContainer, GroupHarness, lost
from tests.coordinator.leader_harness import LeaderHarness
from tests.fakes import FakeClock
from tests.stores import given_resource

DAY_S = 86_400
YEAR_MS = 365 * DAY_S * 1000


def shown(care: GroupHarness) -> GroupView:
    known = GroupOptions(care.setting, care.keep, care.places)
    options = CoordinatorSettings(store_url="sqlite://", address="http://127.0.0.1:1", groups=known)
    with reading(care.store) as conn:
        group = groups.get(conn, GROUP)
        assert group is not None
        return group_view(conn, group, options, now_ms=care.desk.clock.wall_ms())


def asked_for(care: GroupHarness, key: str = "etl") -> None:
    commands = GroupCommands(care.store, care.desk.clock, care.desk.ids, containers=care.places)
    commands.scale(GROUP, 4, key=key)
    care.look()


def released(care: GroupHarness, key: str = "etl") -> None:
    with writing(care.store) as conn:
        resources.want_released(conn, key)
    care.look()
    assert care.read(key) is None


@pytest.mark.req("R8")
def test_an_id_that_is_used_again_gets_launches_that_nobody_has_started_yet(
    care: GroupHarness, place: FakeContainer
) -> None:
    asked_for(care)
    care.looks(seconds=GRACE_S)
    assert care.there("etl").launch == 2
    released(care)

    asked_for(care)

    assert place.started == [("etl", 1), ("etl", 2), ("etl", 3)]
    with pytest.raises(LaunchOver, match="launch 3 is the current one"):
        care.register("etl", 2)


def test_numbers_of_long_ago_are_forgotten(care: GroupHarness) -> None:
    asked_for(care)
    released(care)
    care.desk.clock.advance((resources.KEPT_DAYS + 1) * DAY_S)
    asked_for(care, "another")
    released(care, "another")

    with reading(care.store) as conn:
        assert resources.last_launch(conn, "etl") == 0
        assert resources.last_launch(conn, "another") == 1


@pytest.mark.req("R1", "R2")
def test_a_leader_whose_clock_was_far_ahead_delays_a_restart_by_no_more_than_a_grace_period(
    care: GroupHarness, place: FakeContainer
) -> None:
    lost(care)
    ahead_ms = care.desk.clock.wall_ms() + YEAR_MS
    with writing(care.store) as conn:
        given_resource(conn, care.there().id, orphaned_since_ms=ahead_ms, launched_at_ms=ahead_ms)

    care.looks(seconds=GRACE_S * 2)

    assert place.started == [("r1", 1), ("r1", 2)]


@pytest.mark.req("R2")
def test_a_clock_that_is_a_little_behind_takes_nobody_for_lost_and_asks_for_nothing_twice(
    care: GroupHarness,
) -> None:
    care.group(min_parallelism=4)
    care.look()
    [asked] = care.all()
    ahead_ms = care.desk.clock.wall_ms() + GRACE_S * 500
    with writing(care.store) as conn:
        given_resource(conn, asked.id, orphaned_since_ms=ahead_ms, launched_at_ms=ahead_ms)

    care.looks(seconds=GRACE_S)

    [still] = care.all()
    assert (still.launch, still.orphaned_since_ms) == (1, ahead_ms)


@pytest.mark.req("R5")
def test_a_pause_that_was_written_by_a_clock_far_ahead_is_not_waited_for(
    care: GroupHarness, place: FakeContainer
) -> None:
    care.group(min_parallelism=4, keep_next_at_ms=care.desk.clock.wall_ms() + YEAR_MS)
    care.look()
    assert len(place.started) == 1


@pytest.mark.req("L5")
@pytest.mark.parametrize("ahead_ms", [0, 20 * 60_000, -20 * 60_000, YEAR_MS, -YEAR_MS])
def test_a_drain_through_a_node_whose_clock_is_wrong_lasts_as_long_as_any(
    care: GroupHarness, place: FakeContainer, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    def a_stream(_: Connection, worker: str) -> list[str]:
        return [worker]

    monkeypatch.setattr(claims, "count_held_by", a_stream)
    care.resource()
    care.look()
    care.register("r1", 1)
    now_ms = care.desk.clock.wall_ms()
    with fenced(care.store, care.desk.term) as conn:
        leases.record_time(conn, care.desk.term, LeaderTime(now_ms, 0))
    node = FakeClock(wall_ms=now_ms + ahead_ms)
    commands = GroupCommands(care.store, node, care.desk.ids)
    commands.drain("w-r1-1")
    commands.release("r1")

    care.look()
    care.looks(seconds=DRAIN_MAX_MS / 1000)
    assert place.stopped == []
    care.looks(seconds=10)

    assert place.stopped == [("r1", 1)]
    assert care.read() is None


def test_a_resource_that_is_released_is_not_told_to_be_released(desk: LeaderHarness) -> None:
    care = GroupHarness(desk, FakeContainer(), FakeContainer("other"))
    care.group()
    care.resource(container="other")
    care.looks(seconds=20)
    other = care.places.pop("other")
    care.begin()
    care.looks(seconds=20)
    assert "no longer configured" in (care.there().told or "")

    care.places["other"] = other
    care.begin()
    care.looks(seconds=GRACE_S * 2)
    assert care.there().told is None, "it was started again"

    with writing(care.store) as conn:
        resources.want_released(conn, "r1")
    [gone] = shown(care).resources
    assert gone.next == "container 'other' stops it, then its record goes"


@pytest.mark.req("R6", "R7")
def test_why_a_resource_is_left_alone_is_said_anew_when_the_reason_changes(
    desk: LeaderHarness,
) -> None:
    place = FakeContainer(supports=Supports(restart=False))
    care = GroupHarness(desk, place)
    care.group()
    care.resource()
    care.looks(seconds=20)
    assert "started again by us" in (care.there().told or "")

    care.places.clear()
    care.begin()
    care.looks(seconds=20)

    assert "no longer configured" in (care.there().told or "")


@pytest.mark.req("R5")
def test_what_works_is_told_as_it_is_now_and_not_when_the_floor_was_given_up(
    desk: LeaderHarness,
) -> None:
    place = FakeContainer(error=Refused("no"))
    care = GroupHarness(desk, place, enabled=False)
    care.group(min_parallelism=8)
    care.looks(seconds=3600, step_s=30)
    assert "none works" in shown(care).next

    place.error = None
    care.resource("u1", threads=4)
    care.look()
    care.register("u1", 1)

    assert "the floor of 8 was given up: 4 work" in shown(care).next


@pytest.mark.req("R5")
def test_a_worker_counts_with_the_threads_that_it_has(care: GroupHarness) -> None:
    care.group(min_parallelism=8)
    care.resource("u1", threads=8)
    care.look()
    care.register("u1", 1, slots=3)

    assert shown(care).capacity.registered == 3


@pytest.mark.parametrize("group", ["team/etl", "..", "", "a\0b", "x" * 101])
def test_a_worker_of_a_group_that_nobody_could_ask_for_is_refused(
    care: GroupHarness, group: str
) -> None:
    care.resource()
    care.look()
    with pytest.raises(BadSetting, match=r"group .* can't be used; take up to 100 letters"):
        care.register("r1", 1, group=group)
