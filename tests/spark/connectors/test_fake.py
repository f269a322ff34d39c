"""FakeSource gives the same rows for the same slice, of every type its schema can name."""

from __future__ import annotations

import datetime
from collections import Counter
from decimal import Decimal
from typing import Any, cast

import pytest
from pydantic import JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Source
from headrace.connectors.fake.source import FakeSource
from headrace.connectors.registry import make_source
from headrace.errors import Refused
from headrace.model.jobs.spec import PluginSpec
from headrace.plugins.row_kinds import KIND_COLUMN, TABLE_COLUMN
from headrace.protocol.messages import Slice
from tests.spark.lake import some
from tests.spark.settings import NO_SESSION, setting

SLICES_MAX = 100

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


def source(options: dict[str, Any], *, incarnation: str = "a" * 32, **known: Any) -> FakeSource:
    """`known` is what the runner knows: parallelism, streaming, the checkpoint interval."""
    options = {"schema": {"fields": ALL_TYPES}, **options}
    made = setting("FakeSource", "source", options, incarnation=incarnation, **known)
    return FakeSource("FakeSource-1", *made)


def slices(made: FakeSource, position: JsonValue = None, **limits: int) -> list[Slice]:
    """All there is to plan, one after the other."""
    found: list[Slice] = []
    while (part := made.plan(NO_SESSION, position, **limits)) is not None:
        found.append(part)
        position = part.after
        assert len(found) <= SLICES_MAX, "it plans on and on"
    return found


def paced(**known: Any) -> FakeSource:
    """Two readers of ten splits with ten rows each, one split in 100 ms: 200 rows in 1 s."""
    known.setdefault("parallelism", 2)
    return source({"row.num": 100, "split.num": 10, "split.read-interval": 100}, **known)


def rows(frame: DataFrame) -> list[str]:
    return sorted(str(row) for row in frame.collect())


@pytest.mark.req("E5")
def test_the_same_slice_gives_the_same_rows_however_it_is_cut(session: SparkSession) -> None:
    made = source({"row.num": 40})
    assert made.repeatable
    whole = some(made.plan(session, None))
    first = some(made.plan(session, None, rows_max=15))
    second = some(made.plan(session, first.after))

    expected = rows(made.read(session, whole))
    assert rows(made.read(session, whole)) == expected
    assert rows(made.read(session, whole).repartition(7)) == expected
    cut = rows(made.read(session, first)) + rows(made.read(session, second))
    assert sorted(cut) == expected
    assert len(set(expected)) == 40


def test_two_runs_of_a_job_give_different_rows(session: SparkSession) -> None:
    one, other = source({"row.num": 5}), source({"row.num": 5}, incarnation="b" * 32)
    assert rows(one.read(session, some(one.plan(session, None)))) != rows(
        other.read(session, some(other.plan(session, None)))
    )


def test_a_plan_covers_the_rows_of_every_reader_once() -> None:
    made = source({"row.num": 16, "split.num": 3}, parallelism=2)
    whole = some(made.plan(NO_SESSION, None))

    assert (whole.rows, whole.last) == (32, True)
    assert made.plan(NO_SESSION, whole.after) is None
    part = some(made.plan(NO_SESSION, None, rows_max=20))
    assert (part.rows, part.last) == (20, False)
    assert some(made.plan(NO_SESSION, part.after, rows_max=20)).rows == 12


def test_a_source_without_rows_plans_one_empty_slice(session: SparkSession) -> None:
    made = source({"row.num": 0})
    whole = some(made.plan(session, None))
    assert (whole.rows, whole.last) == (0, True)
    assert made.read(session, whole).count() == 0
    assert made.plan(session, whole.after) is None


def test_a_streaming_source_without_rows_plans_nothing() -> None:
    assert source({"row.num": 0}, streaming=True).plan(NO_SESSION, None) is None


def test_an_interval_of_1_ms_is_no_pause() -> None:
    made = source({"row.num": 100, "split.num": 10}, checkpoint_interval_ms=5)

    assert [(part.rows, part.lasts_ms) for part in slices(made)] == [(100, 0)]


def test_without_checkpoints_a_paced_source_is_one_slice_that_lasts_for_all_splits() -> None:
    assert [(part.rows, part.lasts_ms) for part in slices(paced())] == [(200, 1000)]


def test_a_paced_slice_fits_into_a_checkpoint_interval_and_ends_with_a_split() -> None:
    parts = slices(paced(checkpoint_interval_ms=350))

    assert [part.rows for part in parts] == [60, 60, 60, 20]
    assert [part.lasts_ms for part in parts] == [300, 300, 300, 100]
    assert [part.last for part in parts] == [False, False, False, True]


def test_a_paced_slice_is_a_split_of_each_reader_at_least() -> None:
    short = slices(paced(checkpoint_interval_ms=50))
    few = slices(paced(), rows_max=7)

    assert {(part.rows, part.lasts_ms) for part in short} == {(20, 100)}
    assert {(part.rows, part.lasts_ms) for part in few} == {(20, 100)}


def test_a_paced_slice_is_cut_to_the_rows_that_are_wanted() -> None:
    assert [part.rows for part in slices(paced(), rows_max=79)] == [60, 60, 60, 20]


def test_splits_without_rows_take_their_time() -> None:
    options = {"row.num": 5, "split.num": 4, "split.read-interval": 100}

    (whole,) = slices(source(options))
    cut = slices(source(options, checkpoint_interval_ms=200))
    assert (whole.rows, whole.lasts_ms) == (5, 400)
    assert [(part.rows, part.lasts_ms) for part in cut] == [(4, 200), (1, 200)]


