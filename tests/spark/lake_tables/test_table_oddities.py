"""Tables that few people have and that some have: what they hold is the same after a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.lake.iceberg.file_records import Inputs
from headrace.model.tables.files import TableFiles
from headrace.protocol.tables import CommitResult
from headrace.worker.warm_session import WarmSpark
from tests.spark.lake import some, sql, staged_files
from tests.spark.table_stand import Tasks
from tests.spark.written import MERGE_ON_READ, Written

PASSES_MAX = 3  # of files that move to another spec: there, and then together
LINEAGE = "id, p, name, _row_id, _last_updated_sequence_number"


@pytest.fixture
def tasks(warm: WarmSpark, warehouse: str) -> Tasks:
    return Tasks(warm, warehouse)


def optimized(tasks: Tasks, written: Written, number: int = 1, columns: str = "*") -> CommitResult:
    """All that a forced full finds; the rows are as they were."""
    before = written.rows(columns)
    outcome = tasks.process(written, tasks.plan(written, at_least="FULL"), number)
    assert (outcome.outcome, outcome.conflicts) == ("COMMITTED", {})
    assert written.rows(columns) == before
    return outcome


def at_rest(tasks: Tasks, written: Written) -> bool:
    return not tasks.plan(written, at_least="FULL").tasks


def test_files_lie_where_the_table_wants_its_data_and_lost_ones_go(
    tasks: Tasks, session: SparkSession, warehouse: str, tmp_path: Path
) -> None:
    """Below a hash, in object storage without partition paths: digits in front of every name."""
    properties = {
        "write.object-storage.enabled": "true",
        "write.object-storage.partitioned-paths": "false",
        "write.data.path": f"file:{tmp_path}",
    }
    written = Written(session, warehouse, partitioned="p", properties=properties)
    for first in (0, 10):
        written.append(first, partitions=3)
    before = written.rows()
    planned = tasks.plan(written, at_least="FULL")
    tasks.rewrite(written, planned)  # whose report was lost

    outcome = tasks.process(written, planned)

    assert outcome.bins == (0, 1, 2)
    assert written.rows() == before
    mine = {str(path) for path in staged_files(tmp_path) if "/headrace/" in str(path)}
    assert {file.path.removeprefix("file:") for file in written.scan().files} == mine
    assert at_rest(tasks, written)


def test_a_rewrite_that_begins_after_its_process_was_discarded_leaves_nothing(
    tasks: Tasks, session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    written.append(0)
    written.append(10)
    planned = tasks.plan(written, at_least="FULL")
    tasks.rewrite(written, planned)
    assert tasks.discard(written, planned).files == 1

    with pytest.raises(Refused, match="is spent; nothing was rewritten"):
        tasks.rewrite(written, planned)

    assert written.staged(written.at()) == []


def test_a_file_that_was_added_twice_keeps_its_rows_twice(
    tasks: Tasks, session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    for first in (0, 10, 20):
        written.append(first)
    files = written.scan()
    again = written.table.newScan().planFiles().iterator().next().file()
    written.table.newAppend().appendFile(again).commit()

    optimized(tasks, written)

    assert len(written.ids()) == 40
    assert len(written.scan().files) == 3
    assert at_rest(tasks, written)
    with pytest.raises(Refused, match="listed twice"):
        _chosen(written, files, str(again.location()))


def _chosen(written: Written, files: TableFiles, path: str) -> list[Inputs]:
    now = written.scan()
    assert now.snapshot != files.snapshot
    return written.choose(now, [[path]])


def test_columns_that_differ_in_case_alone_are_kept_apart(
    tasks: Tasks, session: SparkSession, warehouse: str
) -> None:
    session.conf.set("spark.sql.caseSensitive", "true")
    columns = "id bigint, ID string, s struct<a:int,A:int>"
    written = Written(session, warehouse, columns=columns)
    written.sql("INSERT INTO {t} VALUES (1, 'x', struct(1, 2))")
    written.sql("INSERT INTO {t} VALUES (2, 'y', struct(3, 4))")

    optimized(tasks, written)

    assert len(written.scan().files) == 1


def test_files_by_a_column_that_was_dropped_are_left_as_they_are(
    tasks: Tasks, session: SparkSession, warehouse: str
) -> None:
    """Iceberg forgets their partitions, and would refuse to replace them for ever."""
    written = Written(session, warehouse, partitioned="p")
    written.append(0)
    written.append(10)
    written.sql("ALTER TABLE {t} DROP PARTITION FIELD p")
    written.sql("ALTER TABLE {t} DROP COLUMN p")
    for number in (100, 101):
        written.sql(f"INSERT INTO {{t}} VALUES ({number}, 'x')")

    optimized(tasks, written)

    assert len(written.ids()) == 22
    assert len(written.sql("SELECT file_path FROM {t}.files")) == 5
    assert at_rest(tasks, written)


def test_an_equality_delete_by_a_column_that_was_dropped_is_applied(
    tasks: Tasks, session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    written.append(0)
    written.append(10)
    written.delete_named(["3", "14"])
    written.sql("ALTER TABLE {t} DROP COLUMN name")

    optimized(tasks, written)

    assert written.ids() == [n for n in range(20) if n not in (3, 14)]
    assert (len(written.scan().files), written.delete_files()) == (1, 0)


def test_rows_keep_their_lineage_through_many_processes_specs_and_orders(
    tasks: Tasks, session: SparkSession, warehouse: str
) -> None:
    properties = {**MERGE_ON_READ, "format-version": "3"}
    written = Written(session, warehouse, partitioned="p", properties=properties)
    written.append(0)
    written.append(10)
    optimized(tasks, written, 1, LINEAGE)
    written.sql("UPDATE {t} SET name = 'u' WHERE id IN (3, 4)")
    written.sql("DELETE FROM {t} WHERE id = 9")
    optimized(tasks, written, 2, LINEAGE)
    written.sql("ALTER TABLE {t} WRITE ORDERED BY name")
    written.sql("ALTER TABLE {t} REPLACE PARTITION FIELD p WITH bucket(3, id)")
    written.append(20)
    for number in range(3, 3 + PASSES_MAX):
        if at_rest(tasks, written):
            break
        optimized(tasks, written, number, LINEAGE)

    assert at_rest(tasks, written)
    assert len({row[3] for row in written.rows(LINEAGE)}) == 29


def test_branches_tags_and_picked_snapshots_lose_nothing(
    tasks: Tasks, session: SparkSession, warehouse: str
) -> None:
    properties = {**MERGE_ON_READ, "write.wap.enabled": "true"}
    written = Written(session, warehouse, partitioned="p", properties=properties)
    written.append(0)
    written.append(10)
    written.sql("ALTER TABLE {t} CREATE BRANCH b")
    written.sql("ALTER TABLE {t} CREATE TAG g")
    written.sql("DELETE FROM {t}.branch_b WHERE id = 5")
    others = {name: _rows_of(written, name) for name in "bg"}
    session.conf.set("spark.wap.id", "w1")
    written.sql("INSERT INTO {t} VALUES (800, 0, 'wap')")
    session.conf.unset("spark.wap.id")
    planned = tasks.plan(written, at_least="FULL")
    made = tasks.rewrite(written, planned)
    (picked,) = written.sql("SELECT snapshot_id FROM {t}.snapshots WHERE summary['wap.id'] = 'w1'")
    place = written.name.removeprefix("headrace.")
    sql(session, f"CALL headrace.system.cherrypick_snapshot('{place}', {picked[0]})")

    outcome = tasks.commit(tasks.commit_payload(written, planned, made))

    assert outcome.bins == (0, 1)
    assert written.ids() == [*range(20), 800]
    # Files that only a branch has are referred to as well as those of the table itself.
    written.sql("ALTER TABLE {t} CREATE BRANCH c")
    sql(session, f"CALL headrace.system.set_current_snapshot('{place}', {some(planned.snapshot)})")
    assert tasks.discard(written, planned).files == 0
    assert {name: _rows_of(written, name) for name in "bg"} == others
    assert [row[0] for row in _rows_of(written, "c")] == [*range(20), 800]


def _rows_of(written: Written, name: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = [
        tuple(row) for row in written.sql(f"SELECT * FROM {{t}} VERSION AS OF '{name}'")
    ]
    return sorted(found)
