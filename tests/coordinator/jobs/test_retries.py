"""Attempts that fail: tried again as the job allows, then failed with the reason."""

from __future__ import annotations

import pytest

from headrace.coordinator.jobs.attempts import SETTLE_PAUSE_MAX_MS, SETTLE_PAUSE_MS
from headrace.coordinator.jobs.reconciler import (
    SETTLE_ALONE_DEADLINE_S,
    SETTLE_DEADLINE_S,
    STOPPING_LOOK_MS,
)
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import FailureCause, Lane, TaskKind, TaskStatus
from headrace.protocol.messages import Json
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.specs import completed, failed, planned, prepared, settled, spec, succeeded

CONTROL = {Lane.CONTROL: 1}


def test_an_attempt_that_fails_is_tried_again_as_often_as_the_job_says(desk: LeaderHarness) -> None:
    job, claim = desk.given(spec(retry_times=2, retry_interval_s=5))
    for attempt in (2, 3):
        desk.report("w1", failed(claim))
        desk.passes()
        assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
        assert not desk.sync("w1").assignments
        desk.clock.advance(5)
        claim = desk.claimed("w1")
        assert claim.attempt == attempt

    desk.report("w1", failed(claim, "disk full"))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    assert desk.job(job).error == "disk full"
    assert desk.job(job).ended_at_ms == desk.clock.wall_ms()
    assert desk.pipeline_status(job) is PipelineStatus.FAILED


