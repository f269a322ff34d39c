"""What an ended job leaves at an Iceberg table: its rows, and neither staged files nor marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace import seams
from headrace.clock import SystemClock
from headrace.connectors.iceberg.sink import IcebergSink
from headrace.errors import Fenced, Refused, Unavailable
from headrace.lake.catalog import TableRef
from headrace.lake.iceberg import sweep as forgetting
from headrace.lake.iceberg.catalogs import exists
from headrace.lake.iceberg.commit_target import IcebergTarget
from headrace.lake.iceberg.token import TableCommitAt
from headrace.model.jobs.epoch import EpochAt, Moment, now
from tests.contracts.sink_harness import Crash, die
from tests.fakes import FakeClock
from tests.spark.lake import Lake, abort, commit, forget, sql, staged_files, sweep
from tests.spark.settings import INCARNATION, setting
from tests.spark.stand import Stand


def committed(lake: Lake, epoch: int, rows: int = 5, execution: str = "t1.1") -> Any:
    at = lake.at(epoch, execution)
    handle = lake.staged(rows, at)
    commit(lake.session, lake.ref, handle, at)
    return handle


def marks(lake: Lake) -> dict[str, str]:
    return {k: v for k, v in lake.properties().items() if k.startswith("headrace.")}


@pytest.mark.req("C2", "E6")
def test_rows_stay_readable_and_marks_and_leftovers_go(lake: Lake) -> None:
    lost, aborted = lake.at(1, "t1.0"), lake.at(2, "t1.0")
    lake.staged(5, lost)
    committed(lake, 1)
    lake.staged(5, aborted)
    abort(lake.session, lake.ref, aborted)
    late = lake.at(2, "t0.9")
    lake.staged(5, late)  # it woke after the abort
    committed(lake, 3)
    lake.append_foreign(first=1)

    forget(lake.session, lake.ref, lake.at(3, "f.1"))

    assert lake.count() == 11
    assert marks(lake) == {}
    for gone in (lost, aborted, late):
        assert not lake.folder(gone).exists()
    snapshots = len(lake.snapshots())

    forget(lake.session, lake.ref, lake.at(3, "f.2"))

    assert lake.count() == 11
    assert len(lake.snapshots()) == snapshots, "nothing is committed when there is nothing to do"


@pytest.mark.req("C2", "E4", "E6")
def test_after_snapshots_were_expired_files_of_the_table_are_told_from_leftovers(
    lake: Lake,
) -> None:
    """No snapshot says whose files were taken: those that the table still reads."""
    lost, owner = lake.at(1, "t1.0"), lake.at(1, "t1.1")
    lake.staged(5, lost)
    committed(lake, 1)
    lake.append_foreign(first=1)
    lake.expire()  # without rewriting
    assert all("headrace.commit" not in summary for summary in lake.snapshots())

    for execution in ("f.1", "f.2"):  # the second time no mark tells that the token is spent
        forget(lake.session, lake.ref, lake.at(1, execution))

        assert lake.count() == 6
        assert staged_files(lake.folder(owner))
        assert not lake.folder(lost).exists()
        assert marks(lake) == {}


@pytest.mark.req("C2", "E6")
def test_what_a_paused_process_commits_just_before_it_would_be_aborted_is_kept(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files were listed while their token was unspent; the table reads them since."""
    lost, paused = lake.at(1, "t1.0"), lake.at(1, "t1.1")
    lake.staged(3, lost)
    handle = lake.staged(5, paused)

    listed = IcebergTarget.unspent_epochs

    def then_wakes_it_up(self: IcebergTarget, at: TableCommitAt) -> Sequence[TableCommitAt]:
        unspent = listed(self, at)
        commit(lake.session, lake.ref, handle, paused)
        return unspent

    monkeypatch.setattr(IcebergTarget, "unspent_epochs", then_wakes_it_up)
    forget(lake.session, lake.ref, lake.at(1, "f.1"))

    assert lake.count() == 5
    assert not lake.folder(lost).exists()


@pytest.mark.req("C2")
def test_epochs_above_are_left_as_they_are(lake: Lake) -> None:
    """A restored run of the job commits, aborts and stages there."""
    gone, kept, other = lake.at(1, "t1.0"), lake.at(10), lake.at(11)
    lake.staged(5, gone)
    committed(lake, 1)
    abort(lake.session, lake.ref, lake.at(2))
    abort(lake.session, lake.ref, lake.at(9))
    committed(lake, 10)
    lake.staged(5, lake.at(10, "t1.0"))
    handle = lake.staged(5, other)

    forget(lake.session, lake.ref, lake.at(2, "f.1"))

    assert not lake.folder(gone).exists()
    assert marks(lake) == {kept.mark_key: "10", lake.at(9).aborted_key: "t1.1"}
    assert staged_files(lake.folder(lake.at(10, "t1.0")))
    assert not commit(lake.session, lake.ref, handle, other).already
    assert lake.count() == 15


