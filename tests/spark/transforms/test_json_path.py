"""JsonPath: values from within JSON, and what becomes of rows that hold none."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.columns import spark_type
from headrace.errors import Refused
from headrace.plugins.schema import read_type
from headrace.plugins.syntax_tree import from_json
from headrace.transforms.json_path.descriptor import PathProblem, read_path
from headrace.worker.warm_session import WarmSpark, task_session
from tests.spark.transforms.test_fields import run, table

TEXT = """{"data": {"s": "text", "b": true, "i": 42, "d": 3.14, "m": 10.55, "on": "2023-10-29",
 "at": "2023-10-29T10:11:12", "t": "16:12:43", "a": ["x", "y"], "n": null, "raw": "QUI=",
 "maps": [{"k": "v"}, {"k": "w"}], "o": {"x": 1, "y": "z"}, "one two": 1, "it's": 2}}"""


def column(path: str, **more: Any) -> dict[str, Any]:
    return {"src_field": "j", "path": path, "dest_field": "x", **more}


def looked_up(frame: DataFrame, *columns: dict[str, Any], **options: Any) -> list[Any]:
    return [
        row["x"] for row in run("JsonPath", {"columns": [*columns], **options}, frame).collect()
    ]


@pytest.fixture
def given(session: SparkSession) -> DataFrame:
    return table(session, [(TEXT,)], "j string")


TAKEN: list[tuple[str, str, object]] = [
    ("$.data.s", "string", "text"),
    ("$['data']['b']", "boolean", True),
    ("$.data.i", "int", 42),
    ("$.data.i", "string", "42"),
    ("$.data.d", "float", 3.140000104904175),
    ("$.data.d", "double", 3.14),
    ("$.data.m", "decimal(4, 2)", Decimal("10.55")),
    ("$.data.on", "date", date(2023, 10, 29)),
    ("$.data.at", "timestamp", datetime(2023, 10, 29, 10, 11, 12)),  # noqa: DTZ001
    ("$.data.t", "time", "16:12:43"),
    ("$.data.a", "array<string>", ["x", "y"]),
    ("$.data.a[1]", "string", "y"),
    ("$.data.a", "string", '["x","y"]'),
    ("$.data.maps", "array<map<string, string>>", [{"k": "v"}, {"k": "w"}]),
    ("$.data.maps[*].k", "array<string>", ["v", "w"]),
    ("$.data.a[*]", "array<string>", ["x", "y"]),
    ("$.data.maps[*].nix", "array<string>", []),
    ("$.data.o", "map<string, string>", {"x": "1", "y": "z"}),
    ("$.data['one two']", "int", 1),
    ('$.data["it\'s"]', "int", 2),
    ("$.data.raw", "bytes", bytearray(b"AB")),
    ("$.data.n", "int", None),
]


def test_values_are_taken_as_their_types(given: DataFrame) -> None:
    names = [f"x{number}" for number in range(len(TAKEN))]
    columns = [
        {"src_field": "j", "path": path, "dest_field": name, "dest_type": kind}
        for name, (path, kind, _) in zip(names, TAKEN, strict=True)
    ]
    made = run("JsonPath", {"columns": columns}, given)

    assert [made.schema[name].dataType for name in names] == [
        spark_type(read_type(from_json(kind))) for _, kind, _ in TAKEN
    ]
    assert made.columns == ["j", *names]
    (row,) = made.collect()
    assert list(row)[1:] == [value for _, _, value in TAKEN]


def test_several_are_taken_from_one_field(given: DataFrame) -> None:
    block = {
        "src_field": "j",
        "path": ["$.data.i", "$.data.s"],
        "dest_field": ["i", "j"],
        "dest_type": ["int", "string"],
    }
    made = run("JsonPath", {"columns": [block]}, given)

    assert made.columns == ["j", "i"]  # one that exists is replaced in its place
    assert [tuple(row) for row in made.collect()] == [("text", 42)]


INSIDE: list[tuple[str, str, str | None]] = [
    ("array('a', 'b')", "$[1]", "b"),
    ("map('k', 7)", "$.k", "7"),
    ("named_struct('a', 'x', 'b', named_struct('c', 5))", "$[1]", '{"c":5}'),
    ("named_struct('a', cast(null as int), 'b', 2.5)", "$[1]", "2.5"),
    ("named_struct('a', cast(null as int), 'b', 2.5)", "$[0]", None),
    ('cast(\'{"k": "é"}\' as binary)', "$.k", "é"),
    ("cast(null as string)", "$.k", None),
    ("cast(null as struct<a: int>)", "$[0]", None),
]


def test_other_fields_than_texts_are_looked_into(session: SparkSession) -> None:
    names = [f"j{number}" for number in range(len(INSIDE))]
    frame = session.range(1).selectExpr(
        *(f"{source} as {name}" for name, (source, _, _) in zip(names, INSIDE, strict=True))
    )
    columns = [
        {"src_field": name, "path": path, "dest_field": name}
        for name, (_, path, _) in zip(names, INSIDE, strict=True)
    ]

    (row,) = run("JsonPath", {"columns": columns}, frame).collect()

    assert list(row) == [value for _, _, value in INSIDE]


def test_of_a_key_that_is_there_twice_the_last_value_is_taken(warm: WarmSpark) -> None:
    with task_session(warm, "twice") as session:
        frame = table(session, [('{"k": 1, "k": 2}',)], "j string")
        assert looked_up(frame, column("$.k", dest_type="int")) == [2]


@pytest.mark.parametrize("kind", ["int", "double", "decimal(10, 2)"])
def test_a_truth_is_no_number(session: SparkSession, kind: str) -> None:
    frame = table(session, [('{"k": true}',), ('{"k": 1}',)], "j string")
    given = column("$.k", dest_type=kind, column_error_handle_way="SKIP")
    assert looked_up(frame, given) == [None, 1]


BAD = ['{"k": 1}', '{"other": 1}', "no json", '{"k": "word"}', None, '{"k": null}']


@pytest.fixture
def mixed(session: SparkSession) -> DataFrame:
    return table(session, [(text,) for text in BAD], "j string")


@pytest.mark.parametrize(
    ("options", "way", "kept"),
    [
        ({}, "SKIP", [1, None, None, None, None, None]),
        ({}, "SKIP_ROW", [1, None, None]),
        ({"row_error_handle_way": "SKIP"}, None, [1, None, None]),
        ({"row_error_handle_way": "SKIP"}, "SKIP", [1, None, None, None, None, None]),
    ],
)
def test_what_can_not_be_taken_is_left_out_as_asked(
    mixed: DataFrame, options: dict[str, Any], way: str | None, kept: list[int | None]
) -> None:
    more = {} if way is None else {"column_error_handle_way": way}
    assert looked_up(mixed, column("$.k", dest_type="int", **more), **options) == kept


@pytest.mark.parametrize("text", BAD[1:4])
@pytest.mark.parametrize(
    ("options", "more"),
    [({}, {}), ({"row_error_handle_way": "SKIP"}, {"column_error_handle_way": "FAIL"})],
)
def test_otherwise_it_fails_and_names_the_path(
    session: SparkSession, text: str, options: dict[str, Any], more: dict[str, Any]
) -> None:
    frame = table(session, [(text,)], "j string")
    with pytest.raises(PySparkException, match=r"'j' has nothing at path '\$\.k' that becomes 'x'"):
        looked_up(frame, column("$.k", dest_type="int", **more), **options)


def test_a_number_has_no_paths(session: SparkSession) -> None:
    with pytest.raises(Refused, match="field 'j' is int; a path needs a text, bytes, an array"):
        looked_up(session.range(1).selectExpr("1 as j"), column("$.k"))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("$..name", r"scans for a name at any depth"),
        ("$.a[?(@.b > 1)]", "filters"),
        ("$.a.*", "every field"),
        ("$.a[-1]", "counts from the end"),
        ("$.a[1:3]", "slice"),
        ("$['a','b']", "several at once"),
        ("$.a.length()", "calls a function"),
        ("$.a[*].b[*]", r"more than one \[\*\]"),
        ("a.b", r"must begin with \$"),
        ("$.a b", "can't be read at"),
        ("$" + ".a" * 101, "more than 100 steps"),
    ],
)
def test_a_path_that_spark_can_not_follow_is_refused(path: str, why: str) -> None:
    with pytest.raises(PathProblem, match=why):
        read_path(path)
