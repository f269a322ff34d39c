"""Workers that are lost before they say what they hold: forgiven, but not for ever (K8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.coordinator.context import ACK_TIMEOUT_S
from headrace.coordinator.jobs.attempts import GIVEN_BACK_MAX, worker_left
from headrace.model.jobs.status import JobStatus
from headrace.model.task import FailureCause
from headrace.store.core.transactions import fenced
from headrace.store.tasks import claims, workers
from tests.coordinator.jobs.streaming import streaming
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness


def fall_silent(desk: LeaderHarness, _worker: str) -> None:
    desk.clock.advance(TIMEOUT_S + 1)


def answer_slowly(desk: LeaderHarness, _worker: str) -> None:
    desk.clock.advance(ACK_TIMEOUT_S + 1)


def lose_the_jvm(desk: LeaderHarness, worker: str) -> None:
    with fenced(desk.store, desk.term) as conn:
        workers.unregister(conn, worker)
        [task] = claims.assigned_to(conn, [worker])
        worker_left(conn, task, FailureCause.KILLED, now_ms=desk.clock.wall_ms())


@pytest.mark.req("K8")
@pytest.mark.parametrize("go", [fall_silent, answer_slowly, lose_the_jvm])
def test_workers_that_go_before_they_say_what_they_hold_are_not_forgiven_for_ever(
    desk: LeaderHarness, go: Callable[[LeaderHarness, str], None]
) -> None:
    """Each begins it, and may be lost by it, within the round trip in which it would say so."""
    made = streaming(retry_times=2)
    env = made.env.model_copy(update={"lost_workers_max": 2})
    job = desk.submit(made.model_copy(update={"env": env}))
    for life in range(GIVEN_BACK_MAX + 2):
        assert desk.status(job) is not JobStatus.FAILED
        desk.register(f"w{life:02}")
        desk.passes()
        [given] = desk.sync(f"w{life:02}").assignments
        task = desk.task(given.claim.task)
        assert (task.failures, task.losses) == (0, max(0, life - GIVEN_BACK_MAX))
        go(desk, f"w{life:02}")
        desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    assert "2 workers in a row were lost" in (desk.job(job).error or "")


@pytest.mark.req("K8")
def test_workers_that_leave_in_good_order_never_make_a_slow_one_count(desk: LeaderHarness) -> None:
    """A job without retries outlives any number of rolling restarts of its workers."""
    job = desk.submit(streaming(retry_times=0))
    for life in range(GIVEN_BACK_MAX + 2):
        worker = f"w{life:02}"
        desk.register(worker)
        desk.passes()
        [given] = desk.sync(worker).assignments
        desk.sync(worker, holds=[given.claim], free={})
        with fenced(desk.store, desk.term) as conn:
            workers.unregister(conn, worker)
            [task] = claims.assigned_to(conn, [worker])
            worker_left(conn, task, None, now_ms=desk.clock.wall_ms())
    desk.register("slow")
    desk.passes()
    assert desk.sync("slow").assignments
    answer_slowly(desk, "slow")
    desk.passes()

    assert desk.status(job) is not JobStatus.FAILED
