"""What a look at a table finds stays with it, and says when the next one comes."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.tables.status import ProcessStatus, TableErrorKind, TableStatus
from headrace.model.task import TaskKind
from headrace.protocol.tables import Chosen, EvaluatedTable
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.table_harness import (
    MINUTE_S,
    TableHarness,
    looked,
    pending,
    unchanged,
)

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
def test_a_table_with_input_waits_and_keeps_it_through_a_change_of_leaders(
    rounds: TableHarness,
) -> None:
    table = due(rounds)

    rounds.evaluate(looked(table, pending=pending(benefit=3.5)))

    found = rounds.table(table)
    assert (found.status, found.benefit) == (PENDING, 3.5)
    assert found.pending_since_ms == rounds.clock.wall_ms()
    assert (found.pointer, found.snapshot, found.task_id) == ("v2.json", 12, None)
    rounds.desk.take_over()
    assert rounds.lakes.pending(table) == pending(benefit=3.5).model_dump(mode="json")
    assert not rounds.tasks(TaskKind.EVALUATE)


@pytest.mark.req("T2")
def test_a_waiting_table_that_has_not_changed_goes_on_waiting_since_when_it_did(
    rounds: TableHarness,
) -> None:
    table = due(rounds)
    rounds.evaluate(looked(table, pending=pending()))
    since_ms = rounds.table(table).pending_since_ms

    for told in (unchanged(table), looked(table, pending=pending(files=50)), unchanged(table)):
        rounds.advance(MINUTE_S)
        rounds.evaluate(told)

    found = rounds.table(table)
    assert (found.status, found.pending_since_ms) == (PENDING, since_ms)
    assert (rounds.lakes.pending(table) or {})["files"] == 50


@pytest.mark.req("T2")
def test_only_a_later_look_that_finds_nothing_ends_the_waiting(rounds: TableHarness) -> None:
    table = due(rounds)
    rounds.evaluate(looked(table, pending=pending()))
    for told in (EvaluatedTable(id=table, error="no route"), unchanged(table)):
        rounds.advance(2 * MINUTE_S)
        rounds.evaluate(told)
        assert rounds.status(table) is PENDING

    rounds.advance(2 * MINUTE_S)
    rounds.evaluate(looked(table))

    found = rounds.table(table)
    assert (found.status, found.pending_since_ms, found.benefit) == (IDLE, None, 0.0)
    assert rounds.lakes.pending(table) is None


@pytest.mark.parametrize("switch", ["paused", "disabled"])
def test_a_switched_off_table_waits_no_longer_and_its_input_is_there_when_it_is_on_again(
    rounds: TableHarness, switch: str
) -> None:
    table = due(rounds)
    rounds.evaluate(looked(table, pending=pending()))
    rounds.change(table, wanted_paused=int(switch == "paused"))
    off = looked(table, pending=pending(), chosen=Chosen(enabled=switch != "disabled"))

    rounds.advance(MINUTE_S)
    rounds.evaluate(off)
    assert rounds.status(table) is IDLE

    rounds.change(table, wanted_paused=0, enabled=1)
    rounds.advance(MINUTE_S)
    rounds.evaluate(unchanged(table))
    found = rounds.table(table)
    assert (found.status, found.pending_since_ms) == (PENDING, rounds.clock.wall_ms())
    assert rounds.lakes.pending(table)


def test_a_look_that_succeeds_does_not_forget_that_processes_failed(rounds: TableHarness) -> None:
    table = due(
        rounds,
        failures=3,
        error="2 of 2 rewrite tasks failed",
        error_kind=TableErrorKind.OPTIMIZING,
        not_before_ms=5,
    )

    rounds.evaluate(looked(table, pending=pending()))

    found = rounds.table(table)
    assert (found.failures, found.error) == (3, "2 of 2 rewrite tasks failed")
    assert (found.status, found.not_before_ms) == (PENDING, 5)


def test_a_table_that_is_gone_is_dropped(rounds: TableHarness) -> None:
    table = due(rounds, status=TableStatus.MINOR_OPTIMIZING)
    process = rounds.lakes.process(table)
    rounds.lakes.name_process(table, process)

    rounds.evaluate(EvaluatedTable(id=table, gone=True))

    assert rounds.identifiers() == []
    assert rounds.lakes.read_process(process).status is ProcessStatus.CLOSED


def test_another_table_of_the_same_name_begins_anew(rounds: TableHarness) -> None:
    times = {"0/": [1, None, None, 1]}
    table = due(
        rounds,
        status=TableStatus.MINOR_OPTIMIZING,
        clocks=times,
        failures=4,
        not_before_ms=9,
        file_failures={"f": 3},
        optimized_at_ms=5,
        optimized_snapshot=6,
        error="it failed",
    )
    process = rounds.lakes.process(table)
    rounds.lakes.name_process(table, process)

    rounds.evaluate(looked(table, uuid="u-2", pending=pending(), seen=("0/p=1",)))

    found, now_ms = rounds.table(table), rounds.clock.wall_ms()
    assert (found.status, found.uuid, found.pending_since_ms) == (PENDING, "u-2", now_ms)
    assert (found.failures, found.error, found.not_before_ms) == (0, None, 0)
    assert (found.optimized_at_ms, found.optimized_snapshot) == (None, None)
    assert rounds.lakes.column(table, "clocks") == {"0/p=1": [None, None, None, now_ms]}
    assert rounds.lakes.column(table, "file_failures") == {}
    ended = rounds.lakes.read_process(process)
    assert (ended.status, ended.error) == (
        ProcessStatus.CLOSED,
        "its table was dropped and made anew",
    )


def test_partitions_that_are_seen_get_a_clock_and_known_ones_keep_theirs(
    rounds: TableHarness,
) -> None:
    table = due(rounds, clocks={"0/a": [5, None, None, 1]})

    rounds.evaluate(looked(table, seen=("0/a", "0/b")))

    assert rounds.lakes.column(table, "clocks") == {
        "0/a": [5, None, None, 1],
        "0/b": [None, None, None, rounds.clock.wall_ms()],
    }


def test_settings_and_flaws_of_a_table_are_kept(rounds: TableHarness) -> None:
    table = due(rounds)
    chosen = Chosen(group="big", quota=3.0, min_plan_interval_ms=7)

    rounds.evaluate(looked(table, chosen=chosen, flaws=("quota is 'x'",)))

    found = rounds.table(table)
    assert (found.group, found.quota, found.min_plan_interval_ms) == ("big", 3.0, 7)
    assert rounds.lakes.column(table, "flaws") == ["quota is 'x'"]
    assert rounds.lakes.column(table, "summary")["score"] == 100


@pytest.mark.parametrize("status", [TableStatus.MINOR_OPTIMIZING, TableStatus.COMMITTING])
def test_a_table_in_a_process_is_looked_at_and_stays_in_it(
    rounds: TableHarness, status: TableStatus
) -> None:
    table = due(rounds, status=status)
    process = rounds.lakes.process(table)
    rounds.lakes.name_process(table, process)

    rounds.evaluate(looked(table, pending=pending(), chosen=Chosen(enabled=False)))

    found = rounds.table(table)
    assert (found.status, found.process_id, found.enabled) == (status, process, False)
    assert found.pending_since_ms is None


def test_the_interval_grows_while_nothing_is_found_and_halves_when_something_is(
    rounds: TableHarness,
) -> None:
    table = due(rounds)
    pace = Chosen(refresh_max_interval_ms=150_000, refresh_step_ms=40_000)
    steps = [
        (looked(table, chosen=pace), 100),
        (unchanged(table, chosen=pace), 140),
        (unchanged(table, chosen=pace), 150),
        (looked(table, chosen=pace, pending=pending()), 75),
        (unchanged(table, chosen=pace), 60),
        (looked(table), 60),
        (unchanged(table), 60),
    ]
    for told, seconds in steps:
        rounds.evaluate(told)
        found = rounds.table(table)
        assert found.interval_ms == 1000 * seconds
        assert found.due_at_ms == rounds.clock.wall_ms() + found.interval_ms
        rounds.advance(seconds)


def test_a_rule_by_time_is_not_slept_through(rounds: TableHarness) -> None:
    table = due(rounds, interval_ms=3_600_000)
    soon_ms = rounds.clock.wall_ms() + 5 * 60_000

    chosen = Chosen(refresh_max_interval_ms=7_200_000)
    rounds.evaluate(looked(table, chosen=chosen, look_at_ms=soon_ms))

    assert rounds.table(table).due_at_ms == soon_ms


def test_a_table_that_its_catalog_enables_is_looked_at_in_full(rounds: TableHarness) -> None:
    """While it was not enabled nobody looked for input, and its pointer is the same now."""
    table = due(rounds, enabled=0)

    rounds.evaluate(unchanged(table))

    now = rounds.table(table)
    assert (now.enabled, now.pointer, now.due_at_ms) == (True, None, rounds.clock.wall_ms())
