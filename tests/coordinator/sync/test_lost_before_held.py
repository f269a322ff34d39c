"""Workers that are lost before they say what they hold: forgiven, but not for ever (K8)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pytest
from sqlalchemy import Connection

from headrace.coordinator.context import ACK_TIMEOUT_S, run_once
from headrace.coordinator.jobs.attempts import GIVEN_BACK_MAX, worker_left, worker_lost
from headrace.model.jobs.status import JobStatus
from headrace.model.task import FailureCause, TaskStatus
from headrace.store.core.transactions import fenced
from headrace.store.tasks import claims, workers
from headrace.store.tasks.tasks import Task
from tests.coordinator.jobs.streaming import streaming
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.specs import planned, prepared, spec


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


@pytest.mark.req("K8")
def test_a_worker_that_said_what_it_holds_since_its_task_was_read_is_a_lost_one(
    desk: LeaderHarness,
) -> None:
    """It has begun an epoch, which counts, and may be what it was lost by."""
    desk.submit(spec(retry_times=1))
    desk.register("w1")
    desk.passes()
    claim = desk.claimed("w1")
    seen = desk.task(claim.task)
    desk.sync("w1", holds=[claim], free={})
    for report in (planned(claim), prepared(claim)):
        assert desk.report("w1", report, holds=[claim]).held

    with fenced(desk.store, desk.term) as conn:
        now_ms = desk.clock.wall_ms()
        worker_lost(conn, seen, "it is gone", cause=FailureCause.LOST, now_ms=now_ms)

    task = desk.task(claim.task)
    assert (task.status, task.losses, task.error) == (TaskStatus.PLANNED, 1, "it is gone")


@pytest.mark.req("K8")
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_slow_worker_that_says_at_last_what_it_holds_keeps_it(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite it would wait for the transaction that takes it away."""
    desk.submit(spec(retry_times=1))
    desk.register("w1")
    desk.passes()
    claim = desk.claimed("w1")
    answer_slowly(desk, "w1")
    looks, really = desk.workers.keys(desk.store), claims.assigned_to
    reads = iter([False, False, True])  # two of them only see whether it is due

    def overtaken(conn: Connection, ids: Collection[str]) -> Sequence[Task]:
        read = really(conn, ids)
        if next(reads):
            monkeypatch.setattr(claims, "assigned_to", really)
            desk.sync("w1", holds=[claim], free={})
        return read

    monkeypatch.setattr(claims, "assigned_to", overtaken)
    run_once(desk.store, desk.term, desk.workers, looks)

    task = desk.task(claim.task)
    assert (task.claim, task.status, task.losses) == (claim, TaskStatus.ACKED, 0)
