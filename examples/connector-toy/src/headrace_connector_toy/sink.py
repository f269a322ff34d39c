"""The ToySqlite sink: executors stage parts as JSON, and the target moves them with their token."""

from __future__ import annotations

import json
from collections.abc import Iterator

from headrace.clock import SystemClock
from headrace.connectors.connector import Setting
from headrace.connectors.python_client import (
    Batch,
    EpochPart,
    Options,
    PartsHandle,
    PythonClientSink,
)
from headrace.model.jobs.epoch import SpentBy
from headrace_connector_toy.database import key_of, transaction
from headrace_connector_toy.descriptor import ToySinkOptions
from headrace_connector_toy.target import ToyChange, ToySqliteTarget


def stage_part(part: EpochPart, options: Options, batches: Iterator[Batch]) -> int:
    """Stage one partition, in the place of what another try of its task staged. In executors."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    columns, values = [*rows[0]] if rows else [], [[*row.values()] for row in rows]
    place = (*key_of(part.token), part.execution, part.number, SystemClock().wall_ms())
    with transaction(str(options["path"])) as database:
        database.execute(
            "INSERT OR REPLACE INTO headrace_stage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*place, json.dumps(columns), json.dumps(values, default=str)),
        )
    return len(rows)


class ToySqliteSink(PythonClientSink):
    writer = "headrace_connector_toy.sink:stage_part"
    modules = ("sqlite3",)

    def __init__(self, name: str, options: ToySinkOptions, setting: Setting) -> None:
        super().__init__(name, {"path": options.table.path}, setting)
        self._table = options.table

    def target(self) -> ToySqliteTarget:
        return ToySqliteTarget(self.name, self._table)

    def rows_change(self, handle: PartsHandle) -> ToyChange:
        return ToyChange(SpentBy.DATA, handle.execution, handle.rows)
