"""FakeSource: rows made up from a schema. The same slice always gives the same rows (E5).

A job's rows are numbered from 0; row n of a source is a hash of the incarnation, the source's
name and n. So two runs of a job differ, and an epoch that is run again does not. `split.num` and
`split.read-interval` only change how SeaTunnel would have cut and paced them; here Spark does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import BaseModel, JsonValue
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.clock import Clock, SystemClock
from headrace.connectors.columns import Maker
from headrace.connectors.connector import Setting
from headrace.connectors.types import spark_schema, spark_type
from headrace.connectors.values import to_python
from headrace.errors import Refused
from headrace.jobfile.schema import ColumnSpec, TableSchema, parse_schema
from headrace.protocol.payloads import Slice

ROWS_PER_PARTITION_MIN = 50_000  # fewer are not worth a task of their own
_ROW = "__headrace_row"


class _Range(BaseModel):
    """What a slice of this source holds: rows `first` up to `end`, and what time it is in them."""

    first: int
    end: int
    now_ms: int


class FakeSource:
    def __init__(self, name: str, setting: Setting, clock: Clock | None = None) -> None:
        self.name = name
        self._setting, self._clock = setting, clock or SystemClock()
        self._schema = parse_schema(setting.options.get("schema"))
        self._rows = _given_rows(setting.options.get("rows"))

    @property
    def total(self) -> int:
        """`row.num` rows of each reader; given rows are emitted whole by every split."""
        options, readers = self._setting.options, self._setting.parallelism
        if self._rows is not None:
            return len(self._rows) * readers * int(options.get("split.num") or 1)
        per_reader = options.get("row.num")
        return readers * int(5 if per_reader is None else per_reader)

    def plan(self, position: JsonValue, *, rows_max: int | None = None) -> Slice | None:
        first = int(cast("int", position)) if position is not None else 0
        if position is not None and first >= self.total:
            return None
        end = self.total if rows_max is None else min(self.total, first + rows_max)
        data = _Range(first=first, end=end, now_ms=self._clock.wall_ms())
        last = end == self.total
        return Slice(data=data.model_dump(), after=end, rows=end - first, last=last)

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        span = _Range.model_validate(part.data)
        numbers = session.range(span.first, span.end, 1, self._partitions(session, span))
        numbers = numbers.withColumnRenamed("id", _ROW)
        if self._rows is not None:
            return self._given(session, numbers, self._rows, span)
        row = f.xxhash64(f.lit(self._seed()), f.col(_ROW))
        year = datetime.fromtimestamp(span.now_ms / 1000, tz=UTC).year
        maker = Maker(f.col("__headrace_hash"), self._setting.options, year=year)
        columns = [self._column(maker, column, span) for column in self._schema.columns]
        return numbers.withColumn("__headrace_hash", row).select(*columns)

    def empty(self, session: SparkSession) -> DataFrame:
        return session.createDataFrame([], spark_schema(self._schema))  # pyright: ignore[reportUnknownMemberType]

    def _seed(self) -> int:
        named = f"{self._setting.incarnation}/{self.name}".encode()
        return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), signed=True)

    def _partitions(self, session: SparkSession, span: _Range) -> int:
        wanted = max(self._setting.parallelism, session.sparkContext.defaultParallelism)
        return max(1, min(wanted, (span.end - span.first) // ROWS_PER_PARTITION_MIN))

    def _column(self, maker: Maker, column: ColumnSpec, span: _Range) -> Column:
        if column.default is not None:
            value = to_python(column.default, column.type, name=column.name, now_ms=span.now_ms)
            return f.lit(value).cast(spark_type(column.type)).alias(column.name)
        if _counts(self._setting.options, column, self._schema):
            start = int(self._setting.options.get("auto.increment.start") or 1)
            number = f.col(_ROW) + f.lit(start)
            return number.cast(spark_type(column.type)).alias(column.name)
        return maker.make(column.type, column.name, length=column.length).alias(column.name)

    def _given(
        self, session: SparkSession, numbers: DataFrame, rows: Sequence[Any], span: _Range
    ) -> DataFrame:
        """Row n is given row n modulo their number."""
        schema = spark_schema(self._schema).add(_ROW, "long")
        typed = [
            (*_typed(row, self._schema, span.now_ms), number) for number, row in enumerate(rows)
        ]
        given = session.createDataFrame(typed, schema)  # pyright: ignore[reportUnknownMemberType]
        index = f.pmod(numbers[_ROW], f.lit(max(1, len(rows))))
        joined = numbers.join(f.broadcast(given), index == given[_ROW])
        return joined.select(*(given[column.name] for column in self._schema.columns))


def _counts(options: Mapping[str, Any], column: ColumnSpec, schema: TableSchema) -> bool:
    """Whether this column is the one that `auto.increment.enabled` counts up: the primary key."""
    key = schema.primary_key
    return bool(options.get("auto.increment.enabled")) and (
        key is not None and column.name in key.columns
    )


def _given_rows(rows: Any) -> list[Any] | None:
    if rows is None:
        return None
    if not isinstance(rows, list):
        raise Refused("option 'rows' of FakeSource must be a list of {kind, fields}")
    found: list[Any] = []
    for number, row in enumerate(cast("list[Any]", rows), start=1):
        entry = cast("Mapping[str, Any]", row if isinstance(row, Mapping) else {})
        kind = str(entry.get("kind") or "INSERT").upper()
        if "fields" not in entry:
            raise Refused(f"row {number} of FakeSource has no 'fields'")
        if kind != "INSERT":
            raise Refused(f"row {number} of FakeSource is a {kind}; only INSERT is built yet")
        found.append(entry["fields"])
    return found


def _typed(row: Any, schema: TableSchema, now_ms: int) -> tuple[Any, ...]:
    """The fields of one given row: in the order of the columns, or by name."""
    if isinstance(row, Mapping):
        named = cast("Mapping[str, Any]", row)
        fields = [named.get(column.name) for column in schema.columns]
    else:
        fields = cast("list[Any]", row)
    if len(fields) != len(schema.columns):
        raise Refused(
            f"a row of FakeSource has {len(fields)} fields, and its schema "
            f"{len(schema.columns)} columns"
        )
    return tuple(
        to_python(value, column.type, name=column.name, now_ms=now_ms)
        for value, column in zip(fields, schema.columns, strict=True)
    )