def test_given_rows_are_paced_by_split_too() -> None:
    options = {
        "schema": {"fields": {"id": "int"}},
        "rows": [{"fields": [1]}, {"fields": [2]}],
        "split.num": 3,
        "split.read-interval": 100,
    }
    parts = slices(source(options, parallelism=2, checkpoint_interval_ms=200))

    assert [(part.rows, part.lasts_ms) for part in parts] == [(8, 200), (4, 100)]


@pytest.mark.parametrize("parallelism", [1, 3, 7])
@pytest.mark.parametrize("interval_ms", [None, 250])
def test_a_restore_with_another_parallelism_gives_each_row_once(
    parallelism: int, interval_ms: int | None
) -> None:
    before = some(paced(checkpoint_interval_ms=300).plan(NO_SESSION, None))
    after = slices(paced(parallelism=parallelism, checkpoint_interval_ms=interval_ms), before.after)

    spans = [cast("dict[str, int]", part.data) for part in (before, *after)]
    assert spans[0]["first"] == 0
    assert [span["first"] for span in spans[1:]] == [span["end"] for span in spans[:-1]]
    assert spans[-1]["end"] == 200, "the total that was meant at the start"
    assert after[-1].last


def test_a_position_of_an_older_program_is_understood() -> None:
    part = some(source({"row.num": 40}).plan(NO_SESSION, 15))

    assert (part.rows, part.last) == (25, True)


def test_every_type_holds_what_its_options_say(session: SparkSession) -> None:
    made = source({"row.num": 50, "string.length": 20, "array.size": 3, "int.min": 5, "int.max": 7})
    found = made.read(session, some(made.plan(session, None))).collect()

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
    found = made.read(session, some(made.plan(session, None))).collect()

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
    found = made.read(session, some(made.plan(session, None))).collect()

    assert some(made.plan(session, None)).rows == len(found) == 8
    assert sorted(row["id"] for row in found) == [1, 1, 1, 1, 2, 2, 2, 2]
    one = next(row for row in found if row["id"] == 1)
    assert one["at"] == datetime.datetime(2023, 4, 22, 23, 20, 58)  # noqa: DTZ001
    assert (bytes(one["raw"]), one["m"]) == (b"hi", {"k": 7})


def test_given_rows_say_their_kind_unless_all_are_inserted(session: SparkSession) -> None:
    schema = {"fields": {"id": "bigint"}}
    given = [{"fields": [1]}, {"kind": "update_after", "fields": [2]}]
    given += [{"kind": "DELETE", "fields": [3]}]
    made = source({"schema": schema, "rows": given, "split.num": 2})
    found = made.read(session, some(made.plan(session, None)))
    plain = source({"schema": schema, "rows": given[:1]})

    said = sorted((row["id"], row[KIND_COLUMN]) for row in found.collect())
    assert said == [(1, "+I"), (1, "+I"), (2, "+U"), (2, "+U"), (3, "-D"), (3, "-D")]
    assert made.empty(session).columns == found.columns == ["id", KIND_COLUMN]
    assert plain.read(session, some(plain.plan(session, None))).columns == ["id"]
    assert plain.empty(session).columns == ["id"]


def test_the_time_in_given_rows_is_that_of_the_slice(session: SparkSession) -> None:
    schema = {"fields": {"d": "date", "t": "timestamp"}}
    made = source({"schema": schema, "rows": [{"fields": ["CURRENT_DATE", "CURRENT_TIMESTAMP"]}]})
    part = some(made.plan(session, None))

    assert rows(made.read(session, part)) == rows(made.read(session, part))


@pytest.mark.parametrize(
    ("rows_given", "said"),
    [
        ([{"kind": "UPSERT", "fields": [1]}], "unknown kind 'UPSERT'"),
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
        made.read(session, some(made.plan(session, None)))

    with pytest.raises(Refused, match=said):
        read()


def several(**known: Any) -> Source:
    made_up = {"row": {"num": 7}, "schema": {"table": "db.one", "fields": {"id": "bigint"}}}
    given = {
        "schema": {"table": "db.two", "fields": {"x": "string", "id": "bigint"}},
        "rows": [{"fields": ["a", 1]}, {"kind": "DELETE", "fields": ["a", 1]}],
    }
    options: dict[str, Any] = {"tables_configs": [made_up, given]}
    spec = PluginSpec(name="FakeSource-1", plugin="FakeSource", options=options)
    return make_source(spec, setting("FakeSource", "source", options, **known)[1], secrets={})


def test_rows_of_several_tables_say_of_which_they_are(session: SparkSession) -> None:
    made = several()
    whole = some(made.plan(session, None))
    frame = made.read(session, whole)
    found = Counter((row[TABLE_COLUMN], row[KIND_COLUMN], row["x"]) for row in frame.collect())

    assert (whole.rows, whole.last) == (9, True)
    assert made.plan(session, whole.after) is None
    assert frame.columns == ["id", "x", KIND_COLUMN, TABLE_COLUMN]
    assert made.empty(session).schema.names == frame.columns
    assert found == {
        ("db.one", "+I", None): 7,
        ("db.two", "+I", "a"): 1,
        ("db.two", "-D", "a"): 1,
    }


def test_several_tables_are_cut_into_slices_that_end_when_all_are_read(
    session: SparkSession,
) -> None:
    made, parts, position = several(), list[Slice](), None
    while (part := made.plan(session, position, rows_max=5)) is not None:
        parts.append(part)
        position = part.after
    whole = rows(made.read(session, some(made.plan(session, None))))

    assert [(part.rows, part.last) for part in parts] == [
        (4, False),
        (2, False),
        (2, False),
        (1, True),
    ]
    assert sorted(row for part in parts for row in rows(made.read(session, part))) == sorted(whole)
    unbounded = several(streaming=True)
    assert not some(unbounded.plan(session, None)).last
