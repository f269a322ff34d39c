"""What people ask for while a table is being planned is neither lost nor done all the same."""

from __future__ import annotations

import pytest

from headrace.coordinator.context import run_once
from headrace.coordinator.tables.commands import TableCommands
from headrace.coordinator.tables.plan_scheduler import PlanScheduler
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.model.tables.status import OptimizingType, TableStatus
from headrace.model.task import TaskKind
from tests.coordinator.tables.lake_rows import a_plan
from tests.coordinator.tables.process_harness import ProcessHarness

T, Kind = TableStatus, OptimizingType
NAME = "headrace.db.t"


@pytest.fixture
def commands(bench: ProcessHarness) -> TableCommands:
    return TableCommands(bench.desk.store, bench.desk.clock, bench.desk.ids)


def take_turns(bench: ProcessHarness) -> None:
    loop = PlanScheduler(bench.desk.clock, bench.desk.ids, policy=SchedulingPolicy.QUOTA)
    run_once(bench.desk.store, bench.desk.term, loop, loop.keys(bench.desk.store))


def test_what_is_asked_for_while_a_table_is_planned_is_done_after_it(
    bench: ProcessHarness, commands: TableCommands
) -> None:
    bench.begin()
    given = bench.take_one(TaskKind.PLAN)
    assert commands.optimize(NAME, Kind.FULL).changed
    bench.end(given, a_plan().model_dump(mode="json"))
    assert bench.status().status is T.MINOR_OPTIMIZING
    assert bench.status().wanted_type is Kind.FULL
    bench.grant(bench.status().process_id or "")
    bench.rewrite()
    bench.commit()

    take_turns(bench)

    assert bench.status().status is T.PLANNING
    assert bench.take_one(TaskKind.PLAN).payload["at_least"] == "FULL"


def test_a_plan_of_nothing_does_not_answer_who_asked_for_more(
    bench: ProcessHarness, commands: TableCommands
) -> None:
    bench.begin()
    given = bench.take_one(TaskKind.PLAN)
    commands.optimize(NAME, Kind.FULL)

    bench.end(given, {"uuid": "u-1", "reason": "no partition needs it by any rule"})

    assert (bench.status().status, bench.status().wanted_type) == (T.IDLE, Kind.FULL)


def test_a_wish_that_was_planned_for_is_granted(
    bench: ProcessHarness, commands: TableCommands
) -> None:
    commands.optimize(NAME, Kind.FULL)
    take_turns(bench)

    bench.end(bench.take_one(TaskKind.PLAN), a_plan(type="MAJOR").model_dump(mode="json"))

    assert (bench.status().status, bench.status().wanted_type) == (T.MAJOR_OPTIMIZING, None)


def test_what_is_canceled_while_it_is_planned_is_not_done(
    bench: ProcessHarness, commands: TableCommands
) -> None:
    commands.optimize(NAME, Kind.FULL)
    take_turns(bench)
    given = bench.take_one(TaskKind.PLAN)

    assert commands.cancel(NAME).changed
    bench.end(given, a_plan(type="FULL").model_dump(mode="json"))

    table = bench.status()
    assert (table.status, table.process_id, table.task_id) == (T.IDLE, None, None)
    assert table.due_at_ms <= bench.desk.clock.wall_ms()
    assert table.pointer is None
