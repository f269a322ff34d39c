"""A table service is two halves and an entry in each registry: nothing else has to know of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import pytest
from sqlalchemy import Engine, event, text

from headrace.coordinator.context import Metrics, TableOptions
from headrace.coordinator.tables import tasks as registry
from headrace.coordinator.tables.controller import TableController
from headrace.errors import UnknownTaskKind
from headrace.lake.catalog import CatalogConfig
from headrace.model.task import TaskKind, TaskStatus
from headrace.protocol import task_types
from headrace.protocol.messages import Assignment
from headrace.store.core.engine import reading, writing
from headrace.store.core.transactions import Term
from headrace.store.tables import table_tasks
from headrace.store.tasks import tasks
from headrace.worker.execution import Execution, Run
from headrace.worker.runner import TableRunner
from headrace.worker.tables.registry import TABLE_RUNS
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import failed, succeeded
from tests.coordinator.tables.table_harness import TableHarness
from tests.fakes import FakeClock
from tests.simulation.lake_format import NoForeignErrors
from tests.table_service.counting_run import COUNT_ROWS
from tests.table_service.counts import COUNTING
from tests.table_service.messages import COUNT, KIND

ROWS = 42


class CountedFormat:
    """As much of a format as the service asks."""

    catalog_types = ("embedded",)
    errors = NoForeignErrors()

    def catalog_config(
        self, name: str, kind: str, properties: Mapping[str, str], *, warehouse: str
    ) -> CatalogConfig:
        return CatalogConfig(name, properties)

    def probe(self, session: object, ref: object) -> Any:
        return type("Seen", (), {"rows": ROWS})


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, store: Engine) -> None:
    """What a service of the product edits: its kind, and a line in each registry."""
    monkeypatch.setitem(cast("Any", TaskKind)._value2member_map_, KIND.value, KIND)
    _let_the_store_hold_it(store)
    monkeypatch.setitem(cast("Any", task_types.TASK_TYPES), KIND, COUNT)
    monkeypatch.setattr(registry, "TABLE_TASKS", (*registry.TABLE_TASKS, COUNTING))


def _let_the_store_hold_it(store: Engine) -> None:
    """A kind of the product comes with a migration, which widens the constraint."""
    if store.dialect.name == "sqlite":
        store.dispose()

        @event.listens_for(store, "checkout")
        def _(connection: Any, *_: object) -> None:
            connection.execute("PRAGMA ignore_check_constraints = ON")
    else:
        with writing(store) as conn:
            conn.execute(text("ALTER TABLE tasks DROP CONSTRAINT ck_tasks_kind"))


@pytest.fixture
def rounds(registered: None, store: Engine, clock: FakeClock, term: Term) -> Iterator[TableHarness]:
    desk = LeaderHarness(store, clock, term)
    with desk.ending:
        yield TableHarness(desk)


def look(rounds: TableHarness) -> None:
    desk = rounds.desk
    TableController(desk.store, desk.clock, desk.ids, Metrics(), TableOptions()).run(desk.term)


def given_count(rounds: TableHarness) -> Assignment:
    [given] = [each for each in rounds.given() if each.kind == KIND]
    return given


def worker(runs: Sequence[Any] = (*TABLE_RUNS, COUNT_ROWS)) -> TableRunner:
    return TableRunner(
        lambda _: nullcontext(cast("Any", None)),
        FakeClock(),
        warehouse="file:/unused",
        formats=[cast("Any", CountedFormat())],
        tasks=runs,
    )


def run(runner: TableRunner, given: Assignment) -> Mapping[str, Any]:
    return runner.run(Execution(given, cast("Any", None), cast("Run", None)))


def test_a_toy_service_runs_from_its_loop_to_its_result(rounds: TableHarness) -> None:
    table = rounds.lakes.table("t")
    look(rounds)
    given = given_count(rounds)
    assert (given.kind, given.lane) == (KIND, COUNT.lane)

    result = run(worker(), given)
    rounds.say(succeeded(given.claim, result=dict(result)))

    with reading(rounds.desk.store) as conn:
        task = tasks.get(conn, f"{table}-count")
        assert task is not None
        assert task.status is TaskStatus.SUCCESS
        assert table_tasks.result(conn, task.id) == {"rows": ROWS}


def test_it_is_tried_again_as_its_order_says_and_fails_then(rounds: TableHarness) -> None:
    rounds.lakes.table("t")
    look(rounds)
    for _ in range(2):
        rounds.say(failed(given_count(rounds).claim, "it broke", retry=True))
    assert [each["status"] for each in rounds.tasks(KIND)] == [TaskStatus.FAILED]


def test_a_result_that_can_not_be_read_fails_its_task(rounds: TableHarness) -> None:
    rounds.lakes.table("t")
    look(rounds)
    rounds.say(succeeded(given_count(rounds).claim, result={"rows": "many"}))
    [task] = rounds.tasks(KIND)
    assert task["status"] == TaskStatus.FAILED
    assert "its result can't be read: rows" in str(task["error"])


def test_a_worker_without_the_service_does_nothing_for_it_and_says_so(
    rounds: TableHarness,
) -> None:
    rounds.lakes.table("t")
    look(rounds)
    with pytest.raises(UnknownTaskKind, match="COUNT is unknown here"):
        run(worker(TABLE_RUNS), given_count(rounds))
    assert KIND not in worker(TABLE_RUNS).runs()


def test_a_coordinator_without_the_service_says_so() -> None:
    with pytest.raises(UnknownTaskKind, match="upgrade this one"):
        registry.table_task(KIND)
    with pytest.raises(UnknownTaskKind):
        task_types.task_type(KIND)
