"""The take-over hint: held by one, freed by death, never lost without notice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine

from headrace.errors import StoreUnavailable
from headrace.store.core.engine import open_store
from headrace.store.core.leases import TakeoverLock, open_takeover_lock
from tests.children import child, heard

BOUND_S = 120.0  # for a state to come, also on a busy machine

HOLDS = """
import sys
from headrace.store.core.engine import open_store
from headrace.store.core.leases import open_takeover_lock
hint = open_takeover_lock(open_store(sys.argv[1]))
print(hint.try_acquire(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hints(store: Engine) -> Iterator[tuple[TakeoverLock, TakeoverLock]]:
    """Two coordinators' hints on one store."""
    pair = open_takeover_lock(store), open_takeover_lock(store)
    yield pair
    for hint in pair:
        hint.release()


def test_one_holds_it_until_it_lets_go(hints: tuple[TakeoverLock, TakeoverLock]) -> None:
    first, second = hints
    assert first.try_acquire()
    assert first.try_acquire()  # held twice is held once
    assert not second.try_acquire()
    first.release()
    assert second.try_acquire()
    assert not first.try_acquire()


def test_letting_go_of_what_is_not_held_does_nothing(
    hints: tuple[TakeoverLock, TakeoverLock],
) -> None:
    first, second = hints
    first.release()
    assert second.try_acquire()
    first.release()
    assert not first.try_acquire()


@pytest.mark.req("L2")
def test_it_is_free_at_once_when_its_holder_is_killed(store: Engine, store_url: str) -> None:
    hint = open_takeover_lock(store)
    with child(HOLDS, store_url) as process:
        assert heard(process) == "True"
        assert not hint.try_acquire()
        process.send_signal(signal.SIGKILL)
        process.wait(BOUND_S)
        assert eventually_acquired(hint)
    hint.release()


def eventually_acquired(hint: TakeoverLock) -> bool:
    """A server notices a closed socket a moment after the kernel closed it."""
    return any(hint.try_acquire() for _ in range(10_000))


def test_a_lost_session_is_noticed_and_replaced(postgresql_url: str) -> None:
    engine = open_store(postgresql_url)
    hint, rival = open_takeover_lock(engine), open_takeover_lock(engine)
    assert hint.try_acquire()
    with psycopg.connect(postgresql_url) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks"
            " WHERE locktype = 'advisory' AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    assert eventually_acquired(rival)
    with pytest.raises(StoreUnavailable):
        hint.try_acquire()
    assert not hint.try_acquire()
    rival.release()
    assert eventually_acquired(hint)
    hint.release()
    engine.dispose()


def test_the_file_of_the_hint_stays(sqlite_url: str) -> None:
    engine = open_store(sqlite_url)
    hint = open_takeover_lock(engine)
    hint.try_acquire()
    hint.release()
    assert Path(f"{engine.url.database}.leader").exists()
    engine.dispose()
