"""Workers of several versions: each is given only what it knows, and nothing is lost by that."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from headrace.coordinator.jobs.attempts import UNFIT_PAUSE_MS
from headrace.model.jobs.status import PipelineStatus
from headrace.model.task import Lane, TaskKind, TaskStatus
from headrace.protocol import versions
from headrace.protocol.messages import PROTOCOL_VERSION, TaskGivenBack
from headrace.protocol.versions import Since, WireVersions
from headrace.store.core.engine import reading
from headrace.store.tasks import workers
from tests.coordinator.leader_harness import LeaderHarness
from tests.protocol.test_versions import NEXT, next_version

PAUSE_S = UNFIT_PAUSE_MS / 1000


def set_versions(monkeypatch: pytest.MonkeyPatch, spoken: WireVersions) -> None:
    monkeypatch.setattr(versions, "SPOKEN", spoken)


@pytest.mark.req("L4")
def test_a_kind_goes_past_workers_that_do_not_know_it_however_long_the_line_is(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_versions(monkeypatch, next_version(kinds={TaskKind.NOOP: NEXT}))
    desk.register("old", slots=1)
    desk.register("new", slots=2)
    desk.plan_noops(5)  # before it in the line
    job = desk.submit()
    desk.passes()
    assert desk.status(job) == "PENDING", "five tasks are more than the slots"
    desk.plan_noops(1, lane=Lane.CONTROL)

    old, new = desk.answer(desk.say("old"), desk.say("new", protocol=NEXT))

    assert old.assignments == ()
    assert [a.kind for a in new.assignments] == [TaskKind.NOOP] * 3


def test_workers_that_know_less_choose_first(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the worker that could run both would take the one task that the other could run."""
    desk.register("old", slots=1)
    desk.register("new", slots=1)
    job = desk.submit()
    desk.passes()
    desk.plan_noops(1)
    set_versions(monkeypatch, next_version(kinds={TaskKind.NOOP: NEXT}))

    new, old = desk.answer(desk.say("new", protocol=NEXT), desk.say("old"))

    assert [a.kind for a in old.assignments] == [TaskKind.PIPELINE]
    assert [a.kind for a in new.assignments] == [TaskKind.NOOP]
    assert desk.pipeline_status(job) is PipelineStatus.DEPLOYING


@pytest.mark.req("L4")
def test_a_payload_that_can_not_be_said_to_a_worker_waits_for_another_and_costs_nothing(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    vital = {"PipelinePayload.commit_deadline_s": Since(NEXT, vital=True)}
    set_versions(monkeypatch, next_version(fields=vital))
    monkeypatch.setattr(versions, "_default", Mock(return_value=None))  # as if it were set
    desk.register("old")
    job = desk.submit()
    desk.passes()

    assert desk.sync("old").assignments == ()
    [task] = desk.tasks(job)
    assert (task.status, task.failures) == (TaskStatus.PLANNED, 0)
    assert task.error is not None
    assert f"worker old speaks protocol {PROTOCOL_VERSION}" in task.error
    assert f"came with protocol {NEXT}: upgrade it" in task.error
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
    desk.clock.advance(PAUSE_S)
    assert desk.sync("old").assignments == (), "it is not tried again and again"

    desk.register("new")
    [answer] = desk.answer(desk.say("new", protocol=NEXT))
    assert [a.claim.task for a in answer.assignments] == [task.id]


@pytest.mark.parametrize("whole_kind", [False, True])
def test_what_a_worker_gives_back_goes_to_others_and_never_to_it_again(
    desk: LeaderHarness, *, whole_kind: bool
) -> None:
    desk.register("w1")
    job = desk.submit()
    desk.passes()
    claim = desk.claimed("w1")
    back = TaskGivenBack(seq=1, claim=claim, reason="no such jar", whole_kind=whole_kind)

    [acknowledged] = desk.sync("w1", reports=[back]).acknowledged

    assert acknowledged.held
    [task] = desk.tasks(job)
    assert (task.status, task.failures, task.losses) == (TaskStatus.PLANNED, 0, 0)
    assert task.error == "no such jar"
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
    desk.clock.advance(PAUSE_S)
    other = desk.submit()
    desk.passes()
    given = [a.claim.task for a in desk.sync("w1").assignments]
    assert given == ([] if whole_kind else [desk.tasks(other)[0].id])
    desk.register("w2")
    assert claim.task in [a.claim.task for a in desk.sync("w2").assignments]


def test_giving_back_twice_or_too_late_changes_nothing(desk: LeaderHarness) -> None:
    _, claim = desk.given()
    back = TaskGivenBack(seq=1, claim=claim, reason="no such jar")
    desk.sync("w1", reports=[back], free={})

    [again] = desk.sync("w1", reports=[back], free={}).acknowledged

    assert not again.held


def test_the_version_of_a_worker_is_what_it_last_spoke(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_versions(monkeypatch, next_version())
    desk.register("w1")
    for version in (NEXT, PROTOCOL_VERSION):
        [answer] = desk.answer(desk.say("w1", protocol=version))
        assert answer.protocol == NEXT
        with reading(desk.store) as conn:
            [worker] = workers.registered(conn)
        assert worker.protocol == version
