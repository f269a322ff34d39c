"""A group without workers holds nothing that was given to another group."""

from __future__ import annotations

import pytest

from headrace.coordinator.tables.catalog_commands import CatalogChange
from headrace.coordinator.tables.commands import TableCommands
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.store.core.engine import writing
from headrace.store.tables import processes
from headrace.store.tasks import workers
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.process_harness import WORKER, ProcessHarness
from tests.coordinator.tables.table_harness import TableHarness, looked
from tests.stores import given_table

T, S = TableStatus, TaskStatus
OTHER = "w-other"


def no_worker(desk: LeaderHarness, name: str) -> None:
    """It goes, and holds nothing."""
    with writing(desk.store) as conn:
        workers.unregister(conn, name)


def move(bench: ProcessHarness) -> None:
    """The table has another group, and that has a worker."""
    no_worker(bench.desk, WORKER)
    bench.desk.register(OTHER, group="other", control_slots=4)
    with writing(bench.desk.store) as conn:
        given_table(conn, bench.table, group_name="other")


def test_a_catalog_is_looked_into_by_its_new_group(desk: LeaderHarness) -> None:
    rounds = TableHarness(desk, worker=None)
    rounds.run(rounds.catalogs)
    desk.register("w9", group="other", control_slots=4)
    commands = TableCommands(desk.store, desk.clock, desk.ids)

    commands.catalogs.change("headrace", CatalogChange(group="other"))
    for _ in range(2):
        rounds.run(rounds.catalogs)

    [given] = rounds.given("w9")
    assert given.kind is TaskKind.DISCOVER
    assert rounds.catalog().failures == 0


def test_tables_are_evaluated_by_the_new_group_of_their_catalog(desk: LeaderHarness) -> None:
    rounds = TableHarness(desk)
    table = rounds.lakes.table("t", due_at_ms=0)
    rounds.run(rounds.evaluations)
    no_worker(desk, "w1")
    desk.register("w9", group="other", control_slots=4)
    commands = TableCommands(desk.store, desk.clock, desk.ids)
    commands.catalogs.change("headrace", CatalogChange(group="other"))

    for _ in range(3):
        desk.clock.advance(61)
        rounds.run(rounds.evaluations)

    [given] = rounds.given("w9")
    assert given.kind is TaskKind.EVALUATE
    assert rounds.table(table).failures == 0


def test_a_table_is_planned_by_its_new_group(bench: ProcessHarness) -> None:
    bench.begin()
    before = bench.status().task_id or ""
    move(bench)

    bench.look()

    table = bench.status()
    assert (table.status, table.task_id, table.failures) == (T.PENDING, None, 0)
    assert bench.desk.task(before).status is S.CANCELED
    assert bench.lakes.pending(bench.table) is not None


def test_a_plan_that_somebody_makes_is_waited_for(bench: ProcessHarness) -> None:
    bench.begin()
    bench.take_one(TaskKind.PLAN)
    with writing(bench.desk.store) as conn:
        given_table(conn, bench.table, group_name="other")

    bench.look()

    assert bench.status().status is T.PLANNING


@pytest.mark.req("T1")
@pytest.mark.parametrize("settling", [False, True])
def test_a_commit_is_made_by_the_new_group(bench: ProcessHarness, settling: bool) -> None:  # noqa: FBT001
    process = bench.plan()
    bench.rewrite()
    assert bench.status().status is T.COMMITTING
    if settling:
        bench.restart()
    move(bench)

    bench.look()

    answer = bench.desk.sync(OTHER)
    [given] = answer.assignments
    assert given.kind is TaskKind.COMMIT
    commits = [t for t in bench.lakes.tasks_of(process).values() if t.kind is TaskKind.COMMIT]
    assert sorted(task.status for task in commits) == [S.CANCELED, S.SCHEDULED]
    assert bench.lakes.read_process(process).status is ProcessStatus.RUNNING


def test_what_a_process_staged_is_deleted_by_the_new_group(bench: ProcessHarness) -> None:
    process = bench.plan()
    bench.take()
    with writing(bench.desk.store) as conn:
        processes.want_cancel(conn, process)
    bench.look()
    bench.desk.clock.advance(11)
    bench.discard()
    bench.held.clear()
    move(bench)

    bench.desk.clock.advance(31)
    bench.discard()

    [given] = bench.desk.sync(OTHER).assignments
    assert given.kind is TaskKind.DISCARD


def test_a_table_that_stays_is_not_moved(desk: LeaderHarness) -> None:
    rounds = TableHarness(desk)
    table = rounds.lakes.table("t", due_at_ms=0)

    rounds.evaluate(looked(table))

    assert rounds.table(table).evaluated_at_ms == desk.clock.wall_ms()