def test_a_failure_that_would_happen_again_is_not_tried_again_at_first(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given(spec(retry_times=5))

    desk.report("w1", failed(claim, "there is no table", retry=False))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    assert desk.job(job).error == "there is no table"


def test_a_failed_job_aborts_its_planned_epoch_in_the_control_lane(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", failed(claim, "disk full"))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILING
    [assignment] = desk.sync("w1", free=CONTROL).assignments
    assert (assignment.kind, assignment.lane) == (TaskKind.SETTLE, Lane.CONTROL)
    desk.report("w1", settled(assignment.claim, 1))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    assert desk.job(job).error == "disk full"
    assert desk.epochs(job) == [(1, "CHECKPOINT", "ABORTED")]


def test_a_lost_worker_is_counted_apart_from_errors(desk: LeaderHarness) -> None:
    """How many of them end a job, and how progress forgives them, is in test_progress."""
    job, claim = desk.given(spec(retry_times=1))
    desk.clock.advance(TIMEOUT_S + 1)
    desk.pass_()

    task = desk.task(claim.task)
    assert (task.failures, task.losses, task.failure_cause) == (0, 1, FailureCause.LOST)
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
    desk.register("w2")
    second = desk.claimed("w2")
    desk.sync("w2", holds=[second])
    desk.report("w2", failed(second, "disk full"))
    task = desk.task(claim.task)
    assert (task.failures, task.losses, task.failure_cause) == (1, 1, FailureCause.ERROR)


def test_the_reason_of_a_job_is_its_first_failure_and_not_what_followed(
    desk: LeaderHarness,
) -> None:
    """Stopping the other pipelines makes them fail in their own way."""
    job = desk.submit(spec(pipelines=2, retry_times=0))
    desk.register("w1")
    desk.passes()
    first, second = sorted(a.claim for a in desk.sync("w1").assignments)
    desk.sync("w1", holds=[first, second])
    by_number = {t.pipeline: t.claim for t in desk.tasks(job)}
    desk.report("w1", failed(by_number[2], "disk full"), holds=[by_number[1]])
    desk.passes()
    assert desk.sync("w1", holds=[by_number[1]]).stop == (by_number[1],)
    desk.report("w1", failed(by_number[1], "SparkException: job cancelled"))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    assert desk.job(job).error == "disk full"
    assert desk.pipeline_status(job, 1) is PipelineStatus.CANCELED
    assert desk.pipeline_status(job, 2) is PipelineStatus.FAILED


def left_prepared(desk: LeaderHarness) -> str:
    """A job that failed after it prepared its first epoch, with a settle task to be claimed."""
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", prepared(claim), holds=[claim])
    desk.report("w1", failed(claim, "disk full"))
    desk.passes()
    return job


@pytest.mark.req("E6")
def test_settling_is_tried_less_and_less_often_until_its_deadline(desk: LeaderHarness) -> None:
    """A refusal ends it no sooner: a catalog that restarts refuses, too."""
    job, began_ms = left_prepared(desk), desk.clock.wall_ms()
    pauses_ms: list[int] = []
    while desk.status(job) is JobStatus.FAILING:
        [assignment] = desk.sync("w1", free=CONTROL).assignments
        desk.report("w1", failed(assignment.claim, "catalog away", retry=False))
        desk.passes()
        pause_ms = min(SETTLE_PAUSE_MS << len(pauses_ms), SETTLE_PAUSE_MAX_MS)
        desk.clock.advance((pause_ms - 1) / 1000)
        assert not desk.sync("w1", free=CONTROL).assignments
        desk.clock.advance(0.001)
        pauses_ms.append(pause_ms)

    assert desk.clock.wall_ms() - began_ms >= 1000 * SETTLE_DEADLINE_S - SETTLE_PAUSE_MAX_MS
    assert pauses_ms[:3] == [2_000, 4_000, 8_000]
    assert pauses_ms[-1] == SETTLE_PAUSE_MAX_MS
    assert desk.status(job) is JobStatus.FAILED
    error = desk.job(job).error or ""
    assert error == "disk full; epoch 1 is left open, it could not be settled: catalog away"
    # Nobody knows what became of it, so it stays open, and nothing of it may be deleted.
    assert desk.epochs(job) == [(1, "CHECKPOINT", "PREPARED")]


@pytest.mark.parametrize(
    "result",
    [
        None,
        {},
        {"aborted": [1]},
        {"completed": []},
        {"completed": [{"epoch": "x"}]},
    ],
)
def test_a_settlement_that_leaves_a_prepared_epoch_open_is_tried_again(
    desk: LeaderHarness, result: Json | None
) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", prepared(claim), holds=[claim])
    desk.report("w1", failed(claim))
    desk.passes()
    [first] = desk.sync("w1", free=CONTROL).assignments

    desk.report("w1", succeeded(first.claim, result=result))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILING
    assert desk.epochs(job) == [(1, "CHECKPOINT", "PREPARED")]
    desk.clock.advance(SETTLE_PAUSE_MS / 1000)
    [second] = desk.sync("w1", free=CONTROL).assignments
    desk.report("w1", settled(second.claim, completed=[completed(second.claim)]))
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED
    assert desk.epochs(job) == [(1, "CHECKPOINT", "COMPLETED")]


def test_a_settle_task_is_not_stopped_with_its_job(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", failed(claim))
    desk.passes()
    [settle] = desk.sync("w1", free=CONTROL).assignments
    desk.passes()

    assert desk.sync("w1", holds=[settle.claim]).stop == ()
    assert desk.task(settle.claim.task).status is TaskStatus.ACKED
    assert desk.status(job) is JobStatus.FAILING


@pytest.mark.req("E6")
@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize(
    ("staged", "deadline_s"), [(False, SETTLE_ALONE_DEADLINE_S), (True, SETTLE_DEADLINE_S)]
)
def test_an_epoch_that_nobody_is_left_to_settle_is_told_and_given_up_in_the_end(
    desk: LeaderHarness, *, cancelled: bool, staged: bool, deadline_s: float
) -> None:
    """Sooner when nothing of it is prepared: then there is nothing to commit."""
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    if staged:
        desk.report("w1", prepared(claim), holds=[claim])
    if cancelled:
        desk.commands.cancel(job)
        desk.passes()
    desk.clock.advance(TIMEOUT_S + 1)
    desk.passes()

    ending, ended = (
        (JobStatus.CANCELING, JobStatus.CANCELED)
        if cancelled
        else (JobStatus.FAILING, JobStatus.FAILED)
    )
    assert desk.status(job) is ending
    assert desk.job(job).waits_for == "a worker in group 'default' to settle epoch 1 of pipeline 1"
    desk.clock.advance(deadline_s - 1)
    desk.passes()
    assert desk.status(job) is ending

    desk.clock.advance(1)
    desk.passes()
    assert desk.status(job) is ended
    assert desk.job(job).waits_for is None
    error = desk.job(job).error or ""
    assert "epoch 1 is left open, it could not be settled: no worker in group 'default'" in error
    assert desk.epochs(job) == [(1, "CHECKPOINT", "PREPARED" if staged else "PLANNED")]


def test_a_worker_that_comes_settles_what_was_waited_for(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.clock.advance(TIMEOUT_S + 1)
    desk.passes()
    desk.register("w2")
    desk.clock.advance(STOPPING_LOOK_MS / 1000)
    desk.passes()
    assert desk.job(job).waits_for is None

    [settle] = desk.sync("w2", free=CONTROL).assignments
    desk.report("w2", settled(settle.claim, 1))
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED
    assert desk.epochs(job) == [(1, "CHECKPOINT", "ABORTED")]


def test_a_task_that_its_worker_lost_without_a_word_counts_as_a_failure(
    desk: LeaderHarness,
) -> None:
    """Or a worker that can't write down how tasks end would be given it for ever."""
    job, claim = desk.given(spec(retry_times=1))
    for _ in range(2):
        desk.sync("w1", holds=[], free={})
        desk.passes()
        for given in desk.sync("w1").assignments:
            desk.sync("w1", holds=[given.claim], free={})

    assert desk.task(claim.task).attempt == 2
    assert desk.status(job) is JobStatus.FAILED
    assert desk.job(job).error == "worker w1 lost it and did not say how it ended"


def test_a_task_that_never_began_goes_back_and_its_pipeline_with_it(desk: LeaderHarness) -> None:
    job = desk.submit(spec(retry_times=0))
    desk.register("w1")
    desk.passes()
    claim = desk.claimed("w1")
    assert desk.pipeline_status(job) is PipelineStatus.DEPLOYING

    desk.sync("w1", holds=[], free={})

    assert desk.task(claim.task).failures == 0
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED


@pytest.mark.parametrize("behind_ms", [0, 3_600_000])
def test_a_pause_is_no_longer_than_it_is_however_far_back_the_next_leaders_clock(
    desk: LeaderHarness, behind_ms: int
) -> None:
    _, claim = desk.given(spec(retry_times=1, retry_interval_s=30))
    desk.report("w1", failed(claim))
    assert not desk.sync("w1").assignments

    desk.take_over()
    desk.clock.set_wall(desk.clock.wall_ms() - behind_ms)
    desk.clock.advance(30)

    assert desk.claimed("w1").attempt == 2
