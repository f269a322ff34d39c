"""Wakes: none is missed, a wait is bounded, and closing ends it at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy import Engine

from headrace.store.core.engine import insert_new, open_store, writing
from headrace.store.core.notifications import Waker, notify, open_waker
from headrace.store.core.schema import facts
from tests.children import child, heard
from tests.postgresql import PostgreSQL

SHORT_S = 0.05
BOUND_S = 120.0  # for a state to come, also on a busy machine

WRITES = """
import sys
from headrace.store.core.engine import insert_new, open_store, writing
from headrace.store.core.schema import facts
from headrace.store.core.notifications import notify
engine = open_store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
with writing(engine) as conn:
    insert_new(conn, facts, name="a", value="1")
    notify(conn)
"""


@pytest.fixture
def waker(store: Engine) -> Iterator[Waker]:
    opened = open_waker(store)
    yield opened
    opened.close()


def write(engine: Engine, name: str) -> None:
    with writing(engine) as conn:
        insert_new(conn, facts, name=name, value="1")
        notify(conn)


def test_a_silent_store_wakes_nobody(waker: Waker) -> None:
    assert not waker.wait(SHORT_S)
    assert not waker.wait(0.0)


def test_a_write_of_another_process_wakes(waker: Waker, store_url: str) -> None:
    with child(WRITES, store_url) as process, ThreadPoolExecutor(1) as pool:
        assert heard(process) == "ready"
        woken = pool.submit(waker.wait, BOUND_S)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert woken.result(2 * BOUND_S)  # not so, when its time was over


def test_a_write_before_the_wait_is_not_missed(store: Engine, waker: Waker) -> None:
    for name in ("a", "b"):
        write(store, name)
        assert waker.wait(BOUND_S)
        assert not waker.wait(SHORT_S)


def test_wakes_do_not_pile_up(store: Engine, waker: Waker) -> None:
    for name in ("a", "b", "c"):
        write(store, name)
    assert waker.wait(BOUND_S)
    wakes = 1
    while waker.wait(SHORT_S):
        wakes += 1
    assert wakes <= 3


def test_a_write_that_was_undone_wakes_nobody(store: Engine, waker: Waker) -> None:
    with writing(store) as conn:
        notify(conn)
        insert_new(conn, facts, name="a", value="1")
        conn.get_transaction().rollback()  # pyright: ignore[reportOptionalMemberAccess]
    assert not waker.wait(SHORT_S)


def test_closing_ends_a_wait_at_once(store: Engine) -> None:
    waker = open_waker(store)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waker.wait, 60.0)
        while not (waiting.running() or waiting.done()):
            time.sleep(0.001)
        waker.close()
        assert waiting.result(BOUND_S) is False
    assert waker.wait(60.0) is False


def test_a_new_connection_wakes_since_nobody_knows_what_was_missed(postgresql_url: str) -> None:
    engine = open_store(postgresql_url)
    waker = open_waker(engine)
    with psycopg.connect(postgresql_url) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert waker.wait(BOUND_S)
    assert not waker.wait(SHORT_S)
    write(engine, "a")
    assert waker.wait(BOUND_S)
    waker.close()
    engine.dispose()


def test_a_server_that_is_away_is_waited_for(postgresql: PostgreSQL) -> None:
    name = postgresql.create_database()
    engine = open_store(postgresql.url(name))
    waker = open_waker(engine)
    postgresql.drop_database(name)
    assert not waker.wait(SHORT_S)
    assert not waker.wait(SHORT_S)
    waker.close()
    engine.dispose()
