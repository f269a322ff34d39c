"""Tables are looked at in their time, and what is found stays with each of them."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection

from headrace.coordinator.tables.evaluation import EVALUATIONS_PER_CONTROL_SLOT, LOOK_AGAIN_MS
from headrace.model.tables.status import TableStatus
from headrace.model.task import TaskKind
from headrace.protocol.tables import TABLES_PER_EVALUATION_MAX, EvaluatedTable, EvaluationResult
from headrace.store.core.engine import writing
from headrace.store.tables import catalogs, table_changes, table_tasks
from headrace.store.tables.catalogs import NewCatalog
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tasks import tasks
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.table_harness import (
    CONTROL_SLOTS,
    MINUTE_S,
    TableHarness,
    looked,
    pending,
)
from tests.stores import given_catalog

IDLE, PENDING = TableStatus.IDLE, TableStatus.PENDING


@pytest.fixture
def rounds(desk: LeaderHarness) -> TableHarness:
    return TableHarness(desk)


def due(rounds: TableHarness, name: str = "t", status: TableStatus = IDLE, **values: Any) -> str:
    return rounds.lakes.table(name, status, due_at_ms=0, **values)


def open_evaluations(rounds: TableHarness) -> list[list[str]]:
    found = rounds.tasks(TaskKind.EVALUATE)
    return [each["payload"]["tables"] for each in found if each["ended_at_ms"] is None]


@pytest.mark.req("T2")
def test_a_look_from_before_a_table_was_planned_does_not_count(rounds: TableHarness) -> None:
    table = due(rounds, status=PENDING, pending={"files": 9}, pending_since_ms=1)
    rounds.run(rounds.evaluations)
    [given] = rounds.given()
    rounds.run(rounds.turns)
    assert rounds.status(table) is TableStatus.PLANNING

    rounds.succeed(given, EvaluationResult(tables=(looked(table),)))

    found = rounds.table(table)
    assert (found.status, found.pointer) == (TableStatus.PLANNING, "v1.json")
    assert rounds.lakes.pending(table) == {"files": 9}


def test_tables_are_evaluated_in_batches_as_many_as_the_workers_can_take(
    rounds: TableHarness,
) -> None:
    for n in range(TABLES_PER_EVALUATION_MAX + 1):
        due(rounds, f"t{n:03}")

    rounds.run(rounds.evaluations)
    assert sorted(map(len, open_evaluations(rounds))) == [1, TABLES_PER_EVALUATION_MAX]
    assert not rounds.run(rounds.evaluations).done  # each table is in one

    most = EVALUATIONS_PER_CONTROL_SLOT * CONTROL_SLOTS
    for n in range(most):
        due(rounds, f"failing{n}", failures=1)
    rounds.run(rounds.evaluations)
    assert len(open_evaluations(rounds)) == most


def test_without_a_worker_that_reaches_the_catalog_nothing_is_evaluated(
    desk: LeaderHarness,
) -> None:
    rounds = TableHarness(desk, worker=None)
    due(rounds)
    desk.register("w2", group="elsewhere")

    assert not rounds.run(rounds.evaluations).done
    desk.register("w1")
    assert rounds.run(rounds.evaluations).done == ["headrace"]


def test_the_longest_due_catalog_goes_first(rounds: TableHarness) -> None:
    with writing(rounds.desk.store) as conn:
        for name in ("b", "a"):
            catalogs.add(conn, NewCatalog(name, "rest", {}, "default"), now_ms=1)
    rounds.lakes.table("x", catalog="b", due_at_ms=1, identifier="b.db.x")
    rounds.lakes.table("y", catalog="a", due_at_ms=2, identifier="a.db.y")

    assert rounds.evaluations.keys(rounds.desk.store) == ["b", "a"]


@pytest.mark.parametrize("lost", ["FAILED", "CANCELED", "vanished"])
def test_a_lost_evaluation_frees_its_tables(rounds: TableHarness, lost: str) -> None:
    one, other = due(rounds, "a"), due(rounds, "b")
    rounds.run(rounds.evaluations)
    [given] = rounds.given()
    if lost == "FAILED":
        rounds.fail(given, "out of memory")
    else:
        with writing(rounds.desk.store) as conn:
            if lost == "CANCELED":
                table_tasks.cancel(conn, [given.claim.task], because="x", now_ms=1)
            else:
                tasks.delete(conn, given.claim.task)
    rounds.advance(LOOK_AGAIN_MS / 1000)
    rounds.run(rounds.evaluations)

    blamed = 1 if lost == "FAILED" else 0
    for table in (one, other):
        found = rounds.table(table)
        assert (found.task_id, found.failures) == (None, blamed)
        assert found.due_at_ms == rounds.clock.wall_ms() + 60_000
    rounds.advance(MINUTE_S)
    rounds.run(rounds.evaluations)
    alone = [[one], [other]] if blamed else [[one, other]]
    assert sorted(open_evaluations(rounds)) == alone


def test_an_evaluation_that_takes_long_is_left_alone(rounds: TableHarness) -> None:
    table = due(rounds)
    rounds.run(rounds.evaluations)
    [given] = rounds.given()
    for _ in range(3):
        rounds.clock.advance(LOOK_AGAIN_MS / 1000)
        rounds.desk.sync("w1", holds=[given.claim], free={})
        rounds.run(rounds.evaluations)

    assert len(rounds.tasks(TaskKind.EVALUATE)) == 1
    rounds.succeed(given, EvaluationResult(tables=(looked(table, pending=pending()),)))
    assert rounds.status(table) is PENDING


def test_a_table_that_fails_is_told_so_and_looked_at_later_and_later(rounds: TableHarness) -> None:
    table = due(rounds)
    waits: list[int] = []
    for _ in range(3):
        rounds.evaluate(EvaluatedTable(id=table, error="metadata v7.json is corrupt"))
        waits.append(rounds.table(table).due_at_ms - rounds.clock.wall_ms())
        rounds.advance(waits[-1] / 1000)

    assert waits == [60_000, 120_000, 240_000]
    assert rounds.table(table).error == "it can't be evaluated: metadata v7.json is corrupt"
    rounds.evaluate(looked(table))
    assert (rounds.table(table).error, rounds.table(table).failures) == (None, 0)


@pytest.mark.req("T6")
def test_a_table_whose_result_can_not_be_applied_stops_none(
    rounds: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, silent, sound = due(rounds, "a"), due(rounds, "b"), due(rounds, "c")
    really = table_changes.await_turn

    def await_turn(conn: Connection, table: LakeTable, *, now_ms: int) -> bool:
        if table.id == broken:
            raise RuntimeError("the store plays tricks")
        return really(conn, table, now_ms=now_ms)

    monkeypatch.setattr(table_changes, "await_turn", await_turn)
    told = (looked(broken, pending=pending()), looked(sound, pending=pending()))
    rounds.evaluate(*told)

    assert rounds.status(sound) is PENDING
    assert rounds.table(broken).error == (
        "it can't be evaluated: RuntimeError('the store plays tricks')"
    )
    assert rounds.table(silent).error == "it can't be evaluated: its worker said nothing of it"
    assert {rounds.table(each).task_id for each in (broken, silent, sound)} == {None}


def test_a_table_whose_result_can_never_be_applied_is_tried_less_and_less(
    rounds: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = due(rounds, "a")

    def await_turn(*_: object, **__: object) -> bool:
        raise RuntimeError("the store plays tricks")

    monkeypatch.setattr(table_changes, "await_turn", await_turn)
    waits_ms: list[int] = []
    for _ in range(3):
        rounds.evaluate(looked(broken, pending=pending()))
        waits_ms.append(rounds.table(broken).due_at_ms - rounds.desk.clock.wall_ms())
        rounds.desk.clock.advance(waits_ms[-1] / 1000)

    assert rounds.table(broken).failures == 3
    assert waits_ms[0] < waits_ms[1] < waits_ms[2]


def test_a_catalog_that_is_away_is_told_so_and_its_tables_are_only_postponed(
    rounds: TableHarness,
) -> None:
    waiting = due(rounds, "a", PENDING, pending={"files": 1}, pending_since_ms=1)
    resting, before = due(rounds, "b"), due(rounds, "c")
    rounds.run(rounds.evaluations)
    [given] = rounds.given()

    seen = (looked(before, pending=pending()),)
    rounds.succeed(given, EvaluationResult(tables=seen, catalog_error="connection refused"))

    assert rounds.catalog().error == "connection refused"
    assert rounds.status(before) is PENDING  # it was looked at before the catalog went away
    for table, status in ((waiting, PENDING), (resting, IDLE)):
        found = rounds.table(table)
        assert (found.status, found.failures, found.error, found.task_id) == (status, 0, None, None)
        assert found.due_at_ms == rounds.clock.wall_ms() + 60_000


def test_a_catalog_that_is_being_removed_is_not_evaluated(rounds: TableHarness) -> None:
    due(rounds)
    with writing(rounds.desk.store) as conn:
        given_catalog(conn, "headrace", wanted_removed=1)

    assert not rounds.run(rounds.evaluations).done


def test_a_table_that_was_dropped_meanwhile_is_not_missed(rounds: TableHarness) -> None:
    gone, there = due(rounds, "a"), due(rounds, "b")
    rounds.run(rounds.evaluations)
    [given] = rounds.given()
    with writing(rounds.desk.store) as conn:
        table_changes.drop(conn, gone)

    rounds.succeed(given, EvaluationResult(tables=(looked(gone), looked(there, pending=pending()))))

    assert rounds.identifiers() == ["headrace.db.b"]
    assert rounds.status(there) is PENDING
