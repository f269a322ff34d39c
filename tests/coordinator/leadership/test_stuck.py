"""A former leader that sits on a SQLite store is killed, and nobody else is."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine

from headrace.coordinator.leadership.leader import BUSY_TIMES_MIN
from headrace.errors import StoreBusy, StoreUnavailable
from headrace.store.core import leases
from headrace.store.core.engine import open_store
from headrace.store.core.transactions import Term
from headrace.store.migrate import prepare_store
from tests.children import child, heard
from tests.coordinator.leadership.test_leader import TTL_S, FakeHint, candidate
from tests.fakes import FakeClock

WAITS = """
import sqlite3, sys
from headrace.store.core import leases
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("INSERT INTO leases (name, holder, address, epoch, renewals, hinted)"
             " VALUES ('leader', ?, 'http://x:1', 1, 0, 0)", [leases.this_process()])
print("leads", flush=True)
sys.stdin.read()
"""

STUCK = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
from headrace.store.core import leases
conn.execute("BEGIN IMMEDIATE")
conn.execute("UPDATE leases SET holder = ?", [leases.this_process()])
conn.execute("COMMIT")
conn.execute("BEGIN IMMEDIATE")
print("stuck", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def file_store(sqlite_url: str) -> Iterator[Engine]:
    """A SQLite store whose writers give up soon."""
    engine = open_store(sqlite_url, ttl_s=0.3)
    prepare_store(engine)
    yield engine
    engine.dispose()


@pytest.mark.req("L2")
def test_a_holder_that_sits_on_a_sqlite_store_is_killed_once_its_lease_is_stale(
    file_store: Engine, clock: FakeClock
) -> None:
    assert candidate(file_store, clock, FakeHint(), "leader").step() is not None
    with child(STUCK, str(file_store.url.database)) as stuck:
        assert heard(stuck) == "stuck"
        rival = candidate(file_store, clock, FakeHint())
        assert rival.step() is None
        assert stuck.poll() is None  # not while its lease may still be renewed

        clock.advance(TTL_S)
        assert rival.step() is None
        assert stuck.poll() is None  # a busy store is busy now and then
        assert rival.step() is None
        assert stuck.wait(120) == -signal.SIGKILL
        assert rival.step() is not None


def test_a_hint_is_no_reason_to_kill(
    file_store: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever took the lease early because of a hint has seen no lease run out."""
    assert candidate(file_store, clock, FakeHint(free=True), "leader").step() is not None
    killed: list[str] = []

    def note(holder: str, _: Path) -> bool:
        killed.append(holder)
        return False

    def locked(*_: object, **__: object) -> Term:
        raise StoreBusy("locked")

    monkeypatch.setattr(leases, "kill_stuck_holder", note)
    monkeypatch.setattr(leases, "take", locked)

    rival = candidate(file_store, clock, FakeHint(free=True))
    for _ in range(BUSY_TIMES_MIN + 1):
        assert rival.step() is None
    assert killed == []


def test_a_former_leader_is_not_killed_for_a_lock_that_somebody_else_holds(
    file_store: Engine, clock: FakeClock
) -> None:
    """A backup, for one, locks the store just as well."""
    with child(WAITS, str(file_store.url.database)) as innocent:
        assert heard(innocent) == "leads"
        rival = candidate(file_store, clock, FakeHint())
        assert rival.step() is None
        clock.advance(TTL_S)
        with closing(sqlite3.connect(str(file_store.url.database), isolation_level=None)) as backup:
            backup.execute("BEGIN IMMEDIATE")
            for _ in range(BUSY_TIMES_MIN + 1):
                assert rival.step() is None
            assert innocent.poll() is None
            backup.execute("ROLLBACK")
        assert rival.step() is not None
        assert innocent.poll() is None


@pytest.mark.parametrize("error", [StoreUnavailable("disk full"), StoreBusy("locked")])
def test_nobody_is_taken_for_stuck_unless_the_store_was_locked_twice_in_a_row(
    file_store: Engine,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    error: StoreUnavailable,
) -> None:
    assert candidate(file_store, clock, FakeHint(), "leader").step() is not None
    killed: list[str] = []

    def note(holder: str, _: Path) -> bool:
        killed.append(holder)
        return False

    def fail(*_: object, **__: object) -> Term:
        raise error

    monkeypatch.setattr(leases, "kill_stuck_holder", note)
    monkeypatch.setattr(leases, "take", fail)
    rival = candidate(file_store, clock, FakeHint())
    rival.step()
    clock.advance(TTL_S)
    rival.step()
    assert killed == []
    rival.step()
    assert killed == (["leader"] if isinstance(error, StoreBusy) else [])
