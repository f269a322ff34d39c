"""Deploying twice is deploying once: what leaders say again, and what they leave alone."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine

from headrace.coordinator.context import Metrics
from headrace.coordinator.sync.answers import BatchEffects, Dispatch
from headrace.coordinator.sync.liveness import WorkerLiveness
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import Claim, Lane, TaskStatus
from headrace.protocol.messages import Answer, Progress, Sync
from headrace.seams import arm, disarm_all
from headrace.store.core.transactions import fenced
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.specs import failed, planned, spec

CALLERS = 8
AGAIN = "task deployed again"


class Killed(BaseException):
    """The leader's process died here."""


def dies_at(name: str, step: Callable[[], object]) -> None:
    def die() -> None:
        raise Killed

    arm(name, die)
    with pytest.raises(Killed):
        step()
    disarm_all()


def redeploys(desk: LeaderHarness) -> float:
    return desk.metrics.registry.get_sample_value("headrace_redeploys_total") or 0.0


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage() == AGAIN]


@pytest.mark.req("D1")
def test_a_new_leader_leaves_alone_what_a_worker_holds(desk: LeaderHarness) -> None:
    job, claim = desk.given(spec(retry_times=1))
    desk.report("w1", planned(claim), holds=[claim])
    before = desk.task(claim.task)
    for _ in range(3):
        desk.take_over()
        desk.passes()
        answer = desk.sync("w1", holds=[claim])
        desk.passes()

        assert (answer.stop, answer.assignments) == ((), ())
        after = desk.task(claim.task)
        assert (after.claim, after.worker_id, after.failures) == (claim, before.worker_id, 0)
        assert desk.pipeline_status(job) is PipelineStatus.RUNNING
        assert desk.status(job) is JobStatus.RUNNING


@pytest.mark.req("D1")
def test_a_worker_has_one_full_timeout_from_the_take_over_of_each_leader(
    desk: LeaderHarness,
) -> None:
    _, claim = desk.given(spec(retry_times=1))
    for _ in range(3):
        desk.clock.advance(TIMEOUT_S)  # nobody led, or nobody for long enough
        desk.take_over()
        desk.passes()
        desk.clock.advance(TIMEOUT_S)
        desk.passes()
        assert desk.is_registered("w1")
        assert desk.task(claim.task).claim == claim

    desk.clock.advance(1)
    desk.pass_()
    assert not desk.is_registered("w1")


@pytest.mark.req("D1", "D2")
def test_an_assignment_is_said_again_with_the_same_execution_id_until_it_is_seen(
    desk: LeaderHarness,
) -> None:
    desk.submit()
    desk.register("w1")
    desk.passes()
    claims: set[Claim] = set()
    for _ in range(5):
        claims |= {a.claim for a in desk.sync("w1", lost=True).assignments}
        desk.take_over()

    assert len(claims) == 1
    assert desk.task(next(iter(claims)).task).attempt == 1


@pytest.mark.req("D2")
def test_a_location_that_has_ended_is_deployed_afresh_with_a_new_execution_id(
    desk: LeaderHarness,
) -> None:
    _, claim = desk.given(spec(retry_times=1))
    desk.report("w1", failed(claim))

    [again] = desk.sync("w1").assignments

    assert again.claim == Claim(claim.task, 2)


@pytest.mark.req("D2")
def test_a_location_deployed_from_several_callers_at_once_starts_exactly_once(
    desk: LeaderHarness, store: Engine
) -> None:
    """Each caller has a dispatch of its own, as if each of them led in the same term."""
    job = desk.submit()
    names = [f"w{n}" for n in range(CALLERS)]
    for name in names:
        desk.register(name)
    desk.passes()
    together = Barrier(CALLERS)

    def ask(name: str) -> Answer:
        roster = WorkerLiveness(desk.clock, timeout_s=TIMEOUT_S)
        dispatch = Dispatch(desk.term, roster, desk.clock, Metrics())
        sync = Sync(worker=name, sync=1, free={Lane.SLOT: 1})
        together.wait()
        with fenced(store, desk.term) as conn:
            return dispatch.answer(conn, [sync], BatchEffects())[0]

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(ask, names))

    given = [a.claim for answer in answers for a in answer.assignments]
    [task] = desk.tasks(job)
    assert given == [Claim(task.id, 1)]
    assert (task.status, task.attempt) == (TaskStatus.SCHEDULED, 1)


@pytest.mark.req("D2")
@pytest.mark.parametrize("held_first", [True, False])
def test_a_deploy_and_an_end_in_the_same_instant_lose_no_end(
    desk: LeaderHarness, *, held_first: bool
) -> None:
    """The answer with the assignment was lost for the leader only, and the task is quick: its end
    comes with the first word about it, or in the sync before the leader hears that it is held."""
    desk.submit(spec(retry_times=1))
    desk.register("w1")
    desk.passes()
    [given] = desk.sync("w1", lost=True).assignments
    end = failed(given.claim)
    if held_first:
        desk.sync("w1", holds=[given.claim], free={}, lost=True)

    acknowledged = desk.report("w1", end, holds=[given.claim])
    again = desk.report("w1", end)

    assert (acknowledged.held, again.held) == (True, False)
    task = desk.task(given.claim.task)
    assert (task.status, task.attempt, task.failures) == (TaskStatus.PLANNED, 1, 1)


