"""Values that rules name, as Spark's: so that equality is Spark's own, in every row at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any, cast

from pydantic import JsonValue
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.types import spark_type
from headrace.connectors.values import to_python
from headrace.jobfile.types import ArrayType, ColumnType, MapType, PlainType, RowType

TIME = r"^\d\d:\d\d:\d\d(\.\d+)?$"  # how a time of day is held; see connectors/types.py


def equal(column: Column, value: JsonValue, of: ColumnType, *, name: str, now_ms: int) -> Column:
    """Whether a column equals a value of a job file; null equals nothing but null."""
    if of == PlainType("time"):
        return _time_text(column).eqNullSafe(f.lit(_time(value, name=name, now_ms=now_ms)))
    wanted = to_python(value, of, name=name, now_ms=now_ms)
    kind = spark_type(of)
    # A row is cast by position, a timestamp into the zone of the session.
    return _sorted(column.cast(kind), kind).eqNullSafe(_sorted(_literal(wanted, of), kind))


def _time_text(column: Column) -> Column:
    """Without zeros at the end of a fraction: 12:30:00.500 is 12:30:00.5."""
    text = f.regexp_replace(column.cast("string"), r"(\.\d*?)0+$", "$1")
    return f.regexp_replace(text, r"\.$", "")


def _time(value: JsonValue, *, name: str, now_ms: int) -> str:
    to_python(value, PlainType("time"), name=name, now_ms=now_ms)  # refuses what is none
    text = time.fromisoformat(str(value)).isoformat()
    return text.rstrip("0") if "." in text else text


def _literal(value: Any, of: ColumnType) -> Column:
    if value is None:
        return f.lit(None).cast(spark_type(of))
    match of:
        case ArrayType():
            made = f.array(*(_literal(item, of.element) for item in value))
        case MapType():
            items = cast("Mapping[Any, Any]", value).items()
            pairs = ((_literal(key, of.key), _literal(item, of.value)) for key, item in items)
            made = f.create_map(*(column for pair in pairs for column in pair))
        case RowType():
            fields = zip(of.fields, value, strict=True)
            made = f.struct(*(_literal(item, inner).alias(name) for (name, inner), item in fields))
        case _:
            made = f.lit(_plain(value))
    return made.cast(spark_type(of))


def _plain(value: Any) -> Any:
    """A date or a number of many digits as text, for Spark to read: Python's zone plays no part."""
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, date) else value


def _sorted(column: Column, of: spark.DataType) -> Column:
    """The same with each map as its sorted entries: Spark compares no maps."""
    if not _holds_map(of):
        return column
    match of:
        case spark.MapType():
            entries = f.transform(
                f.map_entries(column),
                lambda entry: f.struct(
                    _sorted(entry["key"], of.keyType).alias("key"),
                    _sorted(entry["value"], of.valueType).alias("value"),
                ),
            )
            return f.array_sort(entries)
        case spark.ArrayType():
            return f.transform(column, lambda item: _sorted(item, of.elementType))
        case spark.StructType():
            fields = (_sorted(column[field.name], field.dataType) for field in of.fields)
            return f.when(column.isNotNull(), f.struct(*fields))
        case _:
            return column


def _holds_map(of: spark.DataType) -> bool:
    match of:
        case spark.MapType():
            return True
        case spark.ArrayType():
            return _holds_map(of.elementType)
        case spark.StructType():
            return any(_holds_map(field.dataType) for field in of.fields)
        case _:
            return False
