"""The harness that the contract of sinks needs, and what its tests have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace import seams
from headrace.connectors.connector import Sink
from headrace.exactly_once import spend as spending
from headrace.exactly_once.target import CommitTarget
from headrace.model.jobs.epoch import EpochAt

INCARNATION, OTHER = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"


class Crash(Exception):
    """Stands for the death of a process."""


def die() -> None:
    raise Crash


class SinkHarness(ABC):
    """One target that is not there yet, sinks that write to it, and a stranger's look at it."""

    target_class: type[CommitTarget[Any, Any, Any]]
    has_deadline = True  # whether a committer that is too old is refused by its clocks
    has_strays = True  # whether `forget` deletes what unknown jobs left

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    @abstractmethod
    def sink(self, *, drops: bool = False) -> Sink:
        """A new sink, as another process would make it; `drops`: with data_save_mode DROP_DATA."""

    @abstractmethod
    def ids(self) -> list[int]:
        """The column `id` of all rows that a reader sees, sorted; empty when there is no target."""

    @abstractmethod
    def staged(self) -> list[str]:
        """Names of what is staged and not committed, whoever staged it."""

    def age(self, seconds: float) -> None:
        """Make all that lies at the target, but its rows, as old as that."""
        raise NotImplementedError

    def frame(self, first: int, rows: int = 3) -> DataFrame:
        made = self.session.range(first, first + rows, 1, 2)
        return made.selectExpr("id", "cast(id as string) as name")


def at(epoch: int = 1, execution: str = "t1.1", incarnation: str = INCARNATION) -> EpochAt:
    return EpochAt(incarnation, 1, epoch, execution)


def rows(*firsts: int) -> list[int]:
    return sorted(first + n for first in firsts for n in range(3))


Go = Callable[[], str | None]  # makes the attempt


def _no_pause(_seconds: float) -> None:
    """Tries follow one another at once."""


class SinkCase:
    """Of which the parts of the contract are made; a subclass gives the harness."""

    @pytest.fixture
    def harness(self) -> SinkHarness:
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _quick_and_disarmed(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(spending, "_pause", _no_pause)
        yield
        seams.disarm_all()

    def stage(self, harness: SinkHarness, here: EpochAt, first: int = 0) -> JsonValue:
        return harness.sink().stage(harness.session, harness.frame(first), here).handle

    def commit(self, harness: SinkHarness, here: EpochAt, first: int = 0) -> JsonValue:
        handle = self.stage(harness, here, first)
        assert not harness.sink().commit(harness.session, handle, here).already
        return handle

    def instead(
        self, harness: SinkHarness, patch: pytest.MonkeyPatch, do: Callable[[Go], str | None]
    ) -> None:
        """Have `do` called for each attempt, with what makes it."""
        attempt: Any = harness.target_class.attempt

        def patched(*args: Any, **more: Any) -> str | None:
            return do(lambda: attempt(*args, **more))

        patch.setattr(harness.target_class, "attempt", patched)

    def first_only(self, do: Callable[[], object]) -> Callable[[Go], str | None]:
        """Call `do` before the first attempt, and make it and all others."""
        waiting = [True]

        def paused(go: Go) -> str | None:
            if waiting:
                waiting.clear()
                do()
            return go()

        return paused