@pytest.mark.req("D3")
def test_a_leader_that_died_between_deploying_and_running_is_followed_by_one_that_gets_there(
    desk: LeaderHarness,
) -> None:
    job = desk.submit(spec(retry_times=1))
    desk.register("w1")
    desk.passes()

    # It is recorded that w1 has it, and w1 will never hear of it from this leader.
    dies_at("task assigned, before answer", lambda: desk.sync("w1"))
    assert desk.pipeline_status(job) is PipelineStatus.DEPLOYING
    desk.take_over()
    desk.passes()
    assert desk.pipeline_status(job) is PipelineStatus.DEPLOYING, "nothing is put back on a guess"
    claim = desk.claimed("w1")

    # It is recorded that w1 holds it.
    dies_at("task held, before answer", lambda: desk.sync("w1", holds=[claim], free={}))
    assert desk.pipeline_status(job) is PipelineStatus.INITIALIZING
    desk.take_over()
    desk.passes()
    assert desk.sync("w1", holds=[claim], free={}).stop == ()
    desk.report("w1", planned(claim), holds=[claim])
    desk.passes()

    assert desk.pipeline_status(job) is PipelineStatus.RUNNING
    assert desk.status(job) is JobStatus.RUNNING
    task = desk.task(claim.task)
    assert (task.attempt, task.failures) == (1, 0)


@pytest.mark.req("D3")
def test_leader_after_leader_that_dies_while_deploying_costs_no_attempt_and_no_retry(
    desk: LeaderHarness,
) -> None:
    job = desk.submit(spec(retry_times=0))
    desk.register("w1")
    desk.passes()
    for _ in range(10):
        desk.sync("w1", lost=True)
        desk.take_over()
        desk.passes()
        assert desk.status(job) is not JobStatus.FAILED
    claim = desk.claimed("w1")
    desk.report("w1", planned(claim), holds=[claim])

    assert claim.attempt == 1
    assert desk.task(claim.task).failures == 0
    assert desk.pipeline_status(job) is PipelineStatus.RUNNING


@pytest.mark.req("D6")
def test_a_deploy_said_ten_times_is_one_line_that_names_all_and_is_counted_each_time(
    desk: LeaderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    job = desk.submit()
    desk.register("w1")
    desk.passes()
    [given] = desk.sync("w1", lost=True).assignments
    assert redeploys(desk) == 0
    for _ in range(10):
        desk.sync("w1", lost=True)

    [line] = lines(caplog)
    assert line.levelno == logging.WARNING
    facts = vars(line)
    assert (facts["job"], facts["pipeline"], facts["task_group"]) == (job, 1, 1)
    assert (facts["execution"], facts["worker"]) == (given.claim.execution, "w1")
    assert facts["term"] == desk.term.epoch
    assert redeploys(desk) == 10


@pytest.mark.req("D6")
def test_the_next_leader_and_the_next_execution_say_it_once_of_their_own(
    desk: LeaderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    desk.submit(spec(retry_times=1))
    desk.register("w1")
    desk.passes()
    desk.sync("w1", lost=True)
    for _ in range(2):
        desk.take_over()
        for _ in range(3):
            desk.sync("w1", lost=True)
    [first] = desk.sync("w1").assignments
    desk.report("w1", failed(first.claim))
    for _ in range(3):
        desk.sync("w1", lost=True)

    said = [(vars(line)["execution"], vars(line)["term"]) for line in lines(caplog)]
    term, task = desk.term.epoch, first.claim.task
    assert said == [(f"{task}.1", term - 1), (f"{task}.1", term), (f"{task}.2", term)]


@pytest.mark.req("D6")
def test_what_was_not_committed_was_not_said(
    desk: LeaderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    desk.submit()
    desk.register("w1")
    desk.passes()
    desk.sync("w1", lost=True)

    def answers_and_dies() -> None:
        with fenced(desk.store, desk.term) as conn:
            [answer] = desk.dispatch.answer(conn, [desk.say("w1")], BatchEffects())
            assert len(answer.assignments) == 1
            raise Killed

    with pytest.raises(Killed):
        answers_and_dies()
    assert lines(caplog) == []
    assert redeploys(desk) == 0


def test_a_first_deploy_is_none_that_is_said_again(
    desk: LeaderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    _, claim = desk.given()
    said = {claim: Progress(step="running", activity=1)}
    desk.answer(desk.say("w1", holds=[claim], free={}, progress=said))

    assert lines(caplog) == []
    assert redeploys(desk) == 0
