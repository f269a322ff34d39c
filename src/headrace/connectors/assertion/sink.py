"""Assert: a sink that keeps no rows, and fails the job when they break a rule.

Field rules become conditions over columns, which Spark judges for all rows in one pass. A value
that a rule names becomes a literal of Spark, so that equality is Spark's own. Whether a column is
of the type that a rule names is judged by Spark's type first, and by its values where that leaves
it open.

Fields are judged when an epoch is staged, so that a broken rule stops it before any sink commits
it; how many rows came is judged at the completed point. Nothing is written, so there is no token
to spend, and judging an epoch twice is harmless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import Any, assert_never, cast

from pydantic import BaseModel, JsonValue
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.assertion.descriptor import AssertOptions, AssertRule, FieldRule
from headrace.connectors.columns import spark_type, to_python
from headrace.connectors.connector import Committed, Setting, Staged
from headrace.connectors.targetless import Targetless
from headrace.errors import Refused
from headrace.model.jobs.epoch import EpochAt
from headrace.plugins.row_kinds import is_reserved
from headrace.plugins.schema import (
    ArrayType,
    ColumnType,
    DecimalType,
    MapType,
    PlainType,
    RowType,
    VectorType,
)

TIME_PATTERN = r"^\d\d:\d\d:\d\d(\.\d+)?$"  # a time of day is a string; see `spark_type`
EXAMPLE_CHARACTERS_MAX = 200  # of a value that breaks a rule
_NAMES: dict[type[spark.DataType], str] = {  # SeaTunnel's names of Spark's types
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


@dataclass(frozen=True, slots=True)
class Check:
    """A rule for one field as a condition over the rows of a frame."""

    field: str
    rule: str  # as messages name it
    broken: Column  # true for a row that breaks the rule
    shown: Column  # the value, as a text


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    rows: int
    broken: str | None  # the first broken rule, with an example; None: all are kept


class _AssertHandle(BaseModel):
    """What is staged: only how many rows were judged."""

    rows: int


class AssertSink(Targetless):
    def __init__(self, name: str, options: AssertOptions, setting: Setting) -> None:
        self.name, self._rules, self._clock = name, options.rules, setting.clock

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:  # noqa: ARG002
        try:
            verdict = judge(
                frame, [*build_checks(self._rules.fields, frame, now_ms=self._clock.wall_ms())]
            )
        except Refused as refused:
            raise Refused(f"sink {self.name}: {refused}") from refused
        if verdict.broken is not None:
            raise Refused(f"sink {self.name}: {verdict.broken}")
        # Too many rows stay too many; whether there are enough is known only at the end.
        self._judge_rows(verdict.rows, "MAX_ROW")
        return Staged(_AssertHandle(rows=verdict.rows).model_dump(), verdict.rows)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:  # noqa: ARG002
        return Committed(already=False, facts={"rows": _AssertHandle.model_validate(handle).rows})

    def finish(self, rows: int) -> None:
        self._judge_rows(rows, "MAX_ROW", "MIN_ROW")

    def _judge_rows(self, rows: int, *kinds: str) -> None:
        for rule in self._rules.rows:
            if rule.kind in kinds and _breaks(rows, rule):
                raise Refused(f"sink {self.name}: {rows} rows break the rule {rule}")


def _breaks(rows: int, rule: AssertRule) -> bool:
    return rows > rule.value if rule.kind == "MAX_ROW" else rows < rule.value


def build_checks(rules: Sequence[FieldRule], frame: DataFrame, *, now_ms: int) -> Iterator[Check]:
    """The rules as conditions over this frame. Raises `Refused` for a field it does not have."""
    for rule in rules:
        if frame.columns.count(rule.name) != 1:
            known = ", ".join(repr(name) for name in frame.columns if not is_reserved(name))
            raise Refused(f"there is no field {rule.name!r} to judge, or two; there are {known}")
        column = f.col("`" + rule.name.replace("`", "``") + "`")
        kind = frame.schema[rule.name].dataType
        shown = _shown(column, kind)
        for text, broken in _conditions(rule, column, kind, now_ms=now_ms):
            yield Check(rule.name, text, f.coalesce(broken, f.lit(col=False)), shown)


def judge(frame: DataFrame, checks: Sequence[Check]) -> RuleVerdict:
    """Count the rows, and those that break a rule, in one pass."""
    columns = [f.count(f.lit(1)).alias("rows")]
    for number, check in enumerate(checks):
        columns.append(f.count(f.when(check.broken, 1)).alias(f"broken_{number}"))
        example = f.first(f.when(check.broken, check.shown), ignorenulls=True)
        columns.append(example.alias(f"example_{number}"))
    totals: Any = frame.agg(*columns).collect()[0]
    for number, check in enumerate(checks):
        if times := totals[f"broken_{number}"]:
            example = totals[f"example_{number}"]
            return RuleVerdict(
                totals["rows"],
                f"field {check.field!r} breaks the rule {check.rule} in {times} of "
                f"{totals['rows']} rows; one holds {'null' if example is None else repr(example)}",
            )
    return RuleVerdict(totals["rows"], None)


def _conditions(
    rule: FieldRule, column: Column, kind: spark.DataType, *, now_ms: int
) -> Iterator[tuple[str, Column]]:
    """Each condition of a rule: its text, and a column that is true where it is broken."""
    is_fitting = rule.type is None or fits(kind, rule.type)
    if rule.type is not None:
        text = f"field_type {type_text(rule.type)}, being {spark_type_name(kind)},"
        yield text, _of_another_type(column, kind, rule.type) if is_fitting else column.isNotNull()
    for condition in rule.rules:
        if isinstance(condition, AssertRule):
            yield str(condition), _broken(condition, column, kind)
        elif is_fitting:
            of = _compared_type(rule.type, kind, rule.name)
            same = equal(column, condition.value, of, name=rule.name, now_ms=now_ms)
            # As in SeaTunnel, null is not compared.
            yield str(condition), column.isNotNull() & ~same


def _of_another_type(column: Column, kind: spark.DataType, wanted: ColumnType) -> Column:
    """Whether a value is not of the wanted type, where the type of its column leaves that open.
    Null is of every type, as in SeaTunnel."""
    match wanted:
        case PlainType(name="null"):
            return column.isNotNull()
        case PlainType(name="time"):
            return ~column.cast("string").rlike(TIME_PATTERN)
        case DecimalType() if isinstance(kind, spark.DecimalType):
            if kind.precision <= wanted.precision:
                return f.lit(col=False)
            return f.abs(column) >= f.lit(Decimal(10) ** (wanted.precision - wanted.scale))
        case _:
            return f.lit(col=False)


def _compared_type(wanted: ColumnType | None, kind: spark.DataType, name: str) -> ColumnType:
    of = wanted or column_type_of(kind)
    if of is None:
        raise Refused(
            f"field {name!r} is {spark_type_name(kind)}, which equals_to can't be compared with"
        )
    return of


def _broken(rule: AssertRule, column: Column, kind: spark.DataType) -> Column:
    limit = f.lit(rule.value)
    match rule.kind:
        case "NULL":
            return column.isNotNull()
        case "NOT_NULL":
            return column.isNull()
        case "MIN" | "MAX" if not isinstance(kind, spark.NumericType):
            return f.lit(col=True)  # as in SeaTunnel: only a number has a minimum and a maximum
        case "MIN":
            return column.isNull() | (column.cast("double") < limit)
        case "MAX":
            return column.isNull() | (column.cast("double") > limit)
        case "MIN_LENGTH":
            return _length(column, kind) < limit
        case _:
            return _length(column, kind) > limit


def _length(column: Column, kind: spark.DataType) -> Column:
    text = column if isinstance(kind, spark.BinaryType) else column.cast("string")
    return f.coalesce(f.length(text), f.lit(0))


def _shown(column: Column, kind: spark.DataType) -> Column:
    text = f.hex(column) if isinstance(kind, spark.BinaryType) else column.cast("string")
    return f.substring(text, 1, EXAMPLE_CHARACTERS_MAX)


def spark_type_name(of: spark.DataType) -> str:
    """SeaTunnel's name of Spark's type, or Spark's own where SeaTunnel has none."""
    match of:
        case spark.DecimalType():
            return f"decimal({of.precision}, {of.scale})"
        case spark.ArrayType():
            return f"array<{spark_type_name(of.elementType)}>"
        case spark.MapType():
            return f"map<{spark_type_name(of.keyType)}, {spark_type_name(of.valueType)}>"
        case spark.StructType():
            inner = ", ".join(
                f"{field.name} = {spark_type_name(field.dataType)}" for field in of.fields
            )
            return f"{{{inner}}}"
        case _:
            return _NAMES.get(type(of), of.simpleString())


