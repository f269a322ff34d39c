"""Where no job may wait, one that can't have all its slots now is refused, or fails."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, func, select

from headrace.coordinator.jobs.commands import Commands
from headrace.coordinator.jobs.reconciler import JobReconciler
from headrace.errors import Refused
from headrace.model.jobs.status import JobStatus, ScheduleStrategy
from headrace.store.core.engine import reading
from headrace.store.core.transactions import Term
from headrace.store.jobs.schema import jobs, pipelines
from tests.coordinator.jobs.streaming import restored, stopped_with_savepoint
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import spec
from tests.fakes import FakeClock

REJECT = ScheduleStrategy.REJECT
WAY_OUT = (
    "This coordinator lets no job wait (`--job-schedule-strategy REJECT`): submit it again when "
    "other jobs have ended, or add workers to the group"
)


@pytest.fixture
def desk(store: Engine, clock: FakeClock, term: Term) -> LeaderHarness:
    made = LeaderHarness(store, clock, term)
    made.commands = Commands(store, clock, made.ids, schedule=REJECT)
    made.jobs = JobReconciler(clock, made.ids, wake_worker=made.rung.append, schedule=REJECT)
    return made


def rows(desk: LeaderHarness) -> tuple[int, int]:
    with reading(desk.store) as conn:
        counted = [conn.scalar(select(func.count()).select_from(t)) for t in (jobs, pipelines)]
    return counted[0] or 0, counted[1] or 0


def test_a_job_that_can_have_all_its_slots_is_admitted(desk: LeaderHarness) -> None:
    desk.register("w1", slots=2)
    job = desk.submit(spec(pipelines=2))

    desk.passes()

    assert desk.status(job) is JobStatus.SCHEDULED


def test_a_job_that_would_have_to_wait_is_refused_and_nothing_is_written(
    desk: LeaderHarness,
) -> None:
    desk.register("w1", slots=2)
    desk.given()
    before = rows(desk)

    with pytest.raises(Refused) as refused:
        desk.submit(spec(pipelines=2), job_id="large")

    assert str(refused.value) == (
        "job 'large' needs 2 slots at once, and group 'default' has 1 of 2 free. " + WAY_OUT
    )
    assert rows(desk) == before


def test_a_job_in_a_group_without_workers_is_refused(desk: LeaderHarness) -> None:
    with pytest.raises(Refused, match="needs a slot, and group 'nobody' has 0 of 0 free"):
        desk.submit(group="nobody")
    assert rows(desk) == (0, 0)


def test_slots_of_a_job_that_was_accepted_a_moment_before_are_not_free(desk: LeaderHarness) -> None:
    desk.register("w1", slots=1)
    first = desk.submit()

    with pytest.raises(Refused, match="has 0 of 1 free"):
        desk.submit()

    desk.passes()
    assert desk.status(first) is JobStatus.SCHEDULED


def test_the_same_submission_is_not_refused_the_second_time(desk: LeaderHarness) -> None:
    desk.register("w1", slots=1)
    given = {"submission_key": "key", "group": "default"}

    first = desk.commands.submit(spec(), **given)

    assert desk.commands.submit(spec(), **given) == first


def test_an_accepted_job_whose_slots_are_gone_fails_with_the_reason(desk: LeaderHarness) -> None:
    desk.register("w1", slots=2)
    job = desk.submit(spec(pipelines=2), job_id="unlucky")
    desk.plan_noops(1)  # somebody was faster

    desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    assert desk.job(job).error == (
        "job 'unlucky' needs 2 slots at once, and group 'default' has 1 of 2 free. " + WAY_OUT
    )
    assert not desk.tasks(job)


def test_one_that_fails_leaves_its_turn_to_the_next(desk: LeaderHarness) -> None:
    desk.register("w1", slots=3)
    large, small = desk.submit(spec(pipelines=2), job_id="a"), desk.submit(job_id="b")
    desk.plan_noops(2)

    desk.passes()

    assert (desk.status(large), desk.status(small)) == (JobStatus.FAILED, JobStatus.SCHEDULED)


def test_a_restore_that_would_have_to_wait_is_refused_and_can_be_asked_again(
    desk: LeaderHarness,
) -> None:
    desk.register("w1", slots=1)
    job = stopped_with_savepoint(desk)
    before = desk.job(job)
    other, held = desk.given()

    with pytest.raises(Refused, match="has 0 of 1 free"):
        restored(desk, job)
    assert desk.job(job) == before

    desk.finish("w1", held)
    desk.passes()
    restored(desk, job)
    desk.passes()
    assert desk.status(other) is JobStatus.FINISHED
    assert desk.status(job) is JobStatus.SCHEDULED


def test_the_same_restore_is_not_refused_the_second_time(desk: LeaderHarness) -> None:
    desk.register("w1", slots=1)
    job = stopped_with_savepoint(desk)

    restored(desk, job, key="once")
    restored(desk, job, key="once")

    desk.passes()
    assert desk.status(job) is JobStatus.SCHEDULED
