"""What is rewritten has the same rows in fewer files, deletes applied, and nobody sees it yet."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, Refused
from headrace.lake.iceberg import rewrite as rewriting
from headrace.lake.iceberg.catalogs import local_path
from headrace.lake.iceberg.file_records import Inputs, Rewritten
from headrace.model.tables.files import DeleteKind
from headrace.spark.jvm_bridge import singleton
from tests.spark.lake import some, staged_files
from tests.spark.written import MERGE_ON_READ, Written, by_partition, copy_of, groups_of

V3 = {"format-version": "3", **MERGE_ON_READ}


def test_what_is_rewritten_is_staged_in_its_own_folder_and_nobody_sees_it(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse, partitioned="p")
    for first in (0, 10, 20):
        written.append(first)
    before = written.scan()

    made = written.rewrite(written.choose(before), written.at(execution="r7.2"))

    folder = some(local_path(written.at(execution="r7.2").folder(str(written.table.location()))))
    assert [len(one.added) for one in made] == [1, 1]
    assert len(staged_files(folder)) == 2
    assert [one.rows for one in made] == [15, 15]
    assert all("upper-bounds" in one.added[0] for one in made)
    assert written.scan() == before
    assert written.rows() == copy_of(list(range(30)))
    assert "write.data.path" not in dict(written.table.properties())


def test_records_survive_the_way_through_a_store(session: SparkSession, warehouse: str) -> None:
    written = Written(session, warehouse, partitioned="p", properties=V3)
    written.append(0)
    written.append(10)
    written.sql("DELETE FROM {t} WHERE id = 4")

    inputs = [
        Inputs.model_validate_json(one.model_dump_json()) for one in written.choose(written.scan())
    ]
    made = [Rewritten.model_validate_json(one.model_dump_json()) for one in written.rewrite(inputs)]
    written.replace(groups_of(inputs, made))

    assert written.rows() == copy_of([n for n in range(20) if n != 4])
    assert len(written.scan().files) == 2


def test_many_bins_are_one_spark_job_and_each_becomes_a_file(
    session: SparkSession, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(session, warehouse, partitioned="p")
    for first in (0, 20, 40):
        written.append(first, 20, partitions=10)
    runs: list[int] = []
    run: Any = rewriting._run  # pyright: ignore[reportPrivateUsage]

    def counted(write: Any, bins: Any, **options: Any) -> Any:
        runs.append(len(bins))
        return run(write, bins, **options)

    monkeypatch.setattr(rewriting, "_run", counted)
    written.replace(written.rewritten())

    found = written.scan()
    assert runs == [10]
    assert (len(found.files), len(by_partition(found))) == (10, 10)
    assert written.rows() == copy_of(list(range(60)), 10)


def test_two_bins_of_one_partition_stay_apart(session: SparkSession, warehouse: str) -> None:
    written = Written(session, warehouse)
    for first in (0, 10, 20, 30):
        written.append(first)
    found = written.scan()
    paths = [file.path for file in found.files]

    inputs = written.choose(found, [paths[:1] + paths[3:], paths[1:3]])
    made = written.rewrite(inputs)
    written.replace(groups_of(inputs, made))

    assert [(len(one.added), one.rows) for one in made] == [(1, 20), (1, 20)]
    assert written.rows() == copy_of(list(range(40)))
    assert len(written.scan().files) == 2


@pytest.mark.parametrize("version", ["2", "3"])
def test_deletes_by_position_are_applied_and_go(
    session: SparkSession, warehouse: str, version: str
) -> None:
    properties = {**MERGE_ON_READ, "format-version": version}
    written = Written(session, warehouse, partitioned="p", properties=properties)
    written.append(0)
    written.append(10)
    written.sql("DELETE FROM {t} WHERE id IN (2, 3, 12)")
    written.sql("UPDATE {t} SET name = 'new' WHERE id = 14")
    copy = [(n, n % 2, "new" if n == 14 else str(n)) for n in range(20) if n not in (2, 3, 12)]
    assert written.rows() == copy

    written.replace(written.rewritten())

    found = written.scan()
    assert written.rows() == copy
    assert (len(found.files), list(found.deletes)) == (2, [])
    assert written.delete_files() == 0


def test_equality_deletes_are_applied_and_go_when_no_file_needs_them(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    written.append(0)
    written.append(10)
    written.delete_named(["3", "13"])
    written.append(3, 1)  # came back after the delete, and must stay
    copy = copy_of([n for n in range(20) if n != 13])
    assert written.rows() == copy
    assert [one.kind for one in written.scan().deletes] == [DeleteKind.EQUALITY]

    written.replace(written.rewritten())

    assert written.rows() == copy
    assert len(written.scan().files) == 1
    assert written.delete_files() == 0


def test_a_delete_that_a_file_left_out_still_needs_is_reserved(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    for first in (0, 10, 20):
        written.append(first)
    written.delete_named(["3", "13", "23"])
    copy = copy_of([n for n in range(30) if n not in (3, 13, 23)])
    found = written.scan()

    first = written.choose(found, [[file.path for file in found.files[:2]]])
    written.replace(groups_of(first, written.rewrite(first)))

    left = written.scan()
    assert written.rows() == copy
    assert (len(left.files), written.delete_files()) == (2, 1)
    assert sorted(file.deletes for file in left.files) == [(), (0,)]

    second = written.choose(left, [[file.path for file in left.files]])
    written.replace(groups_of(second, written.rewrite(second, written.at(2))), written.at(2))

    assert written.rows() == copy
    assert (len(written.scan().files), written.delete_files()) == (1, 0)


def test_a_bin_whose_rows_are_all_deleted_becomes_no_file(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse, partitioned="p")
    written.append(0, 4)
    written.append(4, 4)
    written.delete_named(["0", "2", "4", "6"], partition="p=0")

    groups = written.rewritten()
    written.replace(groups)

    assert sorted(len(group.rewritten[0].added) for group in groups) == [0, 1]
    assert written.rows() == copy_of([1, 3, 5, 7])
    assert (len(written.scan().files), written.delete_files()) == (1, 0)


def test_version_3_rows_keep_their_lineage(session: SparkSession, warehouse: str) -> None:
    written = Written(session, warehouse, properties=V3)
    written.append(0)
    written.append(10)
    written.sql("UPDATE {t} SET name = 'new' WHERE id IN (4, 14)")
    written.sql("DELETE FROM {t} WHERE id = 5")
    lineage = "id, name, _row_id, _last_updated_sequence_number"
    before = written.rows(lineage)
    assert {row[3] for row in before} == {1, 2, 3}

    written.replace(written.rewritten())

    assert written.rows(lineage) == before
    assert (len(written.scan().files), written.delete_files()) == (1, 0)


def test_files_that_do_not_tell_their_bin_are_not_believed(
    session: SparkSession, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(session, warehouse, partitioned="p")
    written.append(0, 11)
    monkeypatch.setattr(rewriting, "_task_place", lambda _path: 0)  # pyright: ignore

    with pytest.raises(HeadraceError, match="rows were written; nothing is replaced"):
        written.rewritten()


def test_a_plan_from_a_snapshot_that_is_gone_is_refused(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    written.append(0)
    found = written.scan()
    written.append(10)
    written.sql(
        f"CALL headrace.system.expire_snapshots(table => '{written.name}', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )

    with pytest.raises(Refused, match="was expired since it was planned; plan again"):
        written.choose(found)
    with pytest.raises(Refused, match=r"1 planned files are not in snapshot .* nowhere"):
        written.choose(written.scan(), [["nowhere"]])


def test_a_table_made_anew_is_not_rewritten(session: SparkSession, warehouse: str) -> None:
    written = Written(session, warehouse)
    written.append(0)
    inputs = written.choose(written.scan())
    written.sql("DROP TABLE {t}")
    written.sql("CREATE TABLE {t} (id bigint, p int, name string) USING iceberg")

    with pytest.raises(Refused, match="made anew"):
        written.rewrite(inputs)


def test_a_rewrite_that_fails_leaves_nothing_in_the_session(
    session: SparkSession, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(session, warehouse)
    written.append(0)
    inputs = written.choose(written.scan())
    some(local_path(inputs[0].tasks[0]["data-file"]["file-path"])).unlink()

    with pytest.raises(Exception, match=r"NotFound|does not exist|FileNotFound"):
        written.rewrite(inputs)

    sets = singleton(session, "org.apache.iceberg.spark.ScanTaskSetManager")
    assert sets.fetchSetIds(written.table).isEmpty()
    assert written.scan().snapshot == inputs[0].snapshot
