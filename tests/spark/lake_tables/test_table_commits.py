"""A process is committed once or given up once, whoever asks and however often."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.errors import Fenced, Unavailable
from headrace.exactly_once.target import SpendLimits
from headrace.lake.iceberg.commit_target import SPEND_TRIES_MAX, IcebergTarget
from headrace.model.jobs.epoch import Moment
from headrace.protocol.tables import CatalogSpec, CommitPayload, Planned
from headrace.seams import arm, disarm_all
from headrace.worker.warm_session import WarmSpark
from tests.spark.table_stand import Tasks
from tests.spark.written import Written, copy_of, six_files

pytestmark = pytest.mark.usefixtures("quick")
AWAY = CatalogSpec(
    name="away",
    type="jdbc",
    properties={"uri": "jdbc:postgresql://127.0.0.1:1/none", "warehouse": "file:/nowhere"},
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IcebergTarget, "limits", SpendLimits(SPEND_TRIES_MAX, wait_s=0))


@pytest.fixture
def tasks(warm: WarmSpark, warehouse: str) -> Tasks:
    return Tasks(warm, warehouse)


@pytest.fixture
def written(session: SparkSession, warehouse: str) -> Written:
    return six_files(session, warehouse)


def staged(tasks: Tasks, written: Written) -> tuple[Planned, CommitPayload]:
    planned = tasks.plan(written)
    return planned, tasks.commit_payload(written, planned, tasks.rewrite(written, planned))


@contextmanager
def dying_at(name: str) -> Generator[None]:
    def die() -> None:
        raise KeyboardInterrupt

    arm(name, die)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        disarm_all()


@pytest.mark.req("E1", "E3")
def test_a_commit_that_landed_and_was_not_reported_is_found_when_it_is_asked_again(
    tasks: Tasks, written: Written
) -> None:
    _, told = staged(tasks, written)
    with dying_at("table commit landed, before report"):
        tasks.commit(told)

    found = tasks.commit(told)

    assert (found.outcome, found.already, found.bins) == ("COMMITTED", True, (0, 1))
    assert found.snapshot == written.scan().snapshot
    assert written.rows() == copy_of(list(range(30)))
    assert len(written.scan().files) == 2


def test_files_of_an_execution_that_was_lost_go_with_the_commit(
    tasks: Tasks, written: Written
) -> None:
    planned = tasks.plan(written)
    tasks.rewrite(written, planned)  # its worker died, and the task was given to another
    told = tasks.commit_payload(written, planned, tasks.rewrite(written, planned))
    assert len(written.staged(written.at())) == 4

    assert tasks.commit(told).outcome == "COMMITTED"

    assert len(written.staged(written.at())) == 2
    assert written.rows() == copy_of(list(range(30)))


def test_only_the_bin_that_conflicts_is_left_and_its_files_go(
    tasks: Tasks, written: Written
) -> None:
    _, told = staged(tasks, written)
    written.sql("DELETE FROM {t} WHERE id = 2")  # by position, in p=0

    found = tasks.commit(told)

    assert (found.outcome, found.bins, list(found.conflicts)) == ("COMMITTED", (1,), ["0"])
    assert "rows of" in found.conflicts["0"]
    assert written.rows() == copy_of([n for n in range(30) if n != 2])
    assert len(written.scan().files) == 4
    assert len(written.staged(written.at())) == 1


def test_when_every_bin_conflicts_the_process_is_aborted_and_a_zombie_is_refused(
    tasks: Tasks, written: Written
) -> None:
    _, told = staged(tasks, written)
    written.sql("DELETE FROM {t} WHERE id IN (2, 3)")

    found = tasks.commit(told)

    assert (found.outcome, found.bins, set(found.conflicts)) == ("CONFLICT", None, {"0", "1"})
    assert written.staged(written.at()) == []
    assert tasks.commit(told).outcome == "ABORTED"
    assert written.rows() == copy_of([n for n in range(30) if n not in (2, 3)])


def test_an_expired_snapshot_is_a_conflict_of_every_bin(tasks: Tasks, written: Written) -> None:
    _, told = staged(tasks, written)
    written.append(30)
    written.table.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()

    found = tasks.commit(told)

    assert found.outcome == "CONFLICT"
    assert "was expired" in found.conflicts["1"]
    assert written.staged(written.at()) == []


@pytest.mark.req("E6")
def test_who_dies_between_the_abort_and_the_deletion_leaves_both_to_the_next(
    tasks: Tasks, written: Written
) -> None:
    planned, told = staged(tasks, written)
    with dying_at("before table abort"):
        tasks.discard(written, planned)
    assert len(written.staged(written.at())) == 2
    with dying_at("table abort spent, before deletion"):
        tasks.discard(written, planned)
    assert len(written.staged(written.at())) == 2
    assert tasks.commit(told).outcome == "ABORTED"

    assert tasks.discard(written, planned).files == 2
    assert written.staged(written.at()) == []


def test_aborts_of_long_ago_leave_no_property(tasks: Tasks, written: Written) -> None:
    planned = tasks.plan(written)
    told = tasks.commit_payload(written, planned, tasks.rewrite(written, planned, 2), 2)
    for number in (1, 2, 13):
        tasks.discard(written, planned, number)

    aborted = [key for key in written.table.properties() if key.startswith("headrace.aborted.")]

    assert sorted(key.rpartition(".")[2] for key in aborted) == ["13"]
    assert tasks.commit(told).outcome == "ABORTED"  # its snapshot tells


@pytest.mark.req("E1", "E6")
def test_what_is_discarded_can_not_be_committed_any_more(tasks: Tasks, written: Written) -> None:
    planned, told = staged(tasks, written)

    gone = tasks.discard(written, planned)

    assert (gone.files, gone.committed_snapshot) == (2, None)
    assert tasks.commit(told).outcome == "ABORTED"
    assert tasks.discard(written, planned).files == 0
    assert written.rows() == copy_of(list(range(30)))
    assert len(written.scan().files) == 6


def test_a_discard_after_a_commit_says_so_and_deletes_nothing_that_is_needed(
    tasks: Tasks, written: Written
) -> None:
    planned, told = staged(tasks, written)
    done = tasks.commit(told)

    found = tasks.discard(written, planned)

    assert (found.files, found.committed_snapshot) == (0, done.snapshot)
    assert written.rows() == copy_of(list(range(30)))


def test_a_table_that_is_gone_or_another_one_ends_its_process(
    tasks: Tasks, written: Written
) -> None:
    planned, told = staged(tasks, written)
    written.sql("DROP TABLE {t}")
    assert tasks.commit(told).outcome == "GONE"
    assert tasks.discard(written, planned).files == 0
    written.sql("CREATE TABLE {t} (id bigint, p int, name string) USING iceberg")

    assert tasks.commit(told).outcome == "GONE"
    assert tasks.discard(written, planned).committed_snapshot is None
    assert written.sql("SELECT * FROM {t}.snapshots") == []  # nothing was done to the new one


def test_an_execution_that_is_too_old_commits_nothing(tasks: Tasks, written: Written) -> None:
    _, told = staged(tasks, written)
    clock = SystemClock()
    long_ago = Moment(clock.monotonic_s() - 7200, clock.wall_ms() - 7_200_000)

    with pytest.raises(Fenced, match="too old to commit"):
        tasks.commit(told, since=long_ago)
    assert tasks.commit(told).outcome == "COMMITTED"


@pytest.mark.req("E3")
def test_a_commit_whose_catalog_is_away_ends_with_no_answer(tasks: Tasks, written: Written) -> None:
    _, told = staged(tasks, written)

    with pytest.raises(Unavailable, match="catalog 'away'"):
        tasks.commit(told.model_copy(update={"catalog": AWAY}))
    assert tasks.commit(told).outcome == "COMMITTED"
