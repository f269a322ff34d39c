"""Made-up columns: each value is a hash of (seed, row, column), so it never depends on how Spark
cuts the rows into partitions, nor on which epoch or attempt reads them (E5).

`rand` and its like would: they are seeded by partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, assert_never, cast

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.types import spark_type
from headrace.errors import Refused
from headrace.jobfile.types import (
    ArrayType,
    ColumnType,
    DecimalType,
    MapType,
    PlainType,
    RowType,
    VectorType,
)

DIGITS_PER_HASH = 18  # decimal digits that one 64-bit hash surely gives
HEX_PER_HASH = 15  # of 16: the first one is never 0 to 7, see _hex
_SIGN_BIT = -(1 << 63)
_FRACTION_STEPS = 1 << 53
_INTEGER_TOP = {"tinyint": 127, "smallint": 32767, "int": 2**31 - 1, "bigint": 2**63 - 1}
_FRACTION_TOP = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}
_DAY_TOP = 28  # exists in every month


class Maker:
    """Makes one column after another; `options` are FakeSource's, by dotted name."""

    def __init__(self, row: Column, options: Mapping[str, Any], *, year: int) -> None:
        self._row, self._options, self._year = row, options, year

    def make(self, of: ColumnType, path: str, *, length: int | None = None) -> Column:
        """A column of this type; `path` tells it from all other columns."""
        match of:
            case PlainType():
                return self._plain(of.name, path, length).cast(spark_type(of))
            case DecimalType():
                return self._decimal(path, of)
            case ArrayType():
                items = self._several(of.element, path, "array.size")
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

    def _option(self, name: str, default: Any) -> Any:
        value = self._options.get(name)
        return default if value is None else value

    def _plain(self, kind: str, path: str, length: int | None) -> Column:
        template = self._template(f"{kind}.template")
        if template:
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

    def _template(self, name: str) -> Sequence[Any]:
        return cast("Sequence[Any]", self._options.get(name) or ())

    def _pick(self, values: Sequence[Any], path: str) -> Column:
        if len(values) == 1:
            return f.lit(values[0])
        index = f.pmod(self._hash(path), f.lit(len(values))).cast("int")
        return f.get(f.array(*(f.lit(value) for value in values)), index)

    def _range(self, kind: str, top: float) -> tuple[Any, Any]:
        low, high = self._option(f"{kind}.min", 0), self._option(f"{kind}.max", top)
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
        """`length` letters and digits. With the sign bit set a hash has all of its 16 digits."""
        parts = [
            f.substring(f.hex(self._hash(f"{path}#{start}").bitwiseOR(f.lit(_SIGN_BIT))), 2, size)
            for start in range(0, length, HEX_PER_HASH)
            if (size := min(HEX_PER_HASH, length - start))
        ]
        return f.concat(*parts) if len(parts) > 1 else parts[0] if parts else f.lit("")

    def _string(self, path: str, length: int | None) -> Column:
        return self._hex(path, length or self._option("string.length", 5))

    def _bytes(self, path: str, length: int | None) -> Column:
        return self._hex(path, length or self._option("bytes.length", 5)).cast("binary")

    def _boolean(self, path: str, _length: int | None) -> Column:
        return f.pmod(self._hash(path), f.lit(2)) == 0

    def _null(self, _path: str, _length: int | None) -> Column:
        return f.lit(None)

    def _decimal(self, path: str, of: DecimalType) -> Column:
        """Full precision: as many random digits as the type has."""
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
        """A part of a date or a time, `high` included."""
        template = self._template(f"{name}.template")
        if template:
            return self._pick(template, f"{path}#{name}").cast("int")
        span = f.pmod(self._hash(f"{path}#{name}"), f.lit(high - low + 1))
        return (span + f.lit(low)).cast("int")

    def _date(self, path: str, _length: int | None = None) -> Column:
        return f.make_date(
            self._part("date.year", path, self._year, self._year),
            self._part("date.month", path, 1, 12),
            self._part("date.day", path, 1, _DAY_TOP),
        )

    def _clock(self, path: str) -> tuple[Column, Column, Column]:
        return (
            self._part("time.hour", path, 0, 23),
            self._part("time.minute", path, 0, 59),
            self._part("time.second", path, 0, 59),
        )

    def _time(self, path: str, _length: int | None) -> Column:
        return f.concat_ws(":", *(f.lpad(p.cast("string"), 2, "0") for p in self._clock(path)))

    def _timestamp(self, path: str, _length: int | None) -> Column:
        hour, minute, second = self._clock(path)
        seconds = hour * 3600 + minute * 60 + second
        return self._date(path).cast("timestamp_ntz") + f.make_dt_interval(secs=seconds)

    def _several(self, of: ColumnType, path: str, option: str) -> list[Column]:
        count: int = self._option(option, 5)
        return [self.make(of, f"{path}[{index}]") for index in range(count)]

    def _map(self, of: MapType, path: str) -> Column:
        """At most `map.size` entries: a key that comes twice is taken once."""
        keys = f.array_distinct(f.array(*self._several(of.key, f"{path}.key", "map.size")))
        values = f.array(*self._several(of.value, f"{path}.value", "map.size"))
        made = f.map_from_arrays(keys, f.slice(values, f.lit(1), f.size(keys)))
        return made.cast(spark_type(of))
