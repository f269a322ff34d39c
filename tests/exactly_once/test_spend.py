"""The loop that spends a token: no answer is believed, each is settled by looking."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.errors import Fenced, Refused, Unavailable
from headrace.exactly_once.spend import deadline_of, spend
from headrace.exactly_once.target import TargetMissing
from headrace.model.jobs.epoch import SpentBy
from tests.exactly_once.memory import MemorySpent, MemoryTarget, at, honest, rows
from tests.fakes import FakeClock

Store = Callable[[], None]


def lying(_: Store) -> None:
    """Answers that it is done, and keeps nothing."""


def lost(store: Store) -> str | None:
    store()
    return "the answer was lost"


def refuses(_: Store) -> str | None:
    raise Refused("what was staged is gone or damaged")


def away(_: Store) -> str | None:
    return "the target is away"


def by_another(target: MemoryTarget) -> Callable[[Store], str | None]:
    def spent_meanwhile(_: Store) -> str | None:
        target.tokens[at().token] = MemorySpent(SpentBy.DATA, "t1.2", "another")
        raise Refused("what was staged is gone or damaged")

    return spent_meanwhile


@pytest.mark.req("E1")
def test_a_token_is_spent_once_and_then_answered_by_looking_alone() -> None:
    target = MemoryTarget()
    assert not spend(target, at(), rows()).already
    assert spend(target, at(), rows("t1.2")).already

    assert target.tokens[at().token].execution == "t1.1"
    assert target.done == ["attempt"]


@pytest.mark.req("E3")
def test_an_answer_that_was_lost_is_settled_by_looking_and_the_commit_is_our_own() -> None:
    target = MemoryTarget([lost])
    outcome = spend(target, at(), rows())

    assert (outcome.already, target.done) == (False, ["attempt"])


@pytest.mark.req("E3")
def test_a_target_that_says_done_and_keeps_nothing_is_tried_again_and_then_not_believed() -> None:
    target = MemoryTarget([lying, honest])
    assert not spend(target, at(), rows()).already
    assert target.done == ["attempt", "attempt"]

    target = MemoryTarget([lying])
    with pytest.raises(
        Unavailable, match=r"a target was asked last, and showed no commit i/1/1/Memory-1, "
    ) as e:
        spend(target, at(), rows())
    assert "after 3 tries; nothing was deleted; the last reason was: it answered" in str(e.value)


def test_a_target_that_is_dropped_right_after_its_commit_is_not_created_again() -> None:
    target = MemoryTarget(exists=False)

    def dropped(store: Callable[[], None]) -> str | None:
        store()
        target.exists = False
        return None

    target.answers = [dropped]
    with pytest.raises(Unavailable, match="took the commit i/1/1/Memory-1, and is gone since"):
        spend(target, at(), rows(creates_target=True))
    assert (target.done, target.exists) == (["attempt"], False)


@pytest.mark.req("E3")
def test_a_target_that_can_not_be_asked_is_not_guessed_at() -> None:
    gone = Unavailable("no route")
    target = MemoryTarget([lost], looks=[None, gone, gone, gone])
    with pytest.raises(Unavailable, match="it is not known whether a target took the commit") as e:
        spend(target, at(), rows())

    assert str(e.value).endswith("no route")
    assert spend(target, at(), rows()).spent.execution == "t1.1", "it did land"


@pytest.mark.req("E3")
def test_a_target_that_is_away_for_a_moment_is_asked_again() -> None:
    target = MemoryTarget([lost], looks=[Unavailable("no route"), None, Unavailable("no route")])

    assert not spend(target, at(), rows()).already
    assert target.done == ["attempt"], "what has landed is not tried again"


@pytest.mark.req("E1")
def test_a_refusal_stands_only_while_the_token_is_unspent() -> None:
    """Another committed it, and swept what this one would have committed."""
    target = MemoryTarget([refuses])
    with pytest.raises(Refused, match="gone or damaged"):
        spend(target, at(), rows())
    assert target.done == ["attempt"], "another try would not help"

    target.answers = [by_another(target)]
    outcome = spend(target, at(), rows())
    assert (outcome.already, outcome.spent.execution) == (True, "t1.2")


def test_tries_are_limited_by_the_target() -> None:
    target = MemoryTarget([away])
    with pytest.raises(Unavailable, match=r"after 3 tries; nothing was deleted; .*: the target"):
        spend(target, at(), rows())
    assert target.done == ["attempt"] * 3


@pytest.mark.req("E1")
def test_an_execution_that_is_too_old_commits_nothing_but_is_told_what_is_there() -> None:
    clock = FakeClock()
    deadline = deadline_of(at().epoch_at, 60, clock=clock)
    clock.advance(61)
    target = MemoryTarget()
    with pytest.raises(Fenced, match="began more than 60 s ago; this execution is too old"):
        spend(target, at(), rows(), deadline=deadline)
    assert target.done == []

    spend(target, at(), rows())
    assert spend(target, at(), rows(), deadline=deadline).already


@pytest.mark.req("E1")
def test_who_grows_too_old_while_it_tries_is_fenced_at_once() -> None:
    clock = FakeClock()
    deadline = deadline_of(at().epoch_at, 60, clock=clock)

    def slow(_: Store) -> str | None:
        clock.advance(61)
        return "the target is away"

    target = MemoryTarget([slow])
    with pytest.raises(Fenced, match="too old to commit"):
        spend(target, at(), rows(), deadline=deadline)
    assert target.done == ["attempt"]


def test_a_missing_target_holds_no_token_and_is_made_only_by_a_change_that_may() -> None:
    target = MemoryTarget(exists=False)
    with pytest.raises(TargetMissing):
        spend(target, at(), rows())

    assert not spend(target, at(), rows(creates_target=True)).already
