"""What reports change: each step once, in its order, under the current claim only."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.jobs.status import PIPELINE_ENDED, PipelineStatus
from headrace.model.task import Claim, TaskStatus
from headrace.protocol.messages import Report
from headrace.seams import arm
from headrace.store.jobs.jobs import PipelineRow
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import (
    ROWS,
    completed,
    failed,
    plan,
    planned,
    prepared,
    spec,
    stopped,
    succeeded,
)
from tests.examples import examples

MANY = 1000


def steps(claim: Claim, epoch: int = 1) -> list[Report]:
    return [planned(claim, epoch), prepared(claim, epoch), completed(claim, epoch)]


def standing(desk: LeaderHarness, job: str) -> object:
    return desk.job(job), desk.pipeline(job), desk.epochs(job), desk.tasks(job)


def test_every_report_said_twice_changes_nothing_the_second_time(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    for report in [*steps(claim), succeeded(claim)]:
        desk.report("w1", report, holds=[claim])
        once = standing(desk, job)
        again = desk.report("w1", report, holds=[claim])

        assert again.seq == report.seq
        assert standing(desk, job) == once


@pytest.mark.parametrize("order", list(permutations(range(3)))[1:])
def test_steps_in_a_wrong_order_are_refused_and_leave_the_epoch_where_it_is(
    desk: LeaderHarness, order: tuple[int, ...]
) -> None:
    job, claim = desk.given()
    in_order = steps(claim)
    wanted = 0
    for index in order:
        held = desk.report("w1", in_order[index], holds=[claim]).held

        assert held == (index <= wanted)
        wanted += index == wanted
    counted = ROWS if wanted == 3 else 0
    assert desk.pipeline(job).rows_out == counted


def counted_epoch(claim: Claim, epoch: int, **read: int) -> list[Report]:
    staged = prepared(claim, epoch, ready=(), read=read)
    return [planned(claim, epoch), staged, completed(claim, epoch)]


def test_rows_read_are_added_up_by_source(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    for epoch, read in enumerate([{"a": 3, "b": 1}, {"a": 4}, {}], start=1):
        desk.sync("w1", holds=[claim], reports=counted_epoch(claim, epoch, **read), free={})

    assert desk.pipeline(job).read == {"a": 7, "b": 1}
    assert desk.pipeline(job).rows_in == 8


def test_what_a_lost_execution_read_counts_when_another_one_completes_the_epoch(
    desk: LeaderHarness,
) -> None:
    job, first = desk.given(spec(retry_times=3))
    desk.report("w1", planned(first), holds=[first])
    desk.report("w1", prepared(first, read={"a": 7}), holds=[first])
    desk.report("w1", failed(first))
    desk.passes()
    second = desk.claimed("w1")
    desk.report("w1", completed(second), holds=[second])

    assert desk.pipeline(job).read == {"a": 7}
    assert desk.pipeline(job).rows_in == 7


def test_of_a_worker_that_does_not_count_by_source_the_sum_is_known(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.sync("w1", holds=[claim], reports=steps(claim), free={})

    assert (desk.pipeline(job).read, desk.pipeline(job).rows_in) == ({}, ROWS)


def test_an_epoch_can_not_be_skipped(desk: LeaderHarness) -> None:
    job, claim = desk.given()

    assert not desk.report("w1", planned(claim, 2), holds=[claim]).held
    assert not desk.report("w1", planned(claim, 0), holds=[claim]).held
    assert desk.epochs(job) == []


def test_a_plan_of_an_earlier_execution_comes_back_instead_of_the_proposed_one(
    desk: LeaderHarness,
) -> None:
    job, first = desk.given(spec(retry_times=3))
    desk.report("w1", planned(first, now_ms=111), holds=[first])
    desk.report("w1", failed(first))
    second = desk.claimed("w1")

    answer = desk.report("w1", planned(second, now_ms=222), holds=[second])

    assert answer.held
    assert answer.plan == plan(111)
    assert desk.epochs(job) == [(1, "CHECKPOINT", "PLANNED")]


def test_a_lost_claim_prepares_nothing(desk: LeaderHarness) -> None:
    job, lost = desk.given(spec(retry_times=3))
    desk.report("w1", planned(lost), holds=[lost])
    desk.report("w1", failed(lost))
    held = desk.claimed("w1")
    desk.sync("w1", holds=[held], free={})
    before = standing(desk, job)

    answer = desk.report("w1", prepared(lost, handle="of the lost one"), holds=[held])

    assert not answer.held
    assert standing(desk, job) == before
    assert desk.report("w1", prepared(held), holds=[held]).held


def test_an_epoch_prepared_by_an_earlier_execution_is_not_prepared_again(
    desk: LeaderHarness,
) -> None:
    _, first = desk.given(spec(retry_times=3))
    desk.report("w1", planned(first), holds=[first])
    desk.report("w1", prepared(first, handle="first"), holds=[first])
    desk.report("w1", failed(first))
    second = desk.claimed("w1")

    assert not desk.report("w1", prepared(second, handle="second"), holds=[second]).held
    assert desk.report("w1", completed(second), holds=[second]).held


def test_completing_counts_rows_and_moves_positions_once(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    for report in steps(claim, 1) + steps(claim, 2):
        desk.report("w1", report, holds=[claim])
    desk.report("w1", completed(claim, 1), holds=[claim])

    found = desk.pipeline(job)
    assert (found.epoch, found.rows_in, found.rows_out) == (2, 2 * ROWS, 2 * ROWS)
    assert found.positions == {"FakeSource-1": 2 * ROWS}


def test_success_writes_the_completed_point_and_finished_together(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    for report in steps(claim):
        desk.report("w1", report, holds=[claim])
    desk.report("w1", succeeded(claim))

    assert desk.epochs(job) == [(1, "CHECKPOINT", "COMPLETED"), (2, "COMPLETED", "COMPLETED")]
    assert desk.pipeline_status(job) is PipelineStatus.FINISHED
    assert desk.pipeline(job).epoch == 2
    assert desk.task(claim.task).status is TaskStatus.SUCCESS


def test_a_leader_that_dies_before_the_commit_leaves_neither_point_nor_end(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given()
    for report in steps(claim):
        desk.report("w1", report, holds=[claim])
    before = standing(desk, job)
    end = succeeded(claim)

    def die() -> None:
        raise RuntimeError("the leader dies")

    sync = desk.say("w1", reports=[end], free={})
    arm("in fenced transaction", die)
    with pytest.raises(RuntimeError, match="dies"):
        desk.answer(sync)
    arm("in fenced transaction", lambda: None)

    assert standing(desk, job) == before
    desk.take_over()
    assert desk.report("w1", end).held
    assert desk.pipeline_status(job) is PipelineStatus.FINISHED


def test_late_reports_after_the_end_change_nothing(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    reports = steps(claim)
    for report in [*reports, succeeded(claim)]:
        desk.report("w1", report, holds=[claim])
    desk.passes()
    ended = standing(desk, job)

    for late in [*reports, *steps(claim, 2), *steps(claim, 3), failed(claim), stopped(claim)]:
        assert not desk.report("w1", late).held
    desk.passes()

    assert standing(desk, job) == ended


def test_success_with_an_open_epoch_is_not_believed(desk: LeaderHarness) -> None:
    job, claim = desk.given(spec(retry_times=1))
    desk.report("w1", planned(claim), holds=[claim])

    desk.report("w1", succeeded(claim))

    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
    assert desk.epochs(job) == [(1, "CHECKPOINT", "PLANNED")]
    assert desk.task(claim.task).failures == 1


def test_an_execution_that_stops_unasked_is_tried_again_and_not_for_ever(
    desk: LeaderHarness,
) -> None:
    job, first = desk.given(spec(retry_times=1))
    desk.report("w1", stopped(first))
    desk.passes()
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED

    second = desk.claimed("w1")
    desk.report("w1", stopped(second))
    desk.passes()

    assert desk.status(job) == "FAILED"
    assert "gave no reason" in (desk.job(job).error or "")


LOSE = (-1, 0, 0)
SAID = st.tuples(st.integers(1, 3), st.integers(0, 4), st.integers(1, 3))


def made(task: str, said: tuple[int, int, int]) -> Report:
    """An attempt says one step of an epoch, or how it ended."""
    attempt, step, epoch = said
    claim = Claim(task, attempt)
    return [*steps(claim, epoch), succeeded(claim), failed(claim)][step]


def check_invariants(desk: LeaderHarness, job: str, before: PipelineRow) -> None:
    now = desk.pipeline(job)
    done = [epoch for epoch, _, status in desk.epochs(job) if status == "COMPLETED"]
    with_rows = [e for e in desk.epochs(job) if e[1:] == ("CHECKPOINT", "COMPLETED")]
    assert now.epoch >= before.epoch
    assert done == list(range(1, now.epoch + 1))
    assert now.rows_out == now.rows_in == ROWS * len(with_rows)
    assert len([e for e in desk.epochs(job) if e[2] != "COMPLETED"]) <= 1
    if before.status in PIPELINE_ENDED:
        assert now == before


@examples(12, shares_a_store=True)
@given(said=st.lists(st.one_of(SAID, st.just(LOSE)), min_size=4, max_size=16))
def test_reports_in_any_order_and_number_break_no_invariant(
    desk: LeaderHarness, said: list[tuple[int, int, int]]
) -> None:
    alone = desk.ids.new()  # the examples share a store, and nothing else
    job, claim = desk.given(spec(retry_times=MANY), worker=alone, group=alone)
    for step in said:
        before = desk.pipeline(job)
        task = desk.task(claim.task)
        if step == LOSE or task.status is TaskStatus.PLANNED:
            desk.sync(alone, free={})
            desk.sync(alone)
        else:
            desk.report(alone, made(claim.task, step), holds=[task.claim])
        check_invariants(desk, job, before)
