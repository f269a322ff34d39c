"""One that is broken, or huge, stops nobody else (T6)."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from headrace.coordinator.context import Metrics, TableOptions
from headrace.coordinator.tables import evaluation_payload
from headrace.coordinator.tables import processes as running
from headrace.coordinator.tables.catalogs import CatalogReconciler
from headrace.coordinator.tables.controller import TableController
from headrace.coordinator.tables.evaluation import EVALUATE
from headrace.model.tables.status import TableStatus
from headrace.model.task import Lane, TaskKind, TaskStatus
from headrace.protocol.tables import EvaluatePayload, EvaluationResult
from headrace.store.core.engine import writing
from headrace.store.tables.schema import lake_tables
from headrace.store.tables.schema import processes as process_rows
from headrace.store.tasks import tasks as stored_tasks
from headrace.store.tasks.tasks import OfTable
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.process_harness import ProcessHarness
from tests.coordinator.tables.table_harness import TableHarness, looked

T, S = TableStatus, TaskStatus


def one_pass(desk: LeaderHarness) -> None:
    options = TableOptions()
    TableController(desk.store, desk.clock, desk.ids, Metrics(), options).run(desk.term)


def _break(desk: LeaderHarness, rows: Any, row_id: str, **values: Any) -> None:
    with writing(desk.store) as conn:
        conn.execute(update(rows).where(rows.c.id == row_id).values(**values))


@pytest.mark.req("T6")
def test_a_broken_row_of_a_table_that_is_planned_stops_no_other(bench: ProcessHarness) -> None:
    desk = bench.desk
    broken = bench.lakes.table("broken", T.PLANNING, task_id="plan-1")
    bench.lakes.task("plan-1", TaskKind.PLAN, S.ACKED, OfTable(broken))
    _break(desk, lake_tables, broken, namespace=None)

    one_pass(desk)

    assert bench.status().status is T.PLANNING


@pytest.mark.req("T6")
def test_a_broken_row_of_a_process_stops_no_table(bench: ProcessHarness) -> None:
    desk = bench.desk
    other = bench.lakes.table("broken", T.MINOR_OPTIMIZING)
    process = bench.lakes.process(other, rewrites=[S.PLANNED])
    bench.lakes.name_process(other, process)
    _break(desk, process_rows, process, plan="garbage")

    one_pass(desk)

    assert bench.status().status is T.PLANNING


@pytest.mark.req("T6")
def test_a_loop_that_finds_nothing_to_look_at_stops_no_other(
    bench: ProcessHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> list[str]:
        raise ValueError("a row that can't be read")

    monkeypatch.setattr(CatalogReconciler, "keys", broken)

    one_pass(bench.desk)

    assert bench.status().status is T.PLANNING


def test_tables_with_many_clocks_share_no_evaluation(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_payload, "CLOCKS_PER_EVALUATION_MAX", 25)
    rounds, clocks = TableHarness(desk), {f"0/p={n}": [None, None, None, 1] for n in range(10)}
    ids = {rounds.lakes.table(f"t{n}", due_at_ms=n, clocks=clocks) for n in range(5)}
    seen: list[list[str]] = []

    for _ in ids:
        rounds.run(rounds.evaluations)
        for given in rounds.given():
            told = EvaluatePayload.model_validate(given.payload)
            seen.append([each.table.id for each in told.tables])
            looked_at = tuple(looked(each.table.id) for each in told.tables)
            rounds.succeed(given, EvaluationResult(tables=looked_at))

    assert [len(each) for each in seen] == [2, 2, 1]
    assert {one for each in seen for one in each} == ids
    assert all(rounds.table(one).failures == 0 for one in ids)


def test_an_evaluation_told_again_speaks_of_the_same_tables(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_payload, "CLOCKS_PER_EVALUATION_MAX", 15)
    rounds, clocks = TableHarness(desk), {f"0/p={n}": [None, None, None, 1] for n in range(10)}
    for n in range(3):
        rounds.lakes.table(f"t{n}", due_at_ms=n, clocks=clocks)
    rounds.run(rounds.evaluations)
    [first] = desk.sync("w1", free={Lane.CONTROL: 1}, lost=True).assignments

    [again] = desk.sync("w1", free={}).assignments

    assert again.payload == first.payload


def test_building_the_payload_of_an_evaluation_lets_go_of_no_table(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_payload, "CLOCKS_PER_EVALUATION_MAX", 15)
    rounds, clocks = TableHarness(desk), {f"0/p={n}": [None, None, None, 1] for n in range(10)}
    ids = [rounds.lakes.table(f"t{n}", due_at_ms=n, clocks=clocks) for n in range(3)]
    rounds.run(rounds.evaluations)
    before = [rounds.table(one) for one in ids]

    with writing(desk.store) as conn:
        task = stored_tasks.get(conn, before[0].task_id or "")
        assert task is not None
        payload = EVALUATE.payload(conn, task, now_ms=7)

    assert [each["table"]["id"] for each in payload["tables"]] == ids
    assert [rounds.table(one) for one in ids] == before
    with writing(desk.store) as conn:
        EVALUATE.make_room(conn, task, 7)
    assert [rounds.table(one).task_id for one in ids] == [task.id, None, None]


@pytest.mark.req("T6")
def test_more_processes_than_a_pass_looks_at_have_their_turn_in_the_next(
    bench: ProcessHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "RUNNING_MAX", 2)
    lakes = bench.lakes
    tables = [lakes.table(f"t{n}", T.MINOR_OPTIMIZING) for n in range(5)]
    made = [lakes.process(table, rewrites=[S.PLANNED]) for table in tables]
    loop = running.ProcessReconciler(bench.desk.clock)

    passes = [loop.keys(bench.desk.store) for _ in range(3)]

    assert sorted(key for keys in passes for key in keys if key in made) == sorted(made)
    assert set(loop.keys(bench.desk.store)) >= set(sorted(made)[:2])  # and begins again
