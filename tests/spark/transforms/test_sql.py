"""Sql: a query over temp views, at the time of the epoch."""

from __future__ import annotations

import uuid

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.errors import Refused
from headrace.model.jobs.spec import PluginSpec
from headrace.transforms.registry import Transform, make_transform
from headrace.transforms.sql.transform import fix_now
from tests.spark.lake import Lake, sql

NOW_MS = 1_700_000_000_123  # 2023-11-14 22:13:20.123 UTC


def run(session: SparkSession, query: str, table: str = "fake") -> list[tuple[object, ...]]:
    spec = PluginSpec(name="Sql-1", plugin="sql", options={"query": query})
    transform = make_transform(spec, None, secrets={})
    frame = transform(session, {table: session.range(3).toDF("id")}, now_ms=NOW_MS)
    return [tuple(row) for row in frame.collect()]


def test_a_query_reads_its_input_by_name(session: SparkSession) -> None:
    assert run(session, "select sum(id) + 1 from fake") == [(4,)]


def test_with_one_input_the_name_in_the_query_need_not_be_right(session: SparkSession) -> None:
    assert run(session, "select count(*) from dual", table="something") == [(3,)]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select nothing_like_it from fake", "nothing_like_it"),
        ("select id, from fake group", "yntax error"),
        ("select no_such_function(id) from fake", "no_such_function"),
    ],
)
def test_a_bad_query_is_refused_in_one_line_that_names_the_plugin(
    session: SparkSession, query: str, said: str
) -> None:
    with pytest.raises(Refused) as refused:
        run(session, query)
    text = str(refused.value)
    assert text.startswith("transform Sql-1: ")
    assert said in text
    assert "\n" not in text
    assert "org.apache" not in text


@pytest.mark.parametrize(
    "query",
    [
        "create table {table} as select id from fake",
        "insert into {table} select id from fake",
        "with x as (select id from fake) insert into {table} select id from x",
        "from fake insert into {table} select id insert into {table} select id + 1",
        "insert overwrite directory '/nowhere/at/all' using parquet select id from fake",
        "drop table if exists {table}",
        "call headrace.system.expire_snapshots('{table}')",
        "execute immediate 'drop table {table}'",
        "begin drop table {table}; end",
        "set spark.sql.caseSensitive = true",
        "show tables",
    ],
)
def test_a_statement_is_refused_and_changes_nothing(
    session: SparkSession, lake: Lake, query: str
) -> None:
    lake.append_foreign(first=1)
    with pytest.raises(Refused) as refused:
        run(session, query.format(table=lake.table))
    assert str(refused.value).startswith("transform Sql-1: query must be a SELECT statement")
    assert lake.count() == 1


@pytest.mark.parametrize(
    "query",
    [
        "(select id from fake) union all select 1 ; -- the end",
        "with x as (select id from fake) select id from x",
        "from fake select id",
        "from fake |> where id > 0",
        "values (1), (2)",
        "table fake",
    ],
)
def test_a_query_may_have_any_form(session: SparkSession, query: str) -> None:
    assert run(session, query)


@pytest.mark.parametrize("function", ["reflect", "builtin.Java_Method", "`try_reflect`"])
def test_a_function_that_runs_code_is_refused(session: SparkSession, function: str) -> None:
    name = function.strip("`").rpartition(".")[2].lower()
    with pytest.raises(Refused, match=f"transform Sql-1: function {name} runs Java code"):
        run(session, f"select {function}('java.lang.Math', 'abs', 1) from fake")


@pytest.mark.parametrize(
    "query",
    [
        "with x as (select reflect('java.lang.Math', 'abs', 1) as y from fake) select y from x",
        "select id from fake where id in (select reflect('java.lang.Math', 'abs', 1) from fake)",
        "select transform(array(id), n -> reflect('java.lang.Math', 'abs', 1)) from fake",
        "select id from fake order by system.builtin.reflect('java.lang.Math', 'abs', 1)",
        "select 1 from fake having count(reflect('java.lang.Math', 'abs', 1)) > 0",
    ],
)
def test_such_a_function_is_found_wherever_it_stands(session: SparkSession, query: str) -> None:
    with pytest.raises(Refused, match="transform Sql-1: function reflect runs Java code"):
        run(session, query)


def test_a_view_in_a_catalog_that_runs_code_is_refused(session: SparkSession) -> None:
    view = f"v_{uuid.uuid4().hex[:12]}"
    sql(session, f"CREATE VIEW {view} AS SELECT reflect('java.lang.Math', 'abs', 1) AS x")
    try:
        with pytest.raises(Refused, match="transform Sql-1: it runs Java code, or a view does"):
            run(session, f"select x from {view}")
    finally:
        sql(session, f"DROP VIEW {view}")


def test_a_query_leaves_the_functions_of_its_session_to_others(session: SparkSession) -> None:
    run(session, "select id from fake")
    java = f.java_method(f.lit("java.lang.Math"), f.lit("abs"), f.lit(-7))
    assert session.range(1).select(java).collect()[0][0] == "7"


@pytest.mark.parametrize(
    "query",
    [
        "select transform(id) using 'cat' as (id) from fake",
        "with x as (select transform(id) using 'cat' as (id) from fake) select id from x",
        "select id from fake where id in (select transform(id) using 'cat' as (id) from fake)",
    ],
)
def test_a_query_that_runs_a_program_is_refused(session: SparkSession, query: str) -> None:
    with pytest.raises(Refused, match="transform Sql-1: TRANSFORM … USING runs a program"):
        run(session, query)


def test_a_query_without_columns_is_refused(session: SparkSession) -> None:
    with pytest.raises(Refused, match="transform Sql-1: the query gives no columns"):
        run(session, "select * except (id) from fake")


def test_the_time_is_that_of_the_epoch(session: SparkSession) -> None:
    ask = (
        "select cast(now() as string), cast(current_timestamp as string), "
        "cast(CURRENT_TIMESTAMP() as string), cast(current_date as string), "
        "cast(localtimestamp as string), unix_timestamp(), CURRENT_TIME from fake limit 1"
    )
    instant = "2023-11-14 22:13:20.123"
    assert run(session, ask) == [
        (instant, instant, instant, "2023-11-14", instant, NOW_MS // 1000, "22:13:20")
    ]


@pytest.mark.parametrize(
    "query",
    [
        "select 'now()' from t",
        'select "it\'s current_date" from t',
        "select `current_date` from t",
        "select t.current_date from t",
        "select id as current_date from t",
        "select now_or_never(), known() from t -- now()",
        "select /* current_timestamp */ 1",
        "select unix_timestamp(at) from t",
        "select now(1) from t",
    ],
)
def test_words_that_only_look_like_the_time_are_left(query: str) -> None:
    assert fix_now(query, now_ms=NOW_MS) == query


def test_a_name_that_is_not_right_means_the_rows_of_this_epoch_and_of_this_transform(
    session: SparkSession,
) -> None:
    spec = PluginSpec(name="Sql-1", plugin="sql", options={"query": "select max(id) from dual"})
    first, second = (make_transform(spec, None, secrets={}) for _ in range(2))

    def largest(transform: Transform, rows: int) -> int:
        inputs = {"fake": session.range(rows).toDF("id")}
        return transform(session, inputs, now_ms=NOW_MS).collect()[0][0]

    assert [largest(first, 3), largest(first, 5), largest(second, 7)] == [2, 4, 6]
