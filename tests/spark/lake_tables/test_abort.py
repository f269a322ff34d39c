"""An abort spends the token; staged files go only after that, and only if nobody needs them."""

from __future__ import annotations

import pytest

from headrace.errors import TokenSpent
from headrace.lake.catalog import TableRef
from tests.spark.lake import Lake, abort, commit, forget, staged_files, sweep


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


@pytest.mark.req("E4", "E6")
def test_an_abort_of_an_epoch_that_nobody_knows_is_committed_deletes_none_of_its_files(
    lake: Lake,
) -> None:
    """A store that was restored from a backup aborts what it only planned, after its marks were
    forgotten and its snapshots expired: nothing but the references tells what the table reads."""
    lost, owner = lake.at(execution="t1.1"), lake.at(execution="t1.2")
    commit(lake.session, lake.ref, lake.staged(10, owner), owner)
    lake.append_foreign(first=1)
    lake.expire()
    forget(lake.session, lake.ref, lake.at(execution="f.1"))
    lake.staged(10, lost)

    abort(lake.session, lake.ref, lost)

    assert staged_files(lake.folder(owner))
    assert not lake.folder(lost).exists()
    lake.staged(10, lost)  # it woke after the abort

    sweep(lake.session, lake.ref, None, lake.at(execution="t1.3"))

    assert staged_files(lake.folder(owner))
    assert not lake.folder(lost).exists()
    assert lake.count() == 11


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
