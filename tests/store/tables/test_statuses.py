"""The status of a table or a process changes only along its map, whoever writes it (S1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import Connection, Engine

from headrace.errors import IllegalTransition
from headrace.model.tables.status import (
    PROCESS_ENDED,
    PROCESS_TRANSITIONS,
    TABLE_RELEASES,
    TABLE_RESETS,
    TABLE_TRANSITIONS,
    OptimizingType,
    ProcessEnd,
    ProcessStatus,
    Recovered,
    Recovery,
    TableStatus,
)
from headrace.store.core.engine import reading, writing
from headrace.store.tables import lake_tables, processes, table_changes, table_reset
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.processes import Process
from tests.coordinator.tables.lake_rows import LakeRows
from tests.stores import given_process, given_table

T, P = TableStatus, ProcessStatus

Move = Callable[[Connection, LakeTable], bool]


def _into(kind: OptimizingType) -> Move:
    return lambda conn, table: table_changes.begin_process(
        conn, table, process_id="p", type=kind, number=1, wanted=None, now_ms=1
    )


# Every function that moves a table by an ordinary step, and where to.
MOVES: list[tuple[TableStatus, Move]] = [
    (T.IDLE, lambda conn, table: table_changes.rest(conn, table, now_ms=1)),
    (T.IDLE, lambda conn, table: table_changes.drop_plan(conn, table, now_ms=1)),
    (
        T.IDLE,
        lambda conn, table: table_changes.need_no_process(
            conn, table, wanted=None, due_at_ms=1, now_ms=1
        ),
    ),
    (T.PENDING, lambda conn, table: table_changes.await_turn(conn, table, now_ms=1)),
    (
        T.PENDING,
        lambda conn, table: table_changes.await_another_plan(
            conn, table, planned_at_ms=None, now_ms=1
        ),
    ),
    (
        T.PLANNING,
        lambda conn, table: table_changes.begin_planning(conn, table, task_id="t", now_ms=1),
    ),
    *((kind.status, _into(kind)) for kind in OptimizingType),
    (T.COMMITTING, lambda conn, table: table_changes.begin_commit(conn, table, now_ms=1)),
]


@pytest.fixture
def table_id(store: Engine) -> str:
    return LakeRows(store, now_ms=1).table()


def given(store: Engine, table_id: str, status: TableStatus) -> LakeTable:
    with writing(store) as conn:
        given_table(conn, table_id, status=status)
    return read(store, table_id)


def read(store: Engine, table_id: str) -> LakeTable:
    with reading(store) as conn:
        found = lake_tables.get(conn, table_id)
    assert found is not None
    return found


def lands(store: Engine, write: Callable[[Connection], bool]) -> bool:
    """Whether the write landed; a step that the map does not have is refused."""
    try:
        with writing(store) as conn:
            return write(conn)
    except IllegalTransition:
        return False


@pytest.mark.req("S1", "T8")
def test_a_table_moves_exactly_as_its_map_says(store: Engine, table_id: str) -> None:
    assert {to for to, _ in MOVES} == set(T), "each status has a function that leads there"
    for current in T:
        for to, move in MOVES:
            seen = given(store, table_id, current)

            landed = lands(store, lambda conn, move=move, seen=seen: move(conn, seen))

            assert landed == (to in TABLE_TRANSITIONS[current]), (current, to)
            assert read(store, table_id).status is (to if landed else current)


@pytest.mark.req("S1")
def test_a_table_that_has_moved_on_since_stays_where_it_is(store: Engine, table_id: str) -> None:
    for current in T:
        row = given(store, table_id, current)
        for to, move in MOVES:
            for seen in set(T) - {current}:
                stale = replace(row, status=seen)
                assert not lands(store, lambda conn, move=move, stale=stale: move(conn, stale))
                assert read(store, table_id).status is current, (seen, to)


@pytest.mark.req("S1", "T8")
def test_a_table_is_released_exactly_by_a_process_that_has_ended(
    store: Engine, table_id: str
) -> None:
    for current in T:
        for process in P:
            seen = given(store, table_id, current)

            landed = lands(
                store,
                lambda conn, seen=seen, process=process: table_changes.release(
                    conn, seen, process, now_ms=1
                ),
            )

            ended = process in PROCESS_ENDED
            assert landed == (T.IDLE in TABLE_RELEASES[current] and ended), (current, process)
            assert read(store, table_id).status is (T.IDLE if landed else current)


@pytest.mark.req("S1", "T2", "T8")
def test_recovery_resets_a_table_exactly_as_its_map_says(store: Engine, table_id: str) -> None:
    for current in T:
        for to in T:
            seen = given(store, table_id, current)
            decision = Recovered(Recovery.RESET, to, ProcessEnd.NONE)

            landed = lands(
                store,
                lambda conn, seen=seen, decision=decision: table_reset.reset(
                    conn, seen, decision, now_ms=1
                ),
            )

            assert landed == (to in TABLE_RESETS[current]), (current, to)
            assert read(store, table_id).status is (to if landed else current)


@pytest.mark.req("S1")
def test_a_process_ends_exactly_as_its_map_says(store: Engine, table_id: str) -> None:
    process_id = LakeRows(store, now_ms=1).process(table_id)
    for current in P:
        for to in P:
            seen = _given_process(store, process_id, current)

            landed = lands(
                store,
                lambda conn, seen=seen, to=to: processes.end(conn, seen, to, now_ms=2),
            )

            assert landed == (to in PROCESS_TRANSITIONS[current]), (current, to)
            assert _read_process(store, process_id).status is (to if landed else current)


@pytest.mark.req("S1")
def test_the_end_of_a_process_stands_against_whoever_saw_it_running(
    store: Engine, table_id: str
) -> None:
    process_id = LakeRows(store, now_ms=1).process(table_id)
    running = _read_process(store, process_id)
    for current in PROCESS_ENDED:
        _given_process(store, process_id, current)
        for to in PROCESS_ENDED:
            with writing(store) as conn:
                assert not processes.end(conn, running, to, now_ms=2), "late, and no error"
            assert _read_process(store, process_id).status is current


def _given_process(store: Engine, process_id: str, status: ProcessStatus) -> Process:
    ended_at_ms = 1 if status in PROCESS_ENDED else None
    with writing(store) as conn:
        given_process(conn, process_id, status=status, ended_at_ms=ended_at_ms)
    return _read_process(store, process_id)


def _read_process(store: Engine, process_id: str) -> Process:
    with reading(store) as conn:
        found = processes.get(conn, process_id)
    assert found is not None
    return found
