"""Console: a sink that shows the first rows of each epoch on the worker's standard output.

How many is bounded, because they go through the driver and the store.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Committed, Setting, Staged
from headrace.connectors.console.descriptor import ConsoleOptions
from headrace.connectors.targetless import Targetless, count_rows
from headrace.model.jobs.epoch import EpochAt
from headrace.plugins.row_kinds import KIND_COLUMN, TABLE_COLUMN, RowKind, is_reserved

ROWS_SHOWN_MAX = 100  # of one epoch
LINE_CHARACTERS_MAX = 2000
DELAY_MAX_MS = 1000  # between two rows, so that an epoch is shown within 100 s


class _ConsoleHandle(BaseModel):
    """What is staged: the lines to show, and how many rows there are in all."""

    rows: int
    lines: list[str]


def _to_stdout(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class ConsoleSink(Targetless):
    def __init__(
        self,
        name: str,
        options: ConsoleOptions,
        setting: Setting,  # noqa: ARG002
        *,
        write: Callable[[str], None] = _to_stdout,
    ) -> None:
        self.name, self._write = name, write
        self._shows, self._delay_ms = options.shows, min(DELAY_MAX_MS, options.delay_ms)

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:  # noqa: ARG002
        """Count all rows without moving them, and only then take the first ones.

        The rows read from a source are counted during the first query that runs, so that must be
        the query that reads all of them.
        """
        total = count_rows(frame)
        lines: list[str] = []
        if self._shows:
            head = frame.take(ROWS_SHOWN_MAX)
            lines = [_line(number, row, frame.columns) for number, row in enumerate(head, 1)]
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


def _line(number: int, row: Any, columns: Sequence[str]) -> str:
    """A row for people: its table, where it may be one of several, its kind, and its values."""
    cells = [*zip(columns, row, strict=True)]
    said = {name: value for name, value in cells if is_reserved(name)}
    values = ", ".join(_value_text(value) for name, value in cells if name not in said)
    kind = RowKind(said.get(KIND_COLUMN, RowKind.INSERT)).name
    table = f"tableId={said[TABLE_COLUMN]}: " if TABLE_COLUMN in said else ""
    return f"rowIndex={number}: {table}kind={kind}: {values}"[:LINE_CHARACTERS_MAX]


def _value_text(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return "null" if value is None else str(value)
