"""Assert judges every row by Spark, and says which rule is broken, where and by what."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.connectors.assertion.sink import AssertSink
from headrace.errors import Refused
from headrace.plugins.row_kinds import KIND_COLUMN
from tests.spark.settings import at, setting


def sink(*, fields: list[Any] | None = None, rows: list[Any] | None = None) -> AssertSink:
    rules = {"field_rules": fields or [], "row_rules": rows or []}
    return AssertSink("Assert-1", *setting("Assert", "sink", {"rules": rules}))


def rule(name: str, kind: Any = None, *values: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"field_name": name, "field_value": list(values)}
    return made if kind is None else {**made, "field_type": kind}


def says(session: SparkSession, select: str, *fields: dict[str, Any]) -> str | None:
    """What the sink says about one row, or None when it is content."""
    made = sink(fields=list(fields))
    frame = session.sql(f"select {select}")  # pyright: ignore[reportUnknownMemberType]
    try:
        staged = made.stage(session, frame, at())
    except Refused as refused:
        return str(refused)
    assert staged.rows == 1
    return None


NUMBER, TEXT, NULL = "cast(5 as int) v", "'hello' v", "cast(null as int) v"

BROKEN: list[tuple[str, Any, Any, str]] = [
    (NULL, "int", {"rule_type": "NOT_NULL"}, "NOT_NULL in 1 of 1 rows; one holds null"),
    (NUMBER, "int", {"rule_type": "NULL"}, "NULL in 1 of 1 rows; one holds '5'"),
    (NUMBER, "int", {"rule_type": "MIN", "rule_value": 6}, "MIN 6 "),
    (NUMBER, "int", {"rule_type": "MAX", "rule_value": 4.5}, "MAX 4.5 "),
    (NULL, "int", {"rule_type": "MIN", "rule_value": 6}, "one holds null"),
    (TEXT, "string", {"rule_type": "MIN", "rule_value": 1}, "MIN 1 "),
    (TEXT, "string", {"rule_type": "MIN_LENGTH", "rule_value": 6}, "one holds 'hello'"),
    (TEXT, "string", {"rule_type": "MAX_LENGTH", "rule_value": 4}, "MAX_LENGTH 4 "),
    (TEXT, "string", {"equals_to": "Hello"}, "equals_to 'Hello' "),
    (TEXT, "string", {"rule_type": "NOT_NULL", "equals_to": "x"}, "equals_to 'x' "),
    ("cast(1.5 as double) v", "double", {"equals_to": 1.25}, "one holds '1.5'"),
    ("encode('hi', 'utf-8') v", "bytes", {"equals_to": "aG8="}, "one holds '6869'"),
]

KEPT: list[tuple[str, Any, Any]] = [
    (NUMBER, "int", {"rule_type": "MIN", "rule_value": 5}),
    (NUMBER, "INT", {"rule_type": "MAX", "rule_value": "5"}),
    (NULL, "int", {"rule_type": "NULL"}),
    (NULL, "int", {"equals_to": 7}),  # as in SeaTunnel: a null is not compared
    (TEXT, "string", {"rule_type": "MIN_LENGTH", "rule_value": 5}),
    ("cast(null as string) v", "string", {"rule_type": "MAX_LENGTH", "rule_value": 0}),
    ("1 v", "int", {"equals_to": "1"}),
    ("cast(3.1 as float) v", "float", {"equals_to": 3.1}),
    ("cast(9.33333 as double) v", "double", {"equals_to": 9.33333}),
    ("cast(12.4 as decimal(17, 4)) v", "decimal(17, 4)", {"equals_to": "12.40"}),
    ("true v", "boolean", {"equals_to": True}),
    ("date'2012-12-21' v", "date", {"equals_to": "2012-12-21"}),
    ("timestamp_ntz'2021-04-08 13:34:45.2' v", "timestamp", {"equals_to": "2021-04-08T13:34:45.2"}),
    ("timestamp'2021-04-08 13:34:45Z' v", "timestamp", {"equals_to": "2021-04-08 13:34:45"}),
    ("timestamp'2021-04-08 13:00:00Z' v", "timestamp_tz", {"equals_to": "2021-04-08T15:00+02:00"}),
    ("'13:34:45.2350' v", "time", {"equals_to": "13:34:45.235"}),
    ("'13:34:40' v", "time", {"equals_to": "13:34:40"}),
    ("encode('hi', 'utf-8') v", "bytes", {"equals_to": "aGk="}),
    ("array(0, 1, 2) v", "array<int>", {"equals_to": [0, 1, 2]}),
    ("map('b', 1, 'a', 2) v", "map<string, int>", {"equals_to": {"a": 2, "b": 1}}),
    (
        "named_struct('x', 1, 'm', map('k', array('v'))) v",
        {"x": "int", "m": "map<string, array<string>>"},
        {"equals_to": [1, {"k": ["v"]}]},
    ),
    ("named_struct('x', 1, 'y', cast(null as string)) v", None, {"equals_to": {"x": 1}}),
    ("cast(null as bigint) v", "int", None),  # as in SeaTunnel: a null is of every type
    ("null v", "string", None),
    ("null v", "null", None),
    ("cast(123 as decimal(9, 2)) v", "decimal(5, 2)", None),
    ("named_struct('a', 1) v", {"b": "int"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("select", "kind", "wanted", "said"), BROKEN)
def test_a_broken_rule_is_said_with_its_field_and_an_example(
    session: SparkSession, select: str, kind: Any, wanted: Any, said: str
) -> None:
    text = says(session, select, rule("v", kind, wanted))

    assert text is not None
    assert text.startswith("sink Assert-1: field 'v' breaks the rule ")
    assert said in text


def test_rules_that_are_kept_are_not_spoken_of(session: SparkSession) -> None:
    selects = [f"{select}{number}" for number, (select, _, _) in enumerate(KEPT)]
    rules = [
        rule(f"v{number}", kind, *([] if wanted is None else [wanted]))
        for number, (_, kind, wanted) in enumerate(KEPT)
    ]

    assert says(session, ", ".join(selects), *rules) is None


@pytest.mark.parametrize(
    ("select", "kind", "being"),
    [
        (NUMBER, "bigint", "field_type bigint, being int, "),
        ("array(1L) v", "array<int>", "field_type array<int>, being array<bigint>, "),
        ("map('a', 1) v", "map<string, string>", "being map<string, int>, "),
        ("named_struct('x', 1) v", {"x": "int", "y": "int"}, "being {x = int}, "),
        ("cast(1 as decimal(9, 3)) v", "decimal(9, 2)", "being decimal(9, 3), "),
        ("cast(1234 as decimal(9, 2)) v", "decimal(5, 2)", "being decimal(9, 2), "),
        ("'soon' v", "time", "being string, "),
        ("'x' v", "null", "being string, "),
        ("timestamp_ntz'2021-04-08' v", "timestamp_tz", "being timestamp, "),
    ],
)
def test_a_value_of_another_type_is_said(
    session: SparkSession, select: str, kind: Any, being: str
) -> None:
    text = says(session, select, rule("v", kind))

    assert text is not None
    assert being in text


def test_all_rows_are_judged_and_the_broken_ones_counted(session: SparkSession) -> None:
    made = sink(fields=[rule("id", "bigint", {"rule_type": "MAX", "rule_value": 6})])

    with pytest.raises(Refused, match=r"MAX 6 in 3 of 10 rows; one holds '[789]'"):
        made.stage(session, session.range(10), at())


def test_a_field_that_is_not_there_is_said_with_those_that_are(session: SparkSession) -> None:
    assert says(session, "1 a, 2 `b.c`", rule("v", "int")) == (
        "sink Assert-1: there is no field 'v' to judge, or two; there are 'a', 'b.c'"
    )
    assert says(session, "1 a, 2 `b.c`", rule("b.c", "int", {"equals_to": 2})) is None


def test_a_value_to_equal_that_is_none_of_the_type_is_said(session: SparkSession) -> None:
    text = says(session, NUMBER, rule("v", "int", {"equals_to": "five"}))

    assert text == "sink Assert-1: column 'v': 'five' is no int"


def test_rows_of_every_kind_are_judged_and_counted(session: SparkSession) -> None:
    changes = session.range(4).selectExpr("id", f"if(id < 2, '+I', '-D') as {KIND_COLUMN}")
    made = sink(
        fields=[rule("id", "bigint", {"rule_type": "MAX", "rule_value": 2})],
        rows=[{"rule_type": "MAX_ROW", "rule_value": 4}],
    )

    assert made.stage(session, changes.where("id < 3"), at()).rows == 3
    with pytest.raises(Refused, match="MAX 2 in 1 of 4 rows; one holds '3'"):
        made.stage(session, changes, at())
    with pytest.raises(Refused, match=r"there is no field 'v' to judge, or two; there are 'id'$"):
        sink(fields=[rule("v", "int")]).stage(session, changes, at())


def test_too_many_rows_are_refused_as_soon_as_they_are_there(session: SparkSession) -> None:
    made = sink(rows=[{"rule_type": "MAX_ROW", "rule_value": 4}])

    assert made.stage(session, session.range(4), at()).rows == 4
    with pytest.raises(Refused, match="sink Assert-1: 5 rows break the rule MAX_ROW 4"):
        made.stage(session, session.range(5), at())


@pytest.mark.parametrize(
    ("rows", "broken"), [(2, "MIN_ROW 3"), (3, None), (5, None), (6, "MAX_ROW 5")]
)
def test_rows_are_counted_at_the_end(rows: int, broken: str | None) -> None:
    made = sink(
        rows=[
            {"rule_type": "MIN_ROW", "rule_value": 3},
            {"rule_type": "MAX_ROW", "rule_value": 5},
        ]
    )
    if broken is None:
        made.finish(rows)
        return
    with pytest.raises(Refused, match=f"{rows} rows break the rule {broken}"):
        made.finish(rows)


def test_few_rows_of_an_epoch_are_no_reason_to_stop(session: SparkSession) -> None:
    made = sink(rows=[{"rule_type": "MIN_ROW", "rule_value": 3}])
    staged = made.stage(session, session.range(1), at())

    assert made.commit(session, staged.handle, at()).facts == {"rows": 1}
