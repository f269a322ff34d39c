"""An Iceberg source on a test's table, and what others do to that table meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.connectors.iceberg.source import IcebergSource
from headrace.lake.iceberg.catalogs import load_table
from headrace.protocol.messages import Slice
from tests.spark.lake import Lake, some, sql
from tests.spark.settings import setting

SLICES_MAX = 20
FAR_FUTURE_MS = 4_102_444_800_000
STREAM: dict[str, Any] = {"stream_scan_strategy": "TABLE_SCAN_THEN_INCREMENTAL"}


def source(
    lake: Lake, options: dict[str, Any] | None = None, *, streaming: bool = False
) -> IcebergSource:
    named = {"namespace": "tests", "table": lake.ref.name, **(options or {})}
    warehouse = lake.ref.catalog.properties["warehouse"]
    made = setting("Iceberg", "source", named, warehouse=warehouse, streaming=streaming)
    return IcebergSource("Iceberg-1", *made)


def ids(lake: Lake, of: IcebergSource, part: Slice | None) -> list[int]:
    return sorted(int(row["id"]) for row in of.read(lake.session, some(part)).collect())


def slices(lake: Lake, of: IcebergSource, part: Slice | None) -> Iterator[Slice]:
    """A slice and those that follow it now."""
    for _ in range(SLICES_MAX):
        if part is None:
            return
        yield part
        part = None if part.last else of.plan(lake.session, part.after, rows_max=1)
    raise AssertionError("a source that never comes to an end")


def snapshots(lake: Lake) -> list[int]:
    rows = sql(
        lake.session, f"SELECT snapshot_id FROM {lake.table}.snapshots ORDER BY committed_at"
    )
    return [int(row["snapshot_id"]) for row in rows]


def compact(lake: Lake) -> None:
    sql(
        lake.session,
        f"CALL headrace.system.rewrite_data_files(table => '{lake.table}', "
        "options => map('rewrite-all', 'true'))",
    )


def expire(lake: Lake) -> None:
    """All but the current one, as a maintenance job does; without a Spark job of its own."""
    table = load_table(lake.session, lake.ref)
    table.expireSnapshots().expireOlderThan(FAR_FUTURE_MS).retainLast(1).commit()
