"""A group may give its tables a quota, and other properties that they do not set themselves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.coordinator.groups.commands import GroupChange, GroupCommands, NewGroup
from headrace.errors import BadSetting
from headrace.model.tables.status import TableStatus
from headrace.model.task import TaskKind
from headrace.protocol.tables import Chosen, EvaluatePayload, PlanPayload
from tests.coordinator.groups.group_harness import FakeContainer, GroupHarness
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.table_harness import TableHarness, looked

QUOTA = "self-optimizing.quota"
GROUP = "default"  # tables that nobody asked are in it


@pytest.fixture
def rounds(desk: LeaderHarness) -> TableHarness:
    return TableHarness(desk)


@pytest.fixture
def commands(desk: LeaderHarness) -> GroupCommands:
    return GroupCommands(desk.store, desk.clock, desk.ids, containers={"local": FakeContainer()})


def told(rounds: TableHarness) -> Sequence[dict[str, dict[str, str]]]:
    """What the next evaluations are told of groups."""
    rounds.run(rounds.evaluations)
    return [EvaluatePayload.model_validate(each.payload).groups for each in rounds.given()]


def test_evaluations_are_told_what_groups_give_to_their_tables(
    rounds: TableHarness, commands: GroupCommands
) -> None:
    commands.create(NewGroup("big", "local", properties={QUOTA: "2", "master": "yarn"}))
    commands.create(NewGroup("plain", "local", properties={"master": "yarn"}))
    rounds.lakes.table("t", due_at_ms=0)

    assert told(rounds) == [{"big": {QUOTA: "2"}}]


def test_a_plan_is_told_the_same(rounds: TableHarness, commands: GroupCommands) -> None:
    commands.change(GROUP, GroupChange(properties={"self-optimizing.target-size": "1000"}))
    rounds.lakes.table("t", TableStatus.PENDING, pending_since_ms=0)
    rounds.run(rounds.turns)

    [given] = rounds.given()

    assert given.kind is TaskKind.PLAN
    assert PlanPayload.model_validate(given.payload).groups == {
        GROUP: {"self-optimizing.target-size": "1000"}
    }


def test_a_new_default_has_every_table_of_the_group_looked_at_again(
    rounds: TableHarness, commands: GroupCommands
) -> None:
    mine = rounds.lakes.table("mine", task_id="an-evaluation")
    other = rounds.lakes.table("other", group_name="other")
    rounds.clock.advance(5)
    before = rounds.table(other)

    commands.change(GROUP, GroupChange(properties={"spark-conf.spark.x": "1"}))
    assert rounds.table(mine).task_id == "an-evaluation", "nothing of theirs has changed"
    commands.change(GROUP, GroupChange(properties={QUOTA: "2"}))

    found = rounds.table(mine)
    assert (found.pointer, found.due_at_ms) == (None, rounds.clock.wall_ms())
    assert found.task_id is None, "an evaluation that was told the former one is let go of"
    assert rounds.table(other) == before


@pytest.mark.parametrize("word", ["create", "remove"])
def test_defaults_come_with_their_group_and_go_with_it(
    rounds: TableHarness, commands: GroupCommands, word: str
) -> None:
    named_before = rounds.lakes.table("t", group_name="big")
    commands.create(NewGroup("big", "local", properties={QUOTA: "2"}))
    if word == "remove":
        rounds.evaluate(looked(named_before, chosen=Chosen(group="big")))
        commands.remove("big", force=True)

    assert rounds.table(named_before).pointer is None
    assert told(rounds) == [{"big": {QUOTA: "2"}} if word == "create" else {}]


def test_containers_are_told_nothing_of_what_is_for_tables(
    desk: LeaderHarness, commands: GroupCommands
) -> None:
    place = FakeContainer()
    care = GroupHarness(desk, place)
    commands.create(NewGroup("g", "local", 4, properties={QUOTA: "2", "master": "yarn"}))
    commands.scale("g", 2, key="r1")
    care.look()

    assert len(place.asked) == 2, "for the floor, and for the user"
    assert [dict(launch.properties) for launch in place.asked] == [{"master": "yarn"}] * 2


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({QUOTA: "much"}, "self-optimizing.quota of group 'g' is 'much', expected a number above"),
        ({QUOTA: "0"}, "then 0.5 holds"),
        ({"self-optimizing.quotas": "1"}, "of group 'g' would change nothing.*'self-optimizing.qu"),
        ({"self-optimizing.group": "h"}, "which group a table is in is said by the table"),
    ],
)
def test_a_default_that_makes_no_sense_is_refused(
    commands: GroupCommands, properties: dict[str, str], said: str
) -> None:
    with pytest.raises(BadSetting, match=said):
        commands.create(NewGroup("g", "local", properties=properties))
