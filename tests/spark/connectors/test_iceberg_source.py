"""The Iceberg source in batch mode: a slice is a snapshot, however the table goes on."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.lake.catalog import CatalogConfig, TableRef
from headrace.lake.iceberg.creation import TableDefinition
from headrace.lake.iceberg.stage import stage
from tests.spark.lake import Lake, commit, make_table, some
from tests.spark.scans import expire, ids, slices, snapshots, source


@pytest.mark.req("E5")
def test_a_slice_whose_snapshot_was_expired_is_refused_by_its_id(lake: Lake) -> None:
    lake.append_foreign(first=0, rows=5)
    of = source(lake)
    part = some(of.plan(lake.session, None))
    (snapshot,) = snapshots(lake)
    lake.append_foreign(first=10)
    expire(lake)

    with pytest.raises(
        Refused, match=rf"source Iceberg-1: .*{lake.ref.name} has no snapshot {snapshot}: it was"
    ):
        of.read(lake.session, part)


def test_a_batch_reads_the_snapshots_its_options_name(lake: Lake) -> None:
    for first in (0, 10, 20):
        lake.append_foreign(first=first)
    one, two, three = snapshots(lake)

    def read(**options: int) -> list[int]:
        of = source(lake, dict(options))
        assert of.bounded
        found = slices(lake, of, of.plan(lake.session, None, rows_max=1))
        return [row for part in found for row in ids(lake, of, part)]

    assert read(use_snapshot_id=two) == [0, 10]
    assert read(start_snapshot_id=one) == [10, 20]
    assert read(start_snapshot_id=one, end_snapshot_id=two) == [10]
    assert read(end_snapshot_id=two) == [0, 10]
    assert read(use_snapshot_id=three) == [0, 10, 20]


def test_a_job_brings_its_own_catalog(
    session: SparkSession, warehouse: str, tmp_path: Path
) -> None:
    """One that no Spark session knows."""
    config = {"type": "hadoop", "warehouse": f"file://{tmp_path}/wh/"}
    ref = TableRef(CatalogConfig("mine", config), ("ns",), "t")
    frame = session.range(7).selectExpr("id", "named_struct('a', id) as deep")
    make_table(session, ref, TableDefinition(columns=frame.schema, partition_keys=["id"]))
    lake = Lake(session, warehouse)
    commit(session, ref, stage(session, frame, ref, lake.at()), lake.at())

    named = {"catalog_name": "mine", "iceberg.catalog.config": config, "namespace": "ns"}
    of = source(lake, {**named, "table": "t"})
    found = of.read(session, some(of.plan(session, None)))

    assert sorted(row["deep"]["a"] for row in found.collect()) == list(range(7))


def test_columns_and_rows_are_chosen_by_the_options(lake: Lake) -> None:
    lake.append_foreign(first=0, rows=5)
    shown = {"schema": {"fields": {"NAME": "string", "id": "int"}}, "where_clause": "id > 2"}
    of = source(lake, shown)
    part = some(of.plan(lake.session, None))
    assert part.rows is None, "the filter leaves an unknown number"
    found = of.read(lake.session, part)

    assert found.dtypes == of.empty(lake.session).dtypes == [("NAME", "string"), ("id", "int")]
    assert sorted((row["NAME"], row["id"]) for row in found.collect()) == [("3", 3), ("4", 4)]
    with pytest.raises(Refused, match="has no column NAME, which 'schema' names; it has id, name"):
        source(lake, {**shown, "case_sensitive": True}).read(lake.session, part)
    with pytest.raises(Refused, match=r"source Iceberg-1: headrace\.tests\..*nobody"):
        source(lake, {"where_clause": "nobody > 2"}).read(lake.session, part)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("reflect('java.lang.Math', 'abs', 1) = '1'", "function reflect runs Java code"),
        ("id > 0 and `Java_Method`('java.lang.Math', 'abs', 1) = '1'", "function java_method"),
        ("id in (select int(reflect('java.lang.Math', 'abs', 1)))", "it runs Java code"),
    ],
)
def test_a_condition_that_runs_code_is_refused(lake: Lake, where: str, said: str) -> None:
    lake.append_foreign(first=0, rows=5)
    of = source(lake, {"where_clause": where})
    with pytest.raises(Refused, match=f"source Iceberg-1: where_clause: {said}"):
        of.read(lake.session, some(of.plan(lake.session, None)))


def test_without_a_slice_there_are_columns_and_no_rows(lake: Lake) -> None:
    of = source(lake)
    assert of.plan(lake.session, None) is None, "no snapshot, no rows"
    empty = of.empty(lake.session)
    assert (empty.columns, empty.count()) == (["id", "name"], 0)


def test_a_table_that_is_not_there_is_refused(lake: Lake) -> None:
    missing = source(lake, {"table": f"t_{uuid.uuid4().hex}"})
    with pytest.raises(Refused, match=r"source Iceberg-1: there is no table .* mend 'table'"):
        missing.plan(lake.session, None)


CONTRADICTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"use_snapshot_id": 1, "use_snapshot_timestamp": 1}, "BATCH", "exclude each other"),
    ({"use_snapshot_id": 1, "end_snapshot_id": 1}, "BATCH", "exclude each other"),
    ({"start_snapshot_timestamp": 1}, "BATCH", "is for job.mode = STREAMING"),
    ({"use_snapshot_id": 1}, "STREAMING", "'use_snapshot_id' is not for a streaming job"),
    ({"start_snapshot_id": 1}, "STREAMING", "set stream_scan_strategy = FROM_SNAPSHOT_ID"),
    (
        {"stream_scan_strategy": "FROM_SNAPSHOT_ID"},
        "STREAMING",
        "needs the option 'start_snapshot_id'",
    ),
    ({"catalog_name": "mine"}, "BATCH", "source Iceberg-1 names the catalog 'mine' without"),
]


@pytest.mark.parametrize(("options", "mode", "said"), CONTRADICTIONS)
def test_options_that_contradict_each_other_are_refused(
    lake: Lake, options: dict[str, Any], mode: str, said: str
) -> None:
    with pytest.raises(Refused, match=said):
        source(lake, options, streaming=mode == "STREAMING")
