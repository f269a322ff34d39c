"""FakeSource gives the same rows for the same slice, of every type its schema can name."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.fake import FakeSource
from headrace.errors import Refused
from tests.spark.lake import some
from tests.spark.settings import setting

ALL_TYPES = {
    "c_map": "map<string, string>",
    "c_array": "array<int>",
    "c_string": "string",
    "c_boolean": "boolean",
    "c_tinyint": "tinyint",
    "c_smallint": "smallint",
    "c_int": "int",
    "c_bigint": "bigint",
    "c_float": "float",
    "c_double": "double",
    "c_decimal": "decimal(30, 8)",
    "c_small_decimal": "decimal(10, 2)",
    "c_null": "null",
    "c_bytes": "bytes",
    "c_date": "date",
    "c_time": "time",
    "c_timestamp": "timestamp",
    "c_row": {"inner": "string", "deeper": {"number": "decimal(38, 18)"}},
    "c_flags": "map<boolean, tinyint>",
}


def source(
    options: dict[str, Any], *, parallelism: int = 1, incarnation: str = "a" * 32
) -> FakeSource:
    options = {"schema": {"fields": ALL_TYPES}, **options}
    made = setting(
        "FakeSource", "source", options, parallelism=parallelism, incarnation=incarnation
    )
    return FakeSource("FakeSource-1", made)


def rows(frame: DataFrame) -> list[str]:
    return sorted(str(row) for row in frame.collect())


def test_the_same_slice_gives_the_same_rows_however_it_is_cut(session: SparkSession) -> None:
    made = source({"row.num": 40})
    whole = some(made.plan(None))
    first = some(made.plan(None, rows_max=15))
    second = some(made.plan(first.after))

    expected = rows(made.read(session, whole))
    assert rows(made.read(session, whole)) == expected
    assert rows(made.read(session, whole).repartition(7)) == expected
    cut = rows(made.read(session, first)) + rows(made.read(session, second))
    assert sorted(cut) == expected
    assert len(set(expected)) == 40


def test_two_runs_of_a_job_give_different_rows(session: SparkSession) -> None:
    one, other = source({"row.num": 5}), source({"row.num": 5}, incarnation="b" * 32)
    assert rows(one.read(session, some(one.plan(None)))) != rows(
        other.read(session, some(other.plan(None)))
    )


def test_a_plan_covers_the_rows_of_every_reader_once() -> None:
    made = source({"row.num": 16, "split.num": 3}, parallelism=2)
    whole = some(made.plan(None))

    assert (whole.rows, whole.last) == (32, True)
    assert made.plan(whole.after) is None
    part = some(made.plan(None, rows_max=20))
    assert (part.rows, part.last) == (20, False)
    assert some(made.plan(part.after, rows_max=20)).rows == 12


def test_a_source_without_rows_plans_one_empty_slice(session: SparkSession) -> None:
    made = source({"row.num": 0})
    whole = some(made.plan(None))
    assert (whole.rows, whole.last) == (0, True)
    assert made.read(session, whole).count() == 0
    assert made.plan(whole.after) is None


def test_every_type_holds_what_its_options_say(session: SparkSession) -> None:
    made = source({"row.num": 50, "string.length": 20, "array.size": 3, "int.min": 5, "int.max": 7})
    found = made.read(session, some(made.plan(None))).collect()

    assert len(found) == 50
    for row in found:
        assert len(row["c_string"]) == 20
        assert len(row["c_array"]) == 3
        assert row["c_int"] in {5, 6}
        assert 0 <= row["c_tinyint"] < 127
        assert isinstance(row["c_decimal"], Decimal)
        assert row["c_decimal"].as_tuple().exponent == -8
        assert row["c_small_decimal"] < Decimal(10) ** 8
        assert row["c_null"] is None
        assert len(row["c_bytes"]) == 5
        assert isinstance(row["c_date"], datetime.date)
        assert datetime.time.fromisoformat(row["c_time"])
        assert isinstance(row["c_timestamp"], datetime.datetime)
        assert isinstance(row["c_row"]["deeper"]["number"], Decimal)
        assert 1 <= len(row["c_flags"]) <= 2
        assert 1 <= len(row["c_map"]) <= 5
    assert len({row["c_decimal"] for row in found}) == 50
    assert {row["c_boolean"] for row in found} == {True, False}


def test_templates_are_the_only_values_that_come(session: SparkSession) -> None:
    made = source(
        {
            "row.num": 50,
            "string.template": ["a", "b"],
            "double.template": [1.5],
            "date.year.template": [1999],
            "date.month.template": [2, 3],
            "time.hour.template": [23],
        }
    )
    found = made.read(session, some(made.plan(None))).collect()

    assert {row["c_string"] for row in found} == {"a", "b"}
    assert {row["c_double"] for row in found} == {1.5}
    assert {row["c_date"].year for row in found} == {1999}
    assert {row["c_date"].month for row in found} == {2, 3}
    assert {row["c_timestamp"].hour for row in found} == {23}


def test_given_rows_are_emitted_whole_by_every_split(session: SparkSession) -> None:
    schema = {
        "fields": {"id": "bigint", "at": "timestamp", "raw": "bytes", "m": "map<string, int>"}
    }
    given = [
        {"kind": "INSERT", "fields": [1, "2023-04-22T23:20:58", "aGk=", {"k": 7}]},
        {"fields": {"id": 2, "at": "2023-04-22 23:20:58"}},
    ]
    made = source({"schema": schema, "rows": given, "split.num": 2}, parallelism=2)
    found = made.read(session, some(made.plan(None))).collect()

    assert some(made.plan(None)).rows == len(found) == 8
    assert sorted(row["id"] for row in found) == [1, 1, 1, 1, 2, 2, 2, 2]
    one = next(row for row in found if row["id"] == 1)
    assert one["at"] == datetime.datetime(2023, 4, 22, 23, 20, 58)  # noqa: DTZ001
    assert (bytes(one["raw"]), one["m"]) == (b"hi", {"k": 7})


def test_the_time_in_given_rows_is_that_of_the_slice(session: SparkSession) -> None:
    schema = {"fields": {"d": "date", "t": "timestamp"}}
    made = source({"schema": schema, "rows": [{"fields": ["CURRENT_DATE", "CURRENT_TIMESTAMP"]}]})
    part = some(made.plan(None))

    assert rows(made.read(session, part)) == rows(made.read(session, part))


@pytest.mark.parametrize(
    ("rows_given", "said"),
    [
        ([{"kind": "DELETE", "fields": [1]}], "only INSERT"),
        ([{"fields": [1, 2]}], "2 fields"),
        ([{"fields": ["x"]}], "'x' is no bigint"),
        ([{"kind": "INSERT"}], "no 'fields'"),
    ],
)
def test_a_given_row_that_does_not_fit_is_refused(
    session: SparkSession, rows_given: list[Any], said: str
) -> None:
    def read() -> None:
        made = source({"schema": {"fields": {"id": "bigint"}}, "rows": rows_given})
        made.read(session, some(made.plan(None)))

    with pytest.raises(Refused, match=said):
        read()
