"""The Protocols of connectors: a `Source` gives rows, a `Sink` takes them. None is both.

A connector inherits from its Protocol, and writes only what it needs: a method that is not
abstract has a default, which does nothing. A worker makes it with (name, options, setting), for
one execution of a pipeline, and closes it at the end of that; what must be closed is opened when
it is first needed, not when the connector is made.

A pipeline (worker/pipeline.py) drives them in the order plan, read, stage, prepare, commit,
complete. A sink keeps three promises (design: "Authority is fenced where it is used"):

1. *stage* leaves the rows durable and invisible, in a place named by incarnation, pipeline,
   epoch and execution;
2. *commit* makes them visible atomically and spends the epoch's token; the target itself refuses
   the token a second time, and the sink then answers `already=True` (E1);
3. *abort* spends the token with no rows, and only then deletes what was staged (E6).

What the save modes of a sink ask for is done as epoch 0, under the same promises: *survey* looks
and changes nothing, *open* does it, once. exactly_once keeps these promises for every target that
has its primitives.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import JsonValue

from headrace.clock import Clock, SystemClock
from headrace.exactly_once.target import Mark
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S, EpochAt
from headrace.protocol.messages import Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Setting:
    """What a connector is made with beside its name and options: the facts of its job."""

    job: str
    incarnation: str
    pipeline: int
    parallelism: int
    streaming: bool
    warehouse: str  # URI of the embedded warehouse
    checkpoint_interval_ms: int | None = None
    commit_deadline_s: float = COMMIT_DEADLINE_S
    has_committed: bool = False  # whether the store has an epoch that this sink committed
    # How missing tables are going to be created, by their targets. All sinks of an execution share
    # this dictionary, so that each finds what another one planned.
    planned_tables: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])
    clock: Clock = field(default_factory=SystemClock)
    # Where a connector logs. What it logs while a job runs is shown as the job's log, too.
    log: logging.Logger = field(default=logging.getLogger("headrace.connectors"))


class Source(Protocol):
    """Gives rows, slice by slice.

    `plan` and `committed` may be called in another thread than `read`, while an epoch is read;
    neither is called twice at once.
    """

    name: str
    bounded: bool  # False: there is never a last slice, only no new rows yet
    repeatable: bool = True  # the same slice gives the same rows, or is refused (E5)
    # Whether Spark pushes the filters of a query down to it, so that it reads less. Counting its
    # rows in between would prevent the push-down.
    takes_conditions: bool = False

    @abstractmethod
    def plan(
        self, session: SparkSession, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        """The slice after `position` (None: the start), or None when nothing is there.

        `rows_max` limits it, if the source can cut; without it a slice is everything there is.
        The epoch before may not be read yet: a plan begins where that one will end.
        """
        ...

    @abstractmethod
    def read(self, session: SparkSession, part: Slice) -> DataFrame: ...

    @abstractmethod
    def empty(self, session: SparkSession) -> DataFrame:
        """A frame with no rows and the columns of `read`: for epochs after the last slice."""
        ...

    def learned(self) -> JsonValue:
        """What the last `read` found out and `committed` needs, such as receipts of messages.

        Asked once every sink has staged the slice. It is recorded with the epoch when that is
        prepared, so whoever commits the epoch in place of this process has it; it must be small.
        It goes with the completion of the epoch: what a worker had not told by then, and died, is
        told to nobody. A source must be right without it, if not as tidy. None: nothing.
        """
        return None

    def committed(
        self,
        session: SparkSession,  # noqa: ARG002
        position: JsonValue,  # noqa: ARG002
        *,
        learned: JsonValue,  # noqa: ARG002
    ) -> None:
        """Take note that everything up to `position` is committed at every sink and will never be
        read again: acknowledge it, or let go of it.

        Called after each epoch in which this source had a slice, with the position after that slice
        and what its `learned` gave; also when the position is the same as before. And called at the
        start of an execution, with the position it starts from, unless that is None, and
        `learned=None`: the worker before may have died between the completion of an epoch and this
        call, and what was learned in that epoch is not sent again. So it may come twice for a
        position, and must be idempotent.

        Whatever this raises is logged and never fails the job: the epoch is told again after the
        next one, before that. Up to `UNTOLD_MAX` epochs (worker/sources.py) wait so; of those in
        which nothing was learned, only the last. A job that ended while its source could not be
        told is not told again.

        The next epoch is not committed while this runs, and a call without end stalls the job until
        `execution.stall-timeout`: return within seconds, with a timeout on whatever is asked.
        """
        return

    def close(self) -> None:
        """Let go of what this execution held open. Whatever this raises is logged."""
        return


@dataclass(frozen=True, slots=True)
class Staged:
    handle: JsonValue  # all that another process needs in order to commit
    rows: int


@dataclass(frozen=True, slots=True)
class Committed:
    already: bool  # the target held the token before: another commit of the same epoch was first
    facts: Mapping[str, JsonValue]  # for people: {"table": …, "snapshot": …}


class Sink(Protocol):
    """Takes rows, epoch by epoch."""

    name: str
    # Whether a commit leaves behind anything that its own execution staged. If not, there is
    # nothing to sweep after an epoch that no other execution ever worked on.
    leaves_stage: bool = True
    opens: bool = False  # whether its save modes ask for something before the first row

    @abstractmethod
    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:
        """The mark of `at`'s pipeline at the target, whichever epoch `at` names; None when no token
        is spent there, or the target does not exist yet. Changes nothing.

        The first call also fixes the identity of the target: by it, a commit recognizes a target
        that has been replaced by another one of the same name since.
        """
        ...

    @abstractmethod
    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:
        """The handle of epoch 0: all that another process needs to `open`. Changes nothing.

        `frame` has no rows, and the columns of the rows to come. Raises `Refused` when a save mode
        forbids the job to go on, such as ERROR_WHEN_DATA_EXISTS.
        """
        ...

    @abstractmethod
    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        """Do what the save modes ask for and spend the token of epoch 0, in one atomic change.

        The target refuses it the second time, even when epoch 1 is committed by then: a zombie
        that wakes up here must not delete what has been written since.
        """
        ...

    @abstractmethod
    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged: ...

    @abstractmethod
    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        """Make the staged rows visible and spend the token, in one atomic change.

        `StoreOlderThanTarget` is raised when the target holds rows that another execution staged.
        """
        ...

    @abstractmethod
    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:
        """Delete what other executions staged for this epoch, whose token is spent by now.

        `handle` is None when the execution that completed the epoch is gone.
        """
        ...

    @abstractmethod
    def abort(self, session: SparkSession, at: EpochAt) -> None:
        """Spend the token with no rows, then delete whatever was staged for the epoch.

        When a commit with rows was first, nothing is deleted, and `StoreOlderThanTarget` is raised.
        """
        ...

    @abstractmethod
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

    def finish(self, rows: int) -> None:  # noqa: ARG002
        """Judge the completed point: every source is read to its end, and `rows` rows are
        committed here. Raises `Refused` when that is not what the user asked for.
        """
        return

    def close(self) -> None:
        """Let go of what this execution held open. Whatever this raises is logged."""
        return
