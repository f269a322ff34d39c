"""Values as text and back, as SeaTunnel writes them.

In text and csv the parts of a field are separated by \u0002, the parts of those by \u0003, and so
on. In excel and xml arrays and maps are JSON; a row is JSON in xml, and in excel its fields, parted
by a separator. Null is empty text, or the text that was named for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as spark

SEPARATORS = "\u0001\u0002\u0003\u0004\u0005\u0006\u0007\u0008"
VALUE_CHARACTERS_SHOWN = 100
DEPTH_MAX = len(SEPARATORS) - 2  # levels of arrays, maps and rows nested in each other
_NESTED = (spark.ArrayType, spark.MapType, spark.StructType)


@dataclass(frozen=True, slots=True)
class TextForm:
    """How values are written. A format of times is None for any that Spark knows: with and without
    a T, say."""

    date: str | None = None
    datetime: str | None = None
    null: str | None = None  # the text of null; None: the empty one
    json_parts: bool = False  # arrays and maps are JSON
    row_separator: str | None = None  # with `json_parts`: of a row's fields; None: a row is JSON
    native_times: bool = False  # a time may also stand there as ISO 8601, whatever the formats


def value_of(
    column: Column, name: str, data_type: spark.DataType, form: TextForm, place: Column
) -> Column:
    """The value of a whole field; an invalid text fails, naming `place`, column and text."""
    text = _without_null(column, form)
    filled = f.when(f.trim(text) != "", text)
    parsed = _try_parse(filled, data_type, form)
    if parsed is None:
        return from_text(column, data_type, form)
    return _or_failure(parsed, filled, name, data_type, place)


def cast_value(
    column: Column, name: str, source_type: spark.DataType, data_type: spark.DataType
) -> Column:
    """A value of a file that knows its types, cast to another type; fails as `value_of` does.

    Only to be used where rows are read: after a shuffle Spark no longer knows a row's file.
    """
    nested = isinstance(source_type, _NESTED) or isinstance(data_type, _NESTED)
    if source_type == data_type or nested:
        return column.cast(data_type)
    text = column.cast("string")
    return _or_failure(column.try_cast(data_type), text, name, data_type, f.input_file_name())


def _without_null(column: Column, form: TextForm) -> Column:
    return column if form.null is None else f.when(column != form.null, column)


def _or_failure(
    parsed: Column, text: Column, name: str, data_type: spark.DataType, place: Column
) -> Column:
    """`parsed`; a null that has a text fails the job, naming place, column and text."""
    message = f.concat(
        place,
        f.lit(f": column '{name}': '"),
        f.substring(text, 1, VALUE_CHARACTERS_SHOWN),
        f.lit(f"' is no {data_type.simpleString()}"),
    )
    return f.coalesce(parsed, f.when(text.isNotNull(), f.raise_error(message).cast(data_type)))


def _try_parse(text: Column, data_type: spark.DataType, form: TextForm) -> Column | None:
    """Null where the text is invalid; None for types that can't be checked in this way."""
    parsed: Column | None = None
    match data_type:
        case spark.ArrayType() | spark.MapType() if form.json_parts:
            return _from_json(text, data_type)
        case spark.StructType() if form.json_parts and form.row_separator is None:
            return _from_json(text, data_type)
        case spark.ArrayType() | spark.MapType() | spark.StructType() | spark.StringType():
            return None
        case spark.DateType() if form.date:
            parsed = f.try_to_date(text, form.date)
        case spark.TimestampType() | spark.TimestampNTZType() if form.datetime:
            parsed = f.try_to_timestamp(text, f.lit(form.datetime)).cast(data_type)
        case _:
            return text.try_cast(data_type)
    return f.coalesce(parsed, text.try_cast(data_type)) if form.native_times else parsed


def from_text(column: Column, data_type: spark.DataType, form: TextForm, level: int = 0) -> Column:
    """The value that a text stands for. Spark fails the job when the text is invalid."""
    text = _without_null(column, form)
    filled = f.when(f.trim(text) != "", text)
    if form.json_parts and isinstance(data_type, _NESTED):
        return _from_parts(filled, data_type, form, level)
    outer, inner = SEPARATORS[level + 1], SEPARATORS[level + 2]

    def value(text: Column, kind: spark.DataType, deeper: int) -> Column:
        return from_text(text, kind, form, level + deeper)

    match data_type:
        case spark.ArrayType():
            element = data_type.elementType
            return f.transform(_split(filled, outer), lambda item: value(item, element, 1))
        case spark.MapType():
            key, item = data_type.keyType, data_type.valueType
            pairs = f.transform(_split(filled, outer), lambda pair: _split(pair, inner))
            return f.map_from_entries(
                f.transform(
                    pairs,
                    lambda pair: f.struct(
                        value(f.get(pair, f.lit(0)), key, 2), value(f.get(pair, f.lit(1)), item, 2)
                    ),
                )
            )
        case spark.StructType():
            return _row_of(filled, data_type, lambda part, kind: value(part, kind, 1), outer)
        case spark.StringType():
            return text if form.null is not None else f.when(text != "", text)
        case _:
            return _parse_plain(filled, data_type, form)


