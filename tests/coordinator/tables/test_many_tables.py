"""A pass costs by what there is to do, not by how many tables there are.

SQLite counts the steps of its own machine: the same on every computer, whatever else it does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert

from headrace.model.tables.status import TableStatus
from headrace.model.task import TaskKind
from headrace.store.core import leases
from headrace.store.core.engine import open_store, writing
from headrace.store.tables.schema import lake_tables
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.lake_rows import LakeRows
from tests.coordinator.tables.table_harness import TableHarness
from tests.fakes import FakeClock

FEW, MANY = 200, 20_000
STEPS = 20  # of the machine, between two calls of the handler
IDLE, PENDING = TableStatus.IDLE, TableStatus.PENDING


@pytest.fixture
def rounds(sqlite_url: str, clock: FakeClock) -> Iterator[TableHarness]:
    store = open_store(sqlite_url)
    with writing(store) as conn:
        term = leases.take(conn, leases.read(conn), holder="h", address="http://h:1")
    assert term is not None
    yield TableHarness(LeaderHarness(store, clock, term))
    store.dispose()


def add_tables(
    rounds: TableHarness, first: int, last: int, status: TableStatus, **values: Any
) -> None:
    """As large as rows are that were evaluated."""
    LakeRows(rounds.desk.store, now_ms=rounds.clock.wall_ms()).table(f"pattern{first}")
    pattern = rounds.table(f"table-pattern{first}")
    common = {
        "catalog": pattern.catalog,
        "namespace": ["db"],
        "created_at_ms": 1,
        "status": status,
        "status_since_ms": 1,
        "due_at_ms": rounds.clock.wall_ms() + 3_600_000,
        "interval_ms": pattern.interval_ms,
        "group_name": pattern.group,
        "quota": pattern.quota,
        "min_plan_interval_ms": pattern.min_plan_interval_ms,
        "summary": {"most": ["x" * 1000]},
        "clocks": {f"0/{n}": [1, 1, 1, 1] for n in range(20)},
        **values,
    }
    rows = [
        {**common, "id": f"t{n}", "name": f"t{n}", "identifier": f"headrace.db.t{n}"}
        for n in range(first, last)
    ]
    with writing(rounds.desk.store) as conn:
        conn.execute(insert(lake_tables), rows)


@contextmanager
def counting(store: Engine) -> Generator[Callable[[], int]]:
    calls = [0]

    def call() -> int:
        calls[0] += 1
        return 0

    def watch(connection: Any, *_: Any) -> None:
        connection.set_progress_handler(call, STEPS)

    def leave(connection: Any, *_: Any) -> None:
        connection.set_progress_handler(None, STEPS)

    event.listen(store, "checkout", watch)
    event.listen(store, "checkin", leave)
    try:
        yield lambda: calls[0] * STEPS
    finally:
        event.remove(store, "checkout", watch)
        event.remove(store, "checkin", leave)


def steps_of_a_pass(rounds: TableHarness) -> int:
    with counting(rounds.desk.store) as steps:
        for loop in (rounds.catalogs, rounds.evaluations, rounds.turns, rounds.grants):
            rounds.run(loop)
        return steps()


def test_a_pass_with_nothing_to_do_costs_the_same_for_many_tables(rounds: TableHarness) -> None:
    add_tables(rounds, 0, FEW, IDLE)
    steps_of_a_pass(rounds)  # begins the discovery
    few = steps_of_a_pass(rounds)

    add_tables(rounds, FEW, MANY, IDLE)
    many = steps_of_a_pass(rounds)

    assert 0 < many <= few + 10 * STEPS


def test_the_first_of_many_that_wait_and_are_due_is_found_without_reading_all(
    rounds: TableHarness,
) -> None:
    """The first look at a lake that nobody cared for: all are due, and all wait."""
    now_ms = rounds.clock.wall_ms()
    steps_of_a_pass(rounds)

    add_tables(rounds, 0, MANY, PENDING, pending_since_ms=now_ms, due_at_ms=0)
    steps = steps_of_a_pass(rounds)

    assert len(rounds.tasks(TaskKind.PLAN)) == 2
    assert len(rounds.tasks(TaskKind.EVALUATE)) == 8
    assert steps < 5 * MANY  # a look at each would be some twenty for a row
