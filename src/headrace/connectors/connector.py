"""Where rows come from and where they go. A connector is a Source or a Sink, never both.

A pipeline (worker/pipeline.py) drives them in the order plan, read, stage, prepare, commit,
complete. A sink keeps three promises (design: "Authority is fenced where it is used"):

1. *stage* leaves the rows durable and invisible, in a place named by incarnation, pipeline,
   epoch and execution;
2. *commit* makes them visible at once and spends the epoch's token; the target itself refuses
   the token a second time, and the sink then says `already=True` (E1);
3. *abort* spends the token with no rows, and only then deletes what was staged (E6).

What its save modes ask is epoch 0, and kept to the same promises: *survey* looks and changes
nothing, *open* does it, once.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import JsonValue

from headrace.errors import StoreOlderThanTarget
from headrace.model.epoch import COMMIT_DEADLINE_S, EpochAt
from headrace.protocol.payloads import Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Setting:
    """What the runner knows that is not an option of the plugin itself."""

    job: str
    incarnation: str
    pipeline: int
    parallelism: int
    streaming: bool
    warehouse: str  # URI of the embedded warehouse
    checkpoint_interval_ms: int | None = None
    commit_deadline_s: float = COMMIT_DEADLINE_S
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # with defaults and secrets
    has_committed: bool = False  # the store knows of an epoch that this sink committed
    # How tables that are missing are going to be made: of all sinks of an execution, which keep and
    # find it here.
    planned_tables: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])


class Source(Protocol):
    name: str
    bounded: bool  # False: there is never a last slice, only nothing new yet
    repeatable: bool  # the same slice gives the same rows, or is refused (E5)
    # Spark hands the conditions of a query down to it, so that it reads less. Its rows can't be
    # counted in between without losing that.
    takes_conditions: bool

    def plan(self, position: JsonValue, *, rows_max: int | None = None) -> Slice | None:
        """The slice after `position` (None: the start), or None when there is nothing there.

        `rows_max` cuts it, where a source can cut; without it a slice is all there is.
        """
        ...

    def read(self, session: SparkSession, part: Slice) -> DataFrame: ...

    def empty(self, session: SparkSession) -> DataFrame:
        """No rows, with the columns that `read` gives: for epochs after its last slice."""
        ...


@dataclass(frozen=True, slots=True)
class Staged:
    handle: JsonValue  # all that a stranger needs in order to commit
    rows: int


@dataclass(frozen=True, slots=True)
class Committed:
    already: bool  # the target held the token before: somebody else's commit of the same epoch
    facts: Mapping[str, JsonValue]  # for people: {"table": …, "snapshot": …}


@dataclass(frozen=True, slots=True)
class Mark:
    """The highest epoch of a pipeline that is spent at a target."""

    epoch: int
    aborted: bool  # by an abort: nothing of the epoch is there


def check_spender(target: str, at: EpochAt, *, staged: str, held: str | None) -> None:
    """A target that holds the token must hold what was prepared: an epoch is only ever committed
    from the handles in its store. `staged` and `held` are the executions that staged the one and
    the other; None: the target does not know any more. Raises `StoreOlderThanTarget` (E7)."""
    if held is not None and held != staged:
        raise StoreOlderThanTarget(
            target,
            f"holds epoch {at.epoch} with rows that execution {held} staged",
            f"in this store execution {staged} prepared epoch {at.epoch}",
        )


def check_given_up(target: str, at: EpochAt, *, holds_rows: bool) -> None:
    """Only what is planned is given up, and only what is prepared is ever committed: a target that
    holds rows under the token knows more than the store. Raises `StoreOlderThanTarget` (E7)."""
    if holds_rows:
        raise StoreOlderThanTarget(
            target,
            f"holds epoch {at.epoch} with rows",
            f"in this store epoch {at.epoch} was never prepared",
        )


class Sink(Protocol):
    name: str
    # Whether a commit leaves something behind of what its own execution staged. If not, there is
    # nothing to sweep after an epoch that no other execution ever worked on.
    leaves_stage: bool
    opens: bool  # whether its save modes ask for something before the first row

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:
        """What the target says of the pipeline that `at` names, whichever epoch that is; None:
        nothing of it is spent there, or there is no target yet. Changes nothing.

        A sink remembers which target it found when it was asked first: by that, a commit tells its
        own from one that took its place since.
        """
        ...

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:
        """Of epoch 0: all that a stranger needs in order to `open`. Changes nothing.

        `frame` has no rows, and the columns of those to come. Raises `Refused` when a save mode
        forbids to go on, such as ERROR_WHEN_DATA_EXISTS.
        """
        ...

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        """Do what the save modes ask and spend the token of epoch 0, in one atomic change.

        Refused by the target the second time, also when epoch 1 is in: a zombie that wakes here
        must not delete what was written since.
        """
        ...

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged: ...

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        """`check_spender` says what an `already` must not hide."""
        ...

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:
        """Delete what other executions staged for this epoch. Its token is spent by now.

        `handle` is None when the epoch was completed by an execution that is gone.
        """
        ...

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        """Spend the token with no rows, then delete whatever was staged for the epoch.

        When rows were first nothing is deleted, and `check_given_up` says what that proves.
        """
        ...

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:
        """The job has ended for good: sweep what is left of every epoch up to `at.epoch`, then
        remove their marks. Every token of theirs is spent or given up in the store, which an abort
        then tells the target; and every committer is too old to commit.

        Above `at.epoch` nothing is touched: a restored job goes on there. `owners`: incarnations
        that have one; what others left and nobody touched for STRAY_GRACE_S goes, too. Said
        again, also by two at once, it changes nothing more.
        """
        ...

    def close(self, rows: int) -> None:
        """The completed point: every source has read everything, and `rows` are committed here.

        Raises `Refused` when they are not what the user asked for.
        """
        ...
