"""Columns: maps SeaTunnel's types to Spark's, and values and frames to the columns of a table.

- `spark_type` and `spark_schema` are the one place where SeaTunnel's and Spark's types meet.
- `to_python` turns a value written in a job file into the Python value that Spark takes for a
  column type.
- `align` gives a frame the columns of the table it goes to: by name, in the table's order. A
  column that only the table has is null; one that only the frame has is refused, since dropping
  it would silently lose data.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, assert_never, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.errors import Refused
from headrace.plugins.save_modes import SchemaMode
from headrace.plugins.schema import (
    ArrayType,
    ColumnType,
    DecimalType,
    MapType,
    PlainType,
    RowType,
    TableSchema,
    VectorType,
)

_SPARK_TYPES: dict[str, spark.DataType] = {
    "string": spark.StringType(),
    "boolean": spark.BooleanType(),
    "tinyint": spark.ByteType(),
    "smallint": spark.ShortType(),
    "int": spark.IntegerType(),
    "bigint": spark.LongType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "bytes": spark.BinaryType(),
    "date": spark.DateType(),
    "time": spark.StringType(),  # HH:mm:ss; neither Spark's nor Iceberg's time suits both
    "timestamp": spark.TimestampNTZType(),  # a date and a time of day, in no zone
    "timestamp_tz": spark.TimestampType(),
    "null": spark.StringType(),  # always null; a lake table has no column without a type
}
_NOW_WORDS = frozenset({"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP"})
# Any value of each type: `_required` needs one to prove to Spark that a column is never null.
_ANY_VALUE: dict[type[spark.DataType], object] = {
    spark.StringType: "",
    spark.BinaryType: b"",
    spark.BooleanType: False,
    spark.DateType: date(1970, 1, 1),
    spark.TimestampType: datetime(1970, 1, 1),  # noqa: DTZ001 - any will do
    spark.TimestampNTZType: datetime(1970, 1, 1),  # noqa: DTZ001
}


def spark_type(of: ColumnType) -> spark.DataType:
    """Spark's type of a column. Raises `Refused` for a vector."""
    match of:
        case PlainType():
            return _SPARK_TYPES[of.name]
        case DecimalType():
            return spark.DecimalType(of.precision, of.scale)
        case ArrayType():
            return spark.ArrayType(spark_type(of.element))
        case MapType():
            return spark.MapType(spark_type(of.key), spark_type(of.value))
        case RowType():
            return spark.StructType(
                [spark.StructField(name, spark_type(inner)) for name, inner in of.fields]
            )
        case VectorType():
            raise Refused(f"columns of type {of.name} are not built yet")
    assert_never(of)


def spark_schema(schema: TableSchema) -> spark.StructType:
    """The columns of a schema block as Spark's."""
    return spark.StructType(
        [
            spark.StructField(column.name, spark_type(column.type), column.nullable)
            for column in schema.columns
        ]
    )


def to_python(value: Any, of: ColumnType, *, name: str, now_ms: int) -> Any:
    """`value` as Spark takes it for a column of this type. Raises `Refused`, which names the
    column."""
    if value is None:
        return None
    try:
        return _convert(value, of, name=name, now_ms=now_ms)
    except (ValueError, TypeError, InvalidOperation, binascii.Error) as error:
        kind = of.name if isinstance(of, PlainType | VectorType) else str(of)
        raise Refused(f"column {name!r}: {value!r} is no {kind}") from error


def align(
    frame: DataFrame, wanted: spark.StructType, *, to: str, case_sensitive: bool
) -> DataFrame:
    """The frame with the columns `wanted`. `to` names the sink and its table in error messages.

    Raises `Refused` when the table lacks a column of the frame, or the frame lacks a required one.
    """

    def key(name: str) -> str:
        return name if case_sensitive else name.lower()

    frame_names = {key(name): name for name in frame.columns}
    unknown = set(frame_names) - {key(field.name) for field in wanted.fields}
    if unknown:
        named = ", ".join(sorted(frame_names[name] for name in unknown))
        raise Refused(
            f"{to} has no column {named}; drop it in a transform, add it to the table, or set "
            f"schema_save_mode = {SchemaMode.RECREATE} to make the table anew"
        )
    columns: list[Column] = []
    for field in wanted.fields:
        name = frame_names.get(key(field.name))
        if name is None and not field.nullable:
            raise Refused(
                f"{to} needs a value for column {field.name}, and gets none; give it one in a "
                f"transform, or set schema_save_mode = {SchemaMode.RECREATE} to make the table anew"
            )
        column = f.lit(None).cast(field.dataType) if name is None else frame[f"`{name}`"]
        if name is not None and _may_overflow(frame.schema[name].dataType, field.dataType):
            column = _checked_cast(column, field, to=to)
        if name is not None and not field.nullable and frame.schema[name].nullable:
            column = _required(column, field, to=to)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def nullable(of: spark.DataType, *, but: Sequence[str] = ()) -> spark.DataType:
    """The same type with every field optional, except the top-level ones in `but`.

    Whether the rows of one run have nulls must not bind the rows of the next.
    """
    if isinstance(of, spark.StructType):
        return spark.StructType(
            [
                spark.StructField(field.name, nullable(field.dataType), field.name not in but)
                for field in of.fields
            ]
        )
    if isinstance(of, spark.ArrayType):
        return spark.ArrayType(nullable(of.elementType))
    if isinstance(of, spark.MapType):
        return spark.MapType(nullable(of.keyType), nullable(of.valueType))
    return of


