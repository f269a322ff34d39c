"""FakeSource: rows made up from a schema. The same slice always gives the same rows (E5).

A job's rows are numbered from 0; row n of a source is a hash of the incarnation, the source's
name and n. So two runs of a job differ, and an epoch that is run again does not. How many rows
there are is settled when the first slice is planned, and kept in the position: a job that is
restored with another parallelism still gives each row once.

A source is paced when `split.read-interval` is above 1 ms. It then reads a split of each reader,
all readers at once, in every interval; a slice ends where splits end, and says how long it lasts.
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
UNPACED_MS = 1  # up to this `split.read-interval`, SeaTunnel's default, there is no pause
_ROW = "__headrace_row"


class _Range(BaseModel):
    """What a slice of this source holds: rows `first` up to `end`, and what time it is in them."""

    first: int
    end: int
    now_ms: int


class _Position(BaseModel):
    """How many rows were read, of how many. Before savepoints it was the first number alone."""

    row: int
    total: int


class FakeSource:
    repeatable = True
    takes_conditions = False

    def __init__(self, name: str, setting: Setting, clock: Clock | None = None) -> None:
        self.name, self.bounded = name, not setting.streaming
        self._setting, self._clock = setting, clock or SystemClock()
        self._schema = parse_schema(setting.options.get("schema"))
        self._rows = _given_rows(setting.options.get("rows"))
        self._kept: tuple[int, Sequence[Column]] | None = None

    @property
    def total(self) -> int:
        """`row.num` rows of each reader; given rows are emitted whole by every split."""
        options, readers = self._setting.options, self._setting.parallelism
        if self._rows is not None:
            return len(self._rows) * readers * self._splits
        per_reader = options.get("row.num")
        return readers * int(5 if per_reader is None else per_reader)

    def plan(self, position: JsonValue, *, rows_max: int | None = None) -> Slice | None:
        at = self._position(position)
        if at.row >= at.total and (position is not None or not self.bounded):
            return None
        end, lasts_ms = self._cut(at, rows_max)
        data = _Range(first=at.row, end=end, now_ms=self._clock.wall_ms())
        return Slice(
            data=data.model_dump(),
            after=_Position(row=end, total=at.total).model_dump(),
            rows=end - at.row,
            last=self.bounded and end == at.total,
            lasts_ms=lasts_ms,
        )

    def _position(self, position: JsonValue) -> _Position:
        if position is None or isinstance(position, int):
            return _Position(row=position or 0, total=self.total)
        return _Position.model_validate(position)

    def _cut(self, at: _Position, rows_max: int | None) -> tuple[int, int]:
        """Where the slice ends, and for how many ms it lasts."""
        pause_ms = int(self._setting.options.get("split.read-interval") or 0)
        if pause_ms <= UNPACED_MS:
            return (at.total if rows_max is None else min(at.total, at.row + rows_max)), 0
        rows, splits = self._rows_at_once, self._splits
        # The last splits may hold no rows, and take their time all the same.
        left = max(splits - at.row // rows, _ceil(at.total - at.row, rows))
        limits = [left]
        if self._setting.checkpoint_interval_ms is not None:
            limits.append(self._setting.checkpoint_interval_ms // pause_ms)
        if rows_max is not None:
            limits.append(rows_max // rows)
        read = max(1, min(limits))  # less than a split of each reader can't be read
        return min(at.total, at.row + read * rows), read * pause_ms

    @property
    def _splits(self) -> int:
        return int(self._setting.options.get("split.num") or 1)

    @property
    def _rows_at_once(self) -> int:
        """Of one split of each reader."""
        readers = self._setting.parallelism
        return max(1, readers * _ceil(self.total // readers, self._splits))

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        span = _Range.model_validate(part.data)
        numbers = self._numbers(session, span)
        if self._rows is not None:
            return self._given(session, numbers, self._rows, span)
        row = f.xxhash64(f.lit(self._seed()), f.col(_ROW))
        return numbers.withColumn("__headrace_hash", row).select(*self._columns(span))

    def _numbers(self, session: SparkSession, span: _Range) -> DataFrame:
        """The numbers of the rows. Where they begin is data, and not part of the code that Spark
        generates: so epochs of one size share it, and the JVM compiles it once."""
        numbers = session.range(0, span.end - span.first, 1, self._partitions(session, span))
        first = f.get(f.array(f.lit(span.first)), f.spark_partition_id() * 0)
        return numbers.select((f.col("id") + f.coalesce(first, f.lit(0))).alias(_ROW))

    def _columns(self, span: _Range) -> Sequence[Column]:
        """What each column is made of: hundreds of calls into the JVM, so they are kept for the
        next epoch, unless a default says what time it is."""
        year = datetime.fromtimestamp(span.now_ms / 1000, tz=UTC).year
        timed = any(column.default is not None for column in self._schema.columns)
        key = span.now_ms if timed else year
        if self._kept is None or self._kept[0] != key:
            maker = Maker(f.col("__headrace_hash"), self._setting.options, year=year)
            made = [self._column(maker, column, span) for column in self._schema.columns]
            self._kept = (key, made)
        return self._kept[1]

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


def _ceil(number: int, parts: int) -> int:
    return -(-number // parts)


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
