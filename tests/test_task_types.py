"""Each kind of task has a type, a coordinator's half and a worker's; what is stored stays so."""

from __future__ import annotations

from typing import Any, cast, get_type_hints

import pytest

from headrace.clock import SystemClock
from headrace.coordinator.sync import assignments
from headrace.coordinator.tables.tasks import TABLE_TASKS
from headrace.model.task import OF_JOBS, OF_TABLES, TaskKind, TaskOrder
from headrace.protocol.tables import PlannedBin
from headrace.protocol.task_types import (
    TASK_TYPES,
    DiscoverOrder,
    EvaluateOrder,
    PlanOrder,
    RewriteOrder,
)
from headrace.worker.runner import Runner, TableRunner
from headrace.worker.tables.registry import TABLE_RUNS, AnyTableRun

NO_SPARK = cast("Any", None)
A_BIN = {"number": 3, "partition": "p=1", "paths": ["a", "b"], "bytes": 7}
# As programs have stored them since there are lake tables.
STORED: list[tuple[type[TaskOrder], dict[str, Any]]] = [
    (DiscoverOrder, {"catalog": "lake", "retry_times": 1, "retry_interval_s": 5}),
    (
        EvaluateOrder,
        {
            "catalog": "lake",
            "tables": ["t1", "t2"],
            "refresh_ms": 60_000,
            "retry_times": 1,
            "retry_interval_s": 5,
        },
    ),
    (
        PlanOrder,
        {"budget_bytes": 1, "at_least": None, "retry_times": 1, "retry_interval_s": 5},
    ),
    (PlanOrder, {"dry": True, "at_least": "FULL", "retry_times": 0}),
    (RewriteOrder, {"bins": [A_BIN], "retry_times": 5, "retry_interval_s": 5}),
    (TaskOrder, {}),
]


def test_every_kind_has_a_type() -> None:
    assert set(TASK_TYPES) == set(TaskKind)
    assert all(kind is found.kind for kind, found in TASK_TYPES.items())


def test_a_coordinator_builds_and_applies_every_kind() -> None:
    of_tables = [each.type.kind for each in TABLE_TASKS]
    of_jobs = vars(assignments)["_JOB_PAYLOADS"]
    assert sorted([*of_tables, *of_jobs]) == sorted(TaskKind)
    assert set(of_tables) == OF_TABLES
    assert set(of_jobs) == OF_JOBS | {TaskKind.NOOP}


def test_a_worker_runs_every_kind() -> None:
    jobs = Runner(NO_SPARK, SystemClock(), warehouse="file:/unused").runs()
    tables = TableRunner(NO_SPARK, SystemClock(), warehouse="file:/unused").runs()
    assert jobs.keys().isdisjoint(tables)
    assert {**jobs, **tables}.keys() == set(TaskKind)


def test_both_halves_have_the_types_that_were_declared() -> None:
    assert all(TASK_TYPES[each.type.kind] is each.type for each in (*TABLE_TASKS, *TABLE_RUNS))


@pytest.mark.parametrize("half", TABLE_RUNS, ids=lambda each: each.type.kind)
def test_a_run_takes_the_payload_and_makes_the_result_of_its_type(half: AnyTableRun) -> None:
    hints = get_type_hints(half.run)
    assert (hints["payload"], hints["return"]) == (half.type.payload, half.type.result)


@pytest.mark.parametrize(("order", "stored"), STORED)
def test_an_order_is_stored_as_it_was_before_it_had_a_type(
    order: type[TaskOrder], stored: dict[str, Any]
) -> None:
    assert order.of(stored).stored() == stored


def test_what_an_older_program_did_not_store_has_its_default() -> None:
    assert EvaluateOrder.of({"catalog": "c", "tables": []}).refresh_ms > 0
    assert RewriteOrder.of({}).bins == ()
    assert RewriteOrder.of({"bins": [A_BIN]}).bins == (PlannedBin.model_validate(A_BIN),)
    assert not PlanOrder.of({}).dry
