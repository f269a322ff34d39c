"""How long a commit may take: what committers are told is what marks are kept by (C2, E4)."""

from __future__ import annotations

import pytest

from headrace.coordinator.jobs.cleanup import CleanupReconciler
from headrace.coordinator.jobs.reconciler import JobReconciler
from headrace.model.jobs.epoch import CleanupStep, Retention
from headrace.model.task import TaskKind
from headrace.protocol.messages import PipelinePayload
from tests.coordinator.jobs.ended import DELAY_S, cleanup_of
from tests.coordinator.jobs.streaming import done, left_open
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import settled

SHORT = Retention(commit_deadline_ms=90_000)


@pytest.fixture
def short_desk(desk: LeaderHarness) -> LeaderHarness:
    desk.jobs = JobReconciler(desk.clock, desk.ids, wake_worker=desk.rung.append, retention=SHORT)
    desk.cleaning = CleanupReconciler(desk.clock, desk.ids, retention=SHORT)
    return desk


def told(desk: LeaderHarness, worker: str = "w1") -> tuple[str, float]:
    """What comes with the one task that the worker is given now."""
    [assignment] = desk.sync(worker).assignments
    payload = PipelinePayload.model_validate(assignment.payload)
    return TaskKind(assignment.kind), payload.commit_deadline_s


@pytest.mark.req("E4")
def test_an_execution_is_told_how_long_its_commits_may_take(short_desk: LeaderHarness) -> None:
    short_desk.submit()
    short_desk.register("w1")
    short_desk.passes()

    assert told(short_desk) == (TaskKind.PIPELINE, 90.0)


@pytest.mark.req("E4")
def test_so_is_who_settles_what_it_left_before_the_end_and_after_it(
    short_desk: LeaderHarness,
) -> None:
    job = left_open(short_desk)
    [before] = short_desk.tasks(job, TaskKind.SETTLE)
    assert before.payload["commit_deadline_s"] == 90.0
    short_desk.clock.advance(DELAY_S)
    short_desk.clean()
    short_desk.register("w1")

    assert told(short_desk) == (TaskKind.SETTLE, 90.0)


@pytest.mark.req("C2", "E4")
def test_marks_are_kept_by_the_longest_deadline_that_a_task_was_given(desk: LeaderHarness) -> None:
    long = Retention(commit_deadline_ms=7_200_000)
    desk.jobs = JobReconciler(desk.clock, desk.ids, wake_worker=desk.rung.append, retention=long)
    job, claim = desk.given()
    desk.take_over()
    desk.finish("w1", claim)
    desk.passes()

    found = cleanup_of(desk, desk.job(job).incarnation)
    assert found is not None
    assert found.targets_due_at_ms - found.made_at_ms == 2 * 7_200_000


@pytest.mark.req("C2", "E4")
def test_marks_outlive_by_as_much_a_commit_that_was_settled_after_the_end(
    short_desk: LeaderHarness,
) -> None:
    job = left_open(short_desk)
    incarnation = short_desk.job(job).incarnation
    short_desk.clock.advance(3600)
    short_desk.clean()
    short_desk.register("w1")
    claim = short_desk.claimed("w1")
    short_desk.report("w1", settled(claim, completed=[done(claim, 2)]))
    short_desk.clock.advance(60)
    settled_by_ms = short_desk.clock.wall_ms()
    short_desk.clean()

    found = cleanup_of(short_desk, incarnation)
    assert found is not None
    assert found.step is CleanupStep.TARGETS
    assert found.due_at_ms == settled_by_ms + SHORT.marks_kept_ms
