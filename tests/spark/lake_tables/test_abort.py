"""An abort spends the token; staged files go only after that, and only if nobody needs them."""

from __future__ import annotations

import pytest

from headrace import seams
from headrace.errors import Refused, TokenSpent
from headrace.lake.iceberg.catalogs import TableRef
from headrace.lake.iceberg.commit import commit
from headrace.lake.iceberg.sweep import abort, sweep
from headrace.model.jobs.epoch import SpentBy
from tests.spark.lake import Lake, some, staged_files


class Crash(Exception):
    """Stands for the death of a process at a seam."""


def crash() -> None:
    raise Crash


@pytest.mark.req("E1", "E6")
def test_a_commit_after_an_abort_is_refused_and_the_table_stays_readable(lake: Lake) -> None:
    at = lake.at()
    handle = lake.staged(10, at)
    lake.append_foreign(first=1)

    assert some(abort(lake.session, lake.ref, at)).by is SpentBy.ABORT

    assert not lake.epoch_folder(at).exists()
    with pytest.raises(TokenSpent):
        commit(lake.session, lake.ref, handle, at)
    assert lake.count() == 1


@pytest.mark.req("E4", "E6")
def test_an_abort_is_told_from_data_also_after_its_snapshot_was_expired(lake: Lake) -> None:
    at, later = lake.at(epoch=1), lake.at(epoch=2)
    handle = lake.staged(10, at)
    abort(lake.session, lake.ref, at)
    commit(lake.session, lake.ref, lake.staged(5, later), later)
    lake.compact_and_expire()

    with pytest.raises(TokenSpent):
        commit(lake.session, lake.ref, handle, at)
    assert lake.count() == 5


@pytest.mark.req("E6")
def test_nothing_is_deleted_before_the_token_is_spent(lake: Lake) -> None:
    at = lake.at()
    handle = lake.staged(10, at)
    before = staged_files(lake.folder(at))
    assert before
    seams.arm("before abort", crash)
    with pytest.raises(Crash):
        abort(lake.session, lake.ref, at)

    assert staged_files(lake.folder(at)) == before
    commit(lake.session, lake.ref, handle, at)
    assert lake.count() == 10


@pytest.mark.req("E6")
def test_a_spend_that_fails_leaves_every_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    at = lake.at()
    handle = lake.staged(10, at)

    def fails(*_args: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr("headrace.lake.iceberg.commit._attempt", fails)
        with pytest.raises(Crash):
            abort(lake.session, lake.ref, at)

    commit(lake.session, lake.ref, handle, at)
    assert lake.count() == 10


@pytest.mark.req("E6")
def test_the_files_are_still_there_when_the_token_has_just_been_spent(lake: Lake) -> None:
    at = lake.at()
    lake.staged(10, at)
    seams.arm("abort spent", crash)
    with pytest.raises(Crash):
        abort(lake.session, lake.ref, at)

    assert staged_files(lake.folder(at))
    seams.disarm_all()
    abort(lake.session, lake.ref, at)
    assert not lake.epoch_folder(at).exists()


@pytest.mark.req("E6")
def test_an_abort_that_comes_after_the_data_deletes_none_of_it(lake: Lake) -> None:
    lost, owner = lake.at(execution="t1.1"), lake.at(execution="t1.2")
    lake.staged(10, lost)
    commit(lake.session, lake.ref, lake.staged(10, owner), owner)

    assert some(abort(lake.session, lake.ref, lost)).by is SpentBy.DATA

    assert staged_files(lake.folder(lost)), "who asks knows less than the table (E7)"
    assert lake.count() == 10


@pytest.mark.req("E4", "E6")
def test_an_abort_that_can_not_tell_whose_files_the_table_took_deletes_none(lake: Lake) -> None:
    lost, owner = lake.at(execution="t1.1"), lake.at(execution="t1.2")
    lake.staged(10, lost)
    commit(lake.session, lake.ref, lake.staged(10, owner), owner)
    lake.append_foreign(first=1)
    lake.compact_and_expire()

    abort(lake.session, lake.ref, lost)

    assert staged_files(lake.folder(lost))
    assert lake.count() == 11


@pytest.mark.req("E6")
def test_a_sweep_deletes_what_other_executions_staged_and_nothing_else(lake: Lake) -> None:
    lost, owner = lake.at(1, "t1.1"), lake.at(1, "t1.2")
    tenth = lake.at(10, "t1.1")  # its folder's name begins like that of epoch 1
    lake.staged(10, lost)
    lake.staged(10, tenth)
    handle = lake.staged(10, owner)
    with pytest.raises(Refused, match="not spent"):
        sweep(lake.session, lake.ref, handle, owner)
    assert staged_files(lake.folder(lost))

    commit(lake.session, lake.ref, handle, owner)
    sweep(lake.session, lake.ref, handle, owner)

    assert not lake.folder(lost).exists()
    assert staged_files(lake.folder(tenth))
    assert lake.count() == 10


@pytest.mark.req("E6")
def test_files_committed_by_a_successor_are_spared_by_whoever_cleans_up(lake: Lake) -> None:
    stager, committer = lake.at(execution="t1.1"), lake.at(execution="t1.2")
    handle = lake.staged(10, stager)  # and prepared; then it died
    commit(lake.session, lake.ref, handle, committer)

    abort(lake.session, lake.ref, lake.at(execution="s.1"))
    assert staged_files(lake.folder(stager))
    assert lake.count() == 10

    again = lake.at(execution="t1.3")
    other = lake.staged(10, again)
    assert commit(lake.session, lake.ref, other, again).already
    sweep(lake.session, lake.ref, other, again)
    assert staged_files(lake.folder(stager))
    assert lake.count() == 10


@pytest.mark.req("E4", "E6")
def test_a_sweep_that_can_not_tell_whose_files_the_table_took_deletes_none(lake: Lake) -> None:
    first, again = lake.at(execution="t1.1"), lake.at(execution="t1.2")
    commit(lake.session, lake.ref, lake.staged(10, first), first)
    other = lake.staged(10, again)
    lake.append_foreign(first=1)
    lake.expire()  # without rewriting: the table still reads the first one's files

    sweep(lake.session, lake.ref, other, again)

    assert staged_files(lake.folder(first))
    assert lake.count() == 11


@pytest.mark.req("E6")
def test_a_sweep_without_a_handle_spares_what_the_table_took(lake: Lake) -> None:
    lost, owner = lake.at(execution="t1.1"), lake.at(execution="t1.2")
    lake.staged(10, lost)
    commit(lake.session, lake.ref, lake.staged(10, owner), owner)

    sweep(lake.session, lake.ref, None, lake.at(execution="t1.3"))

    assert not lake.folder(lost).exists()
    assert lake.count() == 10


def test_a_sweep_of_an_epoch_that_staged_nothing_does_nothing(lake: Lake) -> None:
    """One without rows of its source: no sink was asked to stage, and none to commit."""
    commit(lake.session, lake.ref, lake.staged(3, lake.at(1)), lake.at(1))

    sweep(lake.session, lake.ref, None, lake.at(2))

    assert lake.count() == 3


def test_aborting_at_a_table_that_does_not_exist_does_nothing(lake: Lake) -> None:
    ref = TableRef(lake.ref.catalog, ("tests",), "never_made")
    assert abort(lake.session, ref, lake.at()) is None
