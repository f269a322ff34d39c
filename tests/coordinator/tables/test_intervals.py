"""How often tables and catalogs are looked at is told to a coordinator at its start."""

from __future__ import annotations

import pytest

from headrace.cli.serve_options import coordinator_options
from headrace.coordinator.context import TableOptions
from headrace.coordinator.tables.catalogs import CatalogReconciler
from headrace.coordinator.tables.evaluation import EvaluationScheduler
from headrace.model.jobs.status import ScheduleStrategy
from headrace.model.tables.status import TableStatus
from headrace.model.task import TaskKind
from headrace.protocol.tables import Discovered
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.lake_rows import a_plan
from tests.coordinator.tables.table_harness import TableHarness, looked, unchanged

SECOND_MS = 1000


@pytest.fixture
def rounds(desk: LeaderHarness) -> TableHarness:
    return TableHarness(desk)


def test_a_table_is_looked_at_again_after_the_interval_of_the_leader(
    desk: LeaderHarness, rounds: TableHarness
) -> None:
    rounds.evaluations = EvaluationScheduler(desk.clock, desk.ids, refresh_ms=5 * SECOND_MS)
    table = rounds.lakes.table("t", due_at_ms=0)

    for told in (looked(table), unchanged(table)):
        rounds.evaluate(told)
        assert rounds.table(table).due_at_ms == rounds.clock.wall_ms() + 5 * SECOND_MS
        rounds.advance(5)


def test_a_rule_by_time_is_not_looked_for_more_often_than_that(
    desk: LeaderHarness, rounds: TableHarness
) -> None:
    rounds.evaluations = EvaluationScheduler(desk.clock, desk.ids, refresh_ms=5 * SECOND_MS)
    table = rounds.lakes.table("t", due_at_ms=0)

    rounds.evaluate(looked(table, look_at_ms=rounds.clock.wall_ms()))

    assert rounds.table(table).due_at_ms == rounds.clock.wall_ms() + 5 * SECOND_MS


def test_a_plan_that_gains_nothing_does_not_delay_the_next_look(rounds: TableHarness) -> None:
    """A look is under way when the table is planned, and counts for nothing."""
    table = rounds.lakes.table(
        "t", TableStatus.PENDING, due_at_ms=0, interval_ms=5 * SECOND_MS, pending_since_ms=1
    )
    rounds.run(rounds.evaluations)
    rounds.run(rounds.turns)
    [given] = [each for each in rounds.given() if each.kind is TaskKind.PLAN]

    rounds.succeed(given, a_plan(0, type=None))

    found = rounds.table(table)
    assert (found.status, found.task_id) == (TableStatus.IDLE, None)
    assert found.due_at_ms == rounds.clock.wall_ms() + 5 * SECOND_MS


def test_a_catalog_is_looked_into_again_after_the_interval_of_the_leader(
    desk: LeaderHarness, rounds: TableHarness
) -> None:
    rounds.catalogs = CatalogReconciler(desk.clock, desk.ids, discover_ms=7 * SECOND_MS)
    rounds.run(rounds.catalogs)
    [given] = [each for each in rounds.given() if each.kind is TaskKind.DISCOVER]

    rounds.succeed(given, Discovered(tables={}))
    rounds.run(rounds.catalogs)

    assert rounds.catalog().due_at_ms == rounds.clock.wall_ms() + 7 * SECOND_MS


def test_the_command_line_tells_both_intervals_in_seconds() -> None:
    options = coordinator_options(
        "sqlite://",
        ttl_s=3.0,
        heartbeat_timeout_s=60.0,
        stall_timeout_s=600.0,
        schedule=ScheduleStrategy.WAIT,
        refresh_tables_s=1.5,
        refresh_catalogs_s=2.0,
    )

    assert options.tables == TableOptions(refresh_ms=1500, discover_ms=2000)
