"""The Protocols of connectors: a `Source` gives rows, a `Sink` takes them. None is both.

A pipeline (worker/pipeline.py) drives them in the order plan, read, stage, prepare, commit,
complete. A sink keeps three promises (design: "Authority is fenced where it is used"):

1. *stage* leaves the rows durable and invisible, in a place named by incarnation, pipeline,
   epoch and execution;
2. *commit* makes them visible atomically and spends the epoch's token; the target itself refuses
   the token a second time, and the sink then answers `already=True` (E1);
3. *abort* spends the token with no rows, and only then deletes what was staged (E6).

What the save modes of a sink ask for is done as epoch 0, under the same promises: *survey* looks
and changes nothing, *open* does it, once.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import JsonValue

from headrace.errors import StoreOlderThanTarget
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S, EpochAt
from headrace.protocol.messages import Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Setting:
    """What a connector is made with: the job's facts, and the options of its plugin."""

    job: str
    incarnation: str
    pipeline: int
    parallelism: int
    streaming: bool
    warehouse: str  # URI of the embedded warehouse
    checkpoint_interval_ms: int | None = None
    commit_deadline_s: float = COMMIT_DEADLINE_S
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # with defaults and secrets
    has_committed: bool = False  # whether the store has an epoch that this sink committed
    # How missing tables are going to be created, by their targets. All sinks of an execution share
    # this dictionary, so that each finds what another one planned.
    planned_tables: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])


class Source(Protocol):
    name: str
    bounded: bool  # False: there is never a last slice, only no new rows yet
    repeatable: bool  # the same slice gives the same rows, or is refused (E5)
    # Whether Spark pushes the filters of a query down to it, so that it reads less. Counting its
    # rows in between would prevent the push-down.
    takes_conditions: bool

    def plan(self, position: JsonValue, *, rows_max: int | None = None) -> Slice | None:
        """The slice after `position` (None: the start), or None when nothing is there.

        `rows_max` limits it, if the source can cut; without it a slice is everything there is.
        """
        ...

    def read(self, session: SparkSession, part: Slice) -> DataFrame: ...

    def empty(self, session: SparkSession) -> DataFrame:
        """A frame with no rows and the columns of `read`: for epochs after the last slice."""
        ...


@dataclass(frozen=True, slots=True)
class Staged:
    handle: JsonValue  # all that another process needs in order to commit
    rows: int


@dataclass(frozen=True, slots=True)
class Committed:
    already: bool  # the target held the token before: another commit of the same epoch was first
    facts: Mapping[str, JsonValue]  # for people: {"table": …, "snapshot": …}


@dataclass(frozen=True, slots=True)
class Mark:
    """The highest epoch of a pipeline whose token is spent at a target."""

    epoch: int
    aborted: bool  # an abort spent it: the target has no rows of the epoch


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


class Sink(Protocol):
    name: str
    # Whether a commit leaves behind anything that its own execution staged. If not, there is
    # nothing to sweep after an epoch that no other execution ever worked on.
    leaves_stage: bool
    opens: bool  # whether its save modes ask for something before the first row

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:
        """The mark of `at`'s pipeline at the target, whichever epoch `at` names; None when no token
        is spent there, or the target does not exist yet. Changes nothing.

        The first call also fixes the identity of the target: by it, a commit recognizes a target
        that has been replaced by another one of the same name since.
        """
        ...

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:
        """The handle of epoch 0: all that another process needs to `open`. Changes nothing.

        `frame` has no rows, and the columns of the rows to come. Raises `Refused` when a save mode
        forbids the job to go on, such as ERROR_WHEN_DATA_EXISTS.
        """
        ...

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        """Do what the save modes ask for and spend the token of epoch 0, in one atomic change.

        The target refuses it the second time, even when epoch 1 is committed by then: a zombie
        that wakes up here must not delete what has been written since.
        """
        ...

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged: ...

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        """Make the staged rows visible and spend the token, in one atomic change.

        Before it answers `already`, it must pass `check_spender`.
        """
        ...

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:
        """Delete what other executions staged for this epoch, whose token is spent by now.

        `handle` is None when the execution that completed the epoch is gone.
        """
        ...

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        """Spend the token with no rows, then delete whatever was staged for the epoch.

        When a commit with rows was first, nothing is deleted, and `check_given_up` raises.
        """
        ...

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:
        """Sweep what is left of every epoch up to `at.epoch`, then remove their marks: the job has
        ended for good. Idempotent, also when two processes do it at once.

        By now the token of each of these epochs is spent, or given up in the store, in which case
        an abort spends it at the target first; and every committer is past its deadline. Nothing
        above `at.epoch` is touched: a restored job goes on there. With `owners`, the incarnations
        that are still known, what any other one left is deleted, too, once nobody has touched it
        for STRAY_GRACE_S.
        """
        ...

    def close(self, rows: int) -> None:
        """End the sink at the completed point: every source is read to its end, and `rows` rows are
        committed here. Raises `Refused` when that is not what the user asked for.
        """
        ...
