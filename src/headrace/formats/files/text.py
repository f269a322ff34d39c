"""Rows as text and back, as SeaTunnel's text format has them.

Fields are parted by the delimiter, what is inside of a field by \\u0002, inside of that by \\u0003,
and so on; null is empty text. CSV files hold nested values in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as spark

SEPARATORS = "\u0001\u0002\u0003\u0004\u0005\u0006\u0007\u0008"
VALUE_CHARACTERS_SHOWN = 100
DEPTH_MAX = len(SEPARATORS) - 2  # of arrays, maps and rows in each other


@dataclass(frozen=True, slots=True)
class TimeFormats:
    """Of what is parsed. None: whatever Spark understands, e.g. with and without a T."""

    date: str | None = None
    datetime: str | None = None


def too_deep(of: spark.DataType, depth: int = 0) -> bool:
    if depth > DEPTH_MAX:
        return True
    match of:
        case spark.ArrayType():
            return too_deep(of.elementType, depth + 1)
        case spark.MapType():
            return any(too_deep(inner, depth + 2) for inner in (of.keyType, of.valueType))
        case spark.StructType():
            return any(too_deep(field.dataType, depth + 1) for field in of.fields)
        case _:
            return False


def to_text(column: Column, of: spark.DataType, level: int = 0) -> Column:
    """The text of a value; null stays null."""
    outer, inner = SEPARATORS[level + 1], SEPARATORS[level + 2]

    def text(value: Column, kind: spark.DataType, deeper: int) -> Column:
        return f.coalesce(to_text(value, kind, level + deeper), f.lit(""))

    match of:
        case spark.ArrayType():
            element = of.elementType
            return f.array_join(f.transform(column, lambda item: text(item, element, 1)), outer)
        case spark.MapType():
            key, value = of.keyType, of.valueType
            entries = f.transform(
                f.map_entries(column),
                lambda entry: f.concat(
                    text(entry["key"], key, 2), f.lit(inner), text(entry["value"], value, 2)
                ),
            )
            return f.array_join(entries, outer)
        case spark.StructType():
            parts = [text(column[field.name], field.dataType, 1) for field in of.fields]
            return f.when(column.isNotNull(), f.concat_ws(outer, *parts))
        case _:  # dates and times as Spark writes them: 2026-11-16 01:02:03, and .5 if there is any
            return column.cast("string")


def value_of(column: Column, name: str, of: spark.DataType, formats: TimeFormats) -> Column:
    """As `from_text`, of a whole field: where it stands for no value, file and column are named.

    Only where rows are read: which file a row is of is not known behind a shuffle.
    """
    tried = _tried(f.when(f.trim(column) != "", column), of, formats)
    if tried is None:
        return from_text(column, of, formats)
    return _or_failure(tried, f.when(f.trim(column) != "", column), name, of)


def cast_value(column: Column, name: str, given: spark.DataType, of: spark.DataType) -> Column:
    """A value of a file that knows its types, as another type; see `value_of`."""
    nested = spark.ArrayType, spark.MapType, spark.StructType
    if given == of or isinstance(given, nested) or isinstance(of, nested):
        return column.cast(of)
    return _or_failure(column.try_cast(of), column.cast("string"), name, of)


def _or_failure(tried: Column, text: Column, name: str, of: spark.DataType) -> Column:
    """`tried`, unless it is null while there is a text."""
    said = f.concat(
        f.input_file_name(),
        f.lit(f": column '{name}': '"),
        f.substring(text, 1, VALUE_CHARACTERS_SHOWN),
        f.lit(f"' is no {of.simpleString()}"),
    )
    return f.coalesce(tried, f.when(text.isNotNull(), f.raise_error(said).cast(of)))


def _tried(given: Column, of: spark.DataType, formats: TimeFormats) -> Column | None:
    """Null where it stands for no value; None: of such a type nobody says so."""
    match of:
        case spark.ArrayType() | spark.MapType() | spark.StructType() | spark.StringType():
            return None
        case spark.DateType() if formats.date:
            return f.try_to_date(given, formats.date)
        case spark.TimestampType() | spark.TimestampNTZType() if formats.datetime:
            return f.try_to_timestamp(given, f.lit(formats.datetime)).cast(of)
        case _:
            return given.try_cast(of)


def from_text(column: Column, of: spark.DataType, formats: TimeFormats, level: int = 0) -> Column:
    """The value that a text stands for. Spark fails the job where it stands for none."""
    outer, inner = SEPARATORS[level + 1], SEPARATORS[level + 2]
    given = f.when(f.trim(column) != "", column)

    def value(text: Column, kind: spark.DataType, deeper: int) -> Column:
        return from_text(text, kind, formats, level + deeper)

    match of:
        case spark.ArrayType():
            element = of.elementType
            return f.transform(_split(given, outer), lambda item: value(item, element, 1))
        case spark.MapType():
            key, item = of.keyType, of.valueType
            pairs = f.transform(_split(given, outer), lambda pair: _split(pair, inner))
            return f.map_from_entries(
                f.transform(
                    pairs,
                    lambda pair: f.struct(
                        value(f.get(pair, f.lit(0)), key, 2), value(f.get(pair, f.lit(1)), item, 2)
                    ),
                )
            )
        case spark.StructType():
            parts = _split(given, outer)
            fields = [
                value(f.get(parts, f.lit(number)), field.dataType, 1).alias(field.name)
                for number, field in enumerate(of.fields)
            ]
            return f.when(given.isNotNull(), f.struct(*fields))
        case spark.StringType():
            return f.when(column != "", column)
        case _:
            return _plain(given, of, formats)


def _plain(given: Column, of: spark.DataType, formats: TimeFormats) -> Column:
    match of:
        case spark.DateType() if formats.date:
            return f.to_date(given, formats.date)
        case spark.TimestampNTZType() if formats.datetime:
            return f.to_timestamp_ntz(given, f.lit(formats.datetime))
        case spark.TimestampType() if formats.datetime:
            return f.to_timestamp(given, formats.datetime)
        case _:
            return given.cast(of)


def _split(column: Column, separator: str) -> Column:
    return f.split(column, separator, -1)


def join(columns: Sequence[Column], delimiter: str) -> Column:
    return f.concat_ws(delimiter, *(f.coalesce(column, f.lit("")) for column in columns))
