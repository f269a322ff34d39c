"""What a target must be able to do so that each epoch reaches it exactly once: primitives only.

A target keeps tokens. A token is spent once, by data or by an abort, and the target itself refuses
it the second time (E1). How it does so is its own: a table has a validated transaction, a folder
the exclusive creation of a file, a database a row that only rises. When to look, to try again, to
believe an answer and to delete is the same for all of them, and is decided by spend.py and
operations.py alone.

A target object belongs to one call of a sink and one thread. It may keep what it has just read
from one primitive to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from headrace.errors import Refused
from headrace.model.jobs.epoch import CommitAt, Deadline, SpentBy


class Spent(Protocol):
    """What spent a token. Each target has a value of its own, which says more."""

    @property
    def by(self) -> SpentBy: ...

    @property
    def execution(self) -> str | None:
        """The execution that staged the data, or aborted; None: the target no longer knows."""
        ...

    @property
    def committer(self) -> str:
        """Unique for each call of `spend`, which recognises its own by it; empty: not known."""
        ...


class Change(Protocol):
    """What is done under a token, in one atomic step. How it is done is between it and its target.

    `execution` is the one that staged the data, not the one that commits it.
    """

    @property
    def by(self) -> SpentBy: ...

    @property
    def execution(self) -> str: ...

    @property
    def creates_target(self) -> bool:
        """Whether it creates a target that does not exist."""
        ...


class TargetMissing(Refused):
    """The target does not exist, and so holds no token."""


@dataclass(frozen=True, slots=True)
class SpendLimits:
    """How often a token is tried, and how long is waited in between."""

    tries_max: int
    wait_s: float  # before the second try; doubled before each further one


@dataclass(frozen=True, slots=True)
class Mark:
    """The highest epoch of a pipeline whose token is spent at a target."""

    epoch: int
    aborted: bool  # an abort spent it: the target has no rows of the epoch


@dataclass(frozen=True, slots=True)
class Stray:
    """What an incarnation left at a target, and when any of it was last changed."""

    incarnation: str
    touched_ms: int  # by the clock of `CommitTarget.now_ms`


AtT = TypeVar("AtT", bound=CommitAt)
ChangeT = TypeVar("ChangeT", bound=Change)
SpentT = TypeVar("SpentT", bound=Spent)


class CommitTarget(Protocol[AtT, ChangeT, SpentT]):
    """The target of one sink. `name` stands in errors, `title` also says which sink it is of."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def limits(self) -> SpendLimits: ...

    def look(self, at: AtT) -> SpentT | None:
        """Ask the target itself what spent the token; None while it is unspent (E3).

        It must not answer from anything that was read before this call. Raises `TargetMissing`
        when the target does not exist, and `Unavailable` when it can't be asked just now.
        """
        ...

    def attempt(
        self, at: AtT, change: ChangeT, *, committer: str, deadline: Deadline | None
    ) -> str | None:
        """Make the change and spend the token in one atomic step, once, fenced by the target: a
        token that was spent since the look is refused.

        None: the target answered that it is done. A text: why that is not known, or why it was
        refused in a way that another attempt may not be. Raises an error of ours when another
        attempt would not help either. Whatever it answers, the caller looks again. `deadline` is
        to be checked (`check_deadline`) as late as the target allows.
        """
        ...

    def abort_change(self, at: AtT) -> ChangeT:
        """The change that spends the token and does nothing else."""
        ...

    def finish(self, at: AtT, spent: SpentT) -> None:
        """Do what follows from a commit or an opening and is not part of its atomic step. Anybody
        may repeat it at any time, so it must be idempotent."""
        ...

    def read_mark(self, at: AtT) -> Mark | None:
        """The mark of `at`'s pipeline and sink, whichever epoch `at` names."""
        ...

    def is_staged(self, at: AtT, *, by: str | None) -> bool:
        """Whether anything is staged for the epoch that should not be, once it is over. `by`: the
        execution that completed the epoch; None when it is gone."""
        ...

    def delete_staged(self, at: AtT, spent: SpentT | None, *, kept: str | None) -> None:
        """Delete what any execution staged under a token that is spent, but nothing that the
        target itself refers to, nor what `kept` staged, if the target may refer to it (E6).

        `spent` is None when there is no target, and so no token.
        """
        ...

    def unspent_epochs(self, at: AtT) -> Sequence[AtT]:
        """The epochs up to `at.epoch` for which something is staged that the target does not refer
        to, and whose token is unspent; the lowest first."""
        ...

    def delete_leftovers(self, at: AtT) -> None:
        """Delete what is staged for epochs up to `at.epoch` whose tokens are spent, but nothing
        that the target itself refers to (E6)."""
        ...

    def forget_marks(self, at: AtT) -> None:
        """Remove the marks of epochs up to `at.epoch`. One that is raised meanwhile stays."""
        ...

    def now_ms(self) -> int:
        """The time by the clock that `Stray.touched_ms` is of."""
        ...

    def strays(self, owners: Collection[str]) -> Iterable[Stray]:
        """What incarnations other than `owners` left here."""
        ...

    def delete_stray(self, stray: Stray, *, idle_since_ms: int) -> None:
        """Delete a stray with its marks, unless it was changed after `idle_since_ms`."""
        ...
