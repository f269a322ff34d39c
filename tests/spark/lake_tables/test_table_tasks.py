"""A table is planned, rewritten and committed by tasks, and holds the same rows afterwards."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from headrace.errors import Refused
from headrace.model.tables.files import Partition
from headrace.protocol.tables import Clocks
from headrace.worker.tables import evaluation
from headrace.worker.warm_session import WarmSpark
from tests.spark.scans import FAR_FUTURE_MS
from tests.spark.table_stand import NOW_MS, Tasks
from tests.spark.written import MERGE_ON_READ, Written, copy_of, six_files


@pytest.fixture
def tasks(warm: WarmSpark, warehouse: str) -> Tasks:
    return Tasks(warm, warehouse)


@pytest.fixture
def written(session: SparkSession, warehouse: str) -> Written:
    return six_files(session, warehouse)


def test_a_table_with_position_and_equality_deletes_is_optimized_and_comes_to_rest(
    tasks: Tasks, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "BINS_PER_TASK_MAX", 1)
    written.sql("DELETE FROM {t} WHERE id IN (2, 12, 13)")
    written.delete_named(["4", "24"], partition="p=0")
    copy = copy_of([n for n in range(30) if n not in (2, 12, 13, 4, 24)])

    pending = tasks.look(written).pending
    planned = tasks.plan(written)

    assert pending is not None
    assert (pending.type, pending.partitions, pending.files) == ("MINOR", 2, 6)
    assert (pending.equality_deletes, pending.files_after) == (1, 2)
    assert (planned.type, planned.left, planned.reason) == ("MINOR", 0, None)
    assert [len(bins) for bins in planned.tasks] == [1, 1]
    assert [each.number for bins in planned.tasks for each in bins] == [0, 1]
    assert planned.done == {"0/p=0": "MINOR", "0/p=1": "MINOR"}

    outcome = tasks.process(written, planned)

    assert (outcome.outcome, outcome.bins, outcome.conflicts) == ("COMMITTED", (0, 1), {})
    assert outcome.snapshot == written.scan().snapshot
    assert written.rows() == copy
    assert (len(written.scan().files), written.delete_files()) == (2, 0)
    assert tasks.look(written).pending is None
    assert tasks.plan(written).reason == "no partition needs it by any rule"


def test_deletion_vectors_and_a_declared_order_are_kept_by_a_forced_full(
    tasks: Tasks, session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse, properties={"format-version": "3", **MERGE_ON_READ})
    written.append(0)
    written.append(10)
    written.sql("DELETE FROM {t} WHERE id IN (2, 3, 12)")
    written.sql("ALTER TABLE {t} WRITE ORDERED BY id DESC")
    just_done: Clocks = {"0/": (NOW_MS, NOW_MS, NOW_MS, None)}
    lineage = written.rows("id, _row_id, _last_updated_sequence_number")

    assert tasks.plan(written, clocks=just_done).reason == "no partition needs it by any rule"
    planned = tasks.plan(written, clocks=just_done, at_least="FULL")
    assert (planned.type, planned.done) == ("FULL", {"0/": "FULL"})
    outcome = tasks.process(written, planned)

    assert outcome.outcome == "COMMITTED"
    (only,) = written.scan().files
    assert (only.rows, only.deletes, only.sorted) == (17, (), True)
    ids = [row["id"] for row in written.sql("SELECT id FROM {t}")]
    assert ids == sorted((n for n in range(20) if n not in (2, 3, 12)), reverse=True)
    assert written.rows("id, _row_id, _last_updated_sequence_number") == lineage
    nothing = tasks.plan(written, at_least="FULL").reason
    assert nothing == "no rewrite would gain anything: as few files as can be, and no deletes"


def test_files_of_an_old_spec_are_moved_to_the_new_one(tasks: Tasks, written: Written) -> None:
    written.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)")
    written.append(30, 4)

    planned = tasks.plan(written)
    outcome = tasks.process(written, planned)

    assert outcome.outcome == "COMMITTED"
    assert written.rows() == copy_of(list(range(34)))
    specs = {file.partition.spec for file in written.scan().files}
    assert specs == {1}


def test_a_filter_keeps_the_deletes_that_files_outside_it_need(
    tasks: Tasks, session: SparkSession, warehouse: str
) -> None:
    written = Written(
        session, warehouse, properties={"self-optimizing.filter": "id < 20", **MERGE_ON_READ}
    )
    for first in (0, 10, 20, 30):
        written.append(first)
    written.delete_named(["3", "13", "23", "33"])  # one file, for all of them

    planned = tasks.plan(written)
    assert planned.gain is not None
    assert (planned.gain.files_before, planned.gain.deletes_removed) == (2, 0)
    outcome = tasks.process(written, planned)

    assert outcome.outcome == "COMMITTED"
    assert written.ids() == [n for n in range(40) if n % 10 != 3]
    assert (len(written.scan().files), written.delete_files()) == (3, 1)


def test_what_has_no_room_waits_for_another_process(tasks: Tasks, written: Written) -> None:
    planned = tasks.plan(written, budget_bytes=1)

    assert (len(planned.tasks), planned.left, planned.done) == (1, 1, {"0/p=0": "MINOR"})
    assert tasks.process(written, planned).outcome == "COMMITTED"
    after = tasks.plan(written, budget_bytes=1)
    assert (after.left, after.done) == (0, {"0/p=1": "MINOR"})


def test_a_table_without_work_says_why(
    tasks: Tasks, session: SparkSession, warehouse: str, written: Written
) -> None:
    empty = Written(session, warehouse)
    assert tasks.plan(empty).reason == "it has no snapshot yet, and so no files"
    shunned = tuple(file.path for file in written.scan().files)
    assert "6 files are left out" in (tasks.plan(written, left_out=shunned).reason or "")
    written.sql("ALTER TABLE {t} SET TBLPROPERTIES ('self-optimizing.enabled'='false')")
    assert tasks.plan(written).reason == "self-optimizing.enabled is false"
    assert tasks.plan(written, at_least="MINOR").type == "MINOR"
    written.sql("DROP TABLE {t}")
    with pytest.raises(Refused, match=r"there is no table headrace\.tests"):
        tasks.plan(written)


def test_a_file_that_is_lost_is_named_and_the_other_bins_are_kept(
    tasks: Tasks, written: Written
) -> None:
    planned = tasks.plan(written)
    (bins,) = planned.tasks
    lost = bins[0].paths[1]
    Path(urlsplit(lost).path).unlink()

    (made,) = tasks.rewrite(written, planned)

    assert [one["number"] for one in made.rewritten] == [1]
    (failed,) = made.failed
    assert (failed.number, failed.path) == (0, lost)
    assert "NotFoundException" in failed.error
    outcome = tasks.commit(tasks.commit_payload(written, planned, [made]))
    assert (outcome.outcome, outcome.bins) == ("COMMITTED", (1,))
    keys = [file.partition for file in written.scan().files]
    assert keys.count(Partition(0, "p=1")) == 1


def test_a_snapshot_that_was_expired_is_refused_without_another_try(
    tasks: Tasks, written: Written
) -> None:
    planned = tasks.plan(written)
    written.append(30)
    written.table.expireSnapshots().expireOlderThan(FAR_FUTURE_MS).retainLast(1).commit()

    with pytest.raises(Refused, match="was expired since it was planned; plan again"):
        tasks.rewrite(written, planned)


def test_a_table_made_anew_under_its_name_is_refused(tasks: Tasks, written: Written) -> None:
    planned = tasks.plan(written)
    written.sql("DROP TABLE {t}")
    written.sql("CREATE TABLE {t} (id bigint, p int, name string) USING iceberg")

    with pytest.raises(Refused, match="was dropped, or made anew, since process p1 planned it"):
        tasks.rewrite(written, planned)
