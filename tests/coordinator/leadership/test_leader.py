"""Winning, trusting and losing a term, step by step on a clock that a test moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from sqlalchemy import Engine

from headrace.coordinator.leadership.leader import (
    CAMPAIGN_INTERVAL_S,
    LOOK_GAP_MAX_S,
    MARGIN_SHARE,
    LeaderCandidate,
    LeaderClock,
    Leadership,
)
from headrace.errors import LeaderFenced, StoreUnavailable
from headrace.seams import arm
from headrace.store.core import leases
from headrace.store.core.engine import reading, writing
from headrace.store.core.leases import Lease
from headrace.store.core.transactions import Term, fenced
from tests.fakes import FakeClock

TTL_S = 3.0
REPLACED_MAX_S = 5.0  # L2
TRUST_S = TTL_S * (1 - MARGIN_SHARE)


@dataclass
class FakeHint:
    """A hint that is free, or somebody else's."""

    free: bool = False
    asked: int = 0
    held: bool = field(default=False)

    def try_acquire(self) -> bool:
        self.asked += 1
        self.held |= self.free
        return self.held

    def release(self) -> None:
        self.held = False


def candidate(store: Engine, clock: FakeClock, hint: FakeHint, name: str = "c1") -> LeaderCandidate:
    return LeaderCandidate(store, hint, clock, holder=name, address=f"http://{name}:1", ttl_s=TTL_S)


def lease(store: Engine) -> Lease:
    with reading(store) as conn:
        found = leases.read(conn)
    assert found is not None
    return found


@pytest.fixture
def leader(store: Engine, clock: FakeClock) -> Leadership:
    """Somebody who leads, with the hint."""
    won = candidate(store, clock, FakeHint(free=True), "leader").step()
    assert won is not None
    return won


@pytest.mark.req("L1")
def test_the_first_candidate_leads_and_the_second_does_not(
    store: Engine, clock: FakeClock, leader: Leadership
) -> None:
    assert leader.trusted(clock.monotonic_s())
    assert candidate(store, clock, FakeHint()).step() is None
    assert lease(store).holder == "leader"


@pytest.mark.req("L1")
def test_trust_counts_from_before_the_question(store: Engine, clock: FakeClock) -> None:
    def slow() -> None:
        clock.advance(2.0)

    arm("before the lease is taken", slow)
    asked_at_s = clock.monotonic_s()

    won = candidate(store, clock, FakeHint()).step()

    assert won is not None
    assert won.trusted_until_s == asked_at_s + TRUST_S
    assert won.trusted(asked_at_s + TRUST_S - 0.01)
    assert not won.trusted(asked_at_s + TRUST_S)


@pytest.mark.req("L1")
def test_a_leader_stops_believing_before_anybody_else_may_begin(
    store: Engine, clock: FakeClock, leader: Leadership
) -> None:
    rival = candidate(store, clock, FakeHint())
    rival.step()
    clock.advance(TRUST_S)
    assert not leader.trusted(clock.monotonic_s())
    assert rival.step() is None

    clock.advance(TTL_S - TRUST_S)
    assert rival.step() is not None
    with pytest.raises(LeaderFenced), fenced(store, leader.term):
        pytest.fail("an ex-leader wrote")


def test_a_renewal_prolongs_trust_and_keeps_rivals_away(
    store: Engine, clock: FakeClock, leader: Leadership
) -> None:
    rival = candidate(store, clock, FakeHint())
    for _ in range(5):
        clock.advance(2.0)
        assert leader.renew(store, LeaderClock(clock))
        assert rival.step() is None
    assert leader.trusted(clock.monotonic_s() + TRUST_S - 0.01)


