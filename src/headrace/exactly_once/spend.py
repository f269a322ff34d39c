"""Spend a token: look, attempt, look again, decide. The one loop of its kind, for every target.

No answer is believed. A refusal, an answer that was lost, a crash and also a plain "done" are
settled in the same way: by asking the target what spent the token (E3). A catalog that answers
"done" and has stored nothing does exist, and must not make an epoch COMPLETED.

What `spend` does not do is delete. So whenever it raises, everything that was staged is still
there, and the next execution can settle what this one could not.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import uuid4

from headrace.clock import Clock, SystemClock
from headrace.errors import Fenced, HeadraceError, Unavailable
from headrace.exactly_once.target import AtT, ChangeT, CommitTarget, Spent, SpentT, TargetMissing
from headrace.model.jobs.epoch import CommitAt, Deadline, EpochAt, now

log = logging.getLogger(__name__)

FoundT = TypeVar("FoundT", bound=Spent)
_NOT_KEPT = "it answered that it is done, but does not hold the token"


@dataclass(frozen=True, slots=True)
class SpendOutcome(Generic[FoundT]):
    """What spent the token, and whether that was another call."""

    already: bool
    spent: FoundT


@dataclass(frozen=True, slots=True)
class _Unsettled:
    """A try after which the token is not known to be spent."""

    reason: str
    asked: bool  # the target could be asked afterwards, and does not hold the token


def spend(
    target: CommitTarget[AtT, ChangeT, SpentT],
    at: AtT,
    change: ChangeT,
    *,
    deadline: Deadline | None = None,
) -> SpendOutcome[SpentT]:
    """Make the change under the token, once. The outcome says what spent it: this, or another.

    Raises what an attempt raises, if the token is unspent after it; `TargetMissing` when there is
    no target and the change does not create it; `Fenced` when the deadline has passed and the token
    is unspent; `Unavailable` when the tries are used up.
    """
    committer, tries_max = uuid4().hex, target.limits.tries_max
    last = _Unsettled("it was not tried", asked=False)
    for tries in range(tries_max):
        if tries:
            _pause(target.limits.wait_s * 2 ** (tries - 1))
        result = _try_once(target, at, change, committer, deadline)
        if not isinstance(result, _Unsettled):
            return SpendOutcome(already=result.committer != committer, spent=result)
        last = result
    known = (
        f"{target.name} was asked last, and showed no commit {at.token}"
        if last.asked
        else f"it is not known whether {target.name} took the commit {at.token}"
    )
    raise Unavailable(
        f"{known}, after {tries_max} tries; nothing was deleted; the last reason was: {last.reason}"
    )


def check_deadline(name: str, at: CommitAt, deadline: Deadline | None) -> None:
    """Fence an execution that is too old: the mark of its token may be forgotten by now."""
    if deadline is not None and deadline.passed:
        raise Fenced(
            f"the commit of {at.token} to {name} began more than {deadline} ago; "
            "this execution is too old to commit"
        )


def deadline_of(at: EpochAt, limit_s: float, *, clock: Clock | None = None) -> Deadline:
    """The deadline of a commit, from when its execution was last known to be the current one."""
    clock = clock or SystemClock()
    return Deadline(clock, at.since or now(clock), limit_s)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _try_once(
    target: CommitTarget[AtT, ChangeT, SpentT],
    at: AtT,
    change: ChangeT,
    committer: str,
    deadline: Deadline | None,
) -> SpentT | _Unsettled:
    spent = _ask(target, at, creates=change.creates_target)
    if spent is not None:
        return spent
    check_deadline(target.name, at, deadline)
    failure: HeadraceError | None = None
    try:
        answer = target.attempt(at, change, committer=committer, deadline=deadline)
    except HeadraceError as error:
        # Nothing was done, yet the token may be spent: others commit, and then sweep what we need.
        answer, failure = str(error), error
    facts = {"target": target.name, "token": at.token}
    if answer is not None:
        log.info("commit not confirmed", extra={**facts, "reason": answer})
    spent = _ask_again(target, at, change, answer)
    if isinstance(spent, _Unsettled) and answer is not None:
        return _Unsettled(f"{answer}; then: {spent.reason}", asked=False)
    if spent is not None:
        return spent
    if failure is not None:
        raise failure
    check_deadline(target.name, at, deadline)
    if answer is None:
        log.warning("a commit was answered as done, but is not there", extra=facts)
    return _Unsettled(_NOT_KEPT if answer is None else answer, asked=True)


def _ask_again(
    target: CommitTarget[AtT, ChangeT, SpentT], at: AtT, change: ChangeT, answer: str | None
) -> SpentT | _Unsettled | None:
    """What spent the token, after an attempt that was answered so."""
    if answer is not None:
        return _ask(target, at, creates=change.creates_target)
    try:
        return _ask(target, at, creates=False)
    except TargetMissing as error:
        # Whoever dropped it after the commit does not want it back: it is not created again.
        raise Unavailable(
            f"{target.name} answered that it took the commit {at.token}, and is gone since; "
            "nothing was deleted"
        ) from error


def _ask(
    target: CommitTarget[AtT, ChangeT, SpentT], at: AtT, *, creates: bool
) -> SpentT | _Unsettled | None:
    """What spent the token; None while it is unspent, also because there is no target yet, if the
    change `creates` it."""
    try:
        return target.look(at)
    except TargetMissing:
        if not creates:
            raise
        return None
    except Unavailable as error:
        return _Unsettled(str(error), asked=False)
