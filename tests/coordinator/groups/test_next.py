"""What comes next is told in a sentence, from the facts that decide (R1 to R7)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from headrace.containers.launching import Supports
from headrace.coordinator.groups.look import NOT_NEEDED, Look
from headrace.coordinator.groups.next import Next, of_group, of_resource, of_worker
from headrace.coordinator.options import GroupOptions
from headrace.model.groups.capacity import Capacity, Keeping, KeepSetting
from headrace.model.groups.orphans import AutoRestart
from headrace.model.groups.resource import LaunchStep
from headrace.store.groups import Group
from headrace.store.resources import Resource
from headrace.store.workers import Worker
from tests.coordinator.desk import Desk
from tests.coordinator.groups.stand import GRACE_S, GROUP, Care, Place

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
    error=None,
)
WORKER = Worker("w1", GROUP, 4, 1, "0", "host", 1, "app", NOW, NOW, "r1", 2)
EMPTY = Group(GROUP, "local", 8, 0, None, {}, NOW, wanted_removed=False, keeping=Keeping())


def told(
    place: Place | None = None,
    *,
    worker: Worker | None = None,
    setting: AutoRestart = ON,
    configured: bool = True,
    of: Group = EMPTY,
    **changed: Any,
) -> Next:
    resource = replace(RESOURCE, **changed)
    here = place or Place()
    places = {here.name: here} if configured else {}
    options = GroupOptions(setting, KeepSetting(), places)
    workers = [worker] if worker else []
    look = Look(of, [resource], workers, options, now_ms=NOW)
    container = look.container_of(resource.container)
    return of_resource(
        resource,
        look.known(resource),
        setting,
        worker=worker,
        supports=container.supports if container else None,
        now_ms=NOW,
    )


@pytest.mark.req("R2")
def test_the_next_restart_is_told_with_its_number_and_its_time() -> None:
    said = told(error="exit code 137, Killed")

    assert said == Next("restart 2 of 5 in 3 min 10 s", NOW + 190_000, "exit code 137, Killed")


def test_a_launch_that_may_still_register_is_told_to_boot() -> None:
    assert told().said == "launch 2 boots; restart 2 of 5 in 3 min 10 s"


@pytest.mark.req("R3")
def test_the_end_of_all_attempts_is_told_before_it_comes() -> None:
    said = told(attempts=5, error="exit code 1")

    assert said.said == "given up after 5 attempts, unless its worker registers, in 3 min 10 s"


@pytest.mark.req("R3")
def test_what_is_given_up_says_why() -> None:
    why = "gave up after 5 attempts: exit code 137, Killed"

    assert told(wanted_released=True, told=why).said == (
        f"{why}; container 'local' stops it, then its record goes"
    )


def test_a_start_that_is_under_way_is_told_as_such() -> None:
    first = told(step=LaunchStep.INTENDED, attempts=0, launch=1)
    again = told(step=LaunchStep.INTENDED)

    assert first.said == "container 'local' is asked to start it now"
    assert again.said == "restart 1 of 5 now: container 'local' is asked to start it"
    heals = Place(supports=Supports(restart=False))
    refused = told(heals, step=LaunchStep.INTENDED, attempts=0, error="no room")
    assert refused.said == "container 'local' is asked to start it again in a moment"
    by_user = Place(supports=Supports(start=False, restart=False))
    assert "`headrace group show g` has the command" in told(by_user, step=LaunchStep.INTENDED).said


@pytest.mark.req("R5")
def test_what_the_floor_needs_no_more_is_told_to_go() -> None:
    covered = replace(EMPTY, min_parallelism=0)
    waits = told(of=covered, made_for="floor")
    due = told(of=covered, made_for="floor", launched_at_ms=NOW - 60 * MINUTE, error="exit code 1")
    last = told(of=covered, made_for="floor", attempts=5, error="exit code 1")

    assert waits.said == (
        f"launch 2 boots; released in 3 min 10 s, unless its worker registers: {NOT_NEEDED}"
    )
    assert (waits.at_ms, due.at_ms) == (NOW + 190_000, NOW)
    assert due.said == f"released now: {NOT_NEEDED}"
    assert "given up after 5 attempts" in last.said
    assert "restart 2 of 5" in told(made_for="floor").said, "the floor is not kept without it"
    assert "restart 2 of 5" in told(of=covered).said, "a user asked for it"


@pytest.mark.req("R6")
def test_a_container_that_heals_itself_is_left_to_it() -> None:
    said = told(Place(supports=Supports(restart=False)))

    assert said.said.startswith("its container 'local' does not have it started again by us")
    assert said.at_ms is None


@pytest.mark.req("R7")
def test_a_container_that_is_gone_is_named() -> None:
    assert "'local' is no longer configured" in told(configured=False).said


def test_what_a_user_has_to_start_is_told_with_its_command() -> None:
    place = Place(supports=Supports(start=False, restart=False, stop=False))

    assert told(place, properties={"command": "headrace worker --launch 2"}).said == (
        "its container 'local' leaves starting to you; nobody else starts it: "
        "headrace worker --launch 2"
    )


@pytest.mark.req("R2")
def test_with_the_default_setting_nothing_comes_and_the_way_out_is_told() -> None:
    said = told(setting=AutoRestart(), launched_at_ms=NOW - 60 * MINUTE)

    assert said.said.startswith("nothing: auto-restart is off. `headrace worker release r1`")
    assert said.at_ms is None


def test_workers_are_told_of_as_they_are() -> None:
    drains = replace(WORKER, drain_since_ms=NOW - MINUTE)

    assert told(worker=WORKER).said == "works"
    assert told(worker=drains).said.startswith(
        "takes nothing new, and stays until it is released, unless `headrace worker resume"
    )
    assert told(worker=drains, wanted_released=True).said == (
        "stopped when it holds nothing any more, at the latest in 14 min"
    )
    assert "started it by hand" in of_worker(replace(WORKER, resource_id=None)).said
    assert "has to end it" in of_worker(replace(drains, resource_id=None)).said


def group_told(
    capacity: Capacity | None = None,
    keeping: Keeping | None = None,
    *,
    supports: Supports | None = Supports(),  # noqa: B008 - it is frozen
    **changed: Any,
) -> Next:
    group = replace(EMPTY, keeping=keeping or Keeping(), **changed)
    setting = KeepSetting()
    found = capacity or Capacity()
    return of_group(group, found, setting, resources=2, supports=supports, now_ms=NOW)


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
    assert group_told(capacity, keeping).said == said


def test_a_group_that_nobody_can_be_asked_for_says_so() -> None:
    assert "container 'local' is not configured" in group_told(supports=None).said
    by_user = group_told(supports=Supports(start=False))
    assert "leaves starting to you, and 8 threads are missing" in by_user.said
    assert group_told(min_parallelism=0).said.startswith("nothing: no floor is set")
    removed = group_told(wanted_removed=True)
    assert removed.said == "removed once 2 resources of it are released"


@pytest.mark.req("R1", "R2", "R3")
def test_whatever_is_announced_comes_at_its_time(desk: Desk) -> None:
    """Through a whole orphanhood: what the keeper said it would do, it did, and not before."""
    place = Place()
    care = Care(desk, place, max_retries=2)
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
        announced.append(said.said)
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


def _told_by(care: Care, resource: Resource) -> Next:
    options = GroupOptions(care.setting, care.keep, care.places)
    now_ms = care.desk.clock.wall_ms()
    look = Look(care.read_group(), [resource], [], options, now_ms=now_ms)
    container = look.container_of(resource.container)
    return of_resource(
        resource,
        look.known(resource),
        care.setting,
        worker=None,
        supports=container.supports if container else None,
        now_ms=now_ms,
    )
