"""Sinks without a target: Console, which shows rows, and InMemory, SeaTunnel's test sink.

Where a target would be asked, such a sink does nothing (`Targetless`): there is nothing to open,
nowhere to stage, and no token to spend. So it promises nothing, either: an epoch that is
committed again is shown, counted or judged again.

Console shows the first rows of each epoch. How many is bounded, because they go through the
driver and the store.

InMemory counts rows, forgets them, and fails where its options say so. Where SeaTunnel's writer
or committer throws, here a stage or a commit fails. The errors are Python's own and none of ours,
so they are treated like those of a bug or a broken machine: the attempt is retried.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection
from typing import Any

from pydantic import BaseModel, JsonValue
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from headrace.connectors.connector import Committed, Mark, Setting, Staged
from headrace.model.jobs.epoch import EpochAt
from headrace.spark.progress import require_metrics

ROWS_SHOWN_MAX = 100  # of one epoch
LINE_CHARACTERS_MAX = 2000
DELAY_MAX_MS = 1000  # between two rows, so that an epoch is shown within 100 s
SLEEP_S = 5.0  # how long a commit takes with checkpoint_sleep


class Targetless:
    """The base of sinks without a target: all of `Sink` but `stage` and `commit`."""

    opens = False
    leaves_stage = False

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:  # noqa: ARG002
        return None

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:  # noqa: ARG002
        """There are no save modes."""
        return None

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        return Committed(already=False, facts={})

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:
        """Nothing is staged anywhere but in the handle."""

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        """Nothing is staged, and there is no token to spend."""

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:
        """Nothing was left anywhere."""

    def close(self, rows: int) -> None:
        """Accept any number of rows."""


def count_rows(frame: DataFrame) -> int:
    """Count the rows by running the whole frame, as a sink would, without keeping any."""
    counted = Observation()
    frame.observe(counted, f.count(f.lit(1)).alias("rows")).write.format("noop").mode(
        "overwrite"
    ).save()
    return int(require_metrics(counted)["rows"])


class _ConsoleHandle(BaseModel):
    """What is staged: the lines to show, and how many rows there are in all."""

    rows: int
    lines: list[str]


def _to_stdout(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class ConsoleSink(Targetless):
    def __init__(
        self, name: str, setting: Setting, *, write: Callable[[str], None] = _to_stdout
    ) -> None:
        self.name = name
        options = setting.options
        self._shows = options.get("log.print.data") is not False
        self._delay_ms = min(DELAY_MAX_MS, int(options.get("log.print.delay.ms") or 0))
        self._write = write

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:  # noqa: ARG002
        """Count all rows without moving them, and only then take the first ones.

        The rows read from a source are counted during the first query that runs, so that must be
        the query that reads all of them.
        """
        total = count_rows(frame)
        lines: list[str] = []
        if self._shows:
            head = frame.take(ROWS_SHOWN_MAX)
            lines = [_line(number, row) for number, row in enumerate(head, 1)]
        return Staged(_ConsoleHandle(rows=total, lines=lines).model_dump(), total)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        staged = _ConsoleHandle.model_validate(handle)
        for line in staged.lines:
            self._write(line)
            if self._delay_ms:
                threading.Event().wait(self._delay_ms / 1000)
        if self._shows and staged.rows > len(staged.lines):
            self._write(f"… and {staged.rows - len(staged.lines)} more rows in epoch {at.epoch}")
        return Committed(already=False, facts={"rows": staged.rows})


def _line(number: int, row: Any) -> str:
    values = ", ".join(_value_text(value) for value in row)
    return f"rowIndex={number}: kind=INSERT: {values}"[:LINE_CHARACTERS_MAX]


def _value_text(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return "null" if value is None else str(value)


class _InMemoryHandle(BaseModel):
    """What is staged: only how many rows came."""

    rows: int


class InMemorySink(Targetless):
    def __init__(self, name: str, setting: Setting, *, sleep_s: float = SLEEP_S) -> None:
        self.name, self._options, self._sleep_s = name, setting.options, sleep_s

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:  # noqa: ARG002
        rows = count_rows(frame)
        if rows:
            self._fail_at_rows(at)
        if self._options.get("throw_exception"):
            raise OSError(f"sink {self.name} was told to throw_exception")
        return Staged(_InMemoryHandle(rows=rows).model_dump(), rows)

    def _fail_at_rows(self, at: EpochAt) -> None:
        if self._options.get("throw_out_of_memory"):
            raise MemoryError(f"sink {self.name} was told to throw_out_of_memory")
        texts: list[str] = self._options.get("throw_runtime_exception_list") or []
        if (attempt := _attempt(at)) <= len(texts):
            raise RuntimeError(texts[attempt - 1])

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        if self._options.get("checkpoint_sleep"):
            threading.Event().wait(self._sleep_s)
        if self._options.get("throw_exception_of_committer"):
            raise OSError(f"sink {self.name} was told to throw_exception_of_committer")
        return Committed(already=False, facts={"rows": _InMemoryHandle.model_validate(handle).rows})


def _attempt(at: EpochAt) -> int:
    """The number of the attempt, from 1: the last part of an execution's id (`Claim.execution`)."""
    return int(at.execution.rpartition(".")[2])
