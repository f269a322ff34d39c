"""Answers to workers: who is given what, what is said again, given back and stopped."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update

from headrace.coordinator.jobs.attempts import KEY_AWAY_PAUSE_MS
from headrace.model.jobs.status import PipelineStatus
from headrace.model.task import Claim, Lane, TaskKind, TaskStatus
from headrace.protocol.messages import Held, LastAnswerSeen, Progress, Sync, TaskEnded
from headrace.store.core.engine import reading, writing
from headrace.store.jobs.schema import job_secrets
from headrace.store.tasks import claims
from tests.coordinator.jobs.test_commands import with_secret
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import failed, planned, prepared, spec, succeeded, whole_run
from tests.stores import key_away

ALL = {Lane.SLOT: 100, Lane.CONTROL: 100}


def given(desk: LeaderHarness, worker: str) -> set[Claim]:
    with reading(desk.store) as conn:
        return {task.claim for task in claims.assigned_to(conn, [worker])}


def test_a_task_goes_to_one_worker_only(desk: LeaderHarness) -> None:
    desk.register("w1")
    desk.register("w2")
    desk.plan_noops(1)

    first, second = desk.answer(desk.say("w1"), desk.say("w2"))
    third = desk.sync("w2")

    assert len(first.assignments) == 1
    assert not second.assignments
    assert not third.assignments


def test_each_worker_gets_one_task_before_any_gets_its_second(desk: LeaderHarness) -> None:
    for name in ("w1", "w2", "w3"):
        desk.register(name)
    desk.plan_noops(4)

    answers = desk.answer(*(desk.say(name) for name in ("w1", "w2", "w3")))

    assert [len(answer.assignments) for answer in answers] == [2, 1, 1]


def test_the_oldest_names_go_first_and_none_is_skipped(desk: LeaderHarness) -> None:
    desk.register("w1", slots=2)
    desk.plan_noops(4)

    first = [a.claim for a in desk.sync("w1").assignments]
    second = desk.sync("w1", reports=[succeeded(claim) for claim in first])

    assert [a.claim.task for a in second.assignments] > [claim.task for claim in first]
    assert len(second.assignments) == 2


def test_control_tasks_have_a_lane_of_their_own(desk: LeaderHarness) -> None:
    desk.register("w1", slots=2, control_slots=1)
    desk.plan_noops(5, lane=Lane.SLOT)
    desk.plan_noops(5, lane=Lane.CONTROL)

    lanes = [assignment.lane for assignment in desk.sync("w1", free=ALL).assignments]

    assert sorted(lanes) == [Lane.CONTROL, Lane.SLOT, Lane.SLOT]


def test_a_worker_that_says_too_much_is_free_never_gets_more_than_its_slots(
    desk: LeaderHarness,
) -> None:
    desk.register("w1", slots=2)
    desk.plan_noops(10)

    held = {a.claim for a in desk.sync("w1", free=ALL).assignments}
    again = desk.sync("w1", holds=held, free=ALL)

    assert len(held) == 2
    assert not again.assignments


def test_a_worker_gets_no_more_than_it_says_is_free(desk: LeaderHarness) -> None:
    desk.register("w1", slots=2)
    desk.plan_noops(10)

    assert len(desk.sync("w1", free={Lane.SLOT: 1}).assignments) == 1
    assert not desk.sync("w1", holds=given(desk, "w1"), free={Lane.SLOT: -3}).assignments


def test_a_task_of_another_group_is_not_given(desk: LeaderHarness) -> None:
    desk.register("w1", group="small")
    desk.plan_noops(1, group="large")

    assert not desk.sync("w1").assignments


def test_a_task_is_not_given_before_its_time(desk: LeaderHarness) -> None:
    _, claim = desk.given(spec(retry_times=1, retry_interval_s=30))
    desk.report("w1", failed(claim))

    early = desk.sync("w1")
    desk.clock.advance(29.999)
    still_early = desk.sync("w1")
    desk.clock.advance(0.001)
    in_time = desk.sync("w1")

    assert not early.assignments
    assert not still_early.assignments
    assert [a.claim for a in in_time.assignments] == [Claim(claim.task, 2)]


def test_an_answer_that_was_lost_is_said_again_with_the_same_claim(desk: LeaderHarness) -> None:
    desk.register("w1")
    desk.plan_noops(1)

    lost = desk.sync("w1", lost=True)
    again = desk.sync("w1", lost=True)
    heard = desk.sync("w1")

    assert len(lost.assignments) == 1
    assert lost.assignments == again.assignments == heard.assignments
    assert desk.task(lost.assignments[0].claim.task).attempt == 1


def test_an_answer_lost_with_its_leader_is_said_again_by_the_next(desk: LeaderHarness) -> None:
    desk.register("w1")
    desk.plan_noops(1)
    lost = desk.sync("w1", lost=True)

    desk.take_over()
    heard = desk.sync("w1")

    assert heard.assignments == lost.assignments
    assert desk.sync("w1", holds=given(desk, "w1")).stop == ()


def test_what_was_seen_and_is_not_held_is_given_back_with_a_higher_attempt(
    desk: LeaderHarness,
) -> None:
    desk.register("w1")
    desk.register("w2")
    desk.plan_noops(1)
    claim = desk.claimed("w1")

    desk.sync("w1", free={})

    assert desk.task(claim.task).status is TaskStatus.PLANNED
    assert desk.claimed("w2") == Claim(claim.task, 2)
    assert desk.task(claim.task).failures == 0


def test_a_claim_that_is_no_longer_current_is_told_to_stop(desk: LeaderHarness) -> None:
    desk.register("w1")
    desk.register("w2")
    desk.plan_noops(1)
    lost = desk.claimed("w1")
    desk.sync("w1", free={})
    held = desk.claimed("w2")

    assert desk.sync("w1", holds=[lost], free={}).stop == (lost,)
    assert desk.sync("w2", holds=[held], free={}).stop == ()
    assert desk.task(held.task).status is TaskStatus.ACKED


def test_an_end_that_did_not_fit_into_the_sync_is_not_taken_for_lost(desk: LeaderHarness) -> None:
    desk.register("w1", slots=2)
    desk.plan_noops(2)
    first, second = sorted(a.claim for a in desk.sync("w1").assignments)

    # Both have ended; the worker holds both, and says the end of the first only.
    answer = desk.sync("w1", holds=[first, second], reports=[succeeded(first)], free={})

    assert answer.stop == ()
    assert desk.task(first.task).status is TaskStatus.SUCCESS
    assert desk.task(second.task).claim == second
    assert desk.task(second.task).status is TaskStatus.ACKED


@pytest.mark.req("D4")
def test_an_unregistered_worker_is_told_so_and_its_reports_are_still_taken(
    desk: LeaderHarness,
) -> None:
    desk.register("w1")
    desk.plan_noops(2)
    claim, other = sorted(a.claim for a in desk.sync("w1").assignments)
    end = succeeded(claim)
    # Its successor, which found the report in the outbox, has not registered yet.
    answer = desk.sync("w2", holds=[claim], reports=[end], free=ALL)

    assert not answer.registered
    assert not answer.assignments
    assert [(a.seq, a.held) for a in answer.acknowledged] == [(end.seq, True)]
    assert desk.task(claim.task).status is TaskStatus.SUCCESS
    assert desk.task(other.task).claim == other


@pytest.mark.req("D4")
def test_an_end_said_to_a_leader_that_died_is_said_again_and_taken_by_the_next(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given()
    *steps, end = whole_run(claim)
    for step in steps:
        desk.report("w1", step, holds=[claim])

    # The first leader never commits what it heard; the worker hears nothing and says it again.
    desk.take_over()
    taken = desk.report("w1", end)
    again = desk.report("w1", end)

    assert (taken.seq, taken.held) == (end.seq, True)
    assert (again.seq, again.held) == (end.seq, False)
    assert desk.pipeline_status(job) is PipelineStatus.FINISHED


def test_the_same_end_twice_in_one_sync_counts_once(desk: LeaderHarness) -> None:
    desk.register("w1")
    desk.plan_noops(1)
    claim = desk.claimed("w1")

    answer = desk.sync("w1", reports=[succeeded(claim), failed(claim)], free={})

    assert len(answer.acknowledged) == 2
    assert desk.task(claim.task).status is TaskStatus.SUCCESS


def test_a_pipeline_shows_where_its_task_stands(desk: LeaderHarness) -> None:
    job = desk.submit()
    desk.register("w1")
    desk.passes()
    seen = [desk.pipeline_status(job)]
    claim = desk.claimed("w1")
    seen.append(desk.pipeline_status(job))
    desk.sync("w1", holds=[claim], free={})
    seen.append(desk.pipeline_status(job))
    desk.report("w1", planned(claim), holds=[claim])
    seen.append(desk.pipeline_status(job))

    assert seen == ["SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING"]


def test_a_first_plan_that_comes_with_the_first_hold_leaves_the_pipeline_running(
    desk: LeaderHarness,
) -> None:
    job = desk.submit()
    desk.register("w1")
    desk.passes()
    claim = desk.claimed("w1")

    desk.report("w1", planned(claim), holds=[claim])

    assert desk.pipeline_status(job) is PipelineStatus.RUNNING


def test_progress_is_kept_as_it_was_last_said_and_changes_no_slot(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    said = Held(claim=claim, progress=Progress(step="running", epoch=1, rows=5))
    for number in (1, 2):
        sync = Sync(
            worker="w1", sync=50 + number, seen=LastAnswerSeen(term=99, number=99), holds=(said,)
        )
        desk.answer(sync)

    with reading(desk.store) as conn:
        [execution] = claims.latest_attempts_of(conn, job).values()
    assert execution.progress is not None
    assert (execution.progress["step"], execution.progress["rows"]) == ("running", 5)


def test_a_task_is_given_where_it_stands_now(desk: LeaderHarness) -> None:
    """The second attempt is told of the open epoch and its handles."""
    _, claim = desk.given(spec(retry_times=3))
    desk.report("w1", planned(claim, now_ms=111), holds=[claim])
    desk.report("w1", prepared(claim, handle="of the first"), holds=[claim])
    desk.report("w1", failed(claim))

    [assignment] = desk.sync("w1").assignments

    restore = assignment.payload["restore"]
    assert isinstance(restore, dict)
    assert isinstance(restore["open"], list)
    [opened] = restore["open"]
    assert isinstance(opened, dict)
    assert (opened["epoch"], opened["status"]) == (1, "PREPARED")
    assert opened["handles"] == {"Console-1": {"handle": "of the first", "rows": 7}}
    assert assignment.kind is TaskKind.PIPELINE


def test_a_task_whose_key_is_away_waits_and_neither_fails_nor_stops_others(
    desk: LeaderHarness,
) -> None:
    job = desk.submit(with_secret())
    desk.register("w1")
    desk.passes()
    [task] = desk.tasks(job)
    with key_away(desk.store):
        assert not desk.sync("w1").assignments
        desk.plan_noops(2)
        others = desk.sync("w1", free={Lane.SLOT: 1}).assignments
    assert [other.kind for other in others] == [TaskKind.NOOP]

    desk.passes()
    waits = desk.task(task.id)
    assert (waits.status, waits.failures, waits.losses) == (TaskStatus.PLANNED, 0, 0)
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
    desk.clock.advance(KEY_AWAY_PAUSE_MS / 1000)
    [again] = desk.sync("w1", holds=[others[0].claim], free={Lane.SLOT: 1}).assignments

    assert again.claim.task == task.id
    assert again.payload["secrets"] == with_secret().secrets


def test_a_task_said_again_while_its_key_is_away_is_given_back(desk: LeaderHarness) -> None:
    job = desk.submit(with_secret())
    desk.register("w1")
    desk.passes()
    [first] = desk.sync("w1", lost=True).assignments
    with key_away(desk.store):
        assert not desk.sync("w1").assignments
    desk.clock.advance(KEY_AWAY_PAUSE_MS / 1000)

    [again] = desk.sync("w1").assignments

    assert again.claim == Claim(first.claim.task, first.claim.attempt + 1)
    assert desk.pipeline_status(job) is PipelineStatus.DEPLOYING


def test_a_task_whose_secrets_were_changed_fails_for_good(desk: LeaderHarness) -> None:
    """No key will ever open them."""
    job = desk.submit(with_secret())
    desk.register("w1")
    desk.passes()
    with writing(desk.store) as conn:
        stored = conn.execute(select(job_secrets.c.sealed)).scalar_one()
        conn.execute(update(job_secrets).values(sealed={**stored, "names": ["other"]}))

    assert not desk.sync("w1").assignments

    [task] = desk.tasks(job)
    assert task.status is TaskStatus.FAILED


def test_ends_of_many_tasks_in_one_sync_free_all_their_slots(desk: LeaderHarness) -> None:
    desk.register("w1", slots=50)
    desk.plan_noops(100)
    first = [a.claim for a in desk.sync("w1", free=ALL).assignments]
    ends: list[TaskEnded] = [succeeded(claim) for claim in first]

    answer = desk.sync("w1", reports=ends, free=ALL)

    assert len(first) == len(answer.assignments) == len(answer.acknowledged) == 50
