"""FakeSource: rows made up from a schema. The same slice always gives the same rows (E5).

A job's rows are numbered from 0. Row n of a source is a hash of the incarnation, the source's name
and n, and each of its values is a hash of that and the column. So two runs of a job differ, while
an epoch that is run again does not: no value depends on how Spark cuts the rows into partitions,
nor on which epoch or attempt reads them. `rand` and its like would, since Spark seeds them by
partition.

How many rows there are is settled when the first slice is planned, and kept in the position: a
job that is restored with another parallelism still gives each row once.

A source is paced when `split.read-interval` is above 1 ms. It then reads a split of each reader,
all readers at once, in every interval; a slice ends where splits end, and its `lasts_ms` says how
long it takes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, assert_never, cast

from pydantic import BaseModel, JsonValue
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.columns import spark_schema, spark_type, to_python
from headrace.connectors.connector import Setting, Source
from headrace.connectors.fake.descriptor import FakeSourceOptions
from headrace.errors import Refused
from headrace.plugins.row_kinds import KIND_COLUMN
from headrace.plugins.schema import (
    ArrayType,
    ColumnSpec,
    ColumnType,
    DecimalType,
    MapType,
    PlainType,
    RowType,
    TableSchema,
    VectorType,
)
from headrace.protocol.messages import Slice

DIGITS_PER_HASH = 18  # decimal digits that one 64-bit hash always has
HEX_PER_HASH = 15  # of its 16 hex digits: the first is never 0 to 7, see `_hex`
ROWS_PER_PARTITION_MIN = 50_000  # fewer rows are not worth a task of their own
UNPACED_MS = 1  # up to this `split.read-interval`, SeaTunnel's default, a source is not paced
_ROW = "__headrace_row"
_SIGN_BIT = -(1 << 63)
_FRACTION_STEPS = 1 << 53
_INTEGER_TOP = {"tinyint": 127, "smallint": 32767, "int": 2**31 - 1, "bigint": 2**63 - 1}
_FRACTION_TOP = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}
_DAY_TOP = 28  # exists in every month


class _RowRange(BaseModel):
    """The data of a slice: rows `first` up to `end`, exclusive, and the time for defaults in it."""

    first: int
    end: int
    now_ms: int


class _RowPosition(BaseModel):
    """How many rows are read, of how many. Older positions, from before savepoints, are the first
    number alone."""

    row: int
    total: int


class FakeSource(Source):
    def __init__(self, name: str, options: FakeSourceOptions, setting: Setting) -> None:
        self.name, self.bounded = name, not setting.streaming
        self._options, self._setting = options, setting
        self._schema, self._rows = options.schema, options.rows
        self._cached_columns: tuple[int, Sequence[Column]] | None = None

    @property
    def total(self) -> int:
        """All rows of the source: `row.num` for each reader, or all `rows` for each split."""
        readers = self._setting.parallelism
        if self._rows is not None:
            return len(self._rows) * readers * self._options.splits
        return readers * self._options.rows_per_reader

    def plan(
        self,
        session: SparkSession,  # noqa: ARG002
        position: JsonValue,
        *,
        rows_max: int | None = None,
    ) -> Slice | None:
        at = self._position(position)
        if at.row >= at.total and (position is not None or not self.bounded):
            return None
        end, lasts_ms = self._cut(at, rows_max)
        data = _RowRange(first=at.row, end=end, now_ms=self._setting.clock.wall_ms())
        return Slice(
            data=data.model_dump(),
            after=_RowPosition(row=end, total=at.total).model_dump(),
            rows=end - at.row,
            last=self.bounded and end == at.total,
            lasts_ms=lasts_ms,
        )

    def _position(self, position: JsonValue) -> _RowPosition:
        if position is None or isinstance(position, int):
            return _RowPosition(row=position or 0, total=self.total)
        return _RowPosition.model_validate(position)

    def _cut(self, at: _RowPosition, rows_max: int | None) -> tuple[int, int]:
        """The end of the slice, and for how many ms it lasts."""
        pause_ms = self._options.pause_ms
        if pause_ms <= UNPACED_MS:
            return (at.total if rows_max is None else min(at.total, at.row + rows_max)), 0
        rows, splits = self._rows_at_once, self._options.splits
        # The last splits may have no rows, and still take their interval.
        left = max(splits - at.row // rows, _ceil(at.total - at.row, rows))
        limits = [left]
        if self._setting.checkpoint_interval_ms is not None:
            limits.append(self._setting.checkpoint_interval_ms // pause_ms)
        if rows_max is not None:
            limits.append(rows_max // rows)
        splits_read = max(1, min(limits))  # a split of each reader is the least that can be read
        return min(at.total, at.row + splits_read * rows), splits_read * pause_ms

    @property
    def _rows_at_once(self) -> int:
        """The rows of one split of each reader."""
        readers = self._setting.parallelism
        return max(1, readers * _ceil(self.total // readers, self._options.splits))

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        span = _RowRange.model_validate(part.data)
        numbers = self._numbers(session, span)
        if self._rows is not None:
            return self._read_given_rows(session, numbers, self._rows, span)
        row = f.xxhash64(f.lit(self._seed()), f.col(_ROW))
        return numbers.withColumn("__headrace_hash", row).select(*self._columns(span))

    def _numbers(self, session: SparkSession, span: _RowRange) -> DataFrame:
        """The numbers of the rows.

        Where they begin is data and no constant of the code that Spark generates. So epochs of one
        size share that code, and the JVM compiles it once.
        """
        numbers = session.range(0, span.end - span.first, 1, self._partitions(session, span))
        first = f.get(f.array(f.lit(span.first)), f.spark_partition_id() * 0)
        return numbers.select((f.col("id") + f.coalesce(first, f.lit(0))).alias(_ROW))

    def _columns(self, span: _RowRange) -> Sequence[Column]:
        """The expressions of all columns.

        Building them takes hundreds of calls into the JVM, so they are cached: for a year, since
        dates are made up in the current one; but only for the slice's time if a column has a
        default, which may be CURRENT_TIMESTAMP.
        """
        year = datetime.fromtimestamp(span.now_ms / 1000, tz=UTC).year
        timed = any(column.default is not None for column in self._schema.columns)
        key = span.now_ms if timed else year
        if self._cached_columns is None or self._cached_columns[0] != key:
            maker = ColumnMaker(f.col("__headrace_hash"), self._options, year=year)
            columns = [self._column(maker, column, span) for column in self._schema.columns]
            self._cached_columns = (key, columns)
        return self._cached_columns[1]

    def empty(self, session: SparkSession) -> DataFrame:
        schema = spark_schema(self._schema)
        if self._options.kinds is not None:
            schema = schema.add(KIND_COLUMN, "string")
        return session.createDataFrame([], schema)  # pyright: ignore[reportUnknownMemberType]

    def _seed(self) -> int:
        named = f"{self._setting.incarnation}/{self.name}".encode()
        return int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), signed=True)

    def _partitions(self, session: SparkSession, span: _RowRange) -> int:
        wanted = max(self._setting.parallelism, session.sparkContext.defaultParallelism)
        return max(1, min(wanted, (span.end - span.first) // ROWS_PER_PARTITION_MIN))

    def _column(self, maker: ColumnMaker, column: ColumnSpec, span: _RowRange) -> Column:
        if column.default is not None:
            value = to_python(column.default, column.type, name=column.name, now_ms=span.now_ms)
            return f.lit(value).cast(spark_type(column.type)).alias(column.name)
        if self._options.auto_increment and _is_in_primary_key(column, self._schema):
            number = f.col(_ROW) + f.lit(self._options.auto_increment_start)
            return number.cast(spark_type(column.type)).alias(column.name)
        return maker.make(column.type, column.name, length=column.length).alias(column.name)

    def _read_given_rows(
        self, session: SparkSession, numbers: DataFrame, rows: Sequence[Any], span: _RowRange
    ) -> DataFrame:
        """The rows that the job file gives, repeated: row n is given row n modulo their number."""
        schema = spark_schema(self._schema).add(_ROW, "long")
        typed = [
            (*_typed(row, self._schema, span.now_ms), number) for number, row in enumerate(rows)
        ]
        said: tuple[str, ...] = ()
        if (kinds := self._options.kinds) is not None:
            said, schema = (KIND_COLUMN,), schema.add(KIND_COLUMN, "string")
            typed = [(*row, kind.value) for row, kind in zip(typed, kinds, strict=True)]
        table = session.createDataFrame(typed, schema)  # pyright: ignore[reportUnknownMemberType]
        index = f.pmod(numbers[_ROW], f.lit(max(1, len(rows))))
        joined = numbers.join(f.broadcast(table), index == table[_ROW])
        return joined.select(
            *(table[name] for name in (*(column.name for column in self._schema.columns), *said))
        )


class ColumnMaker:
    """Makes up columns from `row`, the hash of a row."""

    def __init__(self, row: Column, options: FakeSourceOptions, *, year: int) -> None:
        self._row, self._options, self._year = row, options, year

    def make(self, of: ColumnType, path: str, *, length: int | None = None) -> Column:
        """A column of this type; `path` distinguishes it from all other columns."""
        match of:
            case PlainType():
                return self._plain(of.name, path, length).cast(spark_type(of))
            case DecimalType():
                return self._decimal(path, of)
            case ArrayType():
                items = self._several(of.element, path, self._options.array_size)
                return f.array(*items).cast(spark_type(of))
            case MapType():
                return self._map(of, path)
            case RowType():
                return f.struct(
                    *(self.make(kind, f"{path}.{key}").alias(key) for key, kind in of.fields)
                )
            case VectorType():
                raise Refused(f"column {path!r}: type {of.name} is not built yet")
        assert_never(of)

    def _hash(self, path: str) -> Column:
        return f.xxhash64(self._row, f.lit(path))

    def _plain(self, kind: str, path: str, length: int | None) -> Column:
        if template := self._options.templates.get(kind):
            return self._pick(template, path)
        if kind in _INTEGER_TOP:
            return self._integer(kind, path)
        if kind in _FRACTION_TOP:
            return self._fraction(kind, path)
        other: Mapping[str, Callable[[str, int | None], Column]] = {
            "string": self._string,
            "bytes": self._bytes,
            "boolean": self._boolean,
            "null": self._null,
            "date": self._date,
            "time": self._time,
            "timestamp": self._timestamp,
            "timestamp_tz": self._timestamp,
        }
        return other[kind](path, length)

    def _pick(self, values: Sequence[Any], path: str) -> Column:
        if len(values) == 1:
            return f.lit(values[0])
        index = f.pmod(self._hash(path), f.lit(len(values))).cast("int")
        return f.get(f.array(*(f.lit(value) for value in values)), index)

    def _range(self, kind: str, top: float) -> tuple[float, float]:
        given = self._options.ranges[kind]
        low = 0 if given.low is None else given.low
        high = top if given.high is None else given.high
        if low >= high:
            raise Refused(
                f"{kind}.min = {low} must be below {kind}.max = {high}, which is exclusive"
            )
        return low, high

    def _integer(self, kind: str, path: str) -> Column:
        low, high = self._range(kind, _INTEGER_TOP[kind])
        return f.pmod(self._hash(path), f.lit(high - low)) + f.lit(low)

    def _fraction(self, kind: str, path: str) -> Column:
        low, high = self._range(kind, _FRACTION_TOP[kind])
        share = f.pmod(self._hash(path), f.lit(_FRACTION_STEPS)) / f.lit(float(_FRACTION_STEPS))
        return f.lit(float(low)) + share * f.lit(float(high) - float(low))

    def _hex(self, path: str, length: int) -> Column:
        """A text of `length` hex digits. With its sign bit set, a hash always has 16 of them."""
        parts = [
            f.substring(f.hex(self._hash(f"{path}#{start}").bitwiseOR(f.lit(_SIGN_BIT))), 2, size)
            for start in range(0, length, HEX_PER_HASH)
            if (size := min(HEX_PER_HASH, length - start))
        ]
        return f.concat(*parts) if len(parts) > 1 else parts[0] if parts else f.lit("")

    def _string(self, path: str, length: int | None) -> Column:
        return self._hex(path, length or self._options.string_length)

    def _bytes(self, path: str, length: int | None) -> Column:
        return self._hex(path, length or self._options.bytes_length).cast("binary")

    def _boolean(self, path: str, _length: int | None) -> Column:
        return f.pmod(self._hash(path), f.lit(2)) == 0

    def _null(self, _path: str, _length: int | None) -> Column:
        return f.lit(None)

    def _decimal(self, path: str, of: DecimalType) -> Column:
        """A decimal with as many random digits as its type has, up to two hashes of them."""
        whole = of.precision - DIGITS_PER_HASH
        low = f.pmod(self._hash(path), f.lit(10 ** min(of.precision, DIGITS_PER_HASH)))
        if whole > 0:
            high = f.pmod(self._hash(f"{path}#high"), f.lit(10 ** min(whole, DIGITS_PER_HASH)))
            digits = f.concat(high.cast("string"), f.lpad(low.cast("string"), DIGITS_PER_HASH, "0"))
            text = f.lpad(digits, of.precision, "0")
            point = f.concat(
                f.substring(text, 1, of.precision - of.scale),
                f.lit("."),
                f.substring(text, of.precision - of.scale + 1, of.scale),
            )
            return point.cast(spark_type(of))
        number = low.cast(spark.DecimalType(DIGITS_PER_HASH, 0))
        if of.scale:
            number = number * f.lit(Decimal(1).scaleb(-of.scale))
        return number.cast(spark_type(of))

    def _part(self, name: str, path: str, low: int, high: int) -> Column:
        """A part of a date or a time; `high` is inclusive."""
        if template := self._options.templates.get(name):
            return self._pick(template, f"{path}#{name}").cast("int")
        span = f.pmod(self._hash(f"{path}#{name}"), f.lit(high - low + 1))
        return (span + f.lit(low)).cast("int")

    def _date(self, path: str, _length: int | None = None) -> Column:
        return f.make_date(
            self._part("date.year", path, self._year, self._year),
            self._part("date.month", path, 1, 12),
            self._part("date.day", path, 1, _DAY_TOP),
        )

    def _time_parts(self, path: str) -> tuple[Column, Column, Column]:
        return (
            self._part("time.hour", path, 0, 23),
            self._part("time.minute", path, 0, 59),
            self._part("time.second", path, 0, 59),
        )

    def _time(self, path: str, _length: int | None) -> Column:
        return f.concat_ws(":", *(f.lpad(p.cast("string"), 2, "0") for p in self._time_parts(path)))

    def _timestamp(self, path: str, _length: int | None) -> Column:
        hour, minute, second = self._time_parts(path)
        seconds = hour * 3600 + minute * 60 + second
        return self._date(path).cast("timestamp_ntz") + f.make_dt_interval(secs=seconds)

    def _several(self, of: ColumnType, path: str, count: int) -> list[Column]:
        return [self.make(of, f"{path}[{index}]") for index in range(count)]

    def _map(self, of: MapType, path: str) -> Column:
        """A map with at most `map.size` entries, since a key may come twice and is taken once."""
        size = self._options.map_size
        keys = f.array_distinct(f.array(*self._several(of.key, f"{path}.key", size)))
        values = f.array(*self._several(of.value, f"{path}.value", size))
        entries = f.map_from_arrays(keys, f.slice(values, f.lit(1), f.size(keys)))
        return entries.cast(spark_type(of))


def _ceil(number: int, parts: int) -> int:
    return -(-number // parts)


def _is_in_primary_key(column: ColumnSpec, schema: TableSchema) -> bool:
    return schema.primary_key is not None and column.name in schema.primary_key.columns


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
