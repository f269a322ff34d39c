"""The writer's thread: one transaction for many, an answer only after its commit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine

from headrace.coordinator.context import Metrics
from headrace.coordinator.sync import writer as writer_module
from headrace.coordinator.sync.writer import Writer
from headrace.errors import Refused, StoreUnavailable, Unavailable
from headrace.model.task import TaskStatus
from headrace.seams import arm
from headrace.store.core.engine import reading
from headrace.store.tasks import tasks
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import succeeded
from tests.coordinator.writer_harness import BOUND_S, WriterHarness, opened, poison


@pytest.fixture
def office(desk: LeaderHarness) -> Iterator[WriterHarness]:
    with opened(desk) as office:
        yield office


def test_syncs_that_come_together_are_answered_in_one_transaction(office: WriterHarness) -> None:
    office.desk.register("w1")
    office.desk.register("w2")
    commits: list[int] = []
    arm("sync committed, before answer", lambda: commits.append(1))

    futures = office.batch(office.sync("w1"), office.sync("w2"))

    assert [future.result(BOUND_S).registered for future in futures] == [True, True]
    assert len(commits) == 2  # of what held the writer up, then of the two


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_poisoned_ask_does_not_fail_its_neighbours(office: WriterHarness, place: int) -> None:
    office.desk.register("w1")
    office.desk.plan_noops(1)
    asks = [office.sync("w1"), lambda: office.writer.do(lambda _: "done")]
    asks.insert(place, lambda: office.writer.do(poison))

    futures = office.batch(*asks)
    bad = futures.pop(place)
    synced, done = futures

    with pytest.raises(Unavailable, match="its log says why"):
        bad.result(BOUND_S)
    assert done.result(BOUND_S) == "done"
    assert len(synced.result(BOUND_S).assignments) == 1


def test_a_refusal_reaches_the_one_who_asked_and_nobody_else(office: WriterHarness) -> None:
    def refuse(_: Connection) -> None:
        raise Refused("not like this")

    bad, good = office.batch(
        lambda: office.writer.do(refuse), lambda: office.writer.do(lambda _: "done")
    )

    with pytest.raises(Refused, match="not like this"):
        bad.result(BOUND_S)
    assert good.result(BOUND_S) == "done"


def test_a_full_queue_says_come_again(
    office: WriterHarness, monkeypatch: pytest.MonkeyPatch, store: Engine
) -> None:
    monkeypatch.setattr(writer_module, "QUEUE_MAX", 2)
    desk = office.desk
    small = Writer(
        store,
        desk.term,
        desk.dispatch,
        committed=lambda _: None,
        fenced=lambda _: None,
        ended=lambda: None,
        metrics=Metrics(),
    )
    futures = [small.do(lambda _: "done") for _ in range(3)]

    with pytest.raises(Unavailable, match="too many syncs at once; come again"):
        futures[2].result(BOUND_S)
    small.start()
    assert [future.result(BOUND_S) for future in futures[:2]] == ["done", "done"]
    small.stop(timeout_s=BOUND_S)


@pytest.mark.req("D4")
def test_an_answer_never_leaves_before_its_commit(office: WriterHarness, store: Engine) -> None:
    desk = office.desk
    desk.register("w1")
    desk.plan_noops(1)
    claim = desk.claimed("w1")
    end = succeeded(claim)
    before: list[bool] = []

    def look() -> None:
        before.append(answered.done())
        with reading(store) as conn:
            found = tasks.get(conn, claim.task)
        before.append(found is not None and found.status is TaskStatus.SUCCESS)

    arm("sync committed, before answer", look)
    office.hold()
    answered = office.writer.ask(desk.say("w1", reports=[end], free={}))
    office.let_go()

    assert [a.seq for a in answered.result(BOUND_S).acknowledged] == [end.seq]
    assert before == [False, True]


@pytest.mark.req("D4")
def test_a_report_whose_commit_failed_is_not_acknowledged(office: WriterHarness) -> None:
    desk = office.desk
    desk.register("w1")
    desk.plan_noops(1)
    claim = desk.claimed("w1")

    def fail() -> None:
        raise StoreUnavailable("gone")

    arm("in fenced transaction", fail)
    said = desk.say("w1", reports=[succeeded(claim)], free={})
    with pytest.raises(StoreUnavailable, match="gone"):
        office.writer.ask(said).result(BOUND_S)
    arm("in fenced transaction", lambda: None)
    assert desk.task(claim.task).status is TaskStatus.SCHEDULED

    assert office.writer.ask(said).result(BOUND_S).acknowledged
    assert desk.task(claim.task).status is TaskStatus.SUCCESS


def test_two_syncs_of_one_worker_in_a_batch_get_the_newer_ones_answer(
    office: WriterHarness,
) -> None:
    office.desk.register("w1")
    office.desk.plan_noops(4)

    older, newer = office.batch(office.sync("w1"), office.sync("w1"))

    assert older.result(BOUND_S) is newer.result(BOUND_S)
    assert len(newer.result(BOUND_S).assignments) == 2


def test_a_client_that_hung_up_disturbs_nobody(office: WriterHarness) -> None:
    office.desk.register("w1")
    office.hold()
    gone = office.writer.ask(office.desk.say("w1"))
    assert gone.cancel()
    office.let_go()

    assert office.writer.do(lambda _: "done").result(BOUND_S) == "done"
