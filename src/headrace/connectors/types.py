"""SeaTunnel's column types as Spark's: the one place where the two meet."""

from __future__ import annotations

from typing import assert_never

from pyspark.sql import types as spark

from headrace.errors import Refused
from headrace.jobfile.schema import TableSchema
from headrace.jobfile.types import (
    ArrayType,
    ColumnType,
    DecimalType,
    MapType,
    PlainType,
    RowType,
    VectorType,
)

_PLAIN: dict[str, spark.DataType] = {
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


def spark_type(of: ColumnType) -> spark.DataType:
    match of:
        case PlainType():
            return _PLAIN[of.name]
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
    return spark.StructType(
        [
            spark.StructField(column.name, spark_type(column.type), column.nullable)
            for column in schema.columns
        ]
    )
