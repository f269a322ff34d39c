"""How many rows a source gave: exact, in the pass that stages them, whatever Spark does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.files.source import FileSource
from headrace.model.jobs.spec import PipelineSpec, PluginSpec
from headrace.protocol.messages import EpochPlan
from headrace.spark.row_carrier import SparkRowCarrier
from headrace.spark.row_counts import RowCount, ScanCount, SparkRowCounter, rows_counted_once
from headrace.transforms.registry import make_transform
from headrace.worker.dataflow import Dataflow
from tests.spark.lake import some
from tests.spark.settings import setting

ROWS = 1000
SOON_S = 1.0  # for what never comes
TAG = "counted"


def frame(session: SparkSession) -> DataFrame:
    return session.range(0, ROWS, 1, 4).selectExpr("id", "id * 7 % 1000 as mixed")


def run(read: DataFrame) -> None:
    read.write.format("noop").mode("overwrite").save()


def sql(session: SparkSession, query: str) -> DataFrame:
    return session.sql(query)  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select * from t", ROWS),
        ("select * from t where id < 10", ROWS),
        ("select count(*) from t", ROWS),
        ("select mixed, id from t order by mixed", ROWS),  # samples every partition first
        ("select a.id from t a join t b on a.id = b.id", ROWS),
        ("select * from t union all select * from t", ROWS),
        ("select * from t where id in (select max(mixed) from t group by id % 10)", ROWS),
        ("select * from t where false", 0),  # Spark need not read it
    ],
)
def test_each_row_counts_once(session: SparkSession, query: str, rows: int) -> None:
    count = RowCount(frame(session))
    count.frame.createOrReplaceTempView("t")

    run(sql(session, query))

    assert count.frame.columns == ["id", "mixed"]
    assert count.rows() == rows


def test_a_frame_that_is_read_by_two_sinks_counts_once(session: SparkSession) -> None:
    count = RowCount(frame(session).persist())
    run(count.frame)
    run(count.frame)
    assert count.rows() == ROWS


def test_what_no_query_tells_is_not_waited_for_for_ever(session: SparkSession) -> None:
    """Spark does not tell what it observed within a scalar subquery."""
    count = RowCount(frame(session))
    count.frame.createOrReplaceTempView("t")
    run(sql(session, "select 1 as x where (select count(*) from t) > 3"))
    assert count.rows(max_s=SOON_S) is None


def test_partitions_that_were_run_again_are_taken_out() -> None:
    assert rows_counted_once(0, []) == 0
    assert rows_counted_once(100, [0, 1]) == 100
    assert rows_counted_once(200, [0, 1, 1, 0]) == 100
    assert rows_counted_once(150, [0, 1, 1]) == 100, "where only some were: as if all were alike"


@pytest.fixture
def parquet(session: SparkSession, tmp_path: Path) -> Callable[[], DataFrame]:
    folder = str(tmp_path / "rows")
    session.range(0, ROWS, 1, 4).selectExpr("id", "id % 3 as b").write.parquet(folder)
    return lambda: session.read.parquet(folder)


def pushed(read: DataFrame) -> bool:
    java: Any = read._jdf  # pyright: ignore
    query: Any = java.queryExecution()
    return "LessThan(id,250)" in str(query.executedPlan().toString())


def test_conditions_are_still_handed_down_to_a_source_that_is_counted_at_its_scan(
    session: SparkSession, parquet: Callable[[], DataFrame]
) -> None:
    """It reads one file of four, and an observation in between would have it read them all."""
    session.sparkContext.addJobTag(TAG)
    count = ScanCount(parquet(), TAG)
    count.frame.createOrReplaceTempView("t")
    asked = sql(session, "select id from t where id < 250")
    assert pushed(asked)
    between = RowCount(parquet())
    between.frame.createOrReplaceTempView("u")
    assert not pushed(sql(session, "select id from u where id < 250"))

    run(asked)

    assert count.rows(max_s=10) == ROWS // 4


def test_a_scan_is_counted_also_when_spark_has_forgotten_its_oldest_queries(
    session: SparkSession, parquet: Callable[[], DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps a number of them, and a place in its list is another one's once it is full."""
    session.sparkContext.addJobTag(TAG)
    count = ScanCount(parquet(), TAG)
    count.frame.createOrReplaceTempView("t")
    run(sql(session, "select id from t where id < 250"))
    monkeypatch.setattr("headrace.spark.row_counts.QUERIES_COUNTED_MAX", 1)

    assert count.rows(max_s=10) == ROWS // 4


def test_a_scan_that_a_sort_ran_twice_tells_nothing(
    session: SparkSession, parquet: Callable[[], DataFrame]
) -> None:
    session.sparkContext.addJobTag(TAG)
    count = ScanCount(parquet(), TAG)
    count.frame.createOrReplaceTempView("t")

    run(sql(session, "select b, id from t where id < 250 order by b"))

    assert count.rows(max_s=SOON_S) is None


@pytest.mark.parametrize(
    "queries",
    [
        ["select id from a union all select id from b where id >= 0"],
        ["select id from a where id >= 0", "select id from b where id >= 0"],  # of two sinks
    ],
)
def test_sources_whose_scans_have_the_same_name_have_no_count(
    session: SparkSession, tmp_path: Path, queries: list[str]
) -> None:
    """They all were told the highest number of any of them."""
    session.sparkContext.addJobTag(TAG)
    sources = [
        parquet_source(session, tmp_path / name, rows) for name, rows in [("a", 10), ("b", 3)]
    ]
    sinks = [PluginSpec(name=f"sink-{n}", plugin="Console") for n, _ in enumerate(queries)]
    spec = PipelineSpec(
        number=1,
        sources=tuple(PluginSpec(name=s.name, plugin="LocalFile", output=s.name) for s in sources),
        transforms=tuple(
            PluginSpec(name=f"Sql-{n}", plugin="Sql", inputs=("a", "b"), options={"query": query})
            for n, query in enumerate(queries)
        ),
        sinks=tuple(sinks),
    )
    transforms = [make_transform(made, None, secrets={}) for made in spec.transforms]
    frames = Dataflow(spec, sources, transforms, session, SparkRowCounter(TAG), SparkRowCarrier())
    slices = {source.name: some(source.plan(session, None)) for source in sources}

    with frames.frames_of(EpochPlan(slices=slices, now_ms=0)) as made:
        for transform in spec.transforms:
            run(made[transform.name])

    assert frames.rows_read() == {}


def test_a_scan_that_a_query_has_twice_tells_nothing(
    session: SparkSession, parquet: Callable[[], DataFrame]
) -> None:
    """One of them reads a quarter; another sink's query alone would not tell the whole, either."""
    session.sparkContext.addJobTag(TAG)
    count = ScanCount(parquet(), TAG)
    count.frame.createOrReplaceTempView("t")

    run(sql(session, "select id from t where id < 250 union all select id from t where id > 900"))
    run(sql(session, "select id from t where id < 250"))

    assert count.rows(max_s=SOON_S) is None


def parquet_source(session: SparkSession, folder: Path, rows: int) -> FileSource:
    session.range(rows).write.parquet(str(folder))
    given = {"path": str(folder), "file_format_type": "parquet"}
    return FileSource(folder.name, *setting("LocalFile", "source", given))
