"""Whole transactions are run again, a bounded number of times, and only when that may help."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from threading import Event

import pytest
from sqlalchemy import Connection, Engine, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from headrace.errors import StoreUnavailable
from headrace.seams import arm
from headrace.store.core import transactions
from headrace.store.core.engine import insert_new, open_store
from headrace.store.core.schema import facts
from headrace.store.core.transactions import in_tx


def add_fact(conn: Connection) -> int:
    insert_new(conn, facts, name="a", value="1")
    return conn.execute(
        select(func.count()).select_from(facts).where(facts.c.name == "a")
    ).scalar_one()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PAUSES_S", (0.0,) * len(transactions.PAUSES_S))


@pytest.fixture
def lost_answer() -> None:
    """The first commit lands, and its answer is lost."""
    answers = iter([StoreUnavailable("the answer was lost")])

    def lose() -> None:
        if lost := next(answers, None):
            raise lost

    arm("transaction committed", lose)


@pytest.mark.usefixtures("no_pauses", "lost_answer")
def test_work_runs_again_after_a_lost_answer_and_finds_its_own_effect(store: Engine) -> None:
    assert in_tx(store, add_fact, stop=Event()) == 1


@pytest.mark.usefixtures("no_pauses")
def test_a_lost_connection_is_survived(postgresql_url: str) -> None:
    engine = open_store(postgresql_url)
    tries: list[Connection] = []

    def die_once(conn: Connection) -> int:
        tries.append(conn)
        if len(tries) == 1:
            conn.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        return add_fact(conn)

    assert in_tx(engine, die_once, stop=Event()) == 1
    assert len(tries) == 2
    engine.dispose()


@pytest.fixture
def locked(sqlite_url: str) -> Iterator[tuple[Engine, sqlite3.Connection]]:
    """A store that waits only shortly, and another program that holds its write lock."""
    engine = open_store(sqlite_url, ttl_s=0.03)
    with closing(sqlite3.connect(str(engine.url.database), isolation_level=None)) as rival:
        rival.execute("BEGIN IMMEDIATE")
        yield engine, rival
    engine.dispose()


@pytest.mark.usefixtures("no_pauses")
def test_a_locked_store_is_waited_for(locked: tuple[Engine, sqlite3.Connection]) -> None:
    engine, rival = locked
    passes: list[int] = []

    def let_go_at_the_third_try() -> None:
        passes.append(1)
        if len(passes) == 3:
            rival.execute("ROLLBACK")

    arm("before transaction", let_go_at_the_third_try)
    assert in_tx(engine, add_fact, stop=Event()) == 1
    assert len(passes) == 3


@pytest.mark.usefixtures("no_pauses")
def test_a_store_that_stays_away_is_given_up(locked: tuple[Engine, sqlite3.Connection]) -> None:
    passes: list[int] = []
    arm("before transaction", lambda: passes.append(1))
    with pytest.raises(StoreUnavailable, match=r"store\.db is not available: database is locked"):
        in_tx(locked[0], add_fact, stop=Event())
    assert len(passes) == 1 + len(transactions.PAUSES_S)


def test_a_stop_ends_the_tries(locked: tuple[Engine, sqlite3.Connection]) -> None:
    passes: list[int] = []
    arm("before transaction", lambda: passes.append(1))
    stop = Event()
    stop.set()
    with pytest.raises(StoreUnavailable):
        in_tx(locked[0], add_fact, stop=stop)
    assert len(passes) == 1


def test_a_broken_constraint_is_not_tried_again(store: Engine) -> None:
    tries: list[int] = []

    def insert_twice(conn: Connection) -> None:
        tries.append(1)
        for _ in range(2):
            conn.execute(insert(facts).values(name="a", value="1"))

    with pytest.raises(IntegrityError):
        in_tx(store, insert_twice, stop=Event())
    assert len(tries) == 1
