"""A target in memory, whose answers a test decides: the smallest that exactly_once can drive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from headrace.exactly_once.target import Mark, SpendLimits, Stray, TargetMissing
from headrace.model.jobs.epoch import CommitAt, Deadline, EpochAt, SpentBy


@dataclass(frozen=True, slots=True)
class MemorySpent:
    by: SpentBy
    execution: str | None
    committer: str


@dataclass(frozen=True, slots=True)
class MemoryChange:
    by: SpentBy
    execution: str
    creates_target: bool = False


Answer = Callable[[Callable[[], None]], str | None]  # given what stores the change


def honest(store: Callable[[], None]) -> str | None:
    store()
    return None


@dataclass
class MemoryTarget:
    """`answers` are those of the attempts, one after another; the last one stays."""

    answers: list[Answer] = field(default_factory=lambda: [honest])
    looks: list[Exception | None] = field(default_factory=list[Exception | None])  # errors of looks
    limits: SpendLimits = field(default_factory=lambda: SpendLimits(tries_max=3, wait_s=0))
    exists: bool = True
    tokens: dict[str, MemorySpent] = field(default_factory=dict[str, MemorySpent])
    staged: dict[int, set[str]] = field(default_factory=dict[int, set[str]])  # executions by epoch
    left: dict[str, int] = field(default_factory=dict[str, int])  # touched, by incarnation
    clock_ms: int = 0
    done: list[str] = field(default_factory=list[str])  # the primitives that changed something
    name: str = "a target"
    title: str = "sink Memory-1: a target"

    def look(self, at: CommitAt) -> MemorySpent | None:
        error = self.looks.pop(0) if self.looks else None
        if error is not None:
            raise error
        if not self.exists:
            raise TargetMissing("there is no target")
        return self.tokens.get(at.token)

    def attempt(
        self, at: CommitAt, change: MemoryChange, *, committer: str, deadline: Deadline | None
    ) -> str | None:
        self.done.append("attempt")

        def store() -> None:
            if at.token not in self.tokens:  # the fence
                self.exists = True
                self.tokens[at.token] = MemorySpent(change.by, change.execution, committer)

        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer(store)

    def abort_change(self, at: CommitAt) -> MemoryChange:
        return MemoryChange(SpentBy.ABORT, at.execution)

    def finish(self, at: CommitAt, spent: MemorySpent) -> None:
        self.done.append("finish")

    def read_mark(self, at: CommitAt) -> Mark | None:
        return None

    def is_staged(self, at: CommitAt, *, by: str | None) -> bool:
        return bool(self.staged.get(at.epoch))

    def delete_staged(self, at: CommitAt, spent: MemorySpent | None, *, kept: str | None) -> None:
        self.done.append("delete staged")
        self.staged.pop(at.epoch, None)

    def unspent_epochs(self, at: CommitAt) -> Sequence[CommitAt]:
        ats = [replace(at, epoch_at=replace(at.epoch_at, epoch=n)) for n in sorted(self.staged)]
        return [one for one in ats if one.epoch <= at.epoch and one.token not in self.tokens]

    def delete_leftovers(self, at: CommitAt) -> None:
        self.done.append("delete leftovers")
        self.staged = {n: who for n, who in self.staged.items() if n > at.epoch}

    def forget_marks(self, at: CommitAt) -> None:
        self.done.append("forget marks")
        self.tokens = {token: spent for token, spent in self.tokens.items() if token != at.token}

    def now_ms(self) -> int:
        return self.clock_ms

    def strays(self, owners: Collection[str]) -> Iterable[Stray]:
        return [Stray(who, touched_ms) for who, touched_ms in self.left.items()]

    def delete_stray(self, stray: Stray, *, idle_since_ms: int) -> None:
        del self.left[stray.incarnation]


def at(epoch: int = 1, execution: str = "t1.1", incarnation: str = "i") -> CommitAt:
    return CommitAt(EpochAt(incarnation, 1, epoch, execution), "Memory-1")


def rows(execution: str = "t1.1", *, creates_target: bool = False) -> MemoryChange:
    return MemoryChange(SpentBy.DATA, execution, creates_target)
