"""Whether a column of Spark is of the type that a rule names, and what its type is called there."""

from __future__ import annotations

from typing import assert_never

from pyspark.sql import types as spark

from headrace.connectors.types import spark_type
from headrace.jobfile.types import (
    ArrayType,
    ColumnType,
    DecimalType,
    MapType,
    PlainType,
    RowType,
    VectorType,
)

_NAMES: dict[type[spark.DataType], str] = {
    spark.StringType: "string",
    spark.BooleanType: "boolean",
    spark.ByteType: "tinyint",
    spark.ShortType: "smallint",
    spark.IntegerType: "int",
    spark.LongType: "bigint",
    spark.FloatType: "float",
    spark.DoubleType: "double",
    spark.BinaryType: "bytes",
    spark.DateType: "date",
    spark.TimestampNTZType: "timestamp",
    spark.TimestampType: "timestamp_tz",
    spark.NullType: "null",
}


def called(of: spark.DataType) -> str:
    """SeaTunnel's name of a type; Spark's own where SeaTunnel has none."""
    match of:
        case spark.DecimalType():
            return f"decimal({of.precision}, {of.scale})"
        case spark.ArrayType():
            return f"array<{called(of.elementType)}>"
        case spark.MapType():
            return f"map<{called(of.keyType)}, {called(of.valueType)}>"
        case spark.StructType():
            inner = ", ".join(f"{field.name} = {called(field.dataType)}" for field in of.fields)
            return f"{{{inner}}}"
        case _:
            return _NAMES.get(type(of), of.simpleString())


def written(of: ColumnType) -> str:
    """The type of a rule, as it is written in a job file."""
    match of:
        case PlainType() | VectorType():
            return of.name
        case DecimalType():
            return f"decimal({of.precision}, {of.scale})"
        case ArrayType():
            return f"array<{written(of.element)}>"
        case MapType():
            return f"map<{written(of.key)}, {written(of.value)}>"
        case RowType():
            return f"{{{', '.join(f'{name} = {written(inner)}' for name, inner in of.fields)}}}"
    assert_never(of)


def fits(of: spark.DataType, wanted: ColumnType) -> bool:
    """Whether a column can hold values of this type; which ones it does is judged by value.

    As in SeaTunnel, rows are compared by position, and a decimal by its scale.
    """
    match wanted, of:
        case PlainType(name="timestamp"), spark.TimestampType():
            return True  # what Spark's functions give; the session's zone is UTC
        case DecimalType(), spark.DecimalType():
            return of.scale == wanted.scale
        case ArrayType(), spark.ArrayType():
            return fits(of.elementType, wanted.element)
        case MapType(), spark.MapType():
            return fits(of.keyType, wanted.key) and fits(of.valueType, wanted.value)
        case RowType(), spark.StructType():
            return len(of.fields) == len(wanted.fields) and all(
                fits(field.dataType, inner)
                for field, (_, inner) in zip(of.fields, wanted.fields, strict=True)
            )
        case PlainType(), _:
            return type(of) is type(spark_type(wanted))
        case _:
            return False


def mapped_back(of: spark.DataType) -> ColumnType | None:
    """SeaTunnel's type of a column, so that a value can be compared; None: it has none."""
    match of:
        case spark.DecimalType():
            return DecimalType(of.precision, of.scale)
        case spark.ArrayType():
            element = mapped_back(of.elementType)
            return ArrayType(element) if element else None
        case spark.MapType():
            key, value = mapped_back(of.keyType), mapped_back(of.valueType)
            return MapType(key, value) if key and value else None
        case spark.StructType():
            fields = [(field.name, mapped_back(field.dataType)) for field in of.fields]
            found = tuple((name, inner) for name, inner in fields if inner is not None)
            return RowType(found) if len(found) == len(fields) else None
        case _:
            name = _NAMES.get(type(of))
            return PlainType(name) if name else None
