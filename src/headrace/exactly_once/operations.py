"""What sinks do with tokens: commit, open, abort, sweep and forget, for every target.

The order of effects is the promise, and stands here only. A seam is on both sides of each durable
step. Nothing that was staged is deleted before its token is spent (E6), and no mark is forgotten
before all that was staged is gone: only the mark says that the token is spent.

A target that holds more than the store knows ends the job (`check_spender`, `check_given_up`): the
store is older than its targets, and an execution that went on would skip rows (E7).
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from headrace.errors import Refused, StoreOlderThanTarget, TokenSpent
from headrace.exactly_once.spend import SpendOutcome, deadline_of, spend
from headrace.exactly_once.target import AtT, ChangeT, CommitTarget, SpentT, TargetMissing
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S, STRAY_GRACE_S, Deadline, EpochAt, SpentBy
from headrace.seams import seam

log = logging.getLogger(__name__)


def commit(
    target: CommitTarget[AtT, ChangeT, SpentT],
    at: AtT,
    change: ChangeT,
    *,
    deadline: Deadline | None = None,
) -> SpendOutcome[SpentT]:
    """Make what was staged visible, once.

    Raises `TokenSpent` when an abort came first, and `StoreOlderThanTarget` when the target holds
    rows that another execution staged than the one whose rows are to be committed (E7).
    """
    seam("before sink commit")
    outcome = spend(target, at, change, deadline=deadline)
    target.finish(at, outcome.spent)
    seam("sink committed")
    if outcome.spent.by is SpentBy.ABORT:
        raise TokenSpent(at.token, target.name)
    held = outcome.spent.execution
    check_spender(target.title, at.epoch_at, staged=change.execution, held=held)
    return outcome


def open_target(
    target: CommitTarget[AtT, ChangeT, SpentT],
    at: AtT,
    change: ChangeT,
    *,
    deadline: Deadline | None = None,
) -> SpendOutcome[SpentT]:
    """Do what the save modes ask for, once: it is epoch 0. Raises `TokenSpent` after an abort, and
    `TargetMissing` when there is nothing to be opened."""
    seam("before sink open")
    try:
        outcome = spend(target, at, change, deadline=deadline)
    except TargetMissing:
        seam("sink opened")
        raise
    target.finish(at, outcome.spent)
    seam("sink opened")
    if outcome.spent.by is SpentBy.ABORT:
        raise TokenSpent(at.token, target.name)
    return outcome


def abort(
    target: CommitTarget[AtT, ChangeT, SpentT], at: AtT, *, deadline: Deadline | None = None
) -> None:
    """Spend the token with no rows, then delete whatever was staged under it.

    When data came first, nothing is deleted: the target knows better than the caller, and
    `StoreOlderThanTarget` is raised (E7). A target that does not exist holds no token. What was
    staged for it is deleted all the same: only planned epochs are aborted, and only prepared ones
    are ever committed.
    """
    seam("before abort")
    try:
        spent = spend(target, at, target.abort_change(at), deadline=deadline).spent
    except TargetMissing:
        log.info("nothing to abort, no such target", extra={"target": target.name})
        target.delete_staged(at, None, kept=None)
        return
    seam("abort spent")
    if spent.by is SpentBy.ABORT:
        target.delete_staged(at, spent, kept=None)
    check_given_up(target.title, at.epoch_at, holds_rows=spent.by is SpentBy.DATA)


def sweep(target: CommitTarget[AtT, ChangeT, SpentT], at: AtT, *, completed_by: str | None) -> None:
    """Delete what was staged for an epoch whose token is spent, whichever execution staged it.

    `completed_by`: the execution whose rows were committed, as far as the caller knows. An epoch
    of which nothing is staged had no rows, or was swept before: there is nothing to do.
    """
    try:
        spent = target.look(at)
    except TargetMissing:
        return  # no epoch had rows yet, or somebody dropped the target with its rows
    if spent is None:
        if not target.is_staged(at, by=completed_by):
            return
        raise Refused(f"{at.token} is not spent at {target.name}; nothing was deleted")
    seam("before sweep")
    target.delete_staged(at, spent, kept=completed_by)


def forget(
    target: CommitTarget[AtT, ChangeT, SpentT], at: AtT, *, owners: Collection[str] | None
) -> None:
    """Leave nothing of a job but its rows: delete what is staged for epochs up to `at.epoch`, then
    forget their marks. With `owners`, the incarnations that are known, also what any other left.

    An epoch that is staged but not spent was given up in the store alone; an abort spends its token
    first.
    """
    deadline = deadline_of(at.epoch_at, COMMIT_DEADLINE_S)  # a paused forget leaves no mark behind
    for one in target.unspent_epochs(at):
        log.info("given up and never aborted here", extra={"token": one.token})
        spend(target, one, target.abort_change(one), deadline=deadline)
    seam("before leftovers are deleted")
    target.delete_leftovers(at)
    seam("before marks are forgotten")
    target.forget_marks(at)
    if owners is not None:
        _forget_strays(target, {at.epoch_at.incarnation, *owners})


def check_spender(target: str, at: EpochAt, *, staged: str, held: str | None) -> None:
    """Check that the target holds the rows that this store prepared. Raises `StoreOlderThanTarget`.

    An epoch is only ever committed from the handles in its store. So when the token is spent by
    rows of another execution, the store is older than the target (E7). `staged`: the execution
    that staged what the store prepared; `held`: the one whose rows the target holds, None when the
    target no longer knows.
    """
    if held is not None and held != staged:
        raise StoreOlderThanTarget(
            target,
            f"holds epoch {at.epoch} with rows that execution {held} staged",
            f"in this store execution {staged} prepared epoch {at.epoch}",
        )


def check_given_up(target: str, at: EpochAt, *, holds_rows: bool) -> None:
    """Check that a target has no rows of a given-up epoch. Raises `StoreOlderThanTarget`.

    Only planned epochs are given up, and only prepared ones are ever committed. So a target that
    holds rows under the token knows more than the store (E7).
    """
    if holds_rows:
        raise StoreOlderThanTarget(
            target,
            f"holds epoch {at.epoch} with rows",
            f"in this store epoch {at.epoch} was never prepared",
        )


def _forget_strays(target: CommitTarget[AtT, ChangeT, SpentT], owners: Collection[str]) -> None:
    """Delete what incarnations without an owner left, once nobody has touched it for so long that
    nobody can come back to it."""
    idle_since_ms = target.now_ms() - round(STRAY_GRACE_S * 1000)
    for stray in target.strays(owners):
        if stray.incarnation in owners or stray.touched_ms >= idle_since_ms:
            continue
        facts = {"target": target.name, "incarnation": stray.incarnation}
        log.warning("left by a job that nobody knows, deleted", extra=facts)
        target.delete_stray(stray, idle_since_ms=idle_since_ms)
