"""Console: shows the first rows of each epoch. It is for looking, and promises nothing.

No target remembers what was shown, so an epoch that is committed again is shown again, and there
is no token to spend. What is shown is bounded, because it goes through the driver and the store.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Committed, Setting, Staged
from headrace.connectors.targetless import Targetless, count_rows
from headrace.model.epoch import EpochAt

ROWS_SHOWN_MAX = 100  # of one epoch
LINE_CHARACTERS_MAX = 2000
DELAY_MAX_MS = 1000  # between two rows: an epoch is shown in 100 s at most


class _Shown(BaseModel):
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
        """Count all rows without moving them, and only then take the first: what a source was
        asked for is counted by the first query, and it should be the one that reads it whole."""
        total = count_rows(frame)
        lines: list[str] = []
        if self._shows:
            head = frame.take(ROWS_SHOWN_MAX)
            lines = [_line(number, row) for number, row in enumerate(head, 1)]
        return Staged(_Shown(rows=total, lines=lines).model_dump(), total)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        shown = _Shown.model_validate(handle)
        for line in shown.lines:
            self._write(line)
            if self._delay_ms:
                threading.Event().wait(self._delay_ms / 1000)
        if self._shows and shown.rows > len(shown.lines):
            self._write(f"… and {shown.rows - len(shown.lines)} more rows in epoch {at.epoch}")
        return Committed(already=False, facts={"rows": shown.rows})


def _line(number: int, row: Any) -> str:
    values = ", ".join(_said(value) for value in row)
    return f"rowIndex={number}: kind=INSERT: {values}"[:LINE_CHARACTERS_MAX]


def _said(value: Any) -> str:
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return "null" if value is None else str(value)
