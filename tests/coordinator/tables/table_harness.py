"""A leader that discovers, evaluates, plans and grants, and workers that say what a test tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from headrace.coordinator.context import Pass, Reconciler, run_once
from headrace.coordinator.tables.catalogs import CatalogReconciler
from headrace.coordinator.tables.controller import RewriteGrants
from headrace.coordinator.tables.evaluation import EvaluationScheduler
from headrace.coordinator.tables.plan_scheduler import PlanScheduler
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.model.tables.status import TableStatus
from headrace.model.task import Lane, TaskKind
from headrace.protocol.messages import Assignment, TaskEnded
from headrace.protocol.tables import EvaluatedTable, EvaluationResult, Pending, Summary
from headrace.store.core.engine import reading, writing
from headrace.store.tables import catalogs
from headrace.store.tables import lake_tables as stored_tables
from headrace.store.tables.catalogs import Catalog
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.schema import lake_tables
from headrace.store.tasks.schema import tasks as task_rows
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import failed, succeeded
from tests.coordinator.tables.lake_rows import UUID, LakeRows
from tests.stores import given_table

MINUTE_S = 60.0
CONTROL_SLOTS = 4


class TableHarness:
    """One worker of the default group unless a test has others."""

    def __init__(self, desk: LeaderHarness, *, slots: int = 4, worker: str | None = "w1") -> None:
        self.desk, self.clock = desk, desk.clock
        self.lakes = LakeRows(desk.store, now_ms=desk.clock.wall_ms())
        self.catalogs = CatalogReconciler(desk.clock, desk.ids)
        self.evaluations = EvaluationScheduler(desk.clock, desk.ids)
        self.turns = PlanScheduler(desk.clock, desk.ids, policy=SchedulingPolicy.QUOTA)
        self.grants = RewriteGrants(desk.clock, break_quota=False)
        if worker is not None:
            desk.register(worker, slots=slots, control_slots=CONTROL_SLOTS)

    def run(self, loop: Any) -> Pass:
        """One look of one loop at everything."""
        reconciler: Reconciler = loop
        return run_once(self.desk.store, self.desk.term, reconciler, loop.keys(self.desk.store))

    def given(self, worker: str = "w1", lane: Lane = Lane.CONTROL) -> Sequence[Assignment]:
        """All that the worker is given now."""
        return self.desk.sync(worker, free={lane: 100}).assignments

    def say(self, ended: TaskEnded, worker: str = "w1", holds: Sequence[Assignment] = ()) -> None:
        self.desk.report(worker, ended, holds=[each.claim for each in holds])

    def succeed(self, given: Assignment, result: Any, **more: Any) -> None:
        self.say(succeeded(given.claim, result=result.model_dump(mode="json")), **more)

    def fail(self, given: Assignment, error: str = "it broke") -> None:
        self.say(failed(given.claim, error, retry=False))

    def evaluate(self, *told: EvaluatedTable) -> None:
        """One evaluation from its task to what it found; `told` speaks for its tables."""
        self.run(self.evaluations)
        for given in self.given():
            assert given.kind is TaskKind.EVALUATE
            ids = {each["table"]["id"] for each in given.payload["tables"]}  # type: ignore[index,union-attr]
            mine = tuple(each for each in told if each.id in ids)
            self.succeed(given, EvaluationResult(tables=mine))

    def catalog(self, name: str = "headrace") -> Catalog:
        with reading(self.desk.store) as conn:
            found = catalogs.get(conn, name)
        assert found is not None
        return found

    def table(self, table_id: str) -> LakeTable:
        return self.lakes.read(table_id)

    def status(self, table_id: str) -> TableStatus:
        return self.table(table_id).status

    def named(self, identifier: str) -> LakeTable | None:
        with reading(self.desk.store) as conn:
            return stored_tables.named(conn, identifier)

    def identifiers(self) -> list[str]:
        with reading(self.desk.store) as conn:
            found = select(lake_tables.c.identifier).order_by(lake_tables.c.identifier)
            return list(conn.execute(found).scalars())

    def change(self, table_id: str, **values: Any) -> None:
        with writing(self.desk.store) as conn:
            given_table(conn, table_id, **values)

    def tasks(self, kind: TaskKind) -> Sequence[Mapping[str, Any]]:
        wanted = select(task_rows).where(task_rows.c.kind == kind).order_by(task_rows.c.id)
        with reading(self.desk.store) as conn:
            return [dict(row) for row in conn.execute(wanted).mappings()]

    def advance(self, seconds: float) -> None:
        """The worker is heard of all the while."""
        self.clock.advance(seconds)
        for name in list(self.desk.roster.names()):
            self.desk.sync(name, free={})


def pending(*, benefit: float = 1.0, **more: Any) -> Pending:
    found = Pending(
        type="MINOR",
        snapshot=12,
        partitions=1,
        told=("",),
        files=40,
        bytes=1,
        position_deletes=0,
        equality_deletes=0,
        files_after=1,
        bytes_after=1,
        benefit=benefit,
    )
    return found.model_copy(update=more)


def summary() -> Summary:
    return Summary(
        partitions=1,
        due=0,
        files=1,
        bytes=1,
        rows=1,
        position_deletes=0,
        equality_deletes=0,
        score=100,
        amoro_score=100,
    )


def looked(table_id: str, **more: Any) -> EvaluatedTable:
    """A full look at a table, which found nothing to do unless it is told."""
    told: dict[str, Any] = {
        "id": table_id,
        "uuid": UUID,
        "pointer": "v2.json",
        "snapshot": 12,
        "summary": summary(),
    }
    return EvaluatedTable.model_validate({**told, **more})


def unchanged(table_id: str, **more: Any) -> EvaluatedTable:
    return EvaluatedTable.model_validate({"id": table_id, "unchanged": True, **more})
