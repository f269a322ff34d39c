"""Jobs whose steps raise are tried again after a growing pause, and cost others nothing (L6)."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from sqlalchemy import Connection

from headrace.coordinator.jobs import failing_jobs
from headrace.coordinator.jobs.admission import FRONT_MAX
from headrace.coordinator.jobs.failing_jobs import FIRST_PAUSE_S, PAUSE_MAX_S, FailingJobs
from headrace.coordinator.jobs.passes import BUDGET_S
from headrace.coordinator.jobs.reconciler import JobReconciler
from headrace.coordinator.leadership.term import PASS_INTERVAL_S
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.store.core.engine import reading
from tests.coordinator.jobs.many import OTHER, add
from tests.coordinator.leader_harness import LeaderHarness
from tests.fakes import FakeClock

MANY = 60
SHORT_S = BUDGET_S / 4  # a step


@pytest.fixture
def broken(desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Jobs each step of which raises; every step takes a while."""
    failing: set[str] = set()
    really = JobReconciler.reconcile

    def reconcile(self: JobReconciler, conn: Connection, key: str) -> None:
        desk.clock.advance(SHORT_S)
        if key in failing:
            raise RuntimeError("the key of the secrets is away")
        really(self, conn, key)

    monkeypatch.setattr(JobReconciler, "reconcile", reconcile)
    return failing


def add_ended(desk: LeaderHarness, *ids: str) -> None:
    """Jobs that a step would end: all their pipelines have finished."""
    add(desk, ids, JobStatus.RUNNING, PipelineStatus.FINISHED, moved=1)


def passes_until(desk: LeaderHarness, met: Callable[[], bool], *, most: int) -> list[str]:
    """Make passes as a term does; who failed meanwhile."""
    failed: list[str] = []
    for _ in range(most):
        failed += desk.job_passes.run(everything=True).failed
        if met():
            return failed
        if not desk.job_passes.more:
            desk.clock.advance(PASS_INTERVAL_S)
    raise AssertionError("it did not come to that")


@pytest.mark.req("L6")
def test_a_job_that_fails_is_left_alone_for_a_while_and_then_tried_again(
    desk: LeaderHarness, broken: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    add_ended(desk, "bad")
    broken.add("bad")
    end_s = desk.clock.monotonic_s() + 2 * PAUSE_MAX_S

    with caplog.at_level(logging.ERROR):
        failed = passes_until(desk, lambda: desk.clock.monotonic_s() > end_s, most=1000)

    told = [record.__dict__["next_try_in_s"] for record in caplog.records]
    assert told == [1, 2, 4, 8, 16, 32, 60][: len(failed)]
    assert len(failed) == len(told) >= 6
    broken.clear()
    desk.clock.advance(PAUSE_MAX_S)
    assert desk.job_passes.run(everything=False).done == ["bad"]
    assert desk.status("bad") is JobStatus.FINISHED


def test_a_cancel_ends_the_pause_once(desk: LeaderHarness, broken: set[str]) -> None:
    add_ended(desk, "bad")
    broken.add("bad")
    assert desk.job_passes.run(everything=False).failed == ["bad"]
    assert not desk.job_passes.run(everything=False).failed

    desk.commands.cancel("bad")

    assert desk.job_passes.run(everything=False).failed == ["bad"]
    assert not desk.job_passes.run(everything=False).failed


@pytest.mark.req("L6")
def test_many_jobs_that_fail_keep_no_other_waiting(desk: LeaderHarness, broken: set[str]) -> None:
    """There is no pause between passes while one is left that does not fail."""
    bad = [f"bad-{n:02}" for n in range(MANY)]
    add_ended(desk, *bad, "good")
    broken.update(bad)
    began_s = desk.clock.monotonic_s()

    failed = passes_until(desk, lambda: desk.status("good") is JobStatus.FINISHED, most=MANY)

    assert failed == bad, "each of them once"
    assert desk.clock.monotonic_s() - began_s <= (MANY + 1) * SHORT_S + PASS_INTERVAL_S


@pytest.mark.req("L6", "T6")
def test_jobs_that_fail_at_the_front_of_a_line_keep_nobody_behind_them_waiting(
    desk: LeaderHarness, broken: set[str]
) -> None:
    """They are more than a pass has the time to try."""
    bad = [f"bad-{n:02}" for n in range(3 * FRONT_MAX)]
    add(desk, bad, JobStatus.PENDING, PipelineStatus.CREATED, waits_for="a slot")
    broken.update(bad)
    good = desk.submit(group=OTHER)
    desk.register("w1", slots=1, group=OTHER)

    passes_until(desk, lambda: desk.status(good) is JobStatus.SCHEDULED, most=len(bad))


@pytest.mark.req("L6")
def test_a_job_that_fails_is_no_reason_for_a_pass(desk: LeaderHarness, broken: set[str]) -> None:
    """On SQLite each commit asks for one; a failing job keeps its mark."""
    add_ended(desk, "bad")
    broken.add("bad")

    def any_due() -> bool:
        with reading(desk.store) as conn:
            return desk.job_passes.any_due(conn)

    assert any_due()
    desk.job_passes.run(everything=False)
    assert not any_due()
    add_ended(desk, "good")
    assert any_due()
    for _ in range(2):  # the second one takes its mark away
        desk.job_passes.run(everything=False)
    assert not any_due()
    desk.clock.advance(FIRST_PAUSE_S)
    assert any_due(), "it is to be tried again"


def test_a_job_that_was_not_due_any_more_begins_with_a_short_pause() -> None:
    clock = FakeClock()
    failing = FailingJobs(clock)
    assert [failing.note_failure("job") for _ in range(3)] == [1, 2, 4]
    clock.advance(4 + PAUSE_MAX_S)

    assert failing.note_failure("job") == FIRST_PAUSE_S
    failing.note_success(["job", "unknown"])
    assert not failing.is_paused("job")


def test_so_many_failing_jobs_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing_jobs, "FAILING_MAX", 2)
    failing = FailingJobs(FakeClock())
    for job in ("a", "b", "a", "c"):
        failing.note_failure(job)

    assert [failing.is_paused(job) for job in "abc"] == [True, False, True]
