"""A scan tells every file of a table with the deletes that apply to it; a probe scans nothing."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.lake.catalog import TableMissing
from headrace.lake.iceberg import file_records
from headrace.lake.iceberg.scan import probe
from headrace.model.tables.files import DeleteKind, Partition
from tests.spark.lake import some
from tests.spark.written import MERGE_ON_READ, Written, by_partition


def test_a_table_without_a_snapshot_has_no_files(session: SparkSession, warehouse: str) -> None:
    written = Written(session, warehouse)

    found, told = written.scan(), probe(session, written.ref)

    assert (found.snapshot, found.sequence, list(found.files)) == (None, 0, [])
    assert (told.snapshot, told.files, told.format_version) == (None, None, 2)


def test_every_file_is_told_with_its_partition_size_and_rows(
    session: SparkSession, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_records, "PAGE_FILES", 2)  # several pages
    written = Written(session, warehouse, partitioned="p")
    for first in (0, 10, 20):
        written.append(first)

    found, told = written.scan(), probe(session, written.ref)

    rows = written.sql("SELECT file_path, file_size_in_bytes, record_count FROM {t}.files")
    assert {(f.path, f.bytes, f.rows) for f in found.files} == {tuple(row) for row in rows}
    assert by_partition(found).keys() == {Partition(0, "p=0"), Partition(0, "p=1")}
    assert (len(found.files), told.files, told.rows) == (6, 6, 30)
    assert (told.snapshot, told.sequence) == (found.snapshot, found.sequence)
    assert told.bytes == sum(file.bytes for file in found.files)
    assert found.properties["write.distribution-mode"] == "none"


def test_partitions_are_called_as_iceberg_calls_their_folders(
    session: SparkSession, warehouse: str
) -> None:
    columns = "id bigint, y date, m date, d timestamp, h timestamp, s string, b boolean, n double"
    by = "years(y), months(m), days(d), hours(h), s, bucket(4, id), truncate(2, s), b"
    written = Written(session, warehouse, columns=columns, partitioned=by)
    written.sql(
        "INSERT INTO {t} VALUES (1, date'1969-03-01', date'1969-03-01', timestamp'1969-12-31 "
        "23:30:00', timestamp'2026-02-03 04:05:06', 'a b/c=d*~ü', true, 1.5),"
        "(2, date'2026-03-01', null, timestamp'2026-01-01 00:00:00', null, '', null, 2.5)"
    )

    found = written.scan()

    for file in found.files:
        assert f"/data/{file.partition.key}/" in file.path
    assert len({file.partition for file in found.files}) == 2


def test_position_deletes_of_version_2_are_attached_to_their_files(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse, partitioned="p", properties=MERGE_ON_READ)
    written.append(0)
    written.append(10)
    written.sql("DELETE FROM {t} WHERE id IN (2, 12)")

    found = written.scan()

    even = [file for file in found.files if file.partition.key == "p=0"]
    odd = [file for file in found.files if file.partition.key == "p=1"]
    assert all(found.deletes_of(file)[0].kind is DeleteKind.POSITION for file in even)
    assert [file.deletes for file in odd] == [(), ()]
    assert sum(one.rows for one in found.deletes) == 2


def test_deletion_vectors_of_one_file_are_told_apart(session: SparkSession, warehouse: str) -> None:
    properties = {"format-version": "3", **MERGE_ON_READ}
    written = Written(session, warehouse, properties=properties)
    written.append(0)
    written.append(10)
    written.sql("DELETE FROM {t} WHERE id IN (2, 3, 12)")

    found = written.scan()

    assert [one.kind for one in found.deletes] == [DeleteKind.VECTOR, DeleteKind.VECTOR]
    assert len({one.path for one in found.deletes}) == 1
    assert sorted(one.rows for one in found.deletes) == [1, 2]
    assert sorted(file.deletes for file in found.files) == [(0,), (1,)]
    told = probe(session, written.ref)
    assert (told.position_deletes, told.delete_files) == (3, 2)


def test_an_equality_delete_stands_once_and_applies_to_all_earlier_files(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    written.append(0)
    written.append(10)
    written.delete_named(["3", "13"])
    written.append(20)

    found = written.scan()

    assert [(one.kind, one.rows) for one in found.deletes] == [(DeleteKind.EQUALITY, 2)]
    assert sorted(file.deletes for file in found.files) == [(), (0,), (0,)]
    assert written.ids() == [n for n in range(30) if n not in (3, 13)]


def test_files_written_in_the_declared_order_are_told(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    written.append(0)
    written.sql("ALTER TABLE {t} WRITE LOCALLY ORDERED BY name")
    written.append(10)

    assert sorted(file.sorted for file in written.scan().files) == [False, True]


def test_two_specs_with_the_same_path_are_two_partitions(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse, partitioned="p")
    written.append(0)
    written.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)")
    written.sql("ALTER TABLE {t} DROP PARTITION FIELD bucket(2, id)")
    written.sql("ALTER TABLE {t} ADD PARTITION FIELD truncate(100, id)")
    written.append(10)

    partitions = by_partition(written.scan()).keys()

    assert len({partition.spec for partition in partitions}) == 2


def test_a_filter_leaves_out_files_that_can_not_match(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse, partitioned="p")
    for first in (0, 10, 20):
        written.append(first)

    assert {file.partition.key for file in written.scan("p = 1").files} == {"p=1"}
    assert len(written.scan("p = 0 AND id > 3 + 12").files) == 2
    assert len(written.scan("true").files) == 6
    assert len(written.scan("1 = 2").files) == 0


def test_a_filter_that_names_no_column_is_refused_with_the_columns(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    written.append(0)

    for wrong in ("day > 3", "id >"):
        with pytest.raises(Refused, match=r"self-optimizing.filter .*id, p, name"):
            written.scan(wrong)


def test_after_a_rollback_the_sequence_is_that_of_the_current_snapshot(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    written.append(0)
    first = some(written.scan().snapshot)
    written.append(10)
    written.sql(f"CALL headrace.system.rollback_to_snapshot('{written.name}', {first})")

    found = written.scan()

    assert (found.snapshot, found.sequence, len(found.files)) == (first, 1, 1)


def test_a_table_that_is_not_there_is_missing(session: SparkSession, warehouse: str) -> None:
    written = Written(session, warehouse)
    written.sql("DROP TABLE {t}")

    with pytest.raises(TableMissing):
        written.scan()
    with pytest.raises(TableMissing):
        probe(session, written.ref)
