"""Commits that hang: an epoch has `checkpoint.timeout` from prepared to completed."""

from __future__ import annotations

import pytest

from headrace.model.jobs.epoch import CHECKPOINT_TIMEOUT_MS
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import PipelineStatus
from headrace.model.task import Claim, TaskStatus
from headrace.protocol.messages import Progress
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import completed, planned, prepared, spec
from tests.coordinator.sync.standstill import STEP_S, hurried, is_current, says, stands_still

COMMIT_S = CHECKPOINT_TIMEOUT_MS / 1000


def given_prepared(desk: LeaderHarness, made: JobSpec) -> tuple[str, Claim]:
    job, claim = desk.given(made)
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", prepared(claim), holds=[claim])
    return job, claim


@pytest.mark.req("D5")
def test_an_epoch_that_is_prepared_and_not_completed_in_time_fails_the_attempt(
    desk: LeaderHarness,
) -> None:
    job, claim = given_prepared(desk, spec(retry_times=1))
    for activity in range(1, 4):  # whatever else moves meanwhile
        says(desk, claim, activity, committing=1)
        desk.clock.advance(COMMIT_S / 3)
    says(desk, claim, 4, committing=1)
    desk.passes()
    assert is_current(desk, claim)

    desk.clock.advance(1)
    says(desk, claim, 5, committing=1)
    desk.passes()

    task = desk.task(claim.task)
    assert (task.status, task.failures) == (TaskStatus.PLANNED, 1)
    assert task.error is not None
    for part in ("epoch 1 is prepared", "sinks for 61.0 s", "checkpoint.timeout is 60000 ms"):
        assert part in task.error
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
    [again] = desk.sync("w1").assignments
    assert again.claim == Claim(claim.task, 2), "the next one commits it from its handles"


def test_a_job_says_itself_how_long_its_commits_may_take(desk: LeaderHarness) -> None:
    patient = hurried(spec(retry_times=1), checkpoint_timeout_ms=10 * CHECKPOINT_TIMEOUT_MS)
    _, claim = given_prepared(desk, patient)
    stands_still(desk, claim, 9 * COMMIT_S, activity=1, committing=1)
    desk.passes()

    assert is_current(desk, claim)


def test_reading_and_staging_have_no_limit(desk: LeaderHarness) -> None:
    hasty = hurried(spec(retry_times=1), checkpoint_timeout_ms=1)
    _, claim = desk.given(hasty)
    desk.report("w1", planned(claim), holds=[claim])
    for activity in range(1, 10):
        says(desk, claim, activity)
        desk.clock.advance(STEP_S)
    desk.passes()

    assert is_current(desk, claim)


def test_each_epoch_has_its_own_time_to_be_committed(desk: LeaderHarness) -> None:
    _, claim = given_prepared(desk, spec(retry_times=1))
    for epoch in range(1, 6):
        says(desk, claim, 2 * epoch, committing=epoch, epoch=epoch + 1)
        desk.clock.advance(COMMIT_S - 1)
        says(desk, claim, 2 * epoch + 1, committing=epoch, epoch=epoch + 1)
    desk.passes()

    assert is_current(desk, claim)


def test_an_epoch_completed_with_the_very_word_that_it_is_late_is_not_late(
    desk: LeaderHarness,
) -> None:
    """Its worker committed it and waited for a leader to take its report."""
    _, claim = given_prepared(desk, spec(retry_times=1))
    says(desk, claim, 1, committing=1)
    desk.clock.advance(STEP_S)
    says(desk, claim, 1, committing=1)
    desk.clock.advance(STEP_S + 1)
    said = Progress(step="running", epoch=2, committing=1, activity=9)
    desk.answer(
        desk.say("w1", holds=[claim], free={}, reports=[completed(claim)], progress={claim: said})
    )
    desk.passes()

    assert is_current(desk, claim)
