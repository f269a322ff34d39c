"""What a pass does and leaves alone: silent workers, broken jobs, admission, and nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, event, update

from headrace.coordinator.context import run_once
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim, Lane, TaskStatus
from headrace.protocol.messages import TaskEnded
from headrace.seams import arm
from headrace.store.core import prepared_statements
from headrace.store.core.engine import writing
from headrace.store.jobs import jobs
from headrace.store.tasks.schema import tasks as task_rows
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.specs import failed, planned, spec, stopped, succeeded


class Writes:
    """Counts the fenced transactions from now on."""

    def __init__(self) -> None:
        self.count = 0
        arm("before fenced transaction", self._one)

    def _one(self) -> None:
        self.count += 1


@pytest.mark.req("T5")
def test_a_silent_worker_is_unregistered_and_its_tasks_are_requeued_in_one_pass(
    desk: LeaderHarness,
) -> None:
    _, claim = desk.given(spec(retry_times=1))
    desk.clock.advance(TIMEOUT_S + 0.1)
    writes = Writes()

    run_once(desk.store, desk.term, desk.workers, desk.workers.keys(desk.store))

    assert not desk.is_registered("w1")
    assert desk.task(claim.task).status is TaskStatus.PLANNED
    assert desk.task(claim.task).attempt == 1
    assert writes.count == 1


def test_a_worker_that_spoke_within_the_timeout_is_not_silent(desk: LeaderHarness) -> None:
    _, claim = desk.given()
    desk.clock.advance(TIMEOUT_S - 0.1)
    desk.sync("w1", holds=[claim])
    desk.clock.advance(TIMEOUT_S - 0.1)
    desk.pass_()

    assert desk.is_registered("w1")


def test_a_new_leader_gives_every_worker_one_full_timeout(desk: LeaderHarness) -> None:
    _, claim = desk.given(spec(retry_times=1))
    desk.clock.advance(TIMEOUT_S * 100)
    desk.take_over()
    desk.pass_()
    desk.clock.advance(TIMEOUT_S)
    desk.pass_()
    assert desk.is_registered("w1")
    assert desk.task(claim.task).claim == claim

    desk.clock.advance(0.1)
    desk.pass_()
    assert not desk.is_registered("w1")


def test_a_jump_of_the_wall_clock_expires_nobody(desk: LeaderHarness) -> None:
    desk.given()
    desk.clock.set_wall(desk.clock.wall_ms() + 10**9)
    desk.pass_()

    assert desk.is_registered("w1")


@pytest.mark.req("T5")
def test_tasks_of_a_worker_that_somebody_else_unregistered_are_found(desk: LeaderHarness) -> None:
    """A leader died between unregistering and requeueing."""
    _, claim = desk.given(spec(retry_times=1))
    with writing(desk.store) as conn:
        conn.exec_driver_sql("DELETE FROM workers")
    desk.take_over()

    desk.pass_()

    assert desk.task(claim.task).status is TaskStatus.PLANNED


def test_a_broken_task_of_one_lost_worker_keeps_back_nobody_elses(desk: LeaderHarness) -> None:
    _, broken = desk.given(spec(retry_times=1), worker="w1")
    _, good = desk.given(spec(retry_times=1), worker="w2")
    with writing(desk.store) as conn:
        conn.execute(
            update(task_rows)
            .where(task_rows.c.id == broken.task)
            .values(payload={"retry_times": "many"})
        )
    desk.clock.advance(TIMEOUT_S + 1)

    outcome = desk.pass_()

    assert outcome.failed == ["w1"]
    assert desk.task(good.task).status is TaskStatus.PLANNED


def test_a_worker_that_speaks_between_the_look_and_the_write_is_kept(desk: LeaderHarness) -> None:
    _, claim = desk.given()
    desk.clock.advance(TIMEOUT_S + 1)
    late = desk.say("w1", holds=[claim])

    def speak() -> None:
        assert desk.roster.note_sync("w1", late.sync)

    arm("in fenced transaction", speak)

    desk.pass_()

    assert desk.is_registered("w1")
    assert desk.task(claim.task).claim == claim


def test_a_worker_that_was_taken_for_dead_comes_back_to_nothing(desk: LeaderHarness) -> None:
    _, lost = desk.given(spec(retry_times=1))
    desk.clock.advance(TIMEOUT_S + 1)
    desk.pass_()

    assert not desk.sync("w1", holds=[lost]).registered
    desk.register("w1")
    answer = desk.sync("w1", holds=[lost], free={})
    assert answer.registered
    assert answer.stop == (lost,)
    assert desk.claimed("w1") == Claim(lost.task, 2)


def test_an_answer_lost_after_a_worker_came_back_is_still_said_again(desk: LeaderHarness) -> None:
    desk.register("w1")
    for _ in range(20):
        desk.sync("w1")
    desk.clock.advance(TIMEOUT_S + 1)
    desk.pass_()
    desk.sync("w1")
    desk.register("w1")
    desk.plan_noops(1)

    lost = desk.sync("w1", lost=True)
    heard = desk.sync("w1")

    assert len(lost.assignments) == 1
    assert heard.assignments == lost.assignments


def test_one_job_whose_pass_breaks_does_not_stop_the_others(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = desk.submit(job_id="a-good")
    broken = desk.submit(job_id="b-broken")
    last = desk.submit(job_id="c-good")
    desk.register("w1", slots=10)
    really = jobs.spec_of

    def break_one(conn: Connection, job_id: str) -> JobSpec:
        if job_id == broken:
            raise RuntimeError("a bug of ours")
        return really(conn, job_id)

    monkeypatch.setattr(jobs, "spec_of", break_one)

    outcome = desk.pass_()

    assert outcome.failed == [broken]
    assert desk.status(first) is desk.status(last) is JobStatus.SCHEDULED
    assert desk.status(broken) is JobStatus.CREATED
    desk.commands.cancel(broken)
    desk.passes()
    assert desk.status(broken) is JobStatus.CANCELED


def test_a_pass_writes_nothing_when_nothing_is_due(desk: LeaderHarness) -> None:
    waits = desk.submit(spec(pipelines=5))
    running, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.passes()
    assert (desk.status(waits), desk.status(running)) == (JobStatus.PENDING, JobStatus.RUNNING)
    writes = Writes()

    for _ in range(3):
        desk.clock.advance(0.5)
        assert not desk.pass_().done

    assert writes.count == 0


def test_an_ending_job_that_waits_for_its_worker_costs_no_writes(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.commands.cancel(job)
    desk.passes()
    writes = Writes()
    assert not desk.pass_().done
    assert writes.count == 0

    desk.report("w1", stopped(claim))
    desk.passes()  # now it waits for somebody to settle it
    writes = Writes()
    assert not desk.pass_().done
    assert writes.count == 0


def test_an_idle_sync_writes_no_row(desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    _, claim = desk.given()
    desk.sync("w1", holds=[claim], free={})
    statements: list[str] = []
    really = prepared_statements.execute

    def run(conn: Connection, sql: str, *values: Any) -> Any:
        statements.append(sql)
        return really(conn, sql, *values)

    def note(conn: object, cursor: object, statement: str, *rest: object) -> None:
        statements.append(statement)

    monkeypatch.setattr(prepared_statements, "execute", run)
    event.listen(desk.store, "before_cursor_execute", note)
    desk.sync("w1", holds=[claim])

    assert statements
    assert not [s for s in statements if s.startswith(("UPDATE", "INSERT", "DELETE"))]


def test_a_job_waits_until_all_its_pipelines_can_have_a_slot(desk: LeaderHarness) -> None:
    job = desk.submit(spec(pipelines=3))
    desk.passes()
    assert desk.status(job) is JobStatus.PENDING
    assert desk.job(job).waits_for == "3 free slots in group 'default'; it has 0 of 0"

    desk.register("w1", slots=2)
    desk.passes()
    assert desk.job(job).waits_for == (
        "3 slots at once; group 'default' has 2 in all: add workers to the group, or cancel the "
        "job and submit it with fewer pipelines"
    )
    assert not desk.tasks(job)

    desk.register("w2", slots=1)
    desk.passes()
    assert desk.status(job) is JobStatus.SCHEDULED
    assert desk.job(job).waits_for is None
    assert len(desk.tasks(job)) == 3


def test_a_slot_that_was_promised_is_not_promised_again(desk: LeaderHarness) -> None:
    desk.register("w1", slots=1)
    first, second = desk.submit(job_id="a"), desk.submit(job_id="b")
    desk.passes()
    assert (desk.status(first), desk.status(second)) == (JobStatus.SCHEDULED, JobStatus.PENDING)

    claim = desk.claimed("w1")
    desk.finish("w1", claim)
    desk.passes()

    assert (desk.status(first), desk.status(second)) == (JobStatus.FINISHED, JobStatus.SCHEDULED)


def test_a_job_finishes_when_its_last_pipeline_does(desk: LeaderHarness) -> None:
    job = desk.submit(spec(pipelines=2))
    desk.register("w1")
    desk.passes()
    one, two = (a.claim for a in desk.sync("w1", free={Lane.SLOT: 2}).assignments)
    desk.finish("w1", one, holds=[two])
    desk.passes()
    assert desk.status(job) is JobStatus.RUNNING

    desk.finish("w1", two)
    desk.passes()
    assert desk.status(job) is JobStatus.FINISHED
    assert desk.job(job).error is None


@pytest.mark.parametrize("end", [succeeded, failed])
def test_a_job_that_has_ended_is_looked_at_no_more(
    desk: LeaderHarness, end: Callable[[Claim], TaskEnded]
) -> None:
    job, claim = desk.given()
    desk.report("w1", end(claim))
    desk.passes()
    before = desk.job(job)
    desk.take_over()
    desk.passes()

    assert desk.job(job) == before
