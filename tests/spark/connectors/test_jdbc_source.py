"""A Jdbc source reads a table or a query, in as many tasks as it is told, and once."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

from headrace.connectors.jdbc.source import JdbcSource
from headrace.errors import Refused, Unavailable
from tests.spark.base import SECRET, Base
from tests.spark.lake import some
from tests.spark.settings import setting


@pytest.fixture
def base(base: Base) -> Base:
    base.run("INSERT INTO orders SELECT n, 'name ' || n FROM generate_series(1, 100) AS n")
    return base


def source(base: Base, *, parallelism: int = 1, **options: Any) -> JdbcSource:
    given = {"url": base.url, "user": "postgres", "password": SECRET, **options}
    return JdbcSource("Jdbc-1", *setting("Jdbc", "source", given, parallelism=parallelism))


def read(base: Base, **options: Any) -> DataFrame:
    of = source(base, **options)
    return of.read(base.session, some(of.plan(base.session, None)))


@pytest.mark.parametrize(
    "path", ["orders", "public.orders", '"public"."orders"', "{db}.public.orders"]
)
def test_a_table_is_read_whole_and_once(base: Base, path: str) -> None:
    of = source(base, table_path=path.format(db=base.database))
    part = some(of.plan(base.session, None))

    rows = of.read(base.session, part).collect()

    assert sorted(row["id"] for row in rows) == list(range(1, 101))
    assert part.last
    assert of.plan(base.session, part.after) is None


def test_a_query_is_read_with_its_condition(base: Base) -> None:
    rows = read(
        base, query="SELECT id, name FROM orders WHERE id > 90;", where_condition="where id < 93"
    ).collect()

    assert sorted((row["id"], row["name"]) for row in rows) == [(91, "name 91"), (92, "name 92")]


@pytest.mark.parametrize(
    "bounds", [{}, {"partition_lower_bound": "1", "partition_upper_bound": "50"}]
)
def test_partitions_cut_the_rows_and_lose_none_outside_of_the_bounds(
    base: Base, bounds: dict[str, Any]
) -> None:
    base.run("INSERT INTO orders VALUES (NULL, 'no id')")

    frame = read(base, table_path="orders", partition_column="id", parallelism=4, **bounds)

    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == 101


def test_an_empty_table_with_a_partition_column_gives_no_rows(base: Base) -> None:
    base.run("TRUNCATE orders")

    assert read(base, table_path="orders", partition_column="id", partition_num=4).count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table_path": "nobody"}, 'relation "public.nobody" does not exist'),
        ({"query": "SELECT nothing FROM orders"}, 'column "nothing" does not exist'),
        ({"table_path": "elsewhere.public.orders"}, "option 'database' is 'elsewhere'"),
        ({"table_path": "orders", "partition_column": "x", "partition_num": 2}, '"x" does not'),
    ],
)
def test_what_the_database_does_not_have_is_refused_in_one_line(
    base: Base, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said) as refused:
        read(base, **options)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("source Jdbc-1: ")


def test_a_database_that_does_not_answer_may_be_tried_again(base: Base) -> None:
    base.wire.close()

    with pytest.raises(Unavailable, match="source Jdbc-1: jdbc:postgresql:") as away:
        read(base, query="SELECT 1 AS one")
    assert SECRET not in str(away.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "'query' or 'table_path', one of them"),
        ({"query": "SELECT 1", "table_path": "t"}, "one of them"),
        ({"table_path": "t", "partition_lower_bound": "1"}, "give both"),
        (
            {"table_path": "t", "partition_lower_bound": "1", "partition_upper_bound": "2"},
            "needs a 'partition_column'",
        ),
    ],
)
def test_options_that_can_not_be_met_are_refused(
    base: Base, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        source(base, **options)
