"""A leader that looks after the processes of one table, and a worker that says what it is told."""

from __future__ import annotations

from typing import Any

from headrace.coordinator.context import Pass, run_once
from headrace.coordinator.tables import plan_scheduler
from headrace.coordinator.tables.processes import Discards, ProcessReconciler
from headrace.coordinator.tables.recovery import RecoveryPass
from headrace.model.tables.status import TableStatus
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import Assignment, TaskEnded
from headrace.protocol.tables import CommitResult
from headrace.store.core.transactions import fenced
from headrace.store.tables import lake_tables, table_tasks
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.lake_rows import PENDING, LakeRows, a_plan, rewritten

WORKER = "w1"
NEW_SNAPSHOT = 99


class ProcessHarness:
    """One table, one worker, and a leader that looks after processes only."""

    def __init__(self, desk: LeaderHarness) -> None:
        self.desk = desk
        self.lakes = LakeRows(desk.store, now_ms=desk.clock.wall_ms())
        self.table = self.lakes.table(
            "t", TableStatus.PENDING, pending=PENDING, pending_since_ms=desk.clock.wall_ms()
        )
        desk.register(WORKER, slots=4, control_slots=4)
        self.held: dict[Claim, Assignment] = {}
        self.processes = ProcessReconciler(desk.clock)

    def begin(self) -> None:
        """Have the table planned."""
        with fenced(self.desk.store, self.desk.term) as conn:
            table = lake_tables.lock(conn, self.table)
            assert table is not None
            plan_scheduler.begin_planning(
                conn,
                table,
                task_id=self.desk.ids.new(),
                now_ms=self.desk.clock.wall_ms(),
                budget_bytes=1,
                at_least=None,
            )

    def take(self) -> list[Assignment]:
        """What the worker is given now."""
        answer = self.desk.sync(WORKER, holds=self.held, free={Lane.SLOT: 4, Lane.CONTROL: 4})
        self.held |= {given.claim: given for given in answer.assignments}
        self.held = {c: given for c, given in self.held.items() if c not in answer.stop}
        return list(answer.assignments)

    def take_one(self, kind: TaskKind) -> Assignment:
        [given] = self.take()
        assert given.kind is kind
        return given

    def end(self, given: Assignment, result: dict[str, Any] | None = None, **more: Any) -> bool:
        """The worker says how a task ended; whether it still held it."""
        self.held.pop(given.claim, None)
        outcome = more.pop("outcome", "SUCCESS")
        report = TaskEnded(seq=1, claim=given.claim, outcome=outcome, result=result, **more)
        return self.desk.report(WORKER, report, holds=self.held).held

    def plan(self, **more: Any) -> str:
        """Plan the table; the id of the process that runs then."""
        self.begin()
        self.end(self.take_one(TaskKind.PLAN), a_plan(**more).model_dump(mode="json"))
        process = self.status().process_id
        assert process is not None
        self.grant(process)
        return process

    def grant(self, process: str) -> None:
        with fenced(self.desk.store, self.desk.term) as conn:
            table_tasks.grant(conn, process, count=100)

    def rewrite(self) -> list[Assignment]:
        given = self.take()
        for each in given:
            bins = a_plan().tasks[int(each.claim.task.rpartition("-")[2])]
            self.end(each, rewritten(bins))
        return given

    def commit(self, **more: Any) -> bool:
        told = {"outcome": "COMMITTED", "snapshot": NEW_SNAPSHOT, **more}
        return self.end(
            self.take_one(TaskKind.COMMIT),
            CommitResult.model_validate(told).model_dump(mode="json"),
        )

    def look(self) -> Pass:
        loop = self.processes
        return run_once(self.desk.store, self.desk.term, loop, loop.keys(self.desk.store))

    def discard(self) -> Pass:
        loop = Discards(self.desk.clock, self.desk.ids)
        return run_once(self.desk.store, self.desk.term, loop, loop.keys(self.desk.store))

    def restart(self) -> None:
        """Another coordinator leads, and has recovered."""
        self.desk.take_over()
        self.processes = ProcessReconciler(self.desk.clock)
        recovering = RecoveryPass(self.desk.clock)
        run_once(self.desk.store, self.desk.term, recovering, recovering.keys(self.desk.store))

    def status(self) -> lake_tables.LakeTable:
        return self.lakes.read(self.table)
