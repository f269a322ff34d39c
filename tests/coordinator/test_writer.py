"""The writer's thread: one transaction for many, an answer only after its commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from headrace.coordinator import writer as writer_module
from headrace.coordinator.dispatch import Touched
from headrace.coordinator.metrics import Metrics
from headrace.coordinator.writer import Writer
from headrace.errors import LeaderFenced, NotLeader, Refused, StoreUnavailable, Unavailable
from headrace.model.task import TaskStatus
from headrace.protocol.messages import Sync
from headrace.seams import arm
from headrace.store import census, leases, tasks
from headrace.store.engine import reading, writing
from headrace.store.fence import Term
from tests.coordinator.desk import Desk
from tests.coordinator.specs import succeeded

BOUND_S = 20.0


@dataclass
class Office:
    """A writer on its own thread, held before each transaction until it is let go."""

    desk: Desk
    writer: Writer
    fenced: list[LeaderFenced] = field(default_factory=list[LeaderFenced])
    touched: list[Touched] = field(default_factory=list[Touched])
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def hold(self) -> None:
        def wait() -> None:
            self.arrived.release()
            assert self.gate.acquire(timeout=BOUND_S)

        arm("before sync transaction", wait)

    def let_go(self) -> None:
        arm("before sync transaction", lambda: None)
        self.gate.release()

    def batch(self, *asks: Callable[[], Future[Any]]) -> list[Future[Any]]:
        """Ask all of these so that they make up one batch."""
        self.hold()
        first = self.writer.do(lambda _: None)
        assert self.arrived.acquire(timeout=BOUND_S)
        futures = [ask() for ask in asks]
        self.let_go()
        first.result(BOUND_S)
        return futures

    def sync(self, name: str, **said: Any) -> Callable[[], Future[Any]]:
        return lambda: self.writer.ask(self.desk.say(name, **said))


@pytest.fixture
def office(store: Engine, desk: Desk) -> Iterator[Office]:
    office: Office

    def fenced(error: LeaderFenced) -> None:
        office.fenced.append(error)

    def committed(touched: Touched) -> None:
        office.touched.append(touched)

    writer = Writer(
        store,
        desk.term,
        desk.dispatch,
        committed=committed,
        fenced=fenced,
        metrics=Metrics(),
    )
    office = Office(desk, writer)
    writer.start()
    yield office
    writer.stop(timeout_s=BOUND_S)


def take_the_lease(store: Engine) -> None:
    with writing(store) as conn:
        assert leases.take(conn, leases.read(conn), holder="rival", address="http://r:1")


def poison(_: Connection) -> None:
    raise ZeroDivisionError


def test_syncs_that_come_together_are_answered_in_one_transaction(office: Office) -> None:
    office.desk.register("w1")
    office.desk.register("w2")
    commits: list[str] = []

    futures = office.batch(office.sync("w1"), office.sync("w2"))
    arm("sync committed, before answer", lambda: commits.append("one"))

    assert {future.result(BOUND_S).registered for future in futures} == {True}
    assert len(commits) <= 1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_poisoned_ask_does_not_fail_its_neighbours(office: Office, place: int) -> None:
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


def test_a_refusal_reaches_the_one_who_asked_and_nobody_else(office: Office) -> None:
    def refuse(_: Connection) -> None:
        raise Refused("not like this")

    bad, good = office.batch(
        lambda: office.writer.do(refuse), lambda: office.writer.do(lambda _: "done")
    )

    with pytest.raises(Refused, match="not like this"):
        bad.result(BOUND_S)
    assert good.result(BOUND_S) == "done"


@pytest.mark.req("L1")
def test_a_fenced_writer_answers_not_leader_to_everybody_and_says_so_once(
    office: Office, store: Engine
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
        assert census.tasks_by_status(conn) == {"PLANNED": 1}


@pytest.mark.req("L1")
def test_a_writer_fenced_while_it_serves_a_broken_batch_says_so_once(
    office: Office, store: Engine
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


def test_a_full_queue_says_come_again(
    office: Office, monkeypatch: pytest.MonkeyPatch, store: Engine
) -> None:
    monkeypatch.setattr(writer_module, "QUEUE_MAX", 2)
    desk = office.desk
    small = Writer(
        store,
        desk.term,
        desk.dispatch,
        committed=lambda _: None,
        fenced=lambda _: None,
        metrics=Metrics(),
    )
    futures = [small.do(lambda _: "done") for _ in range(3)]

    with pytest.raises(Unavailable, match="too many syncs at once; come again"):
        futures[2].result(BOUND_S)
    small.start()
    assert [future.result(BOUND_S) for future in futures[:2]] == ["done", "done"]
    small.stop(timeout_s=BOUND_S)


@pytest.mark.req("D4")
def test_an_answer_never_leaves_before_its_commit(office: Office, store: Engine) -> None:
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
def test_a_report_whose_commit_failed_is_not_acknowledged(office: Office) -> None:
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


def test_two_syncs_of_one_worker_in_a_batch_get_the_newer_ones_answer(office: Office) -> None:
    office.desk.register("w1")
    office.desk.plan_noops(4)

    older, newer = office.batch(office.sync("w1"), office.sync("w1"))

    assert older.result(BOUND_S) is newer.result(BOUND_S)
    assert len(newer.result(BOUND_S).assignments) == 2


def test_a_client_that_hung_up_disturbs_nobody(office: Office) -> None:
    office.desk.register("w1")
    office.hold()
    gone = office.writer.ask(office.desk.say("w1"))
    assert gone.cancel()
    office.let_go()

    assert office.writer.do(lambda _: "done").result(BOUND_S) == "done"


def test_asks_of_a_stopped_writer_are_all_answered(office: Office) -> None:
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


def test_an_ask_that_slips_in_as_the_term_ends_is_answered(office: Office) -> None:
    """It passes the check, then the writer ends, then it is put into the queue."""
    put = office.writer._queue.put_nowait

    def end_first(ask: Any) -> None:
        office.writer.stop(timeout_s=BOUND_S)
        put(ask)

    office.writer._queue.put_nowait = end_first  # type: ignore[method-assign]

    with pytest.raises(NotLeader):
        office.writer.do(lambda _: "done").result(BOUND_S)


def test_a_store_that_is_away_when_the_term_begins_is_waited_for(
    desk: Desk, store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = writer_module.open_writer
    away = iter([True, False])

    def open_writer(engine: Engine) -> Connection:
        if next(away):
            raise StoreUnavailable("away")
        return really(engine)

    monkeypatch.setattr(writer_module, "open_writer", open_writer)
    writer = Writer(
        store,
        desk.term,
        desk.dispatch,
        committed=lambda _: None,
        fenced=lambda _: None,
        metrics=Metrics(),
    )
    writer.start()

    with pytest.raises(StoreUnavailable, match="away"):
        writer.do(lambda _: "done").result(BOUND_S)
    assert writer.do(lambda _: "done").result(BOUND_S) == "done"
    writer.stop(timeout_s=BOUND_S)


def test_an_old_term_can_not_even_begin(desk: Desk, store: Engine) -> None:
    lost: list[LeaderFenced] = []
    writer = Writer(
        store,
        Term("somebody", desk.term.epoch - 1),
        desk.dispatch,
        committed=lambda _: None,
        fenced=lost.append,
        metrics=Metrics(),
    )
    writer.start()

    with pytest.raises(NotLeader):
        writer.ask(Sync(worker="w1", sync=1)).result(BOUND_S)
    writer.stop(timeout_s=BOUND_S)
    assert [error.current for error in lost] == [desk.term.epoch]
