"""FakeSource of several tables: a source for each, whose rows come in one frame.

The frame has the columns of all tables, and says of each row which table it is of. A slice holds a
part of every table that is not read to its end, and a position holds where each of them is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pydantic import BaseModel, JsonValue
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.connectors.connector import Setting, Source
from headrace.connectors.fake.descriptor import FakeSourceOptions, FakeTablesOptions
from headrace.connectors.fake.source import FakeSource
from headrace.plugins.row_kinds import KIND_COLUMN, TABLE_COLUMN, RowKind
from headrace.protocol.messages import Slice


class _TableSlices(BaseModel):
    """The data of a slice: the slices of tables, by path."""

    parts: dict[str, Slice]


def make_fake_source(
    name: str, options: FakeSourceOptions | FakeTablesOptions, setting: Setting
) -> Source:
    if isinstance(options, FakeTablesOptions):
        return FakeTablesSource(name, options, setting)
    return FakeSource(name, options, setting)


class FakeTablesSource(Source):
    def __init__(self, name: str, options: FakeTablesOptions, setting: Setting) -> None:
        self.name, self.bounded = name, not setting.streaming
        # The rows of a table are made from the name of its source, so that those of two differ.
        self._tables = {
            path: FakeSource(f"{name}/{path}", table, setting)
            for path, table in options.tables.items()
        }
        self._kinds = any(table.kinds is not None for table in options.tables.values())

    def plan(
        self, session: SparkSession, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        at = cast("Mapping[str, JsonValue]", position or {})
        each_max = None if rows_max is None else max(1, rows_max // len(self._tables))
        parts = {
            path: part
            for path, table in self._tables.items()
            if (part := table.plan(session, at.get(path), rows_max=each_max)) is not None
        }
        if not parts:
            return None
        return Slice(
            data=_TableSlices(parts=parts).model_dump(mode="json"),
            after={**at, **{path: part.after for path, part in parts.items()}},
            rows=sum(part.rows or 0 for part in parts.values()),
            last=self.bounded and all(part.last for part in parts.values()),
            lasts_ms=max(part.lasts_ms for part in parts.values()),
        )

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        parts = _TableSlices.model_validate(part.data).parts
        return self._union(
            {
                path: table.read(session, parts[path]) if path in parts else table.empty(session)
                for path, table in self._tables.items()
            }
        )

    def empty(self, session: SparkSession) -> DataFrame:
        return self._union({path: table.empty(session) for path, table in self._tables.items()})

    def _union(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """All rows, with the columns of all tables; last, the kind and the table of each."""
        first, *others = (self._said(path, frame) for path, frame in frames.items())
        for other in others:
            first = first.unionByName(other, allowMissingColumns=True)
        said = [KIND_COLUMN, TABLE_COLUMN] if self._kinds else [TABLE_COLUMN]
        columns = [name for name in first.columns if name not in said]
        return first.select(*("`" + name.replace("`", "``") + "`" for name in columns), *said)

    def _said(self, path: str, frame: DataFrame) -> DataFrame:
        if self._kinds and KIND_COLUMN not in frame.columns:
            frame = frame.withColumn(KIND_COLUMN, f.lit(RowKind.INSERT.value))
        return frame.withColumn(TABLE_COLUMN, f.lit(path))
