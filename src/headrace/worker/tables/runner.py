"""Runs the tasks of lake tables on this worker's warm session: each in a session of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from headrace.clock import Clock
from headrace.formats.iceberg.jvm import JAVA_ERRORS
from headrace.protocol.messages import Message
from headrace.protocol.tables import (
    CommitPayload,
    DiscardPayload,
    DiscoverPayload,
    EvaluatePayload,
    OfCatalog,
    PlanPayload,
    RewritePayload,
)
from headrace.worker.execution import Execution
from headrace.worker.spark import WarmSpark, task_session
from headrace.worker.tables.catalogs import config_of, explained
from headrace.worker.tables.committing import commit_process, discard_process
from headrace.worker.tables.discovering import discover
from headrace.worker.tables.evaluating import evaluate_tables
from headrace.worker.tables.planning import plan_table
from headrace.worker.tables.rewriting import rewrite_bins
from headrace.worker.tables.work import Work

P = TypeVar("P", bound=OfCatalog)


class TableRunner:
    """What every task of a table on this worker is run with."""

    def __init__(self, spark: WarmSpark, clock: Clock, *, warehouse: str) -> None:
        self._spark, self._clock, self._warehouse = spark, clock, warehouse

    def discover(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, DiscoverPayload, discover)

    def evaluate(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, EvaluatePayload, evaluate_tables)

    def plan(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, PlanPayload, plan_table)

    def rewrite(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, RewritePayload, rewrite_bins)

    def commit(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, CommitPayload, commit_process)

    def discard(self, execution: Execution) -> Mapping[str, Any] | None:
        return self._run(execution, DiscardPayload, discard_process)

    def _run(
        self, execution: Execution, kind: type[P], task: Callable[[Work, P], Message]
    ) -> Mapping[str, Any]:
        told = kind.model_validate(execution.assignment.payload)
        catalog = config_of(told, self._warehouse)
        with task_session(self._spark, execution.id) as session:
            try:
                done = task(Work(execution, session, self._clock, catalog), told)
            except JAVA_ERRORS as error:
                execution.check()  # a cancelled job raises anything
                step = execution.progress.step
                raise explained(session, catalog, error, f"failed while {step}") from error
        return done.model_dump(mode="json")
