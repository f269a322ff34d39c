"""What comes next is told in a sentence, from the facts that decide (R1 to R7)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from headrace.containers.container import Supports
from headrace.coordinator.context import GroupOptions
from headrace.coordinator.groups.snapshot import (
    NOT_NEEDED,
    Forecast,
    GroupSnapshot,
    group_forecast,
    resource_forecast,
    worker_forecast,
)
from headrace.model.groups import AutoRestart, Capacity, Keeping, KeepSetting, LaunchStep
from headrace.store.groups.groups import Group
from headrace.store.groups.resources import Resource
from headrace.store.tasks.workers import Worker
from tests.coordinator.groups.group_harness import GRACE_S, GROUP, FakeContainer, GroupHarness
from tests.coordinator.leader_harness import LeaderHarness

NOW = 1_700_000_000_000
MINUTE = 60_000
ON = AutoRestart(enabled=True)
RESOURCE = Resource(
    id="r1",
    group=GROUP,
    container="local",
    threads=4,
    memory_mb=0,
    properties={},
    made_for="user",
    created_at_ms=NOW - 60 * MINUTE,
    wanted_released=False,
    launch=2,
    step=LaunchStep.STARTED,
    started_at_ms=NOW - 60 * MINUTE,
    launched_at_ms=NOW - 110_000,
    orphaned_since_ms=NOW - 7 * MINUTE,
    attempts=1,
    told=None,
    notice=None,
    error_kind=None,
    error=None,
)
WORKER = Worker("w1", GROUP, 4, 1, "0", "host", 1, "app", NOW, NOW, "r1", 2)
EMPTY = Group(GROUP, "local", 8, 0, None, {}, NOW, wanted_removed=False, keeping=Keeping())


def told(
    place: FakeContainer | None = None,
    *,
    worker: Worker | None = None,
    setting: AutoRestart = ON,
    configured: bool = True,
    of: Group = EMPTY,
    **changed: Any,
) -> Forecast:
    resource = replace(RESOURCE, **changed)
    here = place or FakeContainer()
    places = {here.name: here} if configured else {}
    options = GroupOptions(setting, KeepSetting(), places)
    workers = [worker] if worker else []
    look = GroupSnapshot(of, [resource], workers, options, now_ms=NOW)
    container = look.container_of(resource.container)
    return resource_forecast(
        resource,
        look.state_of(resource),
        setting,
        worker=worker,
        supports=container.supports if container else None,
        now_ms=NOW,
    )


@pytest.mark.req("R2")
def test_the_next_restart_is_told_with_its_number_and_its_time() -> None:
    said = told(error="exit code 137, Killed")

    assert said == Forecast("restart 2 of 5 in 3 min 10 s", NOW + 190_000, "exit code 137, Killed")


def test_a_launch_that_may_still_register_is_told_to_boot() -> None:
    assert told().text == "launch 2 boots; restart 2 of 5 in 3 min 10 s"


@pytest.mark.req("R3")
def test_the_end_of_all_attempts_is_told_before_it_comes() -> None:
    said = told(attempts=5, error="exit code 1")

    assert said.text == "given up after 5 attempts, unless its worker registers, in 3 min 10 s"


@pytest.mark.req("R3")
def test_what_is_given_up_says_why() -> None:
    why = "gave up after 5 attempts: exit code 137, Killed"

    assert told(wanted_released=True, told=why).text == (
        f"{why}; container 'local' stops it, then its record goes"
    )


def test_a_start_that_is_under_way_is_told_as_such() -> None:
    first = told(step=LaunchStep.INTENDED, attempts=0, launch=1)
    again = told(step=LaunchStep.INTENDED)

    assert first.text == "container 'local' is asked to start it now"
    assert again.text == "restart 1 of 5 now: container 'local' is asked to start it"
    heals = FakeContainer(supports=Supports(restart=False))
    refused = told(heals, step=LaunchStep.INTENDED, attempts=0, error="no room")
    assert refused.text == "container 'local' is asked to start it again in a moment"
    by_user = FakeContainer(supports=Supports(start=False, restart=False))
    assert "`headrace group show g` has the command" in told(by_user, step=LaunchStep.INTENDED).text


@pytest.mark.req("R5")
def test_what_the_floor_needs_no_more_is_told_to_go() -> None:
    covered = replace(EMPTY, min_parallelism=0)
    waits = told(of=covered, made_for="floor")
    due = told(of=covered, made_for="floor", launched_at_ms=NOW - 60 * MINUTE, error="exit code 1")
    last = told(of=covered, made_for="floor", attempts=5, error="exit code 1")

    assert waits.text == (
        f"launch 2 boots; released in 3 min 10 s, unless its worker registers: {NOT_NEEDED}"
    )
    assert (waits.at_ms, due.at_ms) == (NOW + 190_000, NOW)
    assert due.text == f"released now: {NOT_NEEDED}"
    assert "given up after 5 attempts" in last.text
    assert "restart 2 of 5" in told(made_for="floor").text, "the floor is not kept without it"
    assert "restart 2 of 5" in told(of=covered).text, "a user asked for it"


@pytest.mark.req("R6")
def test_a_container_that_heals_itself_is_left_to_it() -> None:
    said = told(FakeContainer(supports=Supports(restart=False)))

    assert said.text.startswith("its container 'local' does not have it started again by us")
    assert said.at_ms is None


@pytest.mark.req("R7")
def test_a_container_that_is_gone_is_named() -> None:
    assert "'local' is no longer configured" in told(configured=False).text


def test_what_a_user_has_to_start_is_told_with_its_command() -> None:
    place = FakeContainer(supports=Supports(start=False, restart=False, stop=False))

    assert told(place, properties={"command": "headrace worker --launch 2"}).text == (
        "its container 'local' leaves starting to you; nobody else starts it: "
        "headrace worker --launch 2"
    )


@pytest.mark.req("R2")
def test_with_the_default_setting_nothing_comes_and_the_way_out_is_told() -> None:
    said = told(setting=AutoRestart(), launched_at_ms=NOW - 60 * MINUTE)

    assert said.text.startswith("nothing: auto-restart is off. `headrace worker release r1`")
    assert said.at_ms is None


def test_workers_are_told_of_as_they_are() -> None:
    drains = replace(WORKER, drain_since_ms=NOW - MINUTE)

    assert told(worker=WORKER).text == "works"
    assert told(worker=drains).text.startswith(
        "takes nothing new, and stays until it is released, unless `headrace worker resume"
    )
    assert told(worker=drains, wanted_released=True).text == (
        "stopped when it holds nothing any more, at the latest in 14 min"
    )
    assert "started it by hand" in worker_forecast(replace(WORKER, resource_id=None)).text
    assert "has to end it" in worker_forecast(replace(drains, resource_id=None)).text


def group_told(
    capacity: Capacity | None = None,
    keeping: Keeping | None = None,
    *,
    supports: Supports | None = Supports(),  # noqa: B008 - it is frozen
    **changed: Any,
) -> Forecast:
    group = replace(EMPTY, keeping=keeping or Keeping(), **changed)
    setting = KeepSetting()
    found = capacity or Capacity()
    return group_forecast(group, found, setting, resources=2, supports=supports, now_ms=NOW)


@pytest.mark.req("R5")
@pytest.mark.parametrize(
    ("capacity", "keeping", "said"),
    [
        (Capacity(registered=8), None, "nothing: its floor of 8 is kept"),
        (Capacity(registered=4), None, "asks for 4 threads now (request 1 of 3)"),
        (
            Capacity(registered=4),
            Keeping(1, NOW + 2 * MINUTE),
            "asks for 4 threads in 2 min (request 2 of 3)",
        ),
        (
            Capacity(registered=2, restarting=2),
            Keeping(1, NOW + 2 * MINUTE),
            "asks for 4 threads in 2 min (request 2 of 3)",
        ),
        (
            Capacity(booting=4, restarting=4),
            Keeping(1, NOW + 2 * MINUTE),
            "waits for 8 threads, booting or being started again",
        ),
        (
            Capacity(registered=2),
            Keeping(3, NOW + MINUTE),
            "gives up its floor of 8 in 1 min, after 3 requests",
        ),
        (
            Capacity(registered=2),
            Keeping(3, NOW + 40 * MINUTE, 2, "no room"),
            "the floor of 8 was given up: 2 work; tried again in 40 min",
        ),
        (
            Capacity(registered=2),
            Keeping(3, NOW - MINUTE, 2, "no room"),
            "asks for 6 threads now (once more, after 3 requests)",
        ),
    ],
)
def test_what_keeping_does_next_is_told(
    capacity: Capacity, keeping: Keeping | None, said: str
) -> None:
    assert group_told(capacity, keeping).text == said


def test_a_group_that_nobody_can_be_asked_for_says_so() -> None:
    assert "container 'local' is not configured" in group_told(supports=None).text
    by_user = group_told(supports=Supports(start=False))
    assert "leaves starting to you, and 8 threads are missing" in by_user.text
    assert group_told(min_parallelism=0).text.startswith("nothing: no floor is set")
    removed = group_told(wanted_removed=True)
    assert removed.text == "removed once 2 resources of it are released"


@pytest.mark.req("R1", "R2", "R3")
def test_whatever_is_announced_comes_at_its_time(desk: LeaderHarness) -> None:
    """Through a whole orphanhood: what the keeper said it would do, it did, and not before."""
    place = FakeContainer()
    care = GroupHarness(desk, place, max_retries=2)
    care.group()
    care.resource()
    care.look()
    care.register("r1", 1)
    care.look()
    care.die("w-r1-1")
    care.look()
    announced: list[str] = []
    for _ in range(40):
        before = care.read()
        if before is None:
            break
        said = _told_by(care, before)
        announced.append(said.text)
        assert said.at_ms is not None
        left_s = (said.at_ms - desk.clock.wall_ms()) / 1000
        if left_s > 1:
            desk.clock.advance(left_s - 1)
            care.look()
            assert care.there().launch == before.launch, "not before its time"
        desk.clock.advance(1)
        care.look()
        care.look()

    assert care.read() is None
    assert [re.sub(r".*; ", "", each) for each in announced] == [
        f"restart 1 of 2 in {GRACE_S // 60} min",
        f"restart 2 of 2 in {GRACE_S // 60} min",
        f"given up after 2 attempts, unless its worker registers, in {GRACE_S // 60} min",
    ]


def _told_by(care: GroupHarness, resource: Resource) -> Forecast:
    options = GroupOptions(care.setting, care.keep, care.places)
    now_ms = care.desk.clock.wall_ms()
    look = GroupSnapshot(care.read_group(), [resource], [], options, now_ms=now_ms)
    container = look.container_of(resource.container)
    return resource_forecast(
        resource,
        look.state_of(resource),
        care.setting,
        worker=None,
        supports=container.supports if container else None,
        now_ms=now_ms,
    )
