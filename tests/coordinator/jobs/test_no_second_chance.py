"""A batch job without checkpoints and without retries ends FAILED when its worker dies (C8)."""

from __future__ import annotations

import pytest

from headrace.coordinator.jobs.reconciler import SETTLE_ALONE_DEADLINE_S
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import ENDED, TaskKind
from headrace.store.core.transactions import fenced
from headrace.store.tasks import workers
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.live_workers import TICK_S, LiveWorker, until_it_ends
from tests.coordinator.specs import failed, planned, spec

GONE = "worker w1 is gone (no word from it for "


def begun(desk: LeaderHarness) -> str:
    """It stages its only epoch; nothing of it is kept, and it may not be tried again."""
    job, claim = desk.given(spec(retry_times=0))
    desk.report("w1", planned(claim), holds=[claim])
    desk.passes()
    assert desk.status(job) is JobStatus.RUNNING
    return job


def check_it_is_over(desk: LeaderHarness, job: str) -> None:
    assert (desk.job(job).error or "").startswith(GONE)
    assert desk.job(job).waits_for is None
    assert desk.pipeline_status(job) is PipelineStatus.FAILED
    both = [*desk.tasks(job), *desk.tasks(job, TaskKind.SETTLE)]
    assert len(both) == 2
    assert all(task.status in ENDED for task in both)
    assert not desk.pass_().done


@pytest.mark.req("C8")
def test_with_another_worker_it_fails_as_soon_as_the_loss_is_known(desk: LeaderHarness) -> None:
    job = begun(desk)
    desk.register("w2")

    status, after_s = until_it_ends(desk, job, LiveWorker("w2"))

    assert status is JobStatus.FAILED
    assert after_s <= TIMEOUT_S + 2 * TICK_S
    check_it_is_over(desk, job)
    assert desk.job(job).error == desk.pipeline(job).error
    assert desk.epochs(job) == [(1, "CHECKPOINT", "ABORTED")]


@pytest.mark.req("C8")
def test_without_any_other_worker_it_fails_a_moment_later(desk: LeaderHarness) -> None:
    job = begun(desk)

    status, after_s = until_it_ends(desk, job)

    assert status is JobStatus.FAILED
    assert after_s <= TIMEOUT_S + SETTLE_ALONE_DEADLINE_S + 3 * TICK_S
    check_it_is_over(desk, job)
    assert "epoch 1 is left open" in (desk.job(job).error or "")


@pytest.mark.req("C8")
def test_the_next_leader_fails_it_too(desk: LeaderHarness) -> None:
    job = begun(desk)
    desk.clock.advance(TIMEOUT_S / 2)
    desk.take_over()  # its silence is counted from here on (D1)

    status, after_s = until_it_ends(desk, job)

    assert status is JobStatus.FAILED
    assert after_s <= TIMEOUT_S + SETTLE_ALONE_DEADLINE_S + 3 * TICK_S
    check_it_is_over(desk, job)


@pytest.mark.req("C8", "T5")
@pytest.mark.parametrize("canceled", [False, True])
def test_a_job_that_nobody_began_has_its_attempt_left(
    desk: LeaderHarness,
    canceled: bool,  # noqa: FBT001
) -> None:
    """The worker was given it, and died before it said to hold it."""
    job = desk.submit(spec(retry_times=0))
    desk.register("w1")
    desk.passes()
    claim = desk.claimed("w1")
    if canceled:
        desk.commands.cancel(job)
        desk.passes()
    with fenced(desk.store, desk.term) as conn:  # as for a leader that comes back after long
        workers.unregister(conn, "w1")
    desk.passes()

    task = desk.task(claim.task)
    assert (task.failures, task.losses) == (0, 0)
    if canceled:
        assert desk.status(job) is JobStatus.CANCELED
        return
    desk.register("w2")
    desk.finish("w2", desk.claimed("w2"))
    desk.passes()
    assert desk.status(job) is JobStatus.FINISHED


@pytest.mark.req("E6")
def test_what_is_not_prepared_waits_its_time_for_a_worker_that_is_there(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", failed(claim))
    desk.passes()
    for _ in range(int(2 * SETTLE_ALONE_DEADLINE_S)):
        desk.clock.advance(1)
        desk.sync("w1", free={})  # its control slots are taken
        desk.passes()

    assert desk.status(job) is JobStatus.FAILING
