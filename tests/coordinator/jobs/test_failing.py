"""A job that fails: what is told of it meanwhile, and when its end waits for nobody."""

from __future__ import annotations

import pytest

from headrace.api.job_views import view_of
from headrace.client.views import AttemptView
from headrace.coordinator.jobs.attempts import SETTLE_TRIES_MAX
from headrace.model.jobs.epoch import Retention
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim, Lane
from headrace.store.core.engine import reading
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.specs import completed, failed, planned, prepared, spec

CONTROL = {Lane.CONTROL: 1}


def attempt_of(desk: LeaderHarness, job: str) -> AttemptView | None:
    with reading(desk.store) as conn:
        (pipeline,) = view_of(conn, desk.job(job), Retention()).pipelines
    return pipeline.attempt


def settling(desk: LeaderHarness) -> Claim:
    [assignment] = desk.sync("w1", free=CONTROL).assignments
    return assignment.claim


def test_of_a_failed_attempt_the_next_one_is_shown_with_its_time_and_the_reason(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given(spec(retry_times=3, retry_interval_s=5))
    assert attempt_of(desk, job) is None, "nothing has failed"
    desk.report("w1", failed(claim, "disk full"))
    desk.passes()

    waiting = attempt_of(desk, job)
    at_ms = desk.clock.wall_ms() + 5000
    expected = AttemptView(
        kind="PIPELINE",
        number=2,
        most=4,
        epoch=1,
        running=False,
        error="disk full",
        failed_at_ms=desk.clock.wall_ms(),
        next_at_ms=at_ms,
    )
    assert waiting == expected
    desk.clock.advance(5)
    second = desk.claimed("w1")
    changed = {"running": True, "next_at_ms": None}
    assert attempt_of(desk, job) == expected.model_copy(update=changed)

    desk.report("w1", planned(second), holds=[second])
    desk.report("w1", prepared(second), holds=[second])
    desk.report("w1", completed(second), holds=[second])
    assert attempt_of(desk, job) is None, "progress gives the retries back"


def test_a_lost_worker_is_shown_as_such(desk: LeaderHarness) -> None:
    job, _ = desk.given(spec(retry_times=3))
    desk.clock.advance(TIMEOUT_S + 1)
    desk.passes()

    shown = attempt_of(desk, job)
    assert shown is not None
    assert (shown.lost, shown.number, shown.most, shown.epoch) == (True, 2, 10, 1)
    assert (shown.error or "").startswith("worker w1 is gone")


@pytest.mark.req("D3")
def test_with_a_prepared_epoch_a_permanent_error_leaves_the_job_failing_and_told(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", prepared(claim), holds=[claim])
    desk.report("w1", failed(claim, "there is no such database", retry=False))
    desk.passes()
    unclaimed = attempt_of(desk, job)
    assert unclaimed is not None
    assert (unclaimed.kind, unclaimed.number, unclaimed.running) == ("SETTLE", 1, False)

    desk.report("w1", failed(settling(desk), "no database, still", retry=False))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILING
    shown = attempt_of(desk, job)
    assert shown is not None
    assert (shown.kind, shown.number, shown.most) == ("SETTLE", 2, SETTLE_TRIES_MAX)
    assert (shown.epoch, shown.error) == (1, "no database, still")
    assert shown.next_at_ms is not None


def test_when_nothing_was_prepared_a_permanent_error_ends_the_job_at_once(
    desk: LeaderHarness,
) -> None:
    """The target that refuses the rows refuses to be told of their end, too."""
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", failed(claim, "there is no such database", retry=False))
    desk.passes()
    desk.report("w1", failed(settling(desk), "no database, still", retry=False))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    assert desk.job(job).error == "there is no such database; no epoch was completed"
    assert desk.epochs(job) == [(1, "CHECKPOINT", "PLANNED")], "its cleanup settles it"


@pytest.mark.parametrize("passing", ["the error", "what was completed"])
def test_what_may_pass_and_what_was_written_is_settled_with_patience(
    desk: LeaderHarness, passing: str
) -> None:
    job, claim = desk.given(spec(retry_times=0))
    epoch = 1
    if passing == "what was completed":
        desk.report("w1", planned(claim), holds=[claim])
        desk.report("w1", prepared(claim), holds=[claim])
        desk.report("w1", completed(claim), holds=[claim])
        epoch = 2
    desk.report("w1", planned(claim, epoch), holds=[claim])
    desk.report("w1", failed(claim, "disk full"))
    desk.passes()
    desk.report("w1", failed(settling(desk), "away", retry=passing == "the error"))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILING
