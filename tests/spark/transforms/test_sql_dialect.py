"""SeaTunnel's functions: every row of the page about them, in both engines."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headrace.errors import Refused
from headrace.model.jobs.spec import PluginSpec
from headrace.spark.sql_types import types_by_number
from headrace.transforms.registry import make_transform
from headrace.transforms.sql.descriptor import Engine
from headrace.transforms.sql.dialect import AmbiguousSql, translate
from headrace.transforms.sql.function_table import NOT_BUILT, ROWS, TABLE, DialectRow, WithoutEngine
from headrace.worker.warm_session import WarmSpark, task_session

Values = dict[str, str | None]


@pytest.fixture(scope="module")
def table(warm: WarmSpark) -> Iterator[DataFrame]:
    columns = [f"{made} as {name}" for name, made in TABLE.items()]
    with task_session(warm, "dialect") as session:
        yield session.range(1).selectExpr(*columns)


def run(frame: DataFrame, query: str, engine: str | None = None) -> DataFrame:
    options: dict[str, Any] = {"query": query} | ({"engine": engine} if engine else {})
    spec = PluginSpec(name="Sql-1", plugin="Sql", options=options)
    return make_transform(spec, None, secrets={})(frame.sparkSession, {"t": frame}, now_ms=0)


def _values(table: DataFrame, engine: str, rows: list[DialectRow]) -> Values:
    """All examples in one query, as texts."""
    listed = ", ".join(f"{row.example} as c{number}" for number, row in enumerate(rows))
    made = run(table, f"select {listed} from t", engine)
    (found,) = made.selectExpr(*(f"cast({name} as string)" for name in made.columns)).collect()
    values: list[str | None] = list(found)
    return dict(zip((row.example for row in rows), values, strict=True))


@pytest.fixture(scope="module")
def in_zeta(table: DataFrame) -> Values:
    return _values(table, "ZETA", [row for row in ROWS if row.zeta])


@pytest.fixture(scope="module")
def in_spark(table: DataFrame) -> Values:
    return _values(table, "SPARK", [row for row in ROWS if row.spark])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.example)
def test_a_call_means_what_its_engine_means(
    row: DialectRow, in_zeta: Values, in_spark: Values
) -> None:
    if row.zeta:
        assert in_zeta[row.example] == row.zeta_gives
    if row.spark:
        assert in_spark[row.example] == row.spark_gives


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.example)
def test_without_an_engine_the_call_itself_tells_or_is_refused(
    table: DataFrame, row: DialectRow
) -> None:
    query = f"select {row.example} as x from t"
    match row.chosen:
        case WithoutEngine.REFUSED:
            with pytest.raises(Refused, match=r"two meanings here: .* engine = ZETA .* = SPARK"):
                run(table, query)
        case WithoutEngine.SAME_OR_FAILS:
            assert "engine = ZETA" in text_of(table, query)
        case WithoutEngine.SEATUNNEL:
            assert text_of(table, query) == text_of(table, query, Engine.ZETA)
        case WithoutEngine.SPARK:
            assert text_of(table, query) == query


def text_of(table: DataFrame, query: str, engine: Engine | None = None) -> str:
    table.createOrReplaceTempView("t")
    return translate(
        query,
        engine=engine,
        types_of=lambda text: types_by_number(
            table.sparkSession.sql(text),  # pyright: ignore[reportUnknownMemberType]
            "headrace",
        ),
    )


def test_a_row_fails_where_both_engines_differ_and_else_goes_on(table: DataFrame) -> None:
    agree = "select concat(name, i), split(name, ' '), cast(d as decimal(10, 5)) from t"
    assert [tuple(row)[:2] for row in run(table, agree).collect()] == [
        ("Joy Ding13", ["Joy", "Ding"])
    ]
    with pytest.raises(PySparkException, match="CONCAT has two meanings here: SeaTunnel leaves"):
        run(table, "select concat(name, nothing) from t").collect()


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        # Only SeaTunnel could run it, so all of it is SeaTunnel's.
        ("select datediff(at, later), day_of_week(at) from t", Engine.ZETA),
        ("select length(name), 1.5, to_char(i), dayname(at) from t", Engine.ZETA),
        ("select dayname(dateadd(dateadd(at, 1), 1, 'DAY')) from t", Engine.ZETA),
        # Only Spark could.
        ("select datediff(at, later) from t limit 1", Engine.SPARK),
        ("select datediff(at, later), date_format(at, 'y') from t", Engine.SPARK),
        ("select max(datediff(at, later)) from t", Engine.SPARK),
        ("select concat(array(i), array(i)) from t", Engine.SPARK),
        ("select datediff(DAY, at, later), dayname(at) from t", Engine.SPARK),
    ],
)
def test_the_rest_of_the_query_tells(table: DataFrame, query: str, meant: Engine) -> None:
    assert text_of(table, query) == text_of(table, query, meant)


@pytest.mark.parametrize(
    "query",
    [
        "select datediff(at, later) from t",
        "select datediff(at, later), day_of_week(at), date_format(at, 'y') from t",
    ],
)
def test_what_nothing_tells_is_refused(table: DataFrame, query: str) -> None:
    with pytest.raises(AmbiguousSql, match="DATEDIFF has two meanings here"):
        text_of(table, query)


@pytest.mark.parametrize("example", NOT_BUILT)
def test_what_spark_can_not_do_is_refused_with_the_way_out(table: DataFrame, example: str) -> None:
    with pytest.raises(Refused, match=r"is not built: Spark has no .*; use "):
        run(table, f"select {example} from t")


def test_a_column_without_a_name_is_called_by_its_text(table: DataFrame) -> None:
    query = "select concat(name, i), day_of_week(at) + 1, to_char(i) as x, i from t"
    assert run(table, query).columns == ["concat(name, i)", "day_of_week(at) + 1", "x", "i"]


def test_a_sum_is_cast_as_a_whole(table: DataFrame) -> None:
    query = "select cast(hms - 9 as time) as x, cast(cast(ymd + 1 as date) as string) as y from t"
    assert values(run(table, query, "ZETA")) == [("23:51:00", "2023-06-26")]


def values(frame: DataFrame) -> list[tuple[Any, ...]]:
    found: list[Any] = frame.collect()
    return [tuple(row) for row in found]


@pytest.mark.parametrize("made", ["x", "coalesce(x, 1)"])
@pytest.mark.parametrize(
    "query",
    ["trunc(l) as x, {} from t", "trunc(l) x, {} from t", "{} from (select trunc(l) x from t)"],
)
def test_types_of_a_column_are_asked_for_once_it_is_known(
    table: DataFrame, query: str, made: str
) -> None:
    asked = run(table, f"select {query.format(f'cast({made} as timestamp) as y')}", "ZETA")
    direct = run(table, "select cast(trunc(l) as timestamp) as y from t", "ZETA")
    assert values(asked.select("y")) == values(direct)


def test_types_of_nulls_are_known_where_they_are_written(table: DataFrame) -> None:
    assert values(run(table, "select concat(null, name) as x from t", "ZETA")) == [("Joy Ding",)]
    with pytest.raises(Refused, match=r"types of .* can't be found; cast its arguments"):
        run(table, "select concat(n, name), concat(n, n) from (select null as n, name from t)")


@pytest.mark.parametrize(
    "column",
    [
        "concat(name,i)",
        "concat(name,i) is null",
        "concat(name,i) like 'J%'",
        "concat(name, i) between 'A' and name",
        "split(name,' ')[0]",
        "concat(name,i) -- both",
        "concat(name,i) c",
    ],
)
def test_columns_are_called_as_spark_calls_them(table: DataFrame, column: str) -> None:
    query = f"select {column}\n, i from t"
    assert run(table, query).columns == run(table, query, "SPARK").columns


@pytest.mark.parametrize("column", ["to_char(i) is null", "split(to_char(i),' ')[0]"])
def test_what_ends_an_expression_is_no_name(table: DataFrame, column: str) -> None:
    assert run(table, f"select {column}, i from t").columns == [column, "i"]


@pytest.mark.parametrize(
    "call",
    ["concat(name -- both\n, i)", "concat -- both\n (name, i)", "concat /* a */ /* b */ (name, i)"],
)
def test_comments_hide_nothing(table: DataFrame, call: str) -> None:
    query = f"select {call} as x from t -- all"
    assert values(run(table, query)) == [("Joy Ding13",)]
    assert "concat_ws" in text_of(table, query, Engine.ZETA)


@pytest.mark.parametrize("engine", [None, "ZETA"])
@pytest.mark.parametrize("call", ["aes_encrypt(name, 'k')", "aes_encrypt(name, 'k', 'GCM')"])
def test_random_bytes_are_refused(table: DataFrame, call: str, engine: str | None) -> None:
    with pytest.raises(Refused, match="AES_ENCRYPT begins with random bytes"):
        run(table, f"select {call} as x from t", engine)


def test_aes_has_two_meanings(table: DataFrame) -> None:
    with pytest.raises(Refused, match="AES_DECRYPT has two meanings here"):
        run(table, "select aes_decrypt(name, 'k') as x from t")
    with pytest.raises(Refused, match="AES_DECRYPT of SeaTunnel is not built; set engine = SPARK"):
        run(table, "select aes_decrypt(name, 'k') as x from t", "ZETA")
    key = "'abcdefghijklmnop'"
    there = f"aes_decrypt(aes_encrypt(name, {key}, 'ECB'), {key}, 'ECB')"
    assert values(run(table, f"select cast({there} as string) as x from t")) == [("Joy Ding",)]


def test_a_trim_does_not_turn_the_query_to_seatunnel(table: DataFrame) -> None:
    with pytest.raises(AmbiguousSql, match="TRIM has two meanings here"):
        text_of(table, "select trim(name, 'J'), datediff(at, later) from t")


def test_both_engines_agree_about_empty_texts_and_large_numbers(table: DataFrame) -> None:
    assert values(run(table, "select split('', ',') as x from t")) == [([""],)]
    (large,) = values(run(table, "select cast(1e30D as decimal(38, 2)) as x from t"))
    assert large[0] == Decimal(10) ** 30
    (rounded,) = values(run(table, "select cast('12.341' as decimal(10, 2)) as x from t"))
    assert str(rounded[0]) == "12.34", "as Spark rounds: no job fails for the last digit"


def test_types_of_nested_calls_are_found_in_their_own_scope(table: DataFrame) -> None:
    query = "select x from (select trunc(abs(d), 1) as x, trunc(day, 'MM') as y from t) as s"
    assert [tuple(row) for row in run(table, query).collect()] == [(120.7,)]