def type_text(of: ColumnType) -> str:
    """A column type as it is written in a job file."""
    match of:
        case PlainType() | VectorType():
            return of.name
        case DecimalType():
            return f"decimal({of.precision}, {of.scale})"
        case ArrayType():
            return f"array<{type_text(of.element)}>"
        case MapType():
            return f"map<{type_text(of.key)}, {type_text(of.value)}>"
        case RowType():
            return f"{{{', '.join(f'{name} = {type_text(inner)}' for name, inner in of.fields)}}}"
    assert_never(of)


def fits(of: spark.DataType, wanted: ColumnType) -> bool:
    """Whether a column can hold values of this type; `_of_another_type` judges the values.

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


def column_type_of(of: spark.DataType) -> ColumnType | None:
    """SeaTunnel's type of a column, to compare a value with it; None when it has none."""
    match of:
        case spark.DecimalType():
            return DecimalType(of.precision, of.scale)
        case spark.ArrayType():
            element = column_type_of(of.elementType)
            return ArrayType(element) if element else None
        case spark.MapType():
            key, value = column_type_of(of.keyType), column_type_of(of.valueType)
            return MapType(key, value) if key and value else None
        case spark.StructType():
            fields = [(field.name, column_type_of(field.dataType)) for field in of.fields]
            known = tuple((name, inner) for name, inner in fields if inner is not None)
            return RowType(known) if len(known) == len(fields) else None
        case _:
            name = _NAMES.get(type(of))
            return PlainType(name) if name else None


