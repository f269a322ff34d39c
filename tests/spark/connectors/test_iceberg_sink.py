"""The Iceberg sink: what a job file's options do to tables and catalogs."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.fake.source import FakeSource
from headrace.connectors.iceberg.sink import IcebergSink
from headrace.errors import Refused, Unavailable
from headrace.exactly_once.target import Mark
from headrace.lake.iceberg.catalogs import load_table
from headrace.worker.warm_session import WarmSpark
from tests.spark.connectors.test_fake import ALL_TYPES
from tests.spark.lake import some, sql
from tests.spark.settings import at, setting


def sink(warehouse: str, **options: Any) -> IcebergSink:
    named = {key.replace("__", "."): value for key, value in options.items()}
    named.setdefault("table", f"t_{uuid.uuid4().hex[:12]}")
    named.setdefault("namespace", "sinks")
    return IcebergSink("Iceberg-1", *setting("Iceberg", "sink", named, warehouse=warehouse))


def write(session: SparkSession, to: IcebergSink, frame: DataFrame, epoch: int = 1) -> None:
    staged = to.stage(session, frame, at(epoch))
    to.commit(session, staged.handle, at(epoch))
    to.sweep(session, staged.handle, at(epoch))


def fake(session: SparkSession, rows: int, fields: dict[str, Any] | None = None) -> DataFrame:
    options = {"schema": {"fields": fields or ALL_TYPES}, "row.num": rows}
    made = FakeSource("FakeSource-1", *setting("FakeSource", "source", options))
    return made.read(session, some(made.plan(session, None)))


def test_all_types_arrive_in_the_embedded_catalog(session: SparkSession, warehouse: str) -> None:
    to = sink(warehouse)
    frame = fake(session, 20)
    staged = to.stage(session, frame, at())
    done = to.commit(session, staged.handle, at())

    table = f"headrace.sinks.{to.table_ref.name}"
    assert staged.rows == done.facts["rows"] == 20
    assert done.facts["table"] == table
    assert isinstance(done.facts["snapshot"], int)
    found = session.table(table)
    assert sorted(map(str, found.collect())) == sorted(map(str, frame.collect()))
    wider = {"tinyint": "int", "smallint": "int", "map<boolean,tinyint>": "map<boolean,int>"}
    assert found.dtypes == [(name, wider.get(kind, kind)) for name, kind in frame.dtypes]


def test_a_job_brings_its_own_catalog_and_partitions(
    session: SparkSession, warehouse: str, tmp_path: Path
) -> None:
    """As SeaTunnel's own job does: a hadoop catalog, partitioned by a timestamp, tiny files."""
    to = sink(
        warehouse,
        catalog_name="seatunnel_test",
        iceberg__catalog__config={"type": "hadoop", "warehouse": f"file://{tmp_path}/wh/"},
        table="iceberg_sink_table",
        **{
            "iceberg.table.write-props": {
                "write.format.default": "parquet",
                "write.target-file-size-bytes": "10",
            },
            "iceberg.table.partition-keys": ["c_timestamp"],
        },
        case_sensitive=True,
    )
    write(session, to, fake(session, 100))

    table = load_table(session, to.table_ref)
    assert "c_timestamp" in str(table.spec())
    assert "write.target-file-size-bytes" not in table.properties()
    assert (
        session.read.format("iceberg").load(f"{tmp_path}/wh/sinks/iceberg_sink_table").count()
        == 100
    )


def test_partition_keys_may_be_transforms(session: SparkSession, warehouse: str) -> None:
    keys = ["bucket(id, 4)", "days(at)"]
    to = sink(warehouse, **{"iceberg.table.partition-keys": keys})
    write(session, to, fake(session, 10, {"id": "bigint", "at": "timestamp"}))

    spec = str(load_table(session, to.table_ref).spec())
    assert "bucket[4]" in spec
    assert "day(2)" in spec


def test_primary_keys_are_required_columns_and_a_null_in_one_fails(
    session: SparkSession, warehouse: str
) -> None:
    to = sink(warehouse, **{"iceberg.table.primary-keys": ["id"]})
    write(session, to, session.range(3).selectExpr("if(id < 9, id, null) as id"))

    table = load_table(session, to.table_ref)
    assert [str(name) for name in table.schema().identifierFieldNames()] == ["id"]
    with pytest.raises(Exception, match="column 'id' must not be null"):
        to.stage(session, session.range(3).selectExpr("if(id < 1, id, null) as id"), at(2))


