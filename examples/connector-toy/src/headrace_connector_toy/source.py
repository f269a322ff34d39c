"""The ToySqlite source: slices are ranges of rowids, in the order in which rows were added."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from typing import Any

from pydantic import BaseModel, JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.columns import spark_schema
from headrace.connectors.connector import Setting, Source
from headrace.errors import Refused
from headrace.protocol.messages import Slice
from headrace_connector_toy.database import quoted
from headrace_connector_toy.descriptor import ToySourceOptions

ALL = -1  # rows, for SQLite's LIMIT


class RowIds(BaseModel):
    """The data of a slice: rows behind `after` up to `last`, and what tells them from others."""

    after: int
    last: int
    digest: str


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
        found = self._rows("rowid > ?", after, most=ALL if rows_max is None else max(1, rows_max))
        if not found:
            return None
        data = RowIds(after=after, last=found[-1][0], digest=_digest(found))
        return Slice(
            data=data.model_dump(),
            after=data.last,
            rows=len(found),
            last=self.bounded and rows_max is None,
        )

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        wanted = RowIds.model_validate(part.data)
        rows = self._rows("rowid > ? AND rowid <= ?", wanted.after, wanted.last)
        if _digest(rows) != wanted.digest:
            raise Refused(
                f"source {self.name}: rows of {self._table.name} were changed or deleted since the "
                "epoch was planned, so it can't give the same rows again; submit the job anew"
            )
        return session.createDataFrame([row[1:] for row in rows], self._columns)  # pyright: ignore[reportUnknownMemberType]

    def empty(self, session: SparkSession) -> DataFrame:
        return session.createDataFrame([], self._columns)  # pyright: ignore[reportUnknownMemberType]

    def _rows(self, where: str, *values: int, most: int = ALL) -> list[tuple[Any, ...]]:
        """Rowid and columns of the rows that `where` chooses, in the order of rowids."""
        names = ", ".join(map(quoted, self._columns.names))
        table = quoted(self._table.name)
        query = f"SELECT rowid, {names} FROM {table} WHERE {where} ORDER BY rowid LIMIT ?"  # noqa: S608
        with closing(sqlite3.connect(self._table.path)) as database:
            return database.execute(query, (*values, most)).fetchall()


def _digest(rows: list[tuple[Any, ...]]) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()
