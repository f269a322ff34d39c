"""The steps of a cleanup: settle, delete, forget; what fails is told, and tried again (C4)."""

from __future__ import annotations

import pytest

from headrace.model.jobs.epoch import CleanupStep
from headrace.model.jobs.spec import REDACTED
from headrace.model.jobs.status import JobStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.protocol.messages import ForgetPayload
from headrace.store.core.engine import writing
from headrace.store.tasks import tasks
from tests.coordinator.jobs.ended import (
    DELAY_S,
    MARKS_S,
    OF_JOBS,
    at_its_targets,
    cleanup_of,
    finished,
    hold,
    rows,
    told,
    wait_and_clean,
)
from tests.coordinator.jobs.streaming import done, left_open, savepoint_of
from tests.coordinator.jobs.test_commands import everything, with_secret
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import SECRET, failed, settled, spec, succeeded


@pytest.mark.req("C2", "E6")
def test_targets_are_cleaned_when_nobody_can_commit_any_more_and_not_before(
    desk: LeaderHarness,
) -> None:
    made = with_secret()
    job = desk.submit(made)
    desk.register("w1")
    desk.passes()
    desk.finish("w1", desk.claimed("w1"))
    desk.passes()
    incarnation = desk.job(job).incarnation
    wait_and_clean(desk)
    desk.clock.advance(MARKS_S - DELAY_S - 1)
    desk.register("w1")
    desk.clean()
    assert desk.sync("w1").assignments == ()

    assignment = at_its_targets(desk, incarnation)

    payload = ForgetPayload.model_validate(assignment.payload)
    assert (payload.incarnation, payload.up_to) == (incarnation, 2)
    assert [sink.name for p in payload.pipelines for sink in p.sinks] == ["Iceberg-1"]
    assert payload.secrets == {"Iceberg-1.iceberg.catalog.config.s3.secret": SECRET}
    assert payload.owners == (incarnation,)
    assert desk.report("w1", succeeded(assignment.claim)).held
    assert rows(desk, *OF_JOBS, "cleanups") == {}
    assert SECRET not in everything(desk.store)
    assert REDACTED in everything(desk.store)


@pytest.mark.req("C4")
def test_a_failed_cleanup_stays_is_told_and_is_tried_again_with_longer_pauses(
    desk: LeaderHarness,
) -> None:
    job = finished(desk)
    incarnation = desk.job(job).incarnation
    wait_and_clean(desk)
    pauses: list[int] = []
    for attempt in range(1, 5):
        claim = at_its_targets(desk, incarnation).claim
        hold(desk, claim)
        desk.report("w1", failed(claim, "the lake is away"))
        desk.clock.advance(30)
        desk.clean()
        found = cleanup_of(desk, incarnation)
        assert found is not None
        assert (found.failures, found.error) == (attempt, "the lake is away")
        pauses.append(found.due_at_ms - desk.clock.wall_ms())
        assert rows(desk, "tasks") == {}
    assert pauses == [5_000, 10_000, 20_000, 40_000]

    claim = at_its_targets(desk, incarnation).claim
    desk.report("w1", succeeded(claim))
    assert rows(desk, "cleanups", "tasks") == {}


@pytest.mark.req("C4")
def test_a_cleanup_that_nobody_can_do_holds_up_no_other(desk: LeaderHarness) -> None:
    stuck = desk.submit(spec(), group="empty")
    desk.register("w9", group="empty")
    desk.passes()
    desk.finish("w9", desk.claimed("w9"))
    desk.passes()
    first = desk.job(stuck).incarnation
    second = desk.job(finished(desk)).incarnation
    wait_and_clean(desk)
    desk.clock.advance(MARKS_S)
    desk.clean()

    claim = at_its_targets(desk, second).claim
    assert desk.report("w1", succeeded(claim)).held

    assert cleanup_of(desk, second) is None
    found = cleanup_of(desk, first)
    assert found is not None
    assert found.due_at_ms > desk.clock.wall_ms(), "it is looked at again, later"


@pytest.mark.req("C4")
def test_what_was_left_open_is_settled_before_the_state_goes(desk: LeaderHarness) -> None:
    job = left_open(desk)
    incarnation = desk.job(job).incarnation
    desk.clock.advance(DELAY_S)
    desk.clean()
    assert desk.status(job) is JobStatus.FAILED, "its stage handles are nowhere else"
    desk.register("w1")
    [assignment] = desk.sync("w1").assignments
    assert assignment.kind is TaskKind.SETTLE

    desk.report("w1", settled(assignment.claim, completed=[done(assignment.claim, 2)]))
    desk.clock.advance(60)
    desk.clean()

    assert rows(desk) == {}
    after, made = told(desk, job), savepoint_of(desk, job)
    assert after is not None
    assert made is not None
    assert [p["rows_out"] for p in after.pipelines] == [14]
    assert (made.epoch, made.positions, made.ready) == (2, {"FakeSource-1": 14}, ["FakeSource-1"])
    found = cleanup_of(desk, incarnation)
    assert found is not None
    assert found.up_to == 2


@pytest.mark.req("C4")
def test_what_can_not_be_settled_keeps_its_state_and_says_why(desk: LeaderHarness) -> None:
    job = left_open(desk)
    incarnation = desk.job(job).incarnation
    desk.clock.advance(DELAY_S)
    desk.clean()
    [task] = [t for t in desk.tasks(job, TaskKind.SETTLE) if t.status is TaskStatus.PLANNED]
    with writing(desk.store) as conn:
        tasks.fail_unclaimed(conn, task.id, error="sink A has it, B is away", now_ms=1)
    desk.clock.advance(60)
    desk.clean()

    found = cleanup_of(desk, incarnation)
    assert found is not None
    assert (found.step, found.failures) == (CleanupStep.STATE, 1)
    assert found.error == "sink A has it, B is away"
    assert rows(desk, "epochs") == {"epochs": 2}


@pytest.mark.req("C2")
def test_a_job_that_no_worker_ever_had_leaves_nothing_for_targets(desk: LeaderHarness) -> None:
    job = desk.submit()
    desk.commands.cancel(job)
    desk.passes()
    assert desk.status(job) is JobStatus.CANCELED
    wait_and_clean(desk)

    assert rows(desk, *OF_JOBS, "cleanups") == {}


@pytest.mark.req("C3")
@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_wall_clock_that_jumps_cleans_once_and_early_by_no_more_than_the_jump(
    desk: LeaderHarness, jump_s: int
) -> None:
    job = finished(desk)
    incarnation = desk.job(job).incarnation
    desk.clock.set_wall(desk.clock.wall_ms() + jump_s * 1000)
    desk.clean()
    assert bool(rows(desk)) is (jump_s < 0)
    desk.clock.set_wall(desk.clock.wall_ms() - jump_s * 1000)
    desk.clock.advance(DELAY_S)
    desk.clean()
    assert rows(desk) == {}
    desk.clock.set_wall(desk.clock.wall_ms() + jump_s * 1000)
    desk.clean()
    found = cleanup_of(desk, incarnation)
    assert found is not None
    assert (found.step, found.task_id) == (CleanupStep.TARGETS, None)