@pytest.mark.req("C2")
def test_a_mark_raised_while_it_is_being_removed_stays(lake: Lake) -> None:
    committed(lake, 1)
    abort(lake.session, lake.ref, lake.at(2))
    handle = lake.staged(5, lake.at(3, "t2.1"))
    rounds: list[int] = []

    def restored() -> None:
        rounds.append(len(rounds))
        if len(rounds) == 1:
            commit(lake.session, lake.ref, handle, lake.at(3, "t2.1"))

    seams.arm("marks read", restored)

    forget(lake.session, lake.ref, lake.at(2, "f.1"))

    assert len(rounds) == 2, "it must read again what was changed since"
    assert marks(lake) == {lake.at(3).mark_key: "3"}
    assert lake.count() == 10


@pytest.mark.req("C2")
def test_a_table_that_others_change_all_the_time_is_said_to_be_busy(lake: Lake) -> None:
    committed(lake, 1)
    key = 0

    def meddle() -> None:
        nonlocal key
        key += 1
        sql(lake.session, f"ALTER TABLE {lake.table} SET TBLPROPERTIES ('foreign' = '{key}')")

    seams.arm("marks read", meddle)

    with pytest.raises(Unavailable, match=rf"{lake.at(1).token} could not be removed"):
        forget(lake.session, lake.ref, lake.at(1))
    assert key == forgetting.FORGET_TRIES_MAX
    assert lake.at(1).mark_key in marks(lake)


@pytest.mark.req("C2", "E6")
def test_marks_are_there_until_all_that_was_staged_is_gone(lake: Lake) -> None:
    lost = lake.at(1, "t1.0")
    zombies = lake.staged(5, lost)
    committed(lake, 1)
    lake.append_foreign(first=1)
    lake.expire()
    seams.arm("before leftovers are deleted", die)
    with pytest.raises(Crash):
        forget(lake.session, lake.ref, lake.at(1))
    seams.disarm_all()

    assert commit(lake.session, lake.ref, zombies, lost).already, "the mark still refuses it"
    forget(lake.session, lake.ref, lake.at(1))
    with pytest.raises(Refused, match="gone or damaged"):
        commit(lake.session, lake.ref, zombies, lost)
    assert lake.count() == 6


@pytest.mark.req("C2", "E1")
@pytest.mark.parametrize("suspended", [False, True])
def test_a_zombie_that_wakes_when_its_mark_is_gone_is_too_old_to_commit(
    lake: Lake, *, suspended: bool
) -> None:
    """Its very files are in the table: neither they nor any token would refuse it."""
    clock = FakeClock()
    of = lake.at(1).epoch_at
    began = EpochAt(of.incarnation, of.pipeline, of.epoch, of.execution, since=now(clock))
    at = type(lake.at(1))(began, "Iceberg-1")
    handle = committed(lake, 1)
    lake.append_foreign(first=1)
    lake.expire()
    forget(lake.session, lake.ref, at)
    if suspended:
        clock.set_wall(clock.wall_ms() + 61_000)  # its monotonic clock stood still
    else:
        clock.advance(61)

    with pytest.raises(Fenced, match="too old to commit"):
        commit(lake.session, lake.ref, handle, at, clock=clock, deadline_s=60)
    assert lake.count() == 6


@pytest.mark.req("C2", "E1")
def test_the_deadline_is_the_one_the_sink_was_made_with(
    session: SparkSession, warehouse: str
) -> None:
    """Also for save modes: a late one would drop the rows that came since."""
    stand = Stand(session, warehouse).made()
    options = {"namespace": "saving", "table": stand.name, "data_save_mode": "DROP_DATA"}
    made = setting("Iceberg", "sink", options, warehouse=warehouse, commit_deadline_s=60.0)
    to = IcebergSink("Iceberg-1", *made)
    clock = SystemClock()
    asleep = Moment(clock.monotonic_s() - 61, clock.wall_ms() - 61_000)
    late = EpochAt(INCARNATION, 1, 0, "t1.1", since=asleep)

    with pytest.raises(Fenced, match="began more than 60 s ago"):
        to.open(session, to.survey(session, stand.frame(), late), late)
    assert len(stand.rows()) == 3
    in_time = replace(late, since=now(clock))
    to.open(session, to.survey(session, stand.frame(), in_time), in_time)
    assert stand.rows() == []


def test_a_restored_job_finds_nothing_to_sweep_where_its_marks_were_forgotten(lake: Lake) -> None:
    committed(lake, 1)
    lake.append_foreign(first=1)
    lake.expire()
    forget(lake.session, lake.ref, lake.at(1))

    sweep(lake.session, lake.ref, None, lake.at(1, "t2.1"))

    assert lake.count() == 6


