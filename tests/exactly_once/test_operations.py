"""The order of effects: tokens before deletions, deletions before marks, and seams in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace import seams
from headrace.errors import Refused, StoreOlderThanTarget, TokenSpent
from headrace.exactly_once.operations import abort, commit, forget, open_target, sweep
from headrace.exactly_once.target import TargetMissing
from headrace.model.jobs.epoch import STRAY_GRACE_S
from tests.exactly_once.memory import MemoryTarget, at, rows

SEAMS = (
    *("before sink commit", "sink committed", "before sink open", "sink opened"),
    *("before abort", "abort spent", "before sweep"),
    *("before leftovers are deleted", "before marks are forgotten"),
)


@pytest.fixture
def target() -> Iterator[MemoryTarget]:
    """It also notes which seams are passed, among what it does."""
    made = MemoryTarget()
    for name in SEAMS:
        seams.arm(name, lambda name=name: made.done.append(name))
    yield made
    seams.disarm_all()


@pytest.mark.req("E1")
def test_a_commit_is_finished_whoever_spent_its_token(target: MemoryTarget) -> None:
    assert not commit(target, at(), rows()).already
    assert commit(target, at(execution="t1.2"), rows()).already

    once = ["before sink commit", "attempt", "finish", "sink committed"]
    assert target.done == [*once, "before sink commit", "finish", "sink committed"]


@pytest.mark.req("E7")
def test_rows_of_another_execution_than_the_prepared_one_are_not_taken_for_ours(
    target: MemoryTarget,
) -> None:
    commit(target, at(), rows("t1.1"))
    with pytest.raises(StoreOlderThanTarget, match=r"sink Memory-1: a target holds epoch 1 with"):
        commit(target, at(), rows("t1.2"))


@pytest.mark.req("E6")
def test_an_abort_deletes_after_it_has_spent_the_token_and_then_refuses_data(
    target: MemoryTarget,
) -> None:
    target.staged = {1: {"t1.1"}}
    abort(target, at())
    assert target.done == ["before abort", "attempt", "abort spent", "delete staged"]

    with pytest.raises(TokenSpent):
        commit(target, at(), rows())
    with pytest.raises(TokenSpent):
        open_target(target, at(), rows())
    abort(target, at(execution="t1.2"))


@pytest.mark.req("E6", "E7")
def test_an_abort_after_the_data_deletes_nothing(target: MemoryTarget) -> None:
    target.staged = {1: {"t1.1", "t1.2"}}
    commit(target, at(), rows())
    with pytest.raises(StoreOlderThanTarget, match="holds epoch 1 with rows"):
        abort(target, at(execution="t1.2"))

    assert target.staged == {1: {"t1.1", "t1.2"}}


def test_what_was_staged_for_a_target_that_never_was_goes_without_a_token(
    target: MemoryTarget,
) -> None:
    target.exists, target.staged = False, {1: {"t1.1"}}
    abort(target, at())
    assert (target.staged, target.done) == ({}, ["before abort", "delete staged"])

    sweep(target, at(), completed_by="t1.1")
    with pytest.raises(TargetMissing):
        open_target(target, at(0), rows())
    assert target.done[2:] == ["before sink open", "sink opened"]


@pytest.mark.req("E6")
def test_a_sweep_deletes_under_a_spent_token_only(target: MemoryTarget) -> None:
    sweep(target, at(), completed_by="t1.1")  # nothing was staged
    target.staged = {1: {"t1.1"}}
    with pytest.raises(Refused, match="i/1/1/Memory-1 is not spent at a target; nothing was del"):
        sweep(target, at(), completed_by="t1.1")
    assert target.done == []

    commit(target, at(), rows())
    sweep(target, at(), completed_by="t1.1")
    assert target.done[-2:] == ["before sweep", "delete staged"]


@pytest.mark.req("C2", "E6")
def test_what_was_given_up_is_spent_before_it_is_deleted_and_marks_go_last(
    target: MemoryTarget,
) -> None:
    target.staged = {1: {"t1.1"}, 2: {"t1.1"}, 3: {"t2.1"}}
    commit(target, at(1), rows())
    del target.done[:]
    forget(target, at(2), owners=None)

    assert target.done == [
        "attempt",
        "before leftovers are deleted",
        "delete leftovers",
        "before marks are forgotten",
        "forget marks",
    ]
    assert target.staged == {3: {"t2.1"}}


@pytest.mark.req("C5")
def test_a_stray_goes_when_nobody_owns_it_and_nobody_has_touched_it_for_the_grace(
    target: MemoryTarget,
) -> None:
    grace_ms = round(STRAY_GRACE_S * 1000)
    target.clock_ms = grace_ms + 100
    target.left = {"i": 0, "known": 0, "old": 99, "young": 100}
    forget(target, at(), owners=None)
    assert len(target.left) == 4

    forget(target, at(), owners=("known",))
    assert set(target.left) == {"i", "known", "young"}
