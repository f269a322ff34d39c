"""What people ask about groups: what is wanted is written, the rest is refused with a way out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.coordinator.groups.commands import GroupChange, GroupCommands, NewGroup
from headrace.errors import BadSetting, LaunchOver, NotFound, Refused
from headrace.model.groups import Keeping
from headrace.model.jobs.status import JobStatus
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.store.core.engine import writing
from headrace.store.groups import groups
from headrace.store.tasks import workers
from tests.coordinator.groups.group_harness import GRACE_S, GROUP, FakeContainer, GroupHarness
from tests.coordinator.leader_harness import LeaderHarness
from tests.stores import given_group

NEW = NewGroup(GROUP, "local", 8, 2048, "balanced", {"spark-conf.spark.x": "1"})


@pytest.fixture
def place() -> FakeContainer:
    return FakeContainer()


@pytest.fixture
def care(desk: LeaderHarness, place: FakeContainer) -> GroupHarness:
    return GroupHarness(desk, place)


@pytest.fixture
def commands(desk: LeaderHarness) -> GroupCommands:
    places = {name: FakeContainer(name) for name in ("local", "k8s")}
    return GroupCommands(desk.store, desk.clock, desk.ids, containers=places)


def test_a_group_is_made_as_it_was_asked_for_once(commands: GroupCommands) -> None:
    made = commands.create(NEW)

    assert commands.create(NEW) == made
    assert (made.container, made.min_parallelism, made.memory_mb) == ("local", 8, 2048)
    assert made.policy is SchedulingPolicy.BALANCED
    assert made.properties == {"spark-conf.spark.x": "1"}


def test_another_group_of_the_same_name_is_refused(commands: GroupCommands) -> None:
    commands.create(NEW)

    with pytest.raises(Refused, match=r"there is a group 'g' already.*`headrace group set g`"):
        commands.create(replace(NEW, min_parallelism=4))


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (NewGroup("a b"), "group 'a b' can't be used"),
        (NewGroup("g", "locale"), "did you mean 'local'"),
        (NewGroup("g", min_parallelism=-1), "min-parallelism of group 'g' can be 0 to"),
        (NewGroup("g", memory_mb=-1), "memory of group 'g'"),
        (NewGroup("g", policy="fair"), "scheduling policy 'fair' of group 'g' does not exist"),
        (NewGroup("g", properties={"export.DB_PASSWORD": "x"}), "sounds secret"),
        (NewGroup("g", properties={"": "x"}), "can't be used"),
        (NewGroup("g", "local", properties={"unknown": "x"}), "container 'local': unknown"),
    ],
)
def test_what_can_not_be_had_is_refused(commands: GroupCommands, new: NewGroup, said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        commands.create(new)


def test_a_change_changes_what_is_given_and_nothing_else(commands: GroupCommands) -> None:
    before = commands.create(NEW)

    after = commands.change(
        GROUP,
        GroupChange(min_parallelism=4, properties={"spark-conf.spark.x": None, "master": "yarn"}),
    )

    assert after == replace(before, min_parallelism=4, properties={"master": "yarn"})
    assert commands.change(GROUP, GroupChange(policy="")).policy is None


@pytest.mark.req("R5")
def test_a_floor_that_was_given_up_is_tried_again_when_a_person_changes_it(
    care: GroupHarness, commands: GroupCommands
) -> None:
    commands.create(NEW)
    lowered = Keeping(3, care.desk.clock.wall_ms() + 3_600_000, 2, "no room")
    with writing(care.store) as conn:
        groups.note_keeping(conn, GROUP, lowered)
    assert commands.change(GROUP, GroupChange(min_parallelism=8)).keeping == lowered, (
        "nothing changed"
    )

    commands.change(GROUP, GroupChange(min_parallelism=6))
    care.look()

    assert [each.threads for each in care.all()] == [6]
    assert care.read_group().keeping.effective is None


def test_a_group_whose_container_is_gone_can_still_be_changed(desk: LeaderHarness) -> None:
    GroupCommands(desk.store, desk.clock, desk.ids, containers={"local": FakeContainer()}).create(
        NEW
    )
    later = GroupCommands(desk.store, desk.clock, desk.ids)

    assert later.change(GROUP, GroupChange(min_parallelism=0)).min_parallelism == 0
    with pytest.raises(BadSetting, match="container 'local' of group 'g' is not configured"):
        later.scale(GROUP, 2)


def test_what_its_container_does_not_know_is_refused_and_nothing_is_written(
    commands: GroupCommands,
) -> None:
    before = commands.create(NEW)

    with pytest.raises(BadSetting, match="group 'g': container 'local': unknown property"):
        commands.change(GROUP, GroupChange(min_parallelism=1, properties={"unknown": "x"}))

    assert commands.change(GROUP, GroupChange()) == before


def test_a_property_that_a_container_knew_once_is_no_reason_to_refuse_another_change(
    desk: LeaderHarness, commands: GroupCommands
) -> None:
    commands.create(NEW)
    with writing(desk.store) as conn:
        given_group(conn, GROUP, properties={"unknown": "x"})

    assert commands.change(GROUP, GroupChange(min_parallelism=1)).min_parallelism == 1
    assert commands.change(GROUP, GroupChange(properties={"unknown": None})).properties == {}


def test_a_further_resource_is_asked_for_once_for_each_key(
    care: GroupHarness, place: FakeContainer, commands: GroupCommands
) -> None:
    commands.create(replace(NEW, min_parallelism=0))

    made = commands.scale(GROUP, 3, key="k1")
    assert commands.scale(GROUP, 3, key="k1") == made
    care.look()

    assert (made.threads, made.memory_mb, made.made_for) == (3, 2048, "user")
    assert made.properties == NEW.properties
    assert place.started == [("k1", 1)]
    with pytest.raises(BadSetting, match="resource id 'k1' is taken"):
        commands.scale(GROUP, 4, key="k1")
    with pytest.raises(BadSetting, match="can be 1 to 1000, and not 0"):
        commands.scale(GROUP, 0)


def test_a_group_that_is_used_is_deleted_by_force_only(
    care: GroupHarness, desk: LeaderHarness, commands: GroupCommands
) -> None:
    commands.create(NEW)
    desk.submit(job_id="mine", group=GROUP)
    desk.register("by-hand", group=GROUP)

    with pytest.raises(Refused, match=r"used by 1 job \(mine\), 1 worker that you started.*--forc"):
        commands.remove(GROUP)
    assert commands.remove(GROUP, force=True).wanted_removed
    with pytest.raises(Refused, match="is being removed"):
        commands.scale(GROUP, 1)
    with pytest.raises(Refused, match="is being removed"):
        commands.create(NEW)
    care.look()

    with pytest.raises(NotFound, match="there is no group 'g'"):
        commands.change(GROUP, GroupChange())


def test_a_released_resource_drains_its_worker_and_is_stopped(
    care: GroupHarness, place: FakeContainer, commands: GroupCommands
) -> None:
    commands.create(replace(NEW, min_parallelism=0))
    commands.scale(GROUP, 4, key="r1")
    care.look()
    care.register("r1", 1)

    commands.release("w-r1-1")
    commands.release("r1")
    care.look()

    assert place.stopped == [("r1", 1)]
    assert care.read() is None
    with pytest.raises(LaunchOver, match="which is released"):
        care.register("r1", 1)


def test_a_worker_without_a_resource_can_only_be_drained(
    desk: LeaderHarness, commands: GroupCommands
) -> None:
    desk.register("by-hand")

    with pytest.raises(Refused, match="`headrace worker drain by-hand` gives it nothing more"):
        commands.release("by-hand")
    assert commands.drain("by-hand").changed
    again = commands.drain("by-hand")
    assert not again.changed
    assert again.worker.drain_since_ms == desk.clock.wall_ms()
    with pytest.raises(NotFound, match="`headrace worker list`"):
        commands.drain("nobody")


def test_a_draining_worker_is_given_nothing(desk: LeaderHarness, commands: GroupCommands) -> None:
    desk.register("w1")
    commands.drain("w1")
    desk.plan_noops(1)

    assert desk.sync("w1").assignments == ()


def test_a_drain_can_be_taken_back_as_long_as_the_worker_is_there(
    desk: LeaderHarness, commands: GroupCommands
) -> None:
    desk.register("w1")
    commands.drain("w1")
    desk.plan_noops(1)
    assert desk.sync("w1").assignments == ()

    resumed = commands.resume("w1")

    assert (resumed.changed, resumed.worker.drain_since_ms) == (True, 0)
    assert len(desk.sync("w1").assignments) == 1
    assert not commands.resume("w1").changed
    with writing(desk.store) as conn:
        workers.unregister(conn, "w1")
    with pytest.raises(NotFound, match="one that died or said goodbye is not"):
        commands.resume("w1")


def test_a_worker_that_is_released_is_not_taken_back(
    care: GroupHarness, commands: GroupCommands
) -> None:
    commands.create(replace(NEW, min_parallelism=0))
    commands.scale(GROUP, 4, key="r1")
    care.look()
    care.register("r1", 1)
    commands.release("r1")

    with pytest.raises(Refused, match=r"r1 is being released.*group scale g --threads 4"):
        commands.resume("w-r1-1")


def test_no_job_is_let_in_to_slots_of_a_draining_worker(
    desk: LeaderHarness, commands: GroupCommands
) -> None:
    desk.register("w1")
    commands.drain("w1")
    job = desk.submit()
    desk.passes()
    assert desk.status(job) is JobStatus.PENDING

    desk.register("w2")
    desk.passes()

    assert len(desk.sync("w2").assignments) == 1


@pytest.mark.req("R3")
def test_why_a_resource_was_given_up_can_be_asked_after_its_record_has_gone(
    desk: LeaderHarness, place: FakeContainer, commands: GroupCommands
) -> None:
    care = GroupHarness(desk, place, max_retries=1)
    commands.create(replace(NEW, min_parallelism=0))
    commands.scale(GROUP, 4, key="r1")
    care.look()
    care.looks(seconds=GRACE_S * 3, step_s=30)
    assert care.read() is None

    with pytest.raises(NotFound, match=r"given up at .*, after 1 attempt: exit code 137, Killed"):
        commands.release("r1")
