"""Workers that are lost before they say what they hold: forgiven, but not for ever (K8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.coordinator.attempts import GIVEN_BACK_MAX, worker_left
from headrace.coordinator.roster import ACK_TIMEOUT_S
from headrace.model.job import JobStatus
from headrace.model.task import FailureCause
from headrace.store import claims, workers
from headrace.store.fence import fenced
from tests.coordinator.desk import TIMEOUT_S, Desk
from tests.coordinator.streaming import streaming


def fall_silent(desk: Desk, _worker: str) -> None:
    desk.clock.advance(TIMEOUT_S + 1)


def answer_slowly(desk: Desk, _worker: str) -> None:
    desk.clock.advance(ACK_TIMEOUT_S + 1)


def lose_the_jvm(desk: Desk, worker: str) -> None:
    with fenced(desk.store, desk.term) as conn:
        workers.unregister(conn, worker)
        [task] = claims.assigned_to(conn, [worker])
        worker_left(conn, task, FailureCause.KILLED, now_ms=desk.clock.wall_ms())


@pytest.mark.req("K8")
@pytest.mark.parametrize("go", [fall_silent, answer_slowly, lose_the_jvm])
def test_workers_that_go_before_they_say_what_they_hold_are_not_forgiven_for_ever(
    desk: Desk, go: Callable[[Desk, str], None]
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
def test_workers_that_leave_in_good_order_never_make_a_slow_one_count(desk: Desk) -> None:
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
