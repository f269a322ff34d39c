"""Field rules as conditions over columns, judged for all rows in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.assertion.types import called, fits, mapped_back, written
from headrace.connectors.assertion.values import TIME, equal
from headrace.errors import Refused
from headrace.jobfile.rules import FieldRule, Rule
from headrace.jobfile.types import ColumnType, DecimalType, PlainType

EXAMPLE_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Check:
    field: str
    rule: str  # for people
    broken: Column  # true for a row that breaks it
    shown: Column  # the value, as a text


@dataclass(frozen=True, slots=True)
class Verdict:
    rows: int
    broken: str | None  # the first rule that is, with an example


def checks(rules: Sequence[FieldRule], frame: DataFrame, *, now_ms: int) -> Iterator[Check]:
    """What the rules mean for this frame. Raises `Refused` for a field that it has not."""
    for rule in rules:
        if frame.columns.count(rule.name) != 1:
            there = ", ".join(map(repr, frame.columns))
            raise Refused(f"there is no field {rule.name!r} to judge, or two; there are {there}")
        column = f.col("`" + rule.name.replace("`", "``") + "`")
        kind = frame.schema[rule.name].dataType
        shown = _shown(column, kind)
        for text, broken in _conditions(rule, column, kind, now_ms=now_ms):
            yield Check(rule.name, text, f.coalesce(broken, f.lit(col=False)), shown)


def judge(frame: DataFrame, judged: Sequence[Check]) -> Verdict:
    """Count the rows, and those that break a rule, in one pass."""
    columns = [f.count(f.lit(1)).alias("rows")]
    for number, check in enumerate(judged):
        columns.append(f.count(f.when(check.broken, 1)).alias(f"broken_{number}"))
        example = f.first(f.when(check.broken, check.shown), ignorenulls=True)
        columns.append(example.alias(f"example_{number}"))
    found: Any = frame.agg(*columns).collect()[0]
    for number, check in enumerate(judged):
        if times := found[f"broken_{number}"]:
            example = found[f"example_{number}"]
            return Verdict(
                found["rows"],
                f"field {check.field!r} breaks the rule {check.rule} in {times} of "
                f"{found['rows']} rows; one holds {'null' if example is None else repr(example)}",
            )
    return Verdict(found["rows"], None)


def _conditions(
    rule: FieldRule, column: Column, kind: spark.DataType, *, now_ms: int
) -> Iterator[tuple[str, Column]]:
    right = rule.type is None or fits(kind, rule.type)
    if rule.type is not None:
        text = f"field_type {written(rule.type)}, being {called(kind)},"
        yield text, _of_another_type(column, kind, rule.type) if right else column.isNotNull()
    for one in rule.rules:
        if isinstance(one, Rule):
            yield str(one), _broken(one, column, kind)
        elif right:
            of = _compared(rule.type, kind, rule.name)
            same = equal(column, one.value, of, name=rule.name, now_ms=now_ms)
            yield str(one), column.isNotNull() & ~same  # as in SeaTunnel: null is not compared


def _of_another_type(column: Column, kind: spark.DataType, wanted: ColumnType) -> Column:
    """What the type of a column leaves open. Null is of every type, as in SeaTunnel."""
    match wanted:
        case PlainType(name="null"):
            return column.isNotNull()
        case PlainType(name="time"):
            return ~column.cast("string").rlike(TIME)
        case DecimalType() if isinstance(kind, spark.DecimalType):
            if kind.precision <= wanted.precision:
                return f.lit(col=False)
            return f.abs(column) >= f.lit(Decimal(10) ** (wanted.precision - wanted.scale))
        case _:
            return f.lit(col=False)


def _compared(wanted: ColumnType | None, kind: spark.DataType, name: str) -> ColumnType:
    of = wanted or mapped_back(kind)
    if of is None:
        raise Refused(f"field {name!r} is {called(kind)}, which equals_to can't be compared with")
    return of


def _broken(rule: Rule, column: Column, kind: spark.DataType) -> Column:
    limit = f.lit(rule.value)
    match rule.kind:
        case "NULL":
            return column.isNotNull()
        case "NOT_NULL":
            return column.isNull()
        case "MIN" | "MAX" if not isinstance(kind, spark.NumericType):
            return f.lit(col=True)  # as in SeaTunnel: only a number has a least and a largest
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