def test_forgetting_at_a_table_that_does_not_exist_does_nothing(lake: Lake) -> None:
    ref = TableRef(lake.ref.catalog, ("tests",), "never_made")
    forget(lake.session, ref, lake.at())

    assert not exists(lake.session, ref)


def test_a_catalog_that_can_not_compare_and_swap_keeps_the_marks(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    committed(lake, 1)
    before = marks(lake)
    operations = "org.apache.iceberg.BaseMetastoreTableOperations"  # as if it were REST's
    monkeypatch.setattr(forgetting, "_REST_OPERATIONS", operations)

    forget(lake.session, lake.ref, lake.at(1))

    assert marks(lake) == before
    assert "marks left" in caplog.text


@pytest.mark.req("C2")
def test_no_empty_folder_stays_of_an_epoch_that_was_given_up(lake: Lake) -> None:
    committed(lake, 1)
    given_up = lake.at(2, "t1.1")
    lake.staged(5, given_up)
    unwritten = lake.at(1, "t1.0")  # it died before its first file
    lake.folder(unwritten).mkdir(parents=True)

    forget(lake.session, lake.ref, lake.at(2, "f.1"))

    assert not lake.epoch_folder(given_up).exists()
    assert not lake.folder(unwritten).exists()
    assert lake.count() == 5


@pytest.mark.req("C2", "E6")
def test_of_a_job_that_committed_nothing_no_folder_stays_and_of_a_later_run_all(
    lake: Lake,
) -> None:
    given_up, later = lake.at(1, "t1.1"), lake.at(2, "t2.1")
    lake.staged(5, given_up)
    handle = lake.staged(5, later)

    forget(lake.session, lake.ref, lake.at(1, "f.1"))

    assert not lake.epoch_folder(given_up).exists()
    assert commit(lake.session, lake.ref, handle, later).already is False
    assert lake.count() == 5
    forget(lake.session, lake.ref, lake.at(2, "f.2"))

    other = TableCommitAt(replace(given_up.epoch_at, incarnation="another", epoch=1), given_up.sink)
    lake.staged(5, other)
    forget(lake.session, lake.ref, replace(other, epoch_at=replace(other.epoch_at, execution="f")))
    assert not lake.epoch_folder(other).parents[2].exists()


@pytest.mark.req("E6")
def test_a_sweep_removes_the_empty_folder_of_a_lost_execution(lake: Lake) -> None:
    lost, owner = lake.at(1, "t1.0"), lake.at(1, "t1.1")
    lake.folder(lost).mkdir(parents=True)
    handle = committed(lake, 1)

    sweep(lake.session, lake.ref, handle, owner)

    assert not lake.folder(lost).exists()
    assert lake.count() == 5


@pytest.mark.req("C2", "E4", "E6")
def test_what_is_staged_beside_files_of_the_table_goes_alone(lake: Lake) -> None:
    """Neither a snapshot nor a mark tells any more that the epoch is committed, so it is aborted:
    that says nothing about the files that the table reads."""
    owner, late = lake.at(1, "t1.1"), lake.at(1, "t0.9")
    committed(lake, 1)
    lake.append_foreign(first=1)
    lake.expire()
    forget(lake.session, lake.ref, lake.at(1, "f.1"))
    assert lake.count() == 6
    assert marks(lake) == {}
    lake.staged(5, late)

    forget(lake.session, lake.ref, lake.at(1, "f.2"))

    assert staged_files(lake.folder(owner)), "files that the table reads were deleted"
    assert not lake.folder(late).exists()
    assert lake.count() == 6
    assert marks(lake) == {}


@pytest.mark.req("C2", "E4", "E6")
def test_files_of_the_table_stay_when_a_former_try_to_forget_aborted_their_epoch(
    lake: Lake,
) -> None:
    owner, late = lake.at(1, "t1.1"), lake.at(1, "t0.9")
    committed(lake, 1)
    lake.append_foreign(first=1)
    lake.expire()
    forget(lake.session, lake.ref, lake.at(1, "f.1"))
    lake.staged(5, late)
    seams.arm("before leftovers are deleted", die)
    with pytest.raises(Crash):
        forget(lake.session, lake.ref, lake.at(1, "f.2"))
    seams.disarm_all()
    lake.append_foreign(first=2)
    lake.expire()  # the abort is a property by now, and no snapshot names it

    forget(lake.session, lake.ref, lake.at(1, "f.3"))

    assert staged_files(lake.folder(owner))
    assert not lake.folder(late).exists()
    assert lake.count() == 7
    assert marks(lake) == {}
