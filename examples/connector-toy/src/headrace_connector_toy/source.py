"""The ToySqlite source: slices are ranges of rowids, in the order in which rows were added."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from pydantic import BaseModel, JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.columns import spark_schema
from headrace.connectors.connector import Setting, Source
from headrace.errors import Refused
from headrace.protocol.messages import Slice
from headrace_connector_toy.database import quoted
from headrace_connector_toy.descriptor import ToySourceOptions


class RowIds(BaseModel):
    """The data of a slice: rows behind `after` up to `last`."""

    after: int
    last: int
    rows: int


class ToySqliteSource(Source):
    def __init__(self, name: str, options: ToySourceOptions, setting: Setting) -> None:
        self.name, self.bounded = name, not setting.streaming
        self._table, self._columns = options.table, spark_schema(options.schema)

    def plan(
        self,
        session: SparkSession,  # noqa: ARG002
        position: JsonValue,
        *,
        rows_max: int | None = None,
    ) -> Slice | None:
        after = position if isinstance(position, int) else 0
        most = -1 if rows_max is None else max(1, rows_max)
        query = f"SELECT rowid FROM {quoted(self._table.name)} WHERE rowid > ? ORDER BY 1 LIMIT ?"  # noqa: S608
        with closing(sqlite3.connect(self._table.path)) as database:
            found = [rowid for (rowid,) in database.execute(query, (after, most))]
        if not found:
            return None
        data = RowIds(after=after, last=found[-1], rows=len(found))
        return Slice(
            data=data.model_dump(),
            after=data.last,
            rows=data.rows,
            last=self.bounded and rows_max is None,
        )

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        wanted = RowIds.model_validate(part.data)
        names = ", ".join(map(quoted, self._columns.names))
        query = f"SELECT {names} FROM {quoted(self._table.name)} WHERE rowid > ? AND rowid <= ?"  # noqa: S608
        with closing(sqlite3.connect(self._table.path)) as database:
            rows = database.execute(query, (wanted.after, wanted.last)).fetchall()
        if len(rows) != wanted.rows:
            raise Refused(
                f"source {self.name}: {wanted.rows} rows of {self._table.name} were planned, and "
                f"{len(rows)} are there by now; submit the job anew"
            )
        return session.createDataFrame(rows, self._columns)  # pyright: ignore[reportUnknownMemberType]

    def empty(self, session: SparkSession) -> DataFrame:
        return session.createDataFrame([], self._columns)  # pyright: ignore[reportUnknownMemberType]