def equal(column: Column, value: JsonValue, of: ColumnType, *, name: str, now_ms: int) -> Column:
    """Whether a column equals a value of a job file; null equals only null."""
    if of == PlainType("time"):
        return _time_text(column).eqNullSafe(f.lit(_time_literal(value, name=name, now_ms=now_ms)))
    wanted = to_python(value, of, name=name, now_ms=now_ms)
    kind = spark_type(of)
    # A row is cast by position, a timestamp into the zone of the session.
    return _sorted(column.cast(kind), kind).eqNullSafe(_sorted(_literal(wanted, of), kind))


def _time_text(column: Column) -> Column:
    """A time without trailing zeros in its fraction: 12:30:00.500 is 12:30:00.5."""
    text = f.regexp_replace(column.cast("string"), r"(\.\d*?)0+$", "$1")
    return f.regexp_replace(text, r"\.$", "")


def _time_literal(value: JsonValue, *, name: str, now_ms: int) -> str:
    to_python(
        value, PlainType("time"), name=name, now_ms=now_ms
    )  # raises `Refused` for what is no time
    text = time.fromisoformat(str(value)).isoformat()
    return text.rstrip("0") if "." in text else text


def _literal(value: Any, of: ColumnType) -> Column:
    if value is None:
        return f.lit(None).cast(spark_type(of))
    match of:
        case ArrayType():
            literal = f.array(*(_literal(item, of.element) for item in value))
        case MapType():
            items = cast("Mapping[Any, Any]", value).items()
            pairs = ((_literal(key, of.key), _literal(item, of.value)) for key, item in items)
            literal = f.create_map(*(column for pair in pairs for column in pair))
        case RowType():
            fields = zip(of.fields, value, strict=True)
            literal = f.struct(
                *(_literal(item, inner).alias(name) for (name, inner), item in fields)
            )
        case _:
            literal = f.lit(_plain(value))
    return literal.cast(spark_type(of))


def _plain(value: Any) -> Any:
    """A date or decimal as text, which Spark parses: Python's time zone has no part in it."""
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if isinstance(value, date) else value


def _sorted(column: Column, of: spark.DataType) -> Column:
    """The column with each map as its sorted entries, since Spark can't compare maps."""
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
