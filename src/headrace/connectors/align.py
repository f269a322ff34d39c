"""Give a frame the columns of the table it goes to: by name, in the table's order.

A column that the table has and the frame lacks is null; one that the frame has and the table
lacks is refused, since dropping it would lose data without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.errors import Refused
from headrace.jobfile.saving import SchemaMode

# Any value of each kind: only the proof that a column can't be null needs one, see _never_null.
_SOME: dict[type[spark.DataType], object] = {
    spark.StringType: "",
    spark.BinaryType: b"",
    spark.BooleanType: False,
    spark.DateType: date(1970, 1, 1),
    spark.TimestampType: datetime(1970, 1, 1),  # noqa: DTZ001 - any will do
    spark.TimestampNTZType: datetime(1970, 1, 1),  # noqa: DTZ001
}


def align(
    frame: DataFrame, wanted: spark.StructType, *, to: str, case_sensitive: bool
) -> DataFrame:
    """`to` names the sink and its table, for people."""

    def key(name: str) -> str:
        return name if case_sensitive else name.lower()

    given = {key(name): name for name in frame.columns}
    unknown = set(given) - {key(field.name) for field in wanted.fields}
    if unknown:
        named = ", ".join(sorted(given[name] for name in unknown))
        raise Refused(
            f"{to} has no column {named}; drop it in a transform, add it to the table, or set "
            f"schema_save_mode = {SchemaMode.RECREATE} to make the table anew"
        )
    columns: list[Column] = []
    for field in wanted.fields:
        name = given.get(key(field.name))
        if name is None and not field.nullable:
            raise Refused(
                f"{to} needs a value for column {field.name}, and gets none; give it one in a "
                f"transform, or set schema_save_mode = {SchemaMode.RECREATE} to make the table anew"
            )
        column = f.lit(None).cast(field.dataType) if name is None else frame[f"`{name}`"]
        if name is not None and _may_overflow(frame.schema[name].dataType, field.dataType):
            column = _fitting(column, field, to=to)
        if name is not None and not field.nullable and frame.schema[name].nullable:
            column = _never_null(column, field, to=to)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def _may_overflow(given: spark.DataType, wanted: spark.DataType) -> bool:
    """Whether Spark would take the column, and fail at a value without telling which."""
    both = (given, wanted)
    whole = all(isinstance(of, spark.IntegralType) for of in both)
    return given != wanted and (whole or all(isinstance(of, spark.DecimalType) for of in both))


def _fitting(column: Column, field: spark.StructField, *, to: str) -> Column:
    said = f.concat(
        f.lit(f"{to}: column {field.name!r}: "),
        column.cast("string"),
        f.lit(f" does not fit into {field.dataType.simpleString()}"),
    )
    failure = f.when(column.isNotNull(), f.raise_error(said).cast(field.dataType))
    return f.coalesce(column.try_cast(field.dataType), failure)


def _never_null(column: Column, field: spark.StructField, *, to: str) -> Column:
    """The column, with a failure in place of a null: Spark takes no maybe for a required column."""
    said = f"{to}: column {field.name!r} must not be null, and a row has no value for it"
    failure = f.raise_error(f.lit(said)).cast(field.dataType)
    some = f.lit(_SOME.get(type(field.dataType), 0)).cast(field.dataType)
    return f.coalesce(column, f.coalesce(failure, some))


def nullable(of: spark.DataType, *, but: Sequence[str] = ()) -> spark.DataType:
    """The same type with every field optional: one run's rows don't bind the next one's."""
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
