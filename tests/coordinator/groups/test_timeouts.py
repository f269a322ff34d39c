"""A task that nobody says to hold goes to others; one of a table that takes too long fails."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from headrace.coordinator.context import ACK_TIMEOUT_S, EXECUTE_TIMEOUT_S
from headrace.model.task import Lane, TaskKind, TaskStatus
from headrace.protocol.messages import Progress
from headrace.store.core.transactions import fenced
from headrace.store.tasks import tasks
from headrace.store.tasks.schema import tasks as rows
from headrace.store.tasks.tasks import OfTable
from tests.coordinator.leader_harness import LeaderHarness


def test_a_task_that_was_given_and_never_answered_for_goes_back(desk: LeaderHarness) -> None:
    desk.register("w1")
    desk.plan_noops(1)
    claim = desk.claimed("w1")
    desk.clock.advance(ACK_TIMEOUT_S - 1)
    desk.pass_()
    assert desk.task(claim.task).status is TaskStatus.SCHEDULED

    desk.clock.advance(2)
    desk.pass_()

    assert desk.task(claim.task).status is TaskStatus.PLANNED
    assert desk.task(claim.task).failures == 0, "nobody had begun it"
    assert desk.is_registered("w1")


def test_a_worker_that_comes_back_with_it_is_told_to_stop(desk: LeaderHarness) -> None:
    desk.register("w1")
    desk.plan_noops(1)
    claim = desk.claimed("w1")
    desk.clock.advance(ACK_TIMEOUT_S + 1)
    desk.pass_()

    answer = desk.sync("w1", holds=[claim], free={})

    assert answer.stop == (claim,)


def test_what_a_worker_said_to_hold_waits_for_its_heartbeat(desk: LeaderHarness) -> None:
    desk.register("w1")
    desk.plan_noops(1)
    claim = desk.claimed("w1")
    desk.sync("w1", holds=[claim], free={})
    desk.clock.advance(ACK_TIMEOUT_S + 1)

    desk.pass_()

    assert desk.task(claim.task).status is TaskStatus.ACKED


@pytest.mark.parametrize("kind", [TaskKind.REWRITE, TaskKind.NOOP])
def test_a_task_of_a_table_has_an_hour_and_others_have_none(
    desk: LeaderHarness, kind: TaskKind
) -> None:
    desk.register("w1")
    with fenced(desk.store, desk.term) as conn:
        tasks.plan(
            conn,
            task_id="t",
            kind=TaskKind.NOOP,
            lane=Lane.SLOT,
            group="default",
            payload={"retry_times": 1},
            of=OfTable("table", "process", 0),
            now_ms=desk.clock.wall_ms(),
        )
    claim = desk.claimed("w1")
    if kind is TaskKind.REWRITE:
        with fenced(desk.store, desk.term) as conn:
            conn.execute(update(rows).values(kind=kind))
    for minute in range(62):
        said = Progress(step="rewriting", activity=minute + 1)
        desk.answer(desk.say("w1", holds=[claim], free={}, progress={claim: said}))
        desk.clock.advance(EXECUTE_TIMEOUT_S / 60)

    desk.pass_()

    table = kind is TaskKind.REWRITE
    assert desk.task("t").status is (TaskStatus.PLANNED if table else TaskStatus.ACKED)
    assert desk.task("t").failures == int(table)