@pytest.mark.parametrize(
    ("narrow", "wide", "said"),
    [
        ("cast(id as int)", "99999999999", r"99999999999 does not fit into int"),
        ("cast(id as decimal(4,1))", "cast(12345 as decimal(9,1))", r"12345\.0 does not fit into"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_table_and_column(
    session: SparkSession, warehouse: str, narrow: str, wide: str, said: str
) -> None:
    to = sink(warehouse)
    write(session, to, session.range(1).selectExpr(f"{narrow} as id"))
    with pytest.raises(Exception, match=rf"sink Iceberg-1: table .*: column 'id': {said}"):
        to.stage(session, session.range(1).selectExpr(f"{wide} as id"), at(2))


def test_columns_are_matched_by_name(session: SparkSession, warehouse: str) -> None:
    to = sink(warehouse)
    write(session, to, session.range(1).selectExpr("id", "'x' as name"))
    write(session, to, session.range(1, 2).selectExpr("'y' as NAME", "id"), epoch=2)
    write(session, to, session.range(2, 3).selectExpr("id"), epoch=3)

    found = sql(session, f"SELECT id, name FROM headrace.sinks.{to.table_ref.name} ORDER BY id")
    assert [tuple(row) for row in found] == [(0, "x"), (1, "y"), (2, None)]


def test_a_column_the_table_lacks_is_refused_by_name(session: SparkSession, warehouse: str) -> None:
    to = sink(warehouse)
    write(session, to, session.range(1).selectExpr("id"))
    with pytest.raises(Refused, match=r"sink Iceberg-1: table .* has no column extra"):
        to.stage(session, session.range(1).selectExpr("id", "1 as extra"), at(2))


def test_a_type_that_does_not_fit_is_refused_in_one_line(
    session: SparkSession, warehouse: str
) -> None:
    to = sink(warehouse)
    write(session, to, session.range(1).selectExpr("id"))
    with pytest.raises(Refused) as refused:
        to.stage(session, session.range(1).selectExpr("array(id) as id"), at(2))
    assert "\n" not in str(refused.value)
    assert "id" in str(refused.value)


def test_a_table_that_must_exist_is_not_created(session: SparkSession, warehouse: str) -> None:
    to = sink(warehouse, schema_save_mode="ERROR_WHEN_SCHEMA_NOT_EXIST", table="nobody_made_it")
    with pytest.raises(Refused, match=r"no table headrace\.sinks\.nobody_made_it"):
        to.stage(session, session.range(1).toDF("id"), at())


def test_two_that_create_a_table_at_once_end_with_the_same_one(
    session: SparkSession, warehouse: str, warm: WarmSpark
) -> None:
    name = f"t_{uuid.uuid4().hex[:12]}"
    gate = threading.Barrier(2)
    errors: list[BaseException] = []

    def create(number: int) -> None:
        gate.wait(timeout=120)
        try:
            write(session, sink(warehouse, table=name), session.range(5).toDF("id"), epoch=number)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=create, args=(n,), daemon=True) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)

    assert [str(error) for error in errors] == []
    assert sql(session, f"SELECT count(*) AS n FROM headrace.sinks.{name}")[0]["n"] in {5, 10}


def test_a_catalog_that_is_named_and_not_described_is_refused(warehouse: str) -> None:
    with pytest.raises(Refused, match=r"sink Iceberg-1 .* without 'iceberg\.catalog\.config'"):
        sink(warehouse, catalog_name="mine")


def test_a_catalog_that_can_not_be_opened_is_refused(session: SparkSession, warehouse: str) -> None:
    to = sink(warehouse, catalog_name="c", iceberg__catalog__config={"type": "nonsense"})
    with pytest.raises(Refused, match=r"catalog 'c' can not be opened: .*nonsense"):
        to.stage(session, session.range(1).toDF("id"), at())


def test_a_catalog_that_is_away_may_be_tried_again(session: SparkSession, warehouse: str) -> None:
    nobody = {"type": "jdbc", "uri": "jdbc:sqlite:/proc/nothing/here.db", "warehouse": "file:/x"}
    to = sink(warehouse, catalog_name="c", iceberg__catalog__config=nobody)
    with pytest.raises(Unavailable, match="catalog 'c' can not be opened"):
        to.stage(session, session.range(1).toDF("id"), at())


@pytest.mark.req("E4", "E7")
def test_the_mark_of_a_table_outlives_the_expiry_of_its_snapshots(
    session: SparkSession, warehouse: str
) -> None:
    options = {"namespace": "marks", "table": f"t_{uuid.uuid4().hex[:12]}"}
    to = IcebergSink("Iceberg-1", *setting("Iceberg", "sink", options, warehouse=warehouse))
    for epoch in (1, 2):
        frame = session.range(2).selectExpr("id", "'x' as name")
        to.commit(session, to.stage(session, frame, at(epoch)).handle, at(epoch))
    table = load_table(session, to.table_ref)
    table.expireSnapshots().expireOlderThan(1 << 60).retainLast(1).commit()

    assert to.read_mark(session, at(0)) == Mark(2, aborted=False)
