"""What others changed meanwhile is found and named by group; everything else is replaced."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headrace.exactly_once.target import SpendLimits
from headrace.lake.iceberg.commit import look
from headrace.lake.iceberg.commit_target import SPEND_TRIES_MAX, IcebergTarget
from headrace.lake.iceberg.replace import abort, discard
from headrace.lake.iceberg.replace_conflicts import BinGroup
from headrace.lake.iceberg.token import ProcessAt
from headrace.model.tables.files import DeleteKind
from tests.spark.written import MERGE_ON_READ, Written, by_partition, copy_of, groups_of, six_files

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IcebergTarget, "limits", SpendLimits(SPEND_TRIES_MAX, wait_s=0))


@pytest.fixture
def written(session: SparkSession, warehouse: str) -> Written:
    return six_files(session, warehouse)


def group_of(written: Written, groups: list[BinGroup], key: str) -> int:
    """The number of the group that holds a partition."""
    keys = sorted(partition.key for partition in by_partition(written.scan()))
    return groups[keys.index(key)].number


@pytest.mark.parametrize("version", ["2", "3"])
def test_rows_deleted_meanwhile_conflict_in_their_group_only(
    session: SparkSession, warehouse: str, version: str
) -> None:
    properties = {**MERGE_ON_READ, "format-version": version}
    written = Written(session, warehouse, partitioned="p", properties=properties)
    written.append(0)
    written.append(10)
    groups = written.rewritten()
    written.sql("DELETE FROM {t} WHERE id = 7")  # of p=1

    outcome = written.replace(groups)

    hit, spared = group_of(written, groups, "p=1"), group_of(written, groups, "p=0")
    assert (outcome.groups, outcome.conflicts.keys()) == ({spared}, {hit})
    assert "were deleted" in outcome.conflicts[hit]
    assert written.rows() == copy_of([n for n in range(20) if n != 7])
    assert {key.key: len(paths) for key, paths in by_partition(written.scan()).items()} == {
        "p=0": 1,
        "p=1": 2,
    }
    assert discard(session, written.ref, written.at()) == 1
    assert written.rows() == copy_of([n for n in range(20) if n != 7])


def test_files_removed_meanwhile_conflict_in_their_group_only(written: Written) -> None:
    groups = written.rewritten()
    written.sql(
        f"CALL headrace.system.rewrite_data_files(table => '{written.name}', where => 'p = 0', "
        "options => map('rewrite-all', 'true'))"
    )

    outcome = written.replace(groups)

    hit = group_of(written, groups, "p=0")
    assert outcome.conflicts.keys() == {hit}
    assert "was removed" in outcome.conflicts[hit]
    assert written.rows() == copy_of(list(range(30)))
    assert len(written.scan().files) == 2


def test_when_every_group_conflicts_nothing_is_committed_and_the_token_is_unspent(
    written: Written,
) -> None:
    at = written.at()
    groups = written.rewritten(at)
    written.sql("DELETE FROM {t} WHERE id IN (6, 7)")

    outcome = written.replace(groups, at)

    assert (outcome.groups, outcome.snapshot) == (frozenset(), None)
    assert outcome.conflicts.keys() == {0, 1}
    assert look(written.session, written.ref, at.commit_at) is None
    abort(written.session, written.ref, at)
    assert written.staged(at) == []
    assert written.rows() == copy_of([n for n in range(30) if n not in (6, 7)])


def test_an_equality_delete_that_came_meanwhile_applies_to_the_new_files(
    session: SparkSession, warehouse: str
) -> None:
    written = Written(session, warehouse)
    written.append(0)
    written.append(10)
    groups = written.rewritten()
    written.delete_named(["7", "17"])

    outcome = written.replace(groups)

    found = written.scan()
    assert not outcome.conflicts
    assert written.rows() == copy_of([n for n in range(20) if n not in (7, 17)])
    assert [one.kind for one in found.deletes] == [DeleteKind.EQUALITY]
    assert [file.deletes for file in found.files] == [(0,)]


def test_an_equality_delete_that_iceberg_would_lose_is_a_conflict(
    session: SparkSession, warehouse: str
) -> None:
    """All files of the table are replaced, and all that is left is younger than the delete."""
    written = Written(session, warehouse)
    written.append(0)
    written.append(10)
    groups = written.rewritten()
    written.delete_named(["7", "17"])
    written.append(7, 1)  # and one came back
    copy = copy_of([n for n in range(20) if n != 17])

    outcome = written.replace(groups)

    assert "would lose" in outcome.conflicts[0]
    assert written.rows() == copy
    written.replace(written.rewritten(written.at(2)), written.at(2))  # planned again
    assert written.rows() == copy
    assert len(written.scan().files) == 1


def test_appends_meanwhile_are_no_conflict(written: Written) -> None:
    groups = written.rewritten()
    written.append(30)

    assert not written.replace(groups).conflicts
    assert written.rows() == copy_of(list(range(40)))
    assert len(written.scan().files) == 4


def test_an_expired_base_snapshot_is_a_conflict_of_all_groups(written: Written) -> None:
    groups = written.rewritten()
    written.append(30)
    written.append(40)
    written.sql(
        f"CALL headrace.system.expire_snapshots(table => '{written.name}', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )

    outcome = written.replace(groups)

    assert outcome.conflicts.keys() == {0, 1}
    assert all("was expired" in reason for reason in outcome.conflicts.values())
    assert written.rows() == copy_of(list(range(50)))


def test_a_plan_that_was_rolled_back_is_a_conflict_though_its_files_stay(
    written: Written,
) -> None:
    """Iceberg can't tell what came since, and would refuse it every time."""
    before = written.scan().snapshot
    written.append(31, 1)
    paths = by_partition(written.scan())
    (even,) = [found for key, found in paths.items() if key.key == "p=0"]
    inputs = written.choose(written.scan(), [even])
    groups = groups_of(inputs, written.rewrite(inputs))
    place = written.name.removeprefix("headrace.")
    written.sql(f"CALL headrace.system.rollback_to_snapshot('{place}', {before})")

    outcome = written.replace(groups)

    assert "rolled back" in outcome.conflicts[0]
    assert written.rows() == copy_of(list(range(30)))


def test_a_delete_is_not_lost_to_a_process_of_another_headrace(
    session: SparkSession, warehouse: str
) -> None:
    """It gave back what it took with a number that is younger than the delete."""
    written = Written(session, warehouse)
    for first in (0, 10, 20):
        written.append(first)
    planned = written.scan()
    ours, others = [file.path for file in planned.files[:2]], planned.files[2].path
    inputs = written.choose(planned, [ours])
    groups = groups_of(inputs, written.rewrite(inputs))
    written.delete_named(["0", "1", "10", "11", "20", "21"])
    written.append(30)
    theirs = written.choose(written.scan(), [[others]])
    at = ProcessAt("another", 1, "r1.1")
    assert written.replace(groups_of(theirs, written.rewrite(theirs, at)), at).groups == {0}

    outcome = written.replace(groups)

    assert "would lose" in outcome.conflicts[0]
    deleted = (0, 1, 10, 11, 20, 21)
    assert written.rows() == copy_of([n for n in range(40) if n not in deleted])
