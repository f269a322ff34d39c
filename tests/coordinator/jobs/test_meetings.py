"""A pass and the writer meet at one job, or a transaction is undone: nothing is lost by it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence

import pytest
from sqlalchemy import Connection

from headrace.coordinator.context import STALL_TIMEOUT_S, run_once
from headrace.coordinator.sync import reports
from headrace.coordinator.sync.answers import BatchEffects
from headrace.errors import Refused
from headrace.model.jobs.status import PipelineStatus
from headrace.model.task import TaskStatus
from headrace.protocol.messages import Acknowledged, Held, Progress
from headrace.store.core.engine import reading
from headrace.store.core.transactions import fenced
from headrace.store.jobs import jobs
from headrace.store.tasks import claims, tasks
from headrace.store.tasks.tasks import Task
from tests.coordinator.jobs.test_job_logs import told
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.specs import completed, failed, planned, prepared, spec, succeeded
from tests.coordinator.sync.standstill import stands_still

BOUND_S = 120.0  # for a state to come, also on a busy machine


# On SQLite one of the two waits for the other's whole transaction.
on_postgresql = pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)


@on_postgresql
def test_a_failure_that_comes_while_a_cancelled_job_is_stopped_keeps_its_reason(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, claim = desk.given(spec(retry_times=0))
    desk.commands.cancel(job)
    really = tasks.want_stop

    def overtaken(conn: Connection, job_id: str) -> Sequence[str]:
        if desk.pipeline_status(job) is not PipelineStatus.FAILING:
            desk.report("w1", failed(claim, "disk full"))
        return really(conn, job_id)

    monkeypatch.setattr(tasks, "want_stop", overtaken)
    desk.passes()

    assert desk.pipeline_status(job) is PipelineStatus.FAILED
    assert desk.pipeline(job).error == "disk full"


@on_postgresql
def test_a_sync_and_a_pass_lock_the_tasks_of_a_job_in_the_same_order(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = desk.submit(spec(pipelines=2))
    desk.register("w1")
    desk.passes()
    first, second = held = sorted(given.claim for given in desk.sync("w1").assignments)
    desk.sync("w1", holds=held, free={})
    desk.passes()
    really, locked, waits = reports.apply_epoch, threading.Event(), threading.Event()

    def slow(conn: Connection, report: reports.EpochReport, *, now_ms: int) -> Acknowledged:
        answer = really(conn, report, now_ms=now_ms)
        if not locked.is_set():
            locked.set()
            waits.wait(0.3)  # long enough for the pass to ask for its locks; bounds nothing
        return answer

    monkeypatch.setattr(reports, "apply_epoch", slow)
    desk.commands.cancel(job)
    passing = threading.Thread(target=lambda: locked.wait(BOUND_S) and desk.pass_())
    passing.start()
    desk.sync("w1", holds=held, reports=[planned(second), planned(first)], free={})
    passing.join(BOUND_S)

    assert desk.sync("w1", holds=held, free={}).stop == (first, second)


@pytest.mark.req("C1")
@on_postgresql
@pytest.mark.parametrize("retry_times", [0, 1])
def test_the_end_of_an_attempt_that_was_given_back_meanwhile_is_late_news(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch, *, retry_times: int
) -> None:
    """The writer read the task before a pass gave it up, and hears its end after."""
    job, claim = desk.given(spec(retry_times=retry_times))
    for report in (planned(claim), prepared(claim), completed(claim)):
        assert desk.report("w1", report, holds=[claim]).held
    stands_still(desk, claim, STALL_TIMEOUT_S + 1, activity=7)
    epochs, really = desk.epochs(job), claims.assigned_to

    def given_up(conn: Connection, workers: Collection[str]) -> Sequence[Task]:
        read = really(conn, workers)
        monkeypatch.setattr(claims, "assigned_to", really)
        run_once(desk.store, desk.term, desk.executions, desk.executions.keys())
        return read

    monkeypatch.setattr(claims, "assigned_to", given_up)

    assert not desk.report("w1", succeeded(claim)).held
    assert desk.epochs(job) == epochs
    assert desk.pipeline(job).epoch == 1
    given_back = TaskStatus.PLANNED if retry_times else TaskStatus.FAILED
    assert desk.task(claim.task).status is given_back


@pytest.mark.req("C1", "S1")
def test_an_end_that_is_decided_by_a_task_of_before_changes_nothing(desk: LeaderHarness) -> None:
    job, claim = desk.given(spec(retry_times=1))
    for report in (planned(claim), prepared(claim), completed(claim)):
        assert desk.report("w1", report, holds=[claim]).held
    seen = desk.task(claim.task)
    desk.report("w1", failed(claim))
    epochs, status = desk.epochs(job), desk.pipeline_status(job)

    with fenced(desk.store, desk.term) as conn:
        reports.apply_end(conn, seen, succeeded(claim), now_ms=desk.clock.wall_ms())

    assert desk.epochs(job) == epochs
    assert desk.pipeline_status(job) is status
    assert desk.task(claim.task).status is TaskStatus.PLANNED


@on_postgresql
def test_a_savepoint_of_a_job_that_ends_while_it_is_asked_for_is_refused(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, claim = desk.given()
    really = jobs.want_savepoint

    def overtaken(conn: Connection, job_id: str) -> bool:
        desk.finish("w1", claim)
        desk.passes()
        return really(conn, job_id)

    monkeypatch.setattr(jobs, "want_savepoint", overtaken)

    with pytest.raises(Refused, match="is FINISHED: it has ended, and all of it was read"):
        desk.commands.savepoint(job)
    assert "a savepoint is wanted" not in told(desk, job)


def test_progress_of_a_transaction_that_was_undone_is_written_again(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    said = desk.say("w1", free={}).model_copy(
        update={"holds": (Held(claim=claim, progress=Progress(step="staging", rows=7)),)}
    )
    with fenced(desk.store, desk.term) as conn:
        desk.dispatch.answer(conn, [said], BatchEffects())
        conn.rollback()

    for _ in range(2):
        touched = BatchEffects()
        with fenced(desk.store, desk.term) as conn:
            desk.dispatch.answer(conn, [said], touched)
        desk.dispatch.committed(touched)

    with reading(desk.store) as conn:
        progress = claims.latest_attempts_of(conn, job)[claim.task].progress
    assert progress is not None
    assert progress["rows"] == 7
    assert list(desk.roster.stored_progress("w1")) == [claim]


def test_a_worker_that_spoke_without_being_registered_is_forgotten(desk: LeaderHarness) -> None:
    assert not desk.sync("stranger").registered
    assert desk.roster.names() == {"stranger"}

    desk.clock.advance(TIMEOUT_S + 1)
    desk.passes()

    assert desk.roster.names() == set()
