"""The lease: one winner, no clocks compared, and every step finds its own effect."""

from __future__ import annotations

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Event

import psutil
import pytest
from sqlalchemy import Connection, Engine, update

from headrace.errors import StoreRefused, StoreUnavailable
from headrace.seams import arm
from headrace.store.core import leases, transactions
from headrace.store.core.engine import open_store, reading, writing
from headrace.store.core.leases import Lease, LeaseWatch, kill_stuck_holder, this_process
from headrace.store.core.schema import facts
from headrace.store.core.transactions import Term, in_tx
from tests.children import child, heard
from tests.fakes import FakeClock

RACERS = 8
NO_FILE = Path("/nowhere/store.db")
TTL_S = 3.0
BOUND_S = 120.0  # for a state to come, also on a busy machine
LEASE = Lease("host-1:101:1.00", "a1", 7, 3, hinted=False)


def read(store: Engine) -> Lease | None:
    with reading(store) as conn:
        return leases.read(conn)


@pytest.fixture
def lost_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit lands, and its answer is lost."""
    monkeypatch.setattr(transactions, "PAUSES_S", (0.0,) * len(transactions.PAUSES_S))
    answers = iter([StoreUnavailable("the answer was lost")])

    def lose() -> None:
        if lost := next(answers, None):
            raise lost

    arm("transaction committed", lose)


def race(store: Engine, seen: Lease | None) -> list[Term]:
    """Let many candidates take the lease as `seen` at one moment; those who won."""
    start = Barrier(RACERS)

    def campaign(number: int) -> Term | None:
        def work(conn: Connection) -> Term | None:
            return leases.take(conn, seen, holder=f"c{number}", address=f"a{number}")

        start.wait(BOUND_S)
        return in_tx(store, work, stop=Event())

    with ThreadPoolExecutor(RACERS) as pool:
        return [won for won in pool.map(campaign, range(RACERS)) if won]


@pytest.mark.req("L1")
def test_the_first_election_has_one_winner(store: Engine) -> None:
    (winner,) = race(store, None)
    held = read(store)
    assert held is not None
    assert (held.holder, held.epoch, held.renewals) == (winner.holder, 1, 0)


@pytest.mark.req("L1")
def test_a_stale_lease_has_one_successor(store: Engine, term: Term) -> None:
    (winner,) = race(store, read(store))
    assert winner.epoch == term.epoch + 1


@pytest.mark.req("L1")
def test_a_lease_that_was_renewed_since_it_was_read_is_not_taken(store: Engine, term: Term) -> None:
    seen = read(store)
    with writing(store) as conn:
        assert leases.renew(conn, term, renewals=1)
    with writing(store) as conn:
        assert leases.take(conn, seen, holder="c2", address="a2") is None


@pytest.mark.req("L1")
def test_a_renewal_after_the_term_ended_says_so(store: Engine, term: Term) -> None:
    with writing(store) as conn:
        assert leases.take(conn, leases.read(conn), holder="c2", address="a2")
    with writing(store) as conn:
        assert not leases.renew(conn, term, renewals=1)


def test_each_renewal_changes_the_row(store: Engine, term: Term) -> None:
    seen: set[Lease | None] = {read(store)}
    for renewals in (1, 2, 5):  # asks 3 and 4 failed
        with writing(store) as conn:
            assert leases.renew(conn, term, renewals=renewals)
        seen.add(read(store))
    assert len(seen) == 4


@pytest.mark.req("L1")
@pytest.mark.usefixtures("lost_answer")
def test_taking_finds_its_own_effect(store: Engine) -> None:
    won = in_tx(store, lambda conn: leases.take(conn, None, holder="c", address="a"), stop=Event())
    assert won == Term("c", 1)


@pytest.mark.req("L1")
@pytest.mark.usefixtures("lost_answer")
def test_taking_over_finds_its_own_effect(store: Engine, term: Term) -> None:
    seen = read(store)
    won = in_tx(store, lambda conn: leases.take(conn, seen, holder="c", address="a"), stop=Event())
    assert won == Term("c", term.epoch + 1)


@pytest.mark.usefixtures("lost_answer")
def test_renewing_finds_its_own_effect(store: Engine, term: Term) -> None:
    assert in_tx(store, lambda conn: leases.renew(conn, term, renewals=1), stop=Event())


@pytest.mark.req("L2")
@pytest.mark.usefixtures("lost_answer")
def test_resigning_finds_its_own_effect(store: Engine, term: Term) -> None:
    assert in_tx(store, lambda conn: leases.resign(conn, term), stop=Event())
    assert read(store) == Lease("", "", term.epoch + 1, 0, hinted=False)


def test_resigning_a_term_that_was_taken_over_changes_nothing(store: Engine, term: Term) -> None:
    with writing(store) as conn:
        leases.take(conn, leases.read(conn), holder="c2", address="a2")
    held = read(store)
    with writing(store) as conn:
        assert not leases.resign(conn, term)
    assert read(store) == held


@pytest.mark.req("L2")
@pytest.mark.parametrize("hinted", [True, False])
def test_a_lease_says_whether_its_holder_has_the_hint(store: Engine, *, hinted: bool) -> None:
    with writing(store) as conn:
        leases.take(conn, None, holder="c1", address="a1", hinted=hinted)
    held = read(store)
    assert held is not None
    assert held.hinted is hinted


@pytest.mark.req("L4")
def test_a_program_that_became_too_old_can_not_take_the_lease(store: Engine) -> None:
    with writing(store) as conn:
        conn.execute(update(facts).where(facts.c.name == "oldest_program").values(value="99"))
    with pytest.raises(StoreRefused, match="level 99 or newer"), writing(store) as conn:
        leases.take(conn, None, holder="c1", address="a1")


@pytest.mark.req("L1")
def test_a_lease_is_stale_when_it_did_not_change_for_the_ttl(clock: FakeClock) -> None:
    watch = LeaseWatch(clock, ttl_s=TTL_S)
    assert not watch.free_to_take(LEASE)
    clock.advance(TTL_S - 0.01)
    assert not watch.free_to_take(LEASE)
    clock.advance(0.01)
    assert watch.free_to_take(LEASE)


@pytest.mark.req("L1")
def test_a_renewal_starts_the_ttl_anew(clock: FakeClock) -> None:
    watch = LeaseWatch(clock, ttl_s=TTL_S)
    watch.free_to_take(LEASE)
    clock.advance(TTL_S)
    renewed = replace(LEASE, renewals=LEASE.renewals + 1)
    assert not watch.free_to_take(renewed)
    clock.advance(TTL_S)
    assert watch.free_to_take(renewed)


@pytest.mark.req("L1")
def test_no_clock_but_ones_own_monotonic_one_counts() -> None:
    behind = FakeClock(wall_ms=0, monotonic_s=5.0)
    ahead = FakeClock(wall_ms=9_000_000_000_000, monotonic_s=5_000_000.0)
    for clock in (behind, ahead):
        watch = LeaseWatch(clock, ttl_s=TTL_S)
        assert not watch.free_to_take(LEASE)
        clock.set_wall(5_000_000_000_000)
        assert not watch.free_to_take(LEASE)
        clock.advance(TTL_S)
        clock.set_wall(0)
        assert watch.free_to_take(LEASE)


@pytest.mark.req("L2")
@pytest.mark.parametrize("seen", [None, Lease("", "", 8, 0, hinted=False)])
def test_a_lease_nobody_holds_is_free_at_once(clock: FakeClock, seen: Lease | None) -> None:
    assert LeaseWatch(clock, ttl_s=TTL_S).free_to_take(seen)


WAITS = """
import sys
from headrace.store.core.leases import this_process
print(this_process(), flush=True)
sys.stdin.read()
"""


def test_a_stuck_holder_is_killed_only_where_it_is_what_it_says() -> None:
    with child(WAITS) as process:
        holder = heard(process)
        host, pid, started_s = holder.rsplit(":", 2)
        assert (host, int(pid)) == (socket.gethostname(), process.pid)
        for wrong in (
            f"elsewhere:{pid}:{started_s}",
            f"{host}:{pid}:{float(started_s) - 60:.2f}",
            f"{host}:{pid}:{float(started_s) + 60:.2f}",
            "",
            "nonsense",
            f"{host}:nonsense:{started_s}",
        ):
            assert not kill_stuck_holder(wrong, NO_FILE)
        assert not kill_stuck_holder(holder, NO_FILE)  # it runs, and has no lock
        assert process.poll() is None

        process.send_signal(signal.SIGSTOP)
        await_stopped(process.pid)
        assert kill_stuck_holder(holder, NO_FILE)
        assert process.wait(BOUND_S) == -signal.SIGKILL
        assert not kill_stuck_holder(holder, NO_FILE)


def test_a_process_never_kills_itself() -> None:
    assert this_process().split(":")[1] == str(os.getpid())
    assert not kill_stuck_holder(this_process(), NO_FILE)


PAUSES_IN_A_TRANSACTION = """
import sys
from headrace.seams import arm_from
from headrace.store.core import leases
from headrace.store.core.engine import open_store, writing
from headrace.store.core.transactions import fenced
engine = open_store(sys.argv[1])
with writing(engine) as conn:
    term = leases.take(conn, None, holder=leases.this_process(), address="a1")
print(term.holder, flush=True)
arm_from("in fenced transaction=stop")
with fenced(engine, term):
    pass
"""


@pytest.mark.req("L2")
def test_a_holder_stopped_inside_a_sqlite_transaction_is_killed_and_replaced(
    sqlite_url: str,
) -> None:
    engine = open_store(sqlite_url, ttl_s=0.3)
    with child(PAUSES_IN_A_TRANSACTION, sqlite_url) as process:
        holder = heard(process)
        await_stopped(process.pid)
        seen = read(engine)  # reading works, writing does not
        assert seen is not None
        assert seen.holder == holder
        with pytest.raises(StoreUnavailable, match="locked"), writing(engine):
            pytest.fail("the store is not locked")

        assert kill_stuck_holder(seen.holder, Path(str(engine.url.database)))
        assert process.wait(BOUND_S) == -signal.SIGKILL
        with writing(engine) as conn:
            assert leases.take(conn, seen, holder="c2", address="a2") == Term("c2", 2)
    engine.dispose()


def await_stopped(pid: int) -> None:
    end_s = time.monotonic() + BOUND_S
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < end_s, "the child did not reach its seam"
        time.sleep(0.01)