def _convert(value: Any, of: ColumnType, *, name: str, now_ms: int) -> Any:
    def inner(item: Any, kind: ColumnType, key: object) -> Any:
        return to_python(item, kind, name=f"{name}.{key}", now_ms=now_ms)

    match of:
        case PlainType():
            return _PARSERS[of.name](_replace_now(value, of.name, now_ms))
        case DecimalType():
            return round(Decimal(str(value)), of.scale)
        case ArrayType():
            return [inner(item, of.element, at) for at, item in enumerate(_sequence(value))]
        case MapType():
            items = cast("Mapping[Any, Any]", _mapping(value)).items()
            return {inner(key, of.key, "key"): inner(item, of.value, key) for key, item in items}
        case RowType():
            return tuple(
                inner(item, kind, key)
                for (key, kind), item in zip(of.fields, _fields(value, of), strict=True)
            )
        case VectorType():
            raise TypeError(of.name)
    assert_never(of)


def _fields(value: Any, of: RowType) -> Sequence[Any]:
    if isinstance(value, Mapping):
        named = cast("Mapping[str, Any]", value)
        return [named.get(key) for key, _ in of.fields]
    return _sequence(value)


def _sequence(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise TypeError
    return cast("list[Any]", value)


def _mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError
    return cast("Mapping[Any, Any]", value)


def _replace_now(value: Any, kind: str, now_ms: int) -> Any:
    """The current time in place of CURRENT_DATE and its like; any other value as it is."""
    if not (isinstance(value, str) and value.upper() in _NOW_WORDS):
        return value
    now = datetime.fromtimestamp(now_ms / 1000, tz=UTC).replace(tzinfo=None)
    if kind == "date":
        return now.date().isoformat()
    return now.time().isoformat("seconds") if kind == "time" else now.isoformat(" ", "seconds")


def _boolean(value: Any) -> bool:
    if str(value).lower() not in {"true", "false"}:
        raise ValueError
    return str(value).lower() == "true"


def _integer(bits: int) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        number = int(str(value))
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise ValueError
        return number

    return convert


def _instant(value: Any) -> datetime:
    instant = datetime.fromisoformat(str(value))
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _may_overflow(actual: spark.DataType, wanted: spark.DataType) -> bool:
    """Whether Spark would accept the column, and then fail at a value without naming it."""
    both = (actual, wanted)
    whole = all(isinstance(of, spark.IntegralType) for of in both)
    return actual != wanted and (whole or all(isinstance(of, spark.DecimalType) for of in both))


def _checked_cast(column: Column, field: spark.StructField, *, to: str) -> Column:
    """The column cast to the field's type; a value that does not fit fails, and is named."""
    message = f.concat(
        f.lit(f"{to}: column {field.name!r}: "),
        column.cast("string"),
        f.lit(f" does not fit into {field.dataType.simpleString()}"),
    )
    failure = f.when(column.isNotNull(), f.raise_error(message).cast(field.dataType))
    return f.coalesce(column.try_cast(field.dataType), failure)


def _required(column: Column, field: spark.StructField, *, to: str) -> Column:
    """The column, failing at a null: Spark refuses a nullable column for a required one."""
    message = f"{to}: column {field.name!r} must not be null, and a row has no value for it"
    failure = f.raise_error(f.lit(message)).cast(field.dataType)
    any_value = f.lit(_ANY_VALUE.get(type(field.dataType), 0)).cast(field.dataType)
    return f.coalesce(column, f.coalesce(failure, any_value))


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "boolean": _boolean,
    "tinyint": _integer(8),
    "smallint": _integer(16),
    "int": _integer(32),
    "bigint": _integer(64),
    "float": float,
    "double": float,
    "bytes": lambda value: base64.b64decode(str(value), validate=True),
    "date": lambda value: date.fromisoformat(str(value)),
    "time": lambda value: time.fromisoformat(str(value)).isoformat("seconds"),
    "timestamp": lambda value: datetime.fromisoformat(str(value)).replace(tzinfo=None),
    "timestamp_tz": _instant,
    "null": lambda _value: None,
}
