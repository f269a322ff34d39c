"""Commits whose outcome a restart has left open, and what ended processes left at their table."""

from __future__ import annotations

import pytest

from headrace.coordinator.tables.processes import DISCARD_TRIES_MAX, SETTLE_TIMEOUT_S
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.task import TaskKind
from headrace.store.core.engine import writing
from headrace.store.tables import processes
from tests.coordinator.tables.process_harness import NEW_SNAPSHOT, ProcessHarness

T, P, K = TableStatus, ProcessStatus, TaskKind


def _settling(bench: ProcessHarness) -> str:
    process = bench.plan()
    bench.rewrite()
    bench.restart()
    assert bench.status().status is T.IDLE
    assert bench.lakes.read_process(process).settling
    return process


@pytest.mark.req("T1")
def test_a_commit_that_landed_before_the_restart_is_recorded_as_landed(
    bench: ProcessHarness,
) -> None:
    process = _settling(bench)

    bench.commit(already=True)

    assert bench.lakes.read_process(process).status is P.SUCCESS
    table = bench.status()
    assert (table.status, table.optimized_snapshot) == (T.IDLE, NEW_SNAPSHOT)


@pytest.mark.req("T1")
def test_a_commit_that_is_still_running_somewhere_settles_by_its_report(
    bench: ProcessHarness,
) -> None:
    process = bench.plan()
    bench.rewrite()
    given = bench.take_one(K.COMMIT)
    bench.take()
    bench.restart()
    assert bench.take() == [], "nobody else is given it"

    assert bench.end(given, {"outcome": "COMMITTED", "snapshot": NEW_SNAPSHOT})

    assert bench.lakes.read_process(process).status is P.SUCCESS
    assert bench.status().optimized_snapshot == NEW_SNAPSHOT


def test_a_table_that_can_not_be_asked_for_too_long_ends_its_process_as_unknown(
    bench: ProcessHarness,
) -> None:
    process = _settling(bench)
    bench.look()
    bench.desk.clock.advance(SETTLE_TIMEOUT_S + 1)

    bench.look()

    found = bench.lakes.read_process(process)
    assert found.status is P.FAILED
    assert "outcome unknown" in (found.error or "")
    assert found.leftovers, "its token is spent before anything is deleted"
    assert bench.status().failures == 1


def test_the_time_in_which_nobody_led_is_not_counted(bench: ProcessHarness) -> None:
    process = _settling(bench)
    bench.look()
    bench.desk.clock.advance(SETTLE_TIMEOUT_S + 1)
    bench.restart()

    bench.look()
    assert bench.lakes.read_process(process).settling
    bench.desk.clock.advance(SETTLE_TIMEOUT_S + 1)
    bench.look()

    assert bench.lakes.read_process(process).status is P.FAILED


def test_what_a_closed_process_staged_is_deleted_by_a_task_that_spends_its_token_first(
    bench: ProcessHarness,
) -> None:
    process = bench.plan()
    bench.take()
    with writing(bench.desk.store) as conn:
        processes.want_cancel(conn, process)
    bench.look()
    bench.held.clear()
    assert not bench.discard().done, "it may still be writing"
    bench.desk.clock.advance(11)

    bench.discard()
    given = bench.take_one(K.DISCARD)
    assert given.payload["process"]["number"] == 1  # type: ignore[index,call-overload]
    bench.end(given, {"files": 3})

    found = bench.lakes.read_process(process)
    assert not found.leftovers
    assert found.discard_task is None


def test_a_process_that_staged_nothing_leaves_nothing_to_discard(bench: ProcessHarness) -> None:
    process = bench.plan()
    with writing(bench.desk.store) as conn:
        processes.want_cancel(conn, process)

    bench.look()

    assert not bench.lakes.read_process(process).leftovers


def test_discarding_is_tried_for_hours_and_then_left_to_orphan_cleaning(
    bench: ProcessHarness,
) -> None:
    process = bench.plan()
    bench.take()
    with writing(bench.desk.store) as conn:
        processes.want_cancel(conn, process)
    bench.look()
    bench.held.clear()
    for tries in range(DISCARD_TRIES_MAX):
        assert bench.lakes.read_process(process).leftovers, tries
        bench.desk.clock.advance(1000)
        bench.discard()
        bench.end(bench.take_one(K.DISCARD), outcome="FAILED", error="away", retry=False)
        bench.desk.clock.advance(1000)
        bench.discard()

    assert not bench.lakes.read_process(process).leftovers


def test_a_commit_taken_for_lost_that_had_landed_is_told(bench: ProcessHarness) -> None:
    process = _settling(bench)
    bench.look()
    bench.desk.clock.advance(SETTLE_TIMEOUT_S + 1)
    bench.look()
    bench.desk.clock.advance(11)
    bench.discard()

    bench.end(bench.take_one(K.DISCARD), {"files": 0, "committed_snapshot": NEW_SNAPSHOT})

    assert f"snapshot {NEW_SNAPSHOT}" in (bench.lakes.read_process(process).error or "")
