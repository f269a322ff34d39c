"""A job in each of the states in which it can be cancelled."""

from __future__ import annotations

from collections.abc import Callable

from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import Claim, TaskStatus
from tests.coordinator.jobs.streaming import (
    epoch,
    given_again,
    left_open,
    restored,
    running,
    stopped_with_savepoint,
)
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import failed, planned, prepared, spec

At = tuple[str, list[Claim]]  # a job, and what its worker holds of it


def created(desk: LeaderHarness) -> At:
    desk.register("w1")
    return desk.submit(), []


def pending(desk: LeaderHarness) -> At:
    desk.register("w1")
    job = desk.submit(spec(pipelines=9))
    desk.passes()
    assert desk.status(job) is JobStatus.PENDING
    return job, []


def scheduled(desk: LeaderHarness) -> At:
    desk.register("w1")
    job = desk.submit()
    desk.passes()
    assert desk.status(job) is JobStatus.SCHEDULED
    return job, []


def deploying(desk: LeaderHarness) -> At:
    """Given to a worker that never got the answer."""
    job, _ = scheduled(desk)
    desk.sync("w1", lost=True)
    assert desk.pipeline_status(job) is PipelineStatus.DEPLOYING
    return job, []


def initializing(desk: LeaderHarness) -> At:
    job, claim = desk.given()
    assert desk.pipeline_status(job) is PipelineStatus.INITIALIZING
    return job, [claim]


def staging(desk: LeaderHarness) -> At:
    job, claim = running(desk, epochs=1)
    desk.report("w1", planned(claim, 2), holds=[claim])
    return job, [claim]


def committing(desk: LeaderHarness) -> At:
    job, held = staging(desk)
    desk.report("w1", prepared(held[0], 2), holds=held)
    return job, held


def pausing(desk: LeaderHarness) -> At:
    """An attempt failed in the middle of an epoch, and the next may not begin for an hour."""
    job, claim = desk.given(spec(retry_times=3, retry_interval_s=3600))
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", failed(claim))
    desk.passes()
    assert desk.task(claim.task).status is TaskStatus.PLANNED
    return job, []


def restored_and_waiting(desk: LeaderHarness) -> At:
    job = stopped_with_savepoint(desk)
    desk.submit(spec(pipelines=2))
    desk.clock.advance(1)
    restored(desk, job)
    desk.passes()
    assert desk.status(job) is JobStatus.PENDING
    return job, []


def restored_and_running(desk: LeaderHarness) -> At:
    job = stopped_with_savepoint(desk)
    restored(desk, job)
    claim, _ = given_again(desk)
    goes_on_at = desk.pipeline(job).epoch + 1
    epoch(desk, claim, goes_on_at)
    desk.passes()
    assert desk.status(job) is JobStatus.RUNNING
    desk.report("w1", planned(claim, goes_on_at + 1), holds=[claim])
    return job, [claim]


def restored_with_an_open_epoch(desk: LeaderHarness) -> At:
    job = left_open(desk)
    if not desk.is_registered("w1"):
        desk.register("w1")
    desk.submit(spec(pipelines=2))
    desk.clock.advance(1)
    restored(desk, job, spec())
    desk.passes()
    assert desk.status(job) is JobStatus.PENDING
    return job, []


def doing_a_savepoint(desk: LeaderHarness) -> At:
    job, held = committing(desk)
    desk.commands.savepoint(job)
    desk.passes()
    assert desk.status(job) is JobStatus.DOING_SAVEPOINT
    return job, held


HELD = [initializing, staging, committing, restored_and_running, doing_a_savepoint]
NOT_HELD = [
    created,
    pending,
    scheduled,
    deploying,
    pausing,
    restored_and_waiting,
    restored_with_an_open_epoch,
]
Reach = Callable[[LeaderHarness], At]
