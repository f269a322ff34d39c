"""JsonPath: each column is looked up in a variant, Spark's type of parsed JSON.

A variant tells a null in the JSON, which is a value, from a path that leads nowhere, which is an
error. What is wrong with a row is one condition for each column; it decides whether the row fails
the job, is left out, or has a null there.
"""

from __future__ import annotations

from typing import assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.errors import Refused
from headrace.plugins.schema import (
    ArrayType,
    ColumnType,
    DecimalType,
    MapType,
    PlainType,
    RowType,
    VectorType,
)
from headrace.transforms.frames import (
    FrameTransform,
    check_fields_exist,
    field,
    type_of,
    with_fields,
)
from headrace.transforms.json_path.descriptor import JsonColumn, JsonPathOptions

_WITH_NULLS = {"ignoreNullFields": "false"}
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})
_DDL = {  # Spark's names of SeaTunnel's types, where they differ
    "bytes": "string",  # base64 in JSON
    "time": "string",
    "timestamp": "timestamp_ntz",
    "timestamp_tz": "timestamp",
    "null": "string",
}


class JsonPathTransform(FrameTransform):
    """Adds the columns; one that exists is replaced in its place."""

    def __init__(self, name: str, options: JsonPathOptions, setting: object) -> None:  # noqa: ARG002
        self.name, self._columns, self._skips = name, options.columns, options.skips
        self.has_conditions = any(map(self._skips_rows, self._columns))

    def changed(self, frame: DataFrame) -> DataFrame:
        check_fields_exist(self.name, (column.source for column in self._columns), frame)
        made: dict[str, Column] = {}
        wrong: list[Column] = []
        for column in self._columns:
            value, failed = self._looked_up(column, frame)
            made[column.output] = self._or_error(column, value, failed)
            if self._skips_rows(column):
                wrong.append(failed)
        for failed in wrong:
            frame = frame.filter(~failed)
        return with_fields(frame, made)

    def _skips_rows(self, column: JsonColumn) -> bool:
        return column.way == "SKIP_ROW" or (column.way is None and self._skips)

    def _or_error(self, column: JsonColumn, value: Column, failed: Column) -> Column:
        if column.way == "SKIP" or self._skips_rows(column):
            return value  # null where it failed; such rows are gone with SKIP_ROW
        message = (
            f"transform {self.name}: field {column.source!r} has nothing at path "
            f"{column.path.text!r} that becomes {column.output!r}, a {_ddl(column.type)}; set "
            "column_error_handle_way = SKIP or SKIP_ROW to go on without it"
        )
        return f.when(failed, f.raise_error(f.lit(message))).otherwise(value)

    def _looked_up(self, column: JsonColumn, frame: DataFrame) -> tuple[Column, Column]:
        """The value, null where there is none; and whether there should have been one."""
        text = self._json_text(column.source, frame)
        parsed = f.try_parse_json(text)
        found = f.try_variant_get(parsed, column.path.before, "variant")
        if column.path.after is not None:
            items = f.try_variant_get(parsed, column.path.before, "array<variant>")
            after = column.path.after
            inner = f.transform(items, lambda item: f.try_variant_get(item, after, "variant"))
            # Items without such a part are passed over, as in SeaTunnel.
            found = f.try_parse_json(f.to_json(f.filter(inner, lambda item: item.isNotNull())))
        value = f.try_variant_get(found, "$", _ddl(column.type))
        if isinstance(column.type, DecimalType) or _ddl(column.type) in _NUMBERS:
            # Spark reads true as 1.
            value = f.when(f.schema_of_variant(found) != "BOOLEAN", value)
        if column.type == PlainType("bytes"):
            value = f.try_to_binary(value, f.lit("base64"))
        is_null = f.coalesce(f.is_variant_null(found), f.lit(False))  # noqa: FBT003
        return value, text.isNotNull() & value.isNull() & ~is_null

    def _json_text(self, source: str, frame: DataFrame) -> Column:
        column, kind = field(source), type_of(source, frame)
        match kind:
            case spark.StringType():
                return column
            case spark.BinaryType():
                return f.decode(column, "UTF-8")
            case spark.ArrayType() | spark.MapType():
                return f.to_json(column, _WITH_NULLS)
            case spark.StructType():
                return f.when(column.isNotNull(), _as_array(column, kind))
            case _:
                raise Refused(
                    f"transform {self.name}: field {source!r} is {kind.simpleString()}; a path "
                    "needs a text, bytes, an array, a map or a row"
                )


def _as_array(column: Column, kind: spark.StructType) -> Column:
    """A row as the JSON array of its values, which is how SeaTunnel's paths see it."""
    # {"v":…} of each value, without what is around the value.
    wrapped = [
        f.to_json(f.struct(column.getField(name).alias("v")), _WITH_NULLS) for name in kind.names
    ]
    values = [f.substr(text, f.lit(6), f.length(text) - 6) for text in wrapped]
    return f.concat(f.lit("["), f.concat_ws(",", *values), f.lit("]"))


def _ddl(of: ColumnType) -> str:
    """Spark's type that a variant is read as, as SQL writes it."""
    match of:
        case PlainType():
            return _DDL.get(of.name, of.name)
        case DecimalType():
            return f"decimal({of.precision},{of.scale})"
        case ArrayType():
            return f"array<{_ddl(of.element)}>"
        case MapType():
            return f"map<{_ddl(of.key)},{_ddl(of.value)}>"
        case RowType():
            fields = (f"`{name.replace('`', '``')}`:{_ddl(inner)}" for name, inner in of.fields)
            return f"struct<{','.join(fields)}>"
        case VectorType():
            raise Refused(f"type {of.name} is not built yet")
        case _:
            assert_never(of)
