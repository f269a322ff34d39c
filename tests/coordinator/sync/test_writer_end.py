"""The end of a term, as the writer's thread meets it: nobody who asked is left waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine

from headrace.coordinator.sync import writer as writer_module
from headrace.coordinator.sync.writer import AnswerSink, WriterRequest
from headrace.errors import NotLeader, StoreUnavailable
from headrace.protocol.messages import Sync
from headrace.seams import arm
from headrace.store import lookups
from headrace.store.core.engine import reading
from headrace.store.core.transactions import Term
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.writer_harness import BOUND_S, WriterHarness, opened, poison, take_the_lease


@pytest.fixture
def office(desk: LeaderHarness) -> Iterator[WriterHarness]:
    with opened(desk) as office:
        yield office


@pytest.mark.req("L1")
def test_a_fenced_writer_answers_not_leader_to_everybody_and_says_so_once(
    office: WriterHarness, store: Engine
) -> None:
    office.desk.register("w1")
    office.desk.plan_noops(1)
    # The poisoned one makes each be served by itself, and each would meet the fence.
    office.hold()
    asks = [office.writer.do(poison)]
    assert office.arrived.acquire(timeout=BOUND_S)
    asks += [office.writer.ask(office.desk.say("w1")), office.writer.do(lambda _: "done")]
    take_the_lease(store)
    office.let_go()

    for ask in asks:
        with pytest.raises(NotLeader):
            ask.result(BOUND_S)
    with pytest.raises(NotLeader):
        office.writer.ask(office.desk.say("w1")).result(BOUND_S)
    assert len(office.fenced) == 1
    with reading(store) as conn:
        assert lookups.tasks_by_status(conn) == {"PLANNED": 1}


@pytest.mark.req("L1")
def test_a_writer_fenced_while_it_serves_a_broken_batch_says_so_once(
    office: WriterHarness, store: Engine
) -> None:
    breaks = iter([True])

    def break_the_batch(_: Connection) -> None:
        if next(breaks, False):
            arm("before sync transaction", lose_the_lease)
            raise ZeroDivisionError

    def lose_the_lease() -> None:
        arm("before sync transaction", lambda: None)
        take_the_lease(store)

    futures = office.batch(
        lambda: office.writer.do(break_the_batch),
        lambda: office.writer.do(lambda _: "done"),
        lambda: office.writer.do(lambda _: "done"),
    )

    for future in futures:
        with pytest.raises(NotLeader):
            future.result(BOUND_S)
    assert len(office.fenced) == 1


def test_asks_of_a_stopped_writer_are_all_answered(office: WriterHarness) -> None:
    office.hold()
    first = office.writer.do(lambda _: "done")
    assert office.arrived.acquire(timeout=BOUND_S)
    waiting = [office.writer.do(lambda _: "done") for _ in range(5)]
    stopper = threading.Thread(target=office.writer.stop, kwargs={"timeout_s": BOUND_S})
    stopper.start()
    office.let_go()
    stopper.join(BOUND_S)

    assert first.result(BOUND_S) == "done"
    for ask in [*waiting, office.writer.do(lambda _: "done")]:
        with pytest.raises(NotLeader):
            ask.result(BOUND_S)


def test_an_ask_that_slips_in_as_the_term_ends_is_answered(
    office: WriterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes the check, then the writer ends, then it is put into the queue."""
    made = writer_module.WriterRequest

    def end_first(what: object, answer: AnswerSink) -> WriterRequest:
        office.writer.stop(timeout_s=BOUND_S)
        return made(what, answer)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(writer_module, "WriterRequest", end_first)

    with pytest.raises(NotLeader):
        office.writer.do(lambda _: "done").result(BOUND_S)


def test_a_store_that_is_away_when_the_term_begins_is_waited_for(
    desk: LeaderHarness, store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = writer_module.open_writer
    away = iter([True, False])

    def open_writer(engine: Engine) -> Connection:
        if next(away):
            raise StoreUnavailable("away")
        return really(engine)

    monkeypatch.setattr(writer_module, "open_writer", open_writer)
    with opened(desk) as office:
        with pytest.raises(StoreUnavailable, match="away"):
            office.writer.do(lambda _: "done").result(BOUND_S)
        assert office.writer.do(lambda _: "done").result(BOUND_S) == "done"


def test_an_old_term_can_not_even_begin(desk: LeaderHarness, store: Engine) -> None:
    with opened(desk, Term("somebody", desk.term.epoch - 1)) as office:
        asked = office.writer.ask(Sync(worker="w1", sync=1))
        with pytest.raises(NotLeader):
            asked.result(BOUND_S)

    assert [error.current for error in office.fenced] == [desk.term.epoch]
