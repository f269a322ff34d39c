"""The fence: an ex-leader writes nothing, and nobody can slip in between check and write."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from threading import Event

import pytest
from sqlalchemy import Engine, select

from headrace.errors import LeaderFenced, StoreUnavailable
from headrace.store.core import leases
from headrace.store.core.engine import insert_new, open_store, open_writer, reading, writing
from headrace.store.core.schema import facts
from headrace.store.core.transactions import Term, check_fence, fenced, in_tx

SUCCESSOR = "host-2:202:2.00"
HELD_BACK_S = 0.2  # how long a successor is watched while it waits
BOUND_S = 120.0  # for a state to come, also on a busy machine


@pytest.fixture
def other(store_url: str) -> Iterator[Engine]:
    """Another coordinator's view of the same store."""
    engine = open_store(store_url)
    yield engine
    engine.dispose()


def take_over(engine: Engine) -> Term | None:
    with writing(engine) as conn:
        return leases.take(conn, leases.read(conn), holder=SUCCESSOR, address="a2")


def written(engine: Engine) -> bool:
    with reading(engine) as conn:
        return conn.scalar(select(facts.c.value).where(facts.c.name == "a")) is not None


@pytest.mark.req("L1")
def test_the_current_term_writes(store: Engine, term: Term) -> None:
    with fenced(store, term) as conn:
        insert_new(conn, facts, name="a", value="1")
    assert written(store)


@pytest.mark.req("L1")
def test_an_old_term_is_refused(store: Engine, other: Engine, term: Term) -> None:
    assert take_over(other) == Term(SUCCESSOR, term.epoch + 1)
    with (
        pytest.raises(LeaderFenced, match="term 1 ended; the store is at term 2"),
        fenced(store, term),
    ):
        pytest.fail("an ex-leader was let in")


@pytest.mark.req("L1")
def test_a_term_is_refused_on_a_store_where_nobody_leads(store: Engine) -> None:
    with pytest.raises(LeaderFenced), fenced(store, Term("somebody", 1)):
        pytest.fail("a term of another store was let in")


@pytest.mark.req("L1")
def test_the_same_epoch_of_another_holder_is_refused(store: Engine, term: Term) -> None:
    with pytest.raises(LeaderFenced), fenced(store, Term("somebody", term.epoch)):
        pytest.fail("a holder that was never elected was let in")


@pytest.mark.req("L1")
def test_a_resigned_term_is_refused(store: Engine, term: Term) -> None:
    with writing(store) as conn:
        assert leases.resign(conn, term)
    with pytest.raises(LeaderFenced), fenced(store, term):
        pytest.fail("a leader that resigned was let in")


@pytest.mark.req("L1")
def test_a_kept_connection_is_fenced_in_each_of_its_transactions(
    store: Engine, other: Engine, term: Term
) -> None:
    with open_writer(store) as kept:
        with kept.begin():
            check_fence(kept, term)
        take_over(other)
        with pytest.raises(LeaderFenced), kept.begin():
            check_fence(kept, term)


@pytest.mark.req("L1")
def test_a_take_over_waits_for_an_open_fenced_transaction(
    store: Engine, other: Engine, term: Term
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with fenced(store, term) as conn:
            taken = pool.submit(take_over, other)
            assert not wait_for([taken], timeout=HELD_BACK_S).done
            insert_new(conn, facts, name="a", value="1")
        assert taken.result(timeout=BOUND_S) == Term(SUCCESSOR, term.epoch + 1)
    assert written(store)


@pytest.mark.req("L1")
def test_a_renewal_does_not_wait_on_postgresql(postgresql_url: str) -> None:
    engine = open_store(postgresql_url)
    term = take_over(engine)
    assert term is not None
    with fenced(engine, term), writing(engine) as renewing:  # waiting would end in an error
        assert leases.renew(renewing, term, renewals=1)
    engine.dispose()


@pytest.mark.req("L2")
def test_a_leader_paused_inside_a_transaction_blocks_nobody_on_postgresql(
    postgresql_url: str,
) -> None:
    ttl_s = 1.5  # short for the test's sake, long enough for a busy machine
    paused, successor = (open_store(postgresql_url, ttl_s=ttl_s) for _ in range(2))
    term = take_over(paused)
    assert term is not None
    with pytest.raises(StoreUnavailable), fenced(paused, term) as conn:  # noqa: PT012
        assert_taken_over(successor, term, within_s=BOUND_S)
        insert_new(conn, facts, name="a", value="1")  # the server has ended this session
    assert not written(successor)
    paused.dispose()
    successor.dispose()


def assert_taken_over(engine: Engine, term: Term, *, within_s: float) -> None:
    began_s = time.monotonic()
    with reading(engine) as conn:
        seen = leases.read(conn)
    won = in_tx(
        engine,
        lambda conn: leases.take(conn, seen, holder="next", address="a3"),
        stop=Event(),
    )
    assert won == Term("next", term.epoch + 1)
    assert time.monotonic() - began_s < within_s
