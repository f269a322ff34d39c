"""Targets that are settled at once: what is open always, the marks only when nobody can commit."""

from __future__ import annotations

import pytest

from headrace.errors import NotFound, Refused
from headrace.model.jobs.epoch import CleanupStep
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim
from headrace.protocol.messages import ForgetPayload, PipelinePayload
from headrace.store.core.engine import reading
from headrace.store.jobs import cleanups
from tests.coordinator.jobs.ended import MARKS_S, OF_JOBS, cleanup_of, finished, rows
from tests.coordinator.jobs.streaming import epoch, given_again, restored
from tests.coordinator.jobs.test_commands import everything, with_secret
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import failed, planned, settled, spec, succeeded


def retried(made: JobSpec, times: int = 3) -> JobSpec:
    env = made.env.model_copy(update={"retry_times": times, "retry_interval_s": 0})
    return made.model_copy(update={"env": env})


def hurried(desk: LeaderHarness, job: str) -> None:
    """As a run that leaves does; then the leader looks twice."""
    desk.commands.settle(job)
    for _ in range(2):
        assert desk.clean().failed == []


def kept_names(desk: LeaderHarness, incarnation: str) -> list[str]:
    with reading(desk.store) as conn:
        return list(cleanups.secret_names(conn, incarnation))


@pytest.mark.req("C2")
def test_a_job_whose_executions_all_said_their_end_is_cleaned_up_at_once(
    desk: LeaderHarness,
) -> None:
    job = finished(desk, with_secret())
    incarnation = desk.job(job).incarnation
    assert kept_names(desk, incarnation) == list(with_secret().secrets)

    hurried(desk, job)

    [assignment] = desk.sync("w1").assignments
    payload = ForgetPayload.model_validate(assignment.payload)
    assert (payload.incarnation, payload.secrets) == (incarnation, with_secret().secrets)
    assert desk.report("w1", succeeded(assignment.claim)).held
    assert rows(desk, *OF_JOBS, "cleanups") == {}
    assert "sealed" not in everything(desk.store)


@pytest.mark.req("E6")
def test_marks_stay_while_an_execution_may_be_paused_with_a_commit_in_its_hands(
    desk: LeaderHarness,
) -> None:
    """Its worker is lost, and another one finished the job."""
    job, _ = desk.given(retried(with_secret()))
    incarnation = desk.job(job).incarnation
    desk.clock.advance(61)
    desk.passes()
    desk.register("w2")
    desk.passes()
    claim = desk.claimed("w2")
    assert claim.attempt == 2
    desk.finish("w2", claim)
    desk.passes()
    assert desk.status(job) is JobStatus.FINISHED
    due_ms = due_of_targets(desk, incarnation)

    hurried(desk, job)

    record = cleanup_of(desk, incarnation)
    assert record is not None
    assert (record.step, record.due_at_ms) == (CleanupStep.TARGETS, due_ms)
    assert due_ms >= desk.clock.wall_ms() + (MARKS_S - 1) * 1000
    assert desk.sync("w2").assignments == ()
    assert kept_names(desk, incarnation) == list(with_secret().secrets), "its cleanup needs them"


@pytest.mark.req("E6")
@pytest.mark.parametrize("how", ["failed and tried again", "failed", "restored"])
def test_marks_stay_when_not_every_execution_ended_well(desk: LeaderHarness, how: str) -> None:
    again = how == "failed and tried again"
    job, claim = desk.given(retried(with_secret(), 3 if again else 0))
    if not again:
        epoch(desk, claim, 1)
    desk.report("w1", failed(claim))
    desk.passes()
    if how == "restored":
        restored(desk, job, with_secret())
        claim, _ = given_again(desk)
        epoch(desk, claim, 2, ready=("FakeSource-1",))
        desk.report("w1", succeeded(claim))
        desk.passes()
    elif again:
        desk.finish("w1", desk.claimed("w1"))
        desk.passes()
    incarnation = desk.job(job).incarnation
    assert desk.status(job) is (JobStatus.FAILED if how == "failed" else JobStatus.FINISHED)
    due_ms = due_of_targets(desk, incarnation)

    hurried(desk, job)

    assert due_of_targets(desk, incarnation) == due_ms
    assert desk.sync("w1").assignments == ()


def due_of_targets(desk: LeaderHarness, incarnation: str) -> int:
    record = cleanup_of(desk, incarnation)
    assert record is not None
    return record.targets_due_at_ms


@pytest.mark.req("E6")
def test_what_a_failed_job_left_open_is_settled_at_once_without_the_secrets_of_its_sources(
    desk: LeaderHarness,
) -> None:
    made = with_secret()
    also = {"FakeSource-1.password": "of a source"}
    job, claim = desk.given(made.model_copy(update={"secrets": {**made.secrets, **also}}))
    desk.report("w1", planned(claim, 1), holds=[claim])
    left_open = ended_with_open(desk, job, claim)
    incarnation = desk.job(job).incarnation

    desk.commands.settle(job)
    desk.clean()

    [assignment] = desk.sync("w1").assignments
    payload = PipelinePayload.model_validate(assignment.payload)
    assert [left.epoch for left in payload.restore.open] == [left_open]
    assert payload.secrets == made.secrets
    due_ms = due_of_targets(desk, incarnation)
    desk.report("w1", settled(assignment.claim, left_open))
    desk.clock.advance(31)
    desk.clean()
    record = cleanup_of(desk, incarnation)
    assert record is not None
    assert record.step is CleanupStep.TARGETS
    assert record.due_at_ms >= due_ms, "whoever settled it may have a twin that is paused"


def ended_with_open(desk: LeaderHarness, job: str, claim: Claim) -> int:
    """It fails, and nobody can settle it before its time is over."""
    desk.report("w1", failed(claim, retry=False))
    for _ in range(100):
        desk.passes()
        if desk.status(job) is JobStatus.FAILED:
            return 1
        for assignment in desk.sync("w1").assignments:
            desk.report("w1", failed(assignment.claim, "its sink is away"))
        desk.clock.advance(30)
    raise AssertionError("it does not end")


def test_a_job_that_keeps_neither_secrets_nor_anything_open_is_not_hurried(
    desk: LeaderHarness,
) -> None:
    job = finished(desk, spec())
    before = cleanup_of(desk, desk.job(job).incarnation)
    desk.commands.settle(job)
    assert cleanup_of(desk, desk.job(job).incarnation) == before


def test_settling_twice_or_late_changes_nothing(desk: LeaderHarness) -> None:
    job = finished(desk, with_secret())
    incarnation = desk.job(job).incarnation
    desk.commands.settle(job)
    desk.commands.settle(job)
    desk.clean()
    first = cleanup_of(desk, incarnation)
    assert first is not None
    assert (first.step, first.wanted_at_once) == (CleanupStep.TARGETS, False)
    desk.commands.settle(job)
    assert cleanup_of(desk, incarnation) == first


def test_a_job_that_runs_or_is_not_known_is_refused(desk: LeaderHarness) -> None:
    job, _ = desk.given(with_secret())
    with pytest.raises(Refused, match="settled once it has ended"):
        desk.commands.settle(job)
    with pytest.raises(NotFound):
        desk.commands.settle("nobody")
