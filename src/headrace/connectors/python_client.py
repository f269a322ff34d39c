"""The base of sinks to stores that have a Python client and no connector of Spark's.

Rows go to the store from the executors, as Arrow batches: one call of the *part writer* for each
partition. It is a function of a module, known by its name, that executors import for themselves;
what is sent to them is the name, the part and the options. They are asked for its modules before
anything is planned, so that one that is missing is told by its name.

What the part writer stages is committed by the *committer*: a target of exactly_once, which runs in
the worker. A store that can't spend a token has no committer, and its sink is an `AtLeastOnceSink`
whose `write` calls `write_parts`.
"""

from __future__ import annotations

import functools
import importlib
import json
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, JsonValue
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Committed, Setting, Sink, Staged
from headrace.errors import Refused, error_of_kind
from headrace.exactly_once.operations import abort, commit, forget, sweep
from headrace.exactly_once.spend import deadline_of
from headrace.exactly_once.target import Change, CommitTarget, Mark
from headrace.model.jobs.epoch import CommitAt, EpochAt
from headrace.seams import seam
from headrace.spark.executors import check_executors, map_in_arrow

Options = Mapping[str, JsonValue]
Batch = Any  # a pyarrow.RecordBatch, which has no types
OURS = ("headrace", "pyarrow")  # what executors need whatever the store
_ANSWER = "part int, rows bigint, error_kind string, error string"


@dataclass(frozen=True, slots=True)
class EpochPart:
    """One partition of one epoch at one sink, as one execution writes it.

    Its idempotence key is `key`, whether the store replaces what it has under a key or keeps the
    first. It names the execution, because two executions may part the same rows in different ways:
    by the number of the part alone, a late task of the one would replace or drop rows of the other.
    So the key recognises a task that Spark repeats, and nothing else.
    """

    token: str
    execution: str
    number: int

    @property
    def key(self) -> str:
        return f"{self.token}/{self.execution}/{self.number}"


PartWriter = Callable[[EpochPart, Options, Iterator[Batch]], int]


class PartsHandle(BaseModel):
    """All that another process needs in order to commit what was staged."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    execution: str
    rows: int
    parts: int


@dataclass(frozen=True, slots=True)
class _PartTask:
    """What executors are sent: values only."""

    writer: str  # package.module:function
    token: str
    execution: str
    options: str = field(repr=False)  # as JSON; may hold passwords

    def part(self, number: int) -> EpochPart:
        return EpochPart(self.token, self.execution, number)


def write_parts(
    session: SparkSession,
    frame: DataFrame,
    at: CommitAt,
    writer: str,
    options: Options,
    *,
    modules: Sequence[str] = (),
) -> PartsHandle:
    """Have the part writer `package.module:function` called for each partition, in executors.

    It must consume the batches and return how many rows it wrote, durably. What it raises of ours
    is raised here: `Refused` at once, anything else after Spark has repeated the task.
    """
    needed = (*OURS, writer.partition(":")[0], *modules)
    check_executors(session, needed, needed_by=f"sink {at.sink}")
    task = _PartTask(writer, at.token, at.execution, json.dumps(dict(options)))
    answers = map_in_arrow(frame, functools.partial(write_part, task), _ANSWER).collect()
    for answer in answers:
        if answer["error_kind"] is not None:
            error = error_of_kind(answer["error_kind"], answer["error"])
            raise error or Refused(f"sink {at.sink}: {answer['error']}")
    rows = sum(int(answer["rows"]) for answer in answers)
    return PartsHandle(execution=at.execution, rows=rows, parts=len(answers))


def write_part(task: _PartTask, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Write one partition. Runs in an executor, which imports this module by its name."""
    context = TaskContext.get()
    part = task.part(context.partitionId() if context is not None else 0)
    rows, error = 0, None
    try:
        rows = _writer(task.writer)(part, json.loads(task.options), batches)
    except Refused as refused:  # repeating the task will not help
        error = refused
    answer = {
        "part": part.number,
        "rows": rows,
        "error_kind": error and type(error).__name__,
        "error": error and str(error),
    }
    arrow: Any = importlib.import_module("pyarrow")  # not loaded by workers without such a sink
    types = (arrow.int32(), arrow.int64(), arrow.string(), arrow.string())
    schema = arrow.schema(list(zip(answer, types, strict=True)))
    yield arrow.RecordBatch.from_pylist([answer], schema=schema)


def _writer(name: str) -> PartWriter:
    module, _, function = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise Refused(f"{platform.node()}: executors can't import {name}: {error}") from error
    return found


class PythonClientSink(Sink, ABC):
    """A sink whose parts are staged by `writer` in executors, and committed by `target`."""

    writer: ClassVar[str]  # package.module:function, a `PartWriter`
    modules: ClassVar[Sequence[str]] = ()  # what it imports beside its own module

    def __init__(self, name: str, part_options: Options, setting: Setting) -> None:
        """`part_options`: what the part writer is given; a subclass makes them of its own."""
        self.name, self.part_options = name, part_options
        self._clock, self._deadline_s = setting.clock, setting.commit_deadline_s

    @abstractmethod
    def target(self) -> CommitTarget[CommitAt, Any, Any]:
        """The committer."""

    @abstractmethod
    def rows_change(self, handle: PartsHandle) -> Change:
        """The change by which the committer makes the staged parts visible."""

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:  # noqa: ARG002
        # Executors are not asked for modules here: settling and forgetting read the mark, too.
        return self.target().read_mark(CommitAt(at, self.name))

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:  # noqa: ARG002
        """There are no save modes, unless a subclass has some."""
        return None

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        return Committed(already=False, facts={})

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:
        commit_at = CommitAt(at, self.name)
        seam("before stage")
        handle = write_parts(
            session, frame, commit_at, self.writer, self.part_options, modules=self.modules
        )
        seam("staged")
        return Staged(handle.model_dump(mode="json"), handle.rows)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        staged, commit_at = PartsHandle.model_validate(handle), CommitAt(at, self.name)
        deadline = deadline_of(at, self._deadline_s, clock=self._clock)
        outcome = commit(self.target(), commit_at, self.rows_change(staged), deadline=deadline)
        return Committed(outcome.already, {"rows": staged.rows, "parts": staged.parts})

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:  # noqa: ARG002
        staged = PartsHandle.model_validate(handle) if handle is not None else None
        completed_by = staged and staged.execution
        sweep(self.target(), CommitAt(at, self.name), completed_by=completed_by)

    def abort(self, session: SparkSession, at: EpochAt) -> None:  # noqa: ARG002
        abort(self.target(), CommitAt(at, self.name))

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:  # noqa: ARG002
        forget(self.target(), CommitAt(at, self.name), owners=owners)