@pytest.mark.req("L1")
def test_a_renewal_that_fails_prolongs_nothing(
    store: Engine, clock: FakeClock, leader: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> bool:
        raise StoreUnavailable("away")

    monkeypatch.setattr(leases, "renew", away)
    clock.advance(1.0)
    assert leader.renew(store, LeaderClock(clock))
    clock.advance(TRUST_S - 1.0)
    assert not leader.renew(store, LeaderClock(clock))
    assert not leader.trusted(clock.monotonic_s())


@pytest.mark.req("L1")
def test_a_renewal_answered_after_the_trust_ran_out_is_no_leadership(
    store: Engine, clock: FakeClock, leader: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object, **__: object) -> bool:
        clock.advance(TTL_S)
        return True

    monkeypatch.setattr(leases, "renew", slow)

    assert not leader.renew(store, LeaderClock(clock))


@pytest.mark.req("L1")
def test_a_leader_that_was_replaced_learns_it_from_its_renewal(
    store: Engine, clock: FakeClock, leader: Leadership
) -> None:
    with writing(store) as conn:
        assert leases.take(conn, leases.read(conn), holder="rival", address="http://r:1")

    assert not leader.renew(store, LeaderClock(clock))


def test_a_term_that_is_over_is_not_trusted(clock: FakeClock) -> None:
    won = Leadership.won(Term("me", 1), asked_at_s=clock.monotonic_s(), ttl_s=TTL_S)
    won.over.set()

    assert not won.trusted(clock.monotonic_s())


@pytest.mark.req("L2")
def test_the_hint_of_a_dead_leader_lets_a_candidate_take_at_once(
    store: Engine, clock: FakeClock, leader: Leadership
) -> None:
    assert lease(store).hinted
    assert candidate(store, clock, FakeHint(free=False)).step() is None

    won = candidate(store, clock, FakeHint(free=True)).step()

    assert won is not None
    assert won.term.epoch > leader.term.epoch


@pytest.mark.req("L1", "L2")
def test_a_free_hint_means_nothing_when_the_leader_never_had_it(
    store: Engine, clock: FakeClock
) -> None:
    unhinted = candidate(store, clock, FakeHint(free=False), "leader").step()
    assert unhinted is not None
    assert not lease(store).hinted

    rival = candidate(store, clock, FakeHint(free=True))
    assert rival.step() is None
    clock.advance(TTL_S)
    assert rival.step() is not None


@pytest.mark.req("L2")
def test_a_lease_that_was_resigned_is_taken_at_once(
    store: Engine, clock: FakeClock, leader: Leadership
) -> None:
    with writing(store) as conn:
        assert leases.resign(conn, leader.term)

    assert candidate(store, clock, FakeHint(free=False)).step() is not None


def test_a_candidate_whose_question_was_lost_asks_again(
    store: Engine, clock: FakeClock, leader: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = candidate(store, clock, FakeHint())
    rival.step()
    clock.advance(TTL_S)
    with monkeypatch.context() as patch:

        def away(*_: object, **__: object) -> Term:
            raise StoreUnavailable("away")

        patch.setattr(leases, "take", away)
        assert rival.step() is None

    assert rival.step() is not None


@pytest.mark.req("L2")
@pytest.mark.parametrize("hinted", [True, False])
def test_a_dead_leader_is_replaced_within_5_s_by_the_clock_of_its_successor(
    store: Engine, clock: FakeClock, leader: Leadership, *, hinted: bool
) -> None:
    """Whatever the machine is busy with: real processes show that it happens, not how soon."""
    hint = FakeHint()
    rival = candidate(store, clock, hint)
    assert rival.step() is None
    assert leader.renew(store, LeaderClock(clock))  # the last that is heard of it
    died_at_s = clock.monotonic_s()
    hint.free = hinted

    while rival.step() is None:
        clock.advance(CAMPAIGN_INTERVAL_S)

    took_s = clock.monotonic_s() - died_at_s
    assert took_s < (CAMPAIGN_INTERVAL_S if hinted else REPLACED_MAX_S)


@pytest.mark.req("L5")
def test_a_candidate_that_follows_knows_the_time_of_its_leader(
    store: Engine, clock: FakeClock, leader: Leadership
) -> None:
    ahead = FakeClock(wall_ms=clock.wall_ms() + 7_200_000)
    rival, times = candidate(store, ahead, FakeHint()), LeaderClock(clock)
    rival.step()
    assert rival.leader_now_ms() is None  # who knows how old the row is
    assert leader.renew(store, times)
    ahead.advance(LOOK_GAP_MAX_S / 2)
    rival.step()
    ahead.advance(1.5)
    assert rival.leader_now_ms() == times.wall_ms() + 1_500

    clock.advance(1.0)
    assert leader.renew(store, times)
    ahead.advance(LOOK_GAP_MAX_S + 1)  # it was paused, and can't say when that was written
    rival.step()
    assert rival.leader_now_ms() is None
