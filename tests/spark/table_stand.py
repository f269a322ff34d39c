"""The tasks of lake tables, given as a leader gives them, on a table written by plain SQL."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

from headrace.clock import SystemClock
from headrace.model.jobs.epoch import Moment
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import Assignment, Message
from headrace.protocol.tables import (
    CatalogSpec,
    Clocks,
    CommitPayload,
    CommitResult,
    Discarded,
    DiscardPayload,
    Discovered,
    DiscoverPayload,
    EvaluatedTable,
    EvaluatePayload,
    EvaluationResult,
    Planned,
    PlanPayload,
    ProcessRef,
    RewritePayload,
    RewriteResult,
    TableIdentifier,
    ToEvaluate,
)
from headrace.worker.execution import Execution, Run
from headrace.worker.runner import TableRunner
from headrace.worker.warm_session import WarmSpark, task_session
from tests.spark.lake import some
from tests.spark.written import Written

NOW_MS = 1_800_000_000_000
EMBEDDED = CatalogSpec(name="headrace", type="embedded")


class Tasks:
    """A leader of one process at a time."""

    def __init__(self, warm: WarmSpark, warehouse: str) -> None:
        sessions = partial(task_session, warm)
        self.runner = TableRunner(sessions, SystemClock(), warehouse=warehouse)
        self._attempts = itertools.count(1)

    def execution(
        self, kind: TaskKind, payload: Message, *, since: Moment | None = None
    ) -> Execution:
        task = Assignment(
            claim=Claim("t", next(self._attempts)),
            kind=kind,
            lane=Lane.CONTROL,
            payload=payload.model_dump(mode="json"),
        )
        return Execution(task, cast("Any", None), cast("Run", None), since=since)

    def discover(
        self, table_filter: str | None = None, catalog: CatalogSpec = EMBEDDED, **more: Any
    ) -> Discovered:
        told = DiscoverPayload(catalog=catalog, table_filter=table_filter, **more)
        return Discovered.model_validate(self.runner.run(self.execution(TaskKind.DISCOVER, told)))

    def evaluate(
        self,
        *tables: ToEvaluate,
        now_ms: int = NOW_MS,
        defaults: Mapping[str, str] | None = None,
        catalog: CatalogSpec = EMBEDDED,
        groups: Mapping[str, dict[str, str]] | None = None,
    ) -> EvaluationResult:
        told = EvaluatePayload(
            catalog=catalog,
            now_ms=now_ms,
            tables=tables,
            defaults=dict(defaults or {}),
            groups=dict(groups or {}),
        )
        return EvaluationResult.model_validate(
            self.runner.run(self.execution(TaskKind.EVALUATE, told))
        )

    def look(self, one: Written | ToEvaluate, **more: Any) -> EvaluatedTable:
        asked = one if isinstance(one, ToEvaluate) else ToEvaluate(table=name_of(one))
        (found,) = self.evaluate(asked, **more).tables
        return found

    def plan(
        self,
        written: Written,
        *,
        clocks: Clocks | None = None,
        now_ms: int = NOW_MS,
        **more: Any,
    ) -> Planned:
        told = PlanPayload(
            catalog=EMBEDDED, table=name_of(written), now_ms=now_ms, clocks=clocks or {}, **more
        )
        return Planned.model_validate(self.runner.run(self.execution(TaskKind.PLAN, told)))

    def rewrite(
        self, written: Written, planned: Planned, number: int = 1
    ) -> Sequence[RewriteResult]:
        """Every task of the plan."""
        return [
            RewriteResult.model_validate(
                self.runner.run(
                    self.execution(
                        TaskKind.REWRITE,
                        RewritePayload(
                            catalog=EMBEDDED,
                            table=name_of(written),
                            process=process_of(written, planned, number),
                            bins=bins,
                            target_bytes=planned.target_bytes,
                        ),
                    )
                )
            )
            for bins in planned.tasks
        ]

    def commit_payload(
        self, written: Written, planned: Planned, made: Sequence[RewriteResult], number: int = 1
    ) -> CommitPayload:
        rewritten = tuple(each for one in made for each in one.rewritten)
        numbers = [each["number"] for each in rewritten]
        bins = tuple(each for task in planned.tasks for each in task if each.number in numbers)
        return CommitPayload(
            catalog=EMBEDDED,
            table=name_of(written),
            process=process_of(written, planned, number),
            bins=bins,
            rewritten=rewritten,
        )

    def commit(self, told: CommitPayload, *, since: Moment | None = None) -> CommitResult:
        return CommitResult.model_validate(
            self.runner.run(self.execution(TaskKind.COMMIT, told, since=since))
        )

    def discard(self, written: Written, planned: Planned, number: int = 1) -> Discarded:
        told = DiscardPayload(
            catalog=EMBEDDED,
            table=name_of(written),
            process=process_of(written, planned, number),
        )
        return Discarded.model_validate(self.runner.run(self.execution(TaskKind.DISCARD, told)))

    def process(self, written: Written, planned: Planned, number: int = 1) -> CommitResult:
        """All of it."""
        made = self.rewrite(written, planned, number)
        assert [one.failed for one in made] == [()] * len(made)
        return self.commit(self.commit_payload(written, planned, made, number))


def name_of(written: Written) -> TableIdentifier:
    return TableIdentifier(id=written.owner, namespace=("tests",), name=written.ref.name)


def process_of(written: Written, planned: Planned, number: int = 1) -> ProcessRef:
    return ProcessRef(
        id=f"p{number}",
        owner=written.owner,
        number=number,
        snapshot=some(planned.snapshot),
        uuid=planned.uuid,
    )


def again(written: Written, seen: EvaluatedTable, *, clocks: Clocks | None = None) -> ToEvaluate:
    """As the leader asks the next time."""
    table = name_of(written).model_copy(update={"uuid": seen.uuid})
    return ToEvaluate(
        table=table, pointer=seen.pointer, look_at_ms=seen.look_at_ms, clocks=clocks or {}
    )
