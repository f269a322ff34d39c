"""A job that is cancelled ends CANCELED from wherever it stands, with nothing half done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import NotFound
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import Claim, Lane, TaskKind, TaskStatus
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.specs import (
    ROWS,
    completed,
    failed,
    planned,
    prepared,
    settled,
    spec,
    stopped,
)


def created(desk: LeaderHarness) -> str:
    return desk.submit()


def pending(desk: LeaderHarness) -> str:
    job = desk.submit()
    desk.passes()
    assert desk.status(job) is JobStatus.PENDING
    return job


def scheduled(desk: LeaderHarness) -> str:
    job = desk.submit()
    desk.register("w1")
    desk.passes()
    assert desk.status(job) is JobStatus.SCHEDULED
    return job


def waiting_for_its_retry(desk: LeaderHarness) -> str:
    job, claim = desk.given(spec(retry_times=1, retry_interval_s=900))
    desk.report("w1", failed(claim))
    return job


@pytest.mark.parametrize("reach", [created, pending, scheduled, waiting_for_its_retry])
def test_a_job_that_nobody_runs_is_cancelled_at_once(
    desk: LeaderHarness, reach: Callable[[LeaderHarness], str]
) -> None:
    job = reach(desk)

    desk.commands.cancel(job)
    desk.passes()

    assert desk.status(job) is JobStatus.CANCELED
    assert desk.job(job).waits_for is None
    assert desk.job(job).ended_at_ms is not None
    assert desk.pipeline_status(job) is PipelineStatus.CANCELED
    if desk.is_registered("w1"):
        assert not desk.sync("w1").assignments


def cancelled_while_running(desk: LeaderHarness, job: str, claim: Claim) -> None:
    desk.commands.cancel(job)
    desk.passes()
    assert desk.status(job) is JobStatus.CANCELING
    assert desk.rung == ["w1"]
    assert desk.sync("w1", holds=[claim], free={}).stop == (claim,)
    desk.report("w1", stopped(claim))
    desk.passes()


def test_a_running_job_is_stopped_then_canceled(desk: LeaderHarness) -> None:
    job, claim = desk.given()

    cancelled_while_running(desk, job, claim)

    assert desk.status(job) is JobStatus.CANCELED
    assert desk.task(claim.task).status is TaskStatus.CANCELED


def test_a_planned_epoch_is_aborted_before_the_job_is_canceled(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])

    cancelled_while_running(desk, job, claim)

    assert desk.status(job) is JobStatus.CANCELING
    [settle] = desk.sync("w1", free={Lane.CONTROL: 1}).assignments
    assert settle.kind is TaskKind.SETTLE
    desk.report("w1", settled(settle.claim, 1))
    desk.passes()
    assert desk.status(job) is JobStatus.CANCELED
    assert desk.epochs(job) == [(1, "CHECKPOINT", "ABORTED")]


def test_a_prepared_epoch_is_committed_before_the_job_is_canceled(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", prepared(claim), holds=[claim])

    cancelled_while_running(desk, job, claim)

    assert desk.status(job) is JobStatus.CANCELING
    [settle] = desk.sync("w1", free={Lane.CONTROL: 1}).assignments
    desk.report("w1", settled(settle.claim, completed=[completed(settle.claim)]))
    desk.passes()
    assert desk.status(job) is JobStatus.CANCELED
    assert desk.epochs(job) == [(1, "CHECKPOINT", "COMPLETED")]
    assert (desk.pipeline(job).epoch, desk.pipeline(job).rows_out) == (1, ROWS)


def test_a_cancelled_job_whose_worker_dies_is_canceled(desk: LeaderHarness) -> None:
    job, _ = desk.given(spec(retry_times=3))
    desk.commands.cancel(job)
    desk.passes()

    desk.clock.advance(TIMEOUT_S + 1)
    desk.passes()

    assert desk.status(job) is JobStatus.CANCELED
    assert desk.pipeline_status(job) is PipelineStatus.CANCELED
    assert desk.job(job).error is None


def test_a_task_that_its_worker_never_took_is_not_given_again_after_a_cancel(
    desk: LeaderHarness,
) -> None:
    job = scheduled(desk)
    claim = desk.claimed("w1")
    desk.commands.cancel(job)
    desk.passes()

    answer = desk.sync("w1")  # it saw the answer, and holds nothing
    desk.passes()

    assert not answer.assignments
    assert desk.task(claim.task).status is TaskStatus.CANCELED
    assert desk.status(job) is JobStatus.CANCELED


def test_a_cancel_that_comes_with_the_end_leaves_the_job_finished(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.finish("w1", claim)

    desk.commands.cancel(job)
    desk.passes()

    assert desk.status(job) is JobStatus.FINISHED


def test_an_end_that_comes_after_the_cancel_began_leaves_the_job_canceled(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given()
    desk.commands.cancel(job)
    desk.passes()

    desk.finish("w1", claim)
    desk.passes()

    assert desk.status(job) is JobStatus.CANCELED
    assert desk.pipeline_status(job) is PipelineStatus.FINISHED


def test_cancelling_a_job_that_has_ended_changes_nothing(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.finish("w1", claim)
    desk.passes()
    before = desk.job(job)

    answered = desk.commands.cancel(job)
    desk.passes()

    assert answered == desk.job(job) == before
    assert before.status is JobStatus.FINISHED


def test_cancelling_twice_is_cancelling_once(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.commands.cancel(job)
    desk.commands.cancel(job)
    desk.passes()
    desk.report("w1", stopped(claim))
    desk.commands.cancel(job)
    desk.passes()

    assert desk.status(job) is JobStatus.CANCELED


def test_a_cancel_survives_a_change_of_leader_at_every_step(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.commands.cancel(job)
    desk.take_over()
    desk.passes()
    desk.take_over()
    assert desk.sync("w1", holds=[claim], free={}).stop == (claim,)
    desk.report("w1", stopped(claim))
    desk.take_over()
    desk.passes()
    desk.take_over()
    [settle] = desk.sync("w1", free={Lane.CONTROL: 1}).assignments
    desk.take_over()
    desk.report("w1", settled(settle.claim, 1))
    desk.take_over()
    desk.passes()

    assert desk.status(job) is JobStatus.CANCELED
    assert len(desk.tasks(job, TaskKind.SETTLE)) == 1


def test_cancelling_a_job_that_does_not_exist_says_so(desk: LeaderHarness) -> None:
    with pytest.raises(NotFound, match="there is no job 'nobody'"):
        desk.commands.cancel("nobody")
