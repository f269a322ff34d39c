"""The Iceberg source in streaming mode: each appended row once, over compaction and expiry."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import Refused
from headrace.lake.iceberg.catalogs import load_table
from tests.spark.lake import Lake, abort, commit, some, sql
from tests.spark.scans import STREAM, compact, expire, ids, slices, snapshots, source


@pytest.mark.req("E5")
def test_an_incremental_slice_gives_the_same_rows_and_columns_also_after_later_changes(
    lake: Lake,
) -> None:
    of = source(lake, STREAM, streaming=True)
    lake.append_foreign(first=0, rows=5)
    position = some(of.plan(lake.session, None)).after
    lake.append_foreign(first=10, rows=2)
    part = some(of.plan(lake.session, position))
    before = of.read(lake.session, part).orderBy("id").collect()

    lake.append_foreign(first=100, rows=5)
    sql(lake.session, f"ALTER TABLE {lake.table} RENAME COLUMN name TO title")
    sql(lake.session, f"ALTER TABLE {lake.table} ADD COLUMN extra int")
    compact(lake)

    assert before == of.read(lake.session, part).orderBy("id").collect()
    assert [row.asDict() for row in before] == [
        {"id": 10, "name": "10"},
        {"id": 11, "name": "11"},
    ]


@pytest.mark.req("E5")
def test_a_slice_whose_column_was_dropped_is_refused(lake: Lake) -> None:
    of = source(lake, STREAM, streaming=True)
    lake.append_foreign(first=0)
    position = some(of.plan(lake.session, None)).after
    lake.append_foreign(first=10)
    part = some(of.plan(lake.session, position))
    sql(lake.session, f"ALTER TABLE {lake.table} DROP COLUMN name")

    with pytest.raises(Refused, match=r"source Iceberg-1: column name of .* was dropped"):
        of.read(lake.session, part)


@pytest.mark.req("E4", "E5")
def test_an_incremental_slice_whose_snapshots_were_expired_is_refused(lake: Lake) -> None:
    of = source(lake, STREAM, streaming=True)
    lake.append_foreign(first=0)
    position = some(of.plan(lake.session, None)).after
    lake.append_foreign(first=10)
    lake.append_foreign(first=20)
    part = some(of.plan(lake.session, position))
    _, middle, _ = snapshots(lake)
    load_table(lake.session, lake.ref).expireSnapshots().expireSnapshotId(middle).commit()

    for again in (lambda: of.plan(lake.session, position), lambda: of.read(lake.session, part)):
        with pytest.raises(Refused, match="were expired before they were read"):
            again()


@pytest.mark.req("E4")
def test_a_stream_over_compaction_and_expiry_gives_every_row_once(lake: Lake) -> None:
    """As our own sink writes it, with an epoch without rows and one that was aborted."""
    of = source(lake, STREAM, streaming=True)
    position: Any = None
    read: list[int] = []

    def go_on() -> int:
        nonlocal position
        found = list(slices(lake, of, of.plan(lake.session, position, rows_max=1)))
        for part in found:
            read.extend(ids(lake, of, part))
        position = found[-1].after
        return len(found)

    assert go_on() == 1  # no snapshot yet, and that is remembered
    for epoch, rows in ((1, 3), (2, 0), (4, 2)):
        commit(lake.session, lake.ref, lake.staged(rows, lake.at(epoch)), lake.at(epoch))
    abort(lake.session, lake.ref, lake.at(5))
    compact(lake)
    lake.append_foreign(first=1, rows=2)
    assert go_on() == 3  # the first, the second with rows, the last; the rest beside them
    compact(lake)
    expire(lake)
    assert go_on() == 1
    compact(lake)
    expire(lake)
    lake.append_foreign(first=7)
    assert go_on() == 1

    assert read == [1000, 1001, 1002, 4000, 4001, 1, 2, 7]
    assert of.plan(lake.session, position) is None


def test_what_was_deleted_can_not_be_read_as_appends(lake: Lake) -> None:
    of = source(lake, STREAM, streaming=True)
    lake.append_foreign(first=0, rows=5)
    position = some(of.plan(lake.session, None)).after
    sql(lake.session, f"DELETE FROM {lake.table} WHERE id < 9")
    deleted = snapshots(lake)[-1]

    with pytest.raises(
        Refused, match=rf"source Iceberg-1: snapshot {deleted} of .* operation 'delete'"
    ):
        of.plan(lake.session, position)


def test_a_stream_begins_where_it_is_told(lake: Lake) -> None:
    for first in (0, 10, 20):
        lake.append_foreign(first=first)
    rows = sql(
        lake.session,
        f"SELECT snapshot_id, unix_millis(committed_at) AS at FROM {lake.table}.snapshots "
        "ORDER BY committed_at",
    )
    snapshot, at_ms = int(rows[1]["snapshot_id"]), int(rows[1]["at"])
    expected: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [20, 30]),
        ({"stream_scan_strategy": "FROM_LATEST_SNAPSHOT"}, [20, 30]),
        ({"stream_scan_strategy": "FROM_EARLIEST_SNAPSHOT"}, [0, 10, 20, 30]),
        (STREAM, [0, 10, 20, 30]),
        (
            {"stream_scan_strategy": "FROM_SNAPSHOT_ID", "start_snapshot_id": snapshot},
            [10, 20, 30],
        ),
        (
            {"stream_scan_strategy": "FROM_SNAPSHOT_TIMESTAMP", "start_snapshot_timestamp": at_ms},
            [10, 20, 30],
        ),
    ]
    begun = [
        (of := source(lake, options, streaming=True), of.plan(lake.session, None))
        for options, _ in expected
    ]
    lake.append_foreign(first=30)

    for (of, first), (options, rows_read) in zip(begun, expected, strict=True):
        assert (of.bounded, of.repeatable) == (False, True)
        assert [
            row for part in slices(lake, of, first) for row in ids(lake, of, part)
        ] == rows_read, options
