"""Executions that stand still, as the leader's own clock sees them (D5)."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from headrace.coordinator.context import STALL_TIMEOUT_S
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import Claim, TaskStatus
from headrace.protocol.messages import Progress
from headrace.seams import arm
from headrace.store.core.engine import reading
from headrace.store.tasks import claims
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import planned, prepared, spec, succeeded
from tests.coordinator.sync.standstill import STEP_S, is_current, says, stands_still


@pytest.mark.req("D5")
def test_an_execution_that_stands_still_is_failed_and_its_worker_told_to_stop_it(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given(spec(retry_times=1))
    stands_still(desk, claim, STALL_TIMEOUT_S, activity=7)
    desk.passes()
    assert is_current(desk, claim), "the timeout is not over yet"

    desk.clock.advance(1)
    says(desk, claim, activity=7)
    desk.passes()

    task = desk.task(claim.task)
    assert (task.status, task.attempt, task.failures) == (TaskStatus.PLANNED, 1, 1)
    assert task.error is not None
    for part in (claim.execution, "worker w1", "601 s", "execution.stall-timeout is 600 s"):
        assert part in task.error
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
    assert says(desk, claim, activity=7) == (claim,)


@pytest.mark.req("D5")
def test_one_that_stood_still_is_given_up_once_and_the_next_attempt_has_a_count_of_its_own(
    desk: LeaderHarness,
) -> None:
    _, claim = desk.given(spec(retry_times=1))
    stands_still(desk, claim, STALL_TIMEOUT_S + 1, activity=7)
    desk.passes()
    desk.passes()
    desk.register("w2")
    again = desk.claimed("w2")
    says(desk, again, activity=1, worker="w2")
    says(desk, claim, activity=7)  # the zombie, which does not listen
    desk.passes()

    assert again == Claim(claim.task, 2)
    assert desk.task(claim.task).failures == 1
    assert is_current(desk, again)


@pytest.mark.req("D5")
@pytest.mark.parametrize("step", ["waiting", "running", "starting"])
def test_whatever_it_does_a_sign_of_life_within_the_timeout_is_enough(
    desk: LeaderHarness, step: str
) -> None:
    """Waiting on purpose and a finished Spark task are such signs; the worker counts them."""
    _, claim = desk.given(spec(retry_times=1))
    for activity in range(1, 5):
        stands_still(desk, claim, STALL_TIMEOUT_S, activity)
        says(desk, claim, activity + 1, step=step)
        desk.passes()

    assert is_current(desk, claim)


@pytest.mark.req("D5")
def test_a_worker_that_counts_no_signs_of_life_is_not_judged_by_them(desk: LeaderHarness) -> None:
    """One of the last version, while coordinators are upgraded first."""
    _, claim = desk.given(spec(retry_times=1))
    stands_still(desk, claim, 3 * STALL_TIMEOUT_S, activity=0)
    desk.passes()

    assert is_current(desk, claim)


@pytest.mark.req("D5", "D1")
def test_a_new_leader_gives_each_execution_one_full_timeout_from_its_take_over(
    desk: LeaderHarness,
) -> None:
    _, claim = desk.given(spec(retry_times=1))
    stands_still(desk, claim, STALL_TIMEOUT_S - 1, activity=7)
    desk.take_over()
    stands_still(desk, claim, STALL_TIMEOUT_S, activity=7)
    desk.passes()
    assert is_current(desk, claim)

    desk.clock.advance(1)
    says(desk, claim, activity=7)
    desk.passes()
    assert desk.task(claim.task).status is TaskStatus.PLANNED


@pytest.mark.req("D5")
def test_the_success_of_a_repeated_deploy_does_not_hide_that_it_stands_still(
    desk: LeaderHarness,
) -> None:
    job = desk.submit(spec(retry_times=1))
    desk.register("w1")
    desk.passes()
    [assignment] = desk.sync("w1", lost=True).assignments
    claim = assignment.claim
    said = Progress(step="starting", activity=7)
    for _ in range(int(STALL_TIMEOUT_S / STEP_S) + 1):
        # Its answers are lost: it names what it holds now and then, and is given it again.
        held = desk.say("w1", holds=[claim], free={}, progress={claim: said})
        desk.answer(held, lost=True)
        [again] = desk.sync("w1", lost=True, free={}).assignments
        assert again.claim == claim
        desk.clock.advance(STEP_S)
    desk.answer(desk.say("w1", holds=[claim], free={}, progress={claim: said}))
    desk.passes()

    assert desk.task(claim.task).status is TaskStatus.PLANNED
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED


@pytest.mark.req("D5")
def test_while_no_sync_can_be_written_nobody_stands_still(desk: LeaderHarness) -> None:
    """The store was away: what an execution did meanwhile is not known yet."""
    _, claim = desk.given(spec(retry_times=1))
    says(desk, claim, activity=7)
    desk.clock.advance(2 * STALL_TIMEOUT_S)
    assert desk.roster.note_sync("w1", 10**6), "the worker speaks, and is not silent"

    desk.passes()
    assert is_current(desk, claim)


@pytest.mark.req("D5")
def test_one_that_moves_between_the_look_and_the_write_is_kept(desk: LeaderHarness) -> None:
    _, claim = desk.given(spec(retry_times=1))
    stands_still(desk, claim, STALL_TIMEOUT_S + 1, activity=7)
    task, moved = desk.task(claim.task), Progress(step="running", activity=8)
    arm("in fenced transaction", lambda: desk.roster.monitor.note_progress("w1", [(task, moved)]))

    desk.pass_()

    assert is_current(desk, claim)


@pytest.mark.req("D5")
def test_a_sign_of_life_alone_costs_no_write(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    says(desk, claim, activity=1)
    written: list[object] = []

    def note(_: Connection, news: object) -> None:
        written.append(news)

    noted = claims.note_progress
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(claims, "note_progress", note)
        says(desk, claim, activity=2)
        says(desk, claim, activity=3)
        assert written == []
        says(desk, claim, activity=4, epoch=2)
        assert len(written) == 1
    assert claims.note_progress is noted
    with reading(desk.store) as conn:
        [execution] = claims.latest_attempts_of(conn, job).values()
    assert execution.progress is not None
    assert execution.progress["activity"] == 0


@pytest.mark.req("D5", "D3")
def test_a_job_is_not_shown_failed_before_nothing_of_it_can_be_written_any_more(
    desk: LeaderHarness,
) -> None:
    """Its retries are spent and its execution may still run: what it staged is aborted first, so
    that the target refuses it, and only then the job is FAILED."""
    job, claim = desk.given(spec(retry_times=0))
    desk.report("w1", planned(claim), holds=[claim])
    stands_still(desk, claim, STALL_TIMEOUT_S + 1, activity=7)
    desk.passes()

    assert desk.status(job) is JobStatus.FAILING
    assert says(desk, claim, activity=7) == (claim,)
    late = desk.report("w1", prepared(claim), holds=[claim])
    assert not late.held
    desk.passes()
    assert desk.status(job) is JobStatus.FAILING, "the epoch is still open"

    settle = desk.claimed("w1")
    desk.report("w1", succeeded(settle, result={"completed": [], "aborted": [1]}))
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED


def test_what_a_worker_no_longer_holds_is_forgotten(desk: LeaderHarness) -> None:
    _, claim = desk.given(spec(retry_times=1))
    stands_still(desk, claim, STALL_TIMEOUT_S + 1, activity=7)
    assert [stuck.claim for stuck in desk.roster.monitor.stalled()] == [claim]

    desk.roster.forget("w1")

    assert desk.roster.monitor.stalled() == []
