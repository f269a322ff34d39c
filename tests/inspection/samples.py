"""Tables as they are read, made up: files of sizes, deletes, snapshots, properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.inspection.report import (
    DAY_MS,
    CatalogReport,
    InspectedTable,
    TableReading,
    Unread,
    inspect_table,
)
from headrace.model.tables.files import DataFile, DeleteFile, DeleteKind, Partition, TableFiles

MIB = 1024 * 1024
NOW_MS = 1_780_000_000_000
SNAPSHOT = 7


def read_table(
    name: str = "sales.orders",
    *,
    small: int = 0,
    full: int = 0,
    partitions: int = 1,
    deletes: int = 0,
    properties: Mapping[str, str] | None = None,
    summary: Mapping[str, str] | None = None,
    snapshot_days: Sequence[int] = (0,),
) -> TableReading:
    """`small` files of 1 MiB and `full` ones of 128 MiB in each partition; every small one under
    `deletes` position deletes of its own."""
    files: list[DataFile] = []
    made: list[DeleteFile] = []
    for number in range(partitions):
        partition = Partition(0, f"day={number}")
        for place in range(small):
            first = len(made)
            made += [
                DeleteFile(f"d-{first + n}", DeleteKind.POSITION, 1000, 1) for n in range(deletes)
            ]
            applied = tuple(range(first, first + deletes))
            path = f"{name}/{number}/small-{place:05d}"
            files.append(DataFile(path, MIB, 1000, partition, sorted=True, deletes=applied))
        for place in range(full):
            path = f"{name}/{number}/full-{place:05d}"
            files.append(DataFile(path, 128 * MIB, 100_000, partition, sorted=True))
    snapshot = SNAPSHOT if files else None
    told = {"total-delete-files": str(len(made))} if summary is None else dict(summary)
    return TableReading(
        name,
        metadata_of(told, snapshot_days),
        TableFiles(snapshot, 3, files, made, properties or {}),
    )


def metadata_of(summary: Mapping[str, str], snapshot_days: Sequence[int]) -> Mapping[str, Any]:
    snapshots: list[dict[str, Any]] = [
        {"snapshot-id": 100 + place, "timestamp-ms": NOW_MS - DAY_MS * days, "summary": {}}
        for place, days in enumerate(snapshot_days[:-1])
    ]
    last = {
        "snapshot-id": SNAPSHOT,
        "timestamp-ms": NOW_MS - DAY_MS * snapshot_days[-1],
        "summary": summary,
    }
    return {"format-version": 2, "snapshots": [*snapshots, last]}


def table(name: str = "sales.orders", **facts: Any) -> InspectedTable:
    return inspect_table(read_table(name, **facts), now_ms=NOW_MS)


def report(
    *tables: InspectedTable,
    unread: Sequence[Unread] = (),
    properties: Mapping[str, str] | None = None,
    catalog: str = "lake",
) -> CatalogReport:
    return CatalogReport(
        catalog=catalog,
        type="rest",
        properties=properties or {},
        at_ms=NOW_MS,
        took_s=2.5,
        filter=None,
        filtered=0,
        tables=sorted(tables, key=lambda each: -each.saving.spared_bytes),
        unread=unread,
    )
