"""What is rewritten has the layout that the table asks for today: spec, columns, order, size."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headrace.lake.iceberg.rewrite import rewrite
from tests.spark.written import Written, copy_of, groups_of


def test_files_of_an_old_spec_move_to_the_present_one(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    written.append(0)
    written.append(10)
    written.sql("ALTER TABLE {t} ADD PARTITION FIELD p")
    written.append(20)
    written.sql("DELETE FROM {t} WHERE id = 7")

    written.replace(written.rewritten())

    found = written.scan()
    assert written.rows() == copy_of([n for n in range(30) if n != 7])
    assert {file.partition.spec for file in found.files} == {1}
    assert len(found.files) == 4  # of each partition one that moved, and one that was there


def test_old_files_are_rewritten_with_the_columns_of_today(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse, columns="id bigint, p int, name string, gone int")
    written.sql("INSERT INTO {t} VALUES (1, 1, 'one', 5), (2, 0, 'two', 6)")
    written.sql("ALTER TABLE {t} RENAME COLUMN name TO called")
    written.sql("ALTER TABLE {t} ALTER COLUMN p TYPE bigint")
    written.sql("ALTER TABLE {t} DROP COLUMN gone")
    written.sql("ALTER TABLE {t} ADD COLUMN gone string")
    written.sql("INSERT INTO {t} VALUES (3, 5000000000, 'three', 'x')")
    copy = [(1, 1, "one", "-"), (2, 0, "two", "-"), (3, 5_000_000_000, "three", "x")]
    columns = "id, p, called, coalesce(gone, '-')"
    assert written.rows(columns) == copy

    written.replace(written.rewritten())

    assert written.rows(columns) == copy
    assert len(written.scan().files) == 1
    assert len(written.scan("p > 4000000000").files) == 1


def test_a_declared_order_is_kept_in_each_file(session: SparkSession, warehouse: str) -> None:
    written = Written(session, warehouse, partitioned="p")
    written.append(0)
    written.sql("ALTER TABLE {t} WRITE LOCALLY ORDERED BY id DESC")
    written.append(10)
    written.append(5, 3)

    groups = written.rewritten()
    written.replace(groups)

    found = written.scan()
    assert [file.sorted for file in found.files] == [True, True]
    for file in found.files:
        ids = [row[0] for row in session.read.parquet(file.path).select("id").collect()]
        assert ids == sorted(ids, reverse=True)
    assert written.ids() == sorted([*range(20), *range(5, 8)])


def test_a_bin_above_the_target_becomes_several_files(
    session: SparkSession, warehouse: str
) -> None:
    properties = {"write.parquet.row-group-size-bytes": "4096"}
    written = Written(session, warehouse, properties=properties)
    written.append(0, 20_000)
    written.append(20_000, 20_000)
    inputs = written.choose(written.scan())

    made = rewrite(session, written.ref, inputs, written.at(), target_bytes=50_000)
    written.replace(groups_of(inputs, made))

    assert len(made[0].added) > 1
    assert written.ids() == list(range(40_000))