def _from_parts(filled: Column, data_type: spark.DataType, form: TextForm, level: int) -> Column:
    """A nested value of excel or xml. A row inside of a row is JSON."""
    if not isinstance(data_type, spark.StructType) or form.row_separator is None or level > 0:
        return _from_json(filled, data_type)
    separator = re.escape(form.row_separator)
    return _row_of(filled, data_type, lambda part, kind: from_text(part, kind, form, 1), separator)


def _row_of(
    filled: Column,
    row: spark.StructType,
    value: Callable[[Column, spark.DataType], Column],
    separator: str,
) -> Column:
    parts = _split(filled, separator)
    fields = [
        value(f.get(parts, f.lit(number)), field.dataType).alias(field.name)
        for number, field in enumerate(row.fields)
    ]
    return f.when(filled.isNotNull(), f.struct(*fields))


def _parse_plain(text: Column, data_type: spark.DataType, form: TextForm) -> Column:
    match data_type:
        case spark.DateType() if form.date:
            return f.to_date(text, form.date)
        case spark.TimestampNTZType() if form.datetime:
            return f.to_timestamp_ntz(text, f.lit(form.datetime))
        case spark.TimestampType() if form.datetime:
            return f.to_timestamp(text, form.datetime)
        case _:
            return text.cast(data_type)


def to_text(column: Column, data_type: spark.DataType, level: int = 0) -> Column:
    """The text of a value, by SeaTunnel's separators; null stays null."""
    outer, inner = SEPARATORS[level + 1], SEPARATORS[level + 2]

    def text(value: Column, kind: spark.DataType, deeper: int) -> Column:
        return f.coalesce(to_text(value, kind, level + deeper), f.lit(""))

    match data_type:
        case spark.ArrayType():
            element = data_type.elementType
            return f.array_join(f.transform(column, lambda item: text(item, element, 1)), outer)
        case spark.MapType():
            key, value = data_type.keyType, data_type.valueType
            entries = f.transform(
                f.map_entries(column),
                lambda entry: f.concat(
                    text(entry["key"], key, 2), f.lit(inner), text(entry["value"], value, 2)
                ),
            )
            return f.array_join(entries, outer)
        case spark.StructType():
            parts = [text(column[field.name], field.dataType, 1) for field in data_type.fields]
            return f.when(column.isNotNull(), f.concat_ws(outer, *parts))
        case _:  # dates and times as Spark writes them: 2026-11-16 01:02:03, and .5 if there is any
            return column.cast("string")


def to_parts(
    column: Column, data_type: spark.DataType, row_separator: str | None, *, level: int = 0
) -> Column:
    """The text of a value as excel and xml have it; null stays null."""
    match data_type:
        case spark.StructType() if row_separator is not None and level == 0:
            parts = [
                f.coalesce(
                    to_parts(column[field.name], field.dataType, row_separator, level=1), f.lit("")
                )
                for field in data_type.fields
            ]
            return f.when(column.isNotNull(), f.concat_ws(row_separator, *parts))
        case spark.ArrayType() | spark.MapType() | spark.StructType():
            return f.to_json(column)
        case _:
            return column.cast("string")


def join(columns: Sequence[Column], delimiter: str) -> Column:
    return f.concat_ws(delimiter, *(f.coalesce(column, f.lit("")) for column in columns))


def too_deep(data_type: spark.DataType, depth: int = 0) -> bool:
    """Whether text and csv have no separator left for a type that is nested so deep."""
    if depth > DEPTH_MAX:
        return True
    match data_type:
        case spark.ArrayType():
            return too_deep(data_type.elementType, depth + 1)
        case spark.MapType():
            return any(
                too_deep(inner, depth + 2) for inner in (data_type.keyType, data_type.valueType)
            )
        case spark.StructType():
            return any(too_deep(field.dataType, depth + 1) for field in data_type.fields)
        case _:
            return False


def _from_json(text: Column, data_type: spark.DataType) -> Column:
    """Null where the text is no JSON. Spark fails the job when it is JSON of another type.

    The values are taken as texts at first, since those inside of xml are: Spark's parser makes a
    null of a number in quotes.
    """
    texts: Any = _of_texts(data_type)
    parsed = f.from_json(text, texts, {"mode": "FAILFAST"}).cast(data_type)
    return f.when(f.try_parse_json(text).isNotNull(), parsed)


def _of_texts(data_type: spark.DataType) -> spark.DataType:
    """The type with texts for the values inside, but for bytes, which JSON has as base64, and for
    decimals, which Spark takes from quotes, and as texts would round to doubles."""
    match data_type:
        case spark.ArrayType():
            return spark.ArrayType(_of_texts(data_type.elementType))
        case spark.MapType():
            return spark.MapType(spark.StringType(), _of_texts(data_type.valueType))
        case spark.StructType():
            inner = [(one.name, _of_texts(one.dataType)) for one in data_type.fields]
            return spark.StructType([spark.StructField(name, of) for name, of in inner])
        case spark.BinaryType() | spark.DecimalType():
            return data_type
        case _:
            return spark.StringType()


def _split(column: Column, separator: str) -> Column:
    return f.split(column, separator, -1)
