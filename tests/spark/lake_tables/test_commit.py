"""A commit is taken once by the table itself, however late or often it comes."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import Refused
from headrace.lake.iceberg import commit as committing
from headrace.lake.iceberg.commit import look
from headrace.lake.iceberg.commit_target import IcebergTarget
from headrace.lake.iceberg.token import TableCommitAt
from headrace.model.jobs.epoch import SpentBy
from tests.spark.lake import Lake, commit, lose_answers, some, sql, staged_files


def test_what_is_staged_is_on_disk_and_nobody_sees_it(lake: Lake) -> None:
    handle = lake.staged(10, lake.at())

    assert handle.rows == 10
    assert handle.files == len(staged_files(lake.folder(lake.at()))) == 2
    assert lake.count() == 0
    assert lake.snapshots() == []
    assert "write.data.path" not in lake.properties()


@pytest.mark.req("E1")
def test_a_commit_makes_the_rows_visible_and_spends_the_token(lake: Lake) -> None:
    at = lake.at(epoch=3)
    outcome = commit(lake.session, lake.ref, lake.staged(10, at), at)

    assert lake.count() == 10
    assert not outcome.already
    assert outcome.spent.snapshot is not None
    assert lake.snapshots()[-1]["headrace.commit"] == at.token
    assert lake.properties()[at.mark_key] == "3"


@pytest.mark.parametrize("version", ["1", "1 with ids to inherit", "2", "3"])
def test_a_snapshot_tells_the_size_of_all_files(lake: Lake, version: str) -> None:
    properties = {"format-version": version[0]}
    if "inherit" in version:
        properties["compatibility.snapshot-id-inheritance.enabled"] = "true"
    lake.make_anew(properties)
    for epoch in (1, 2):
        at = lake.at(epoch=epoch)
        commit(lake.session, lake.ref, lake.staged(10 * epoch, at), at)
    lake.append_foreign(first=1)

    files = sql(lake.session, f"SELECT sum(file_size_in_bytes) AS size FROM {lake.table}.files")
    assert int(lake.snapshots()[-1]["total-files-size"]) == files[0]["size"] > 0


@pytest.mark.req("E1", "E4")
def test_a_zombie_is_refused_also_after_others_compacted_and_expired(lake: Lake) -> None:
    zombie, owner = lake.at(execution="t1.1"), lake.at(execution="t1.2")
    zombies = lake.staged(10, zombie)
    commit(lake.session, lake.ref, lake.staged(10, owner), owner)
    lake.append_foreign(first=1)
    lake.compact_and_expire()
    assert all("headrace.commit" not in summary for summary in lake.snapshots())

    woken = commit(lake.session, lake.ref, zombies, zombie)

    assert woken.already
    assert woken.spent.by is SpentBy.DATA
    assert lake.count() == 11


@pytest.mark.req("E1")
def test_a_zombie_paused_inside_its_commit_is_refused_when_it_wakes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had asked, was told "unspent", and was stopped right before its transaction."""
    zombie, owner = lake.at(execution="t1.1"), lake.at(execution="t1.2")
    zombies, owners = lake.staged(10, zombie), lake.staged(10, owner)
    attempt = IcebergTarget.attempt
    asleep: list[str] = [zombie.execution]

    def paused(self: IcebergTarget, at: TableCommitAt, *rest: Any, **more: Any) -> str | None:
        if at.execution in asleep:
            asleep.remove(at.execution)
            commit(lake.session, lake.ref, owners, owner)
            lake.append_foreign(first=1)
            lake.compact_and_expire()
        return attempt(self, at, *rest, **more)

    monkeypatch.setattr(IcebergTarget, "attempt", paused)

    assert commit(lake.session, lake.ref, zombies, zombie).already
    assert lake.count() == 11


@pytest.mark.req("E1")
def test_the_token_in_a_snapshot_refuses_also_when_the_mark_was_removed(lake: Lake) -> None:
    at = lake.at()
    handle = lake.staged(10, at)
    commit(lake.session, lake.ref, handle, at)
    sql(lake.session, f"ALTER TABLE {lake.table} UNSET TBLPROPERTIES ('{at.mark_key}')")

    assert commit(lake.session, lake.ref, handle, at).already
    assert lake.count() == 10


def test_an_append_by_somebody_else_in_between_is_retried_and_succeeds(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = lake.at()
    handle = lake.staged(10, at)
    validate = committing.CommitGuard.validate
    calls: list[int] = []

    def meddle(self: committing.CommitGuard, snapshots: object) -> bool:
        calls.append(len(calls))
        allowed = validate(self, snapshots)
        if len(calls) == 1:
            lake.append_foreign(first=1)
        return allowed

    monkeypatch.setattr(committing.CommitGuard, "validate", meddle)

    assert not commit(lake.session, lake.ref, handle, at).already
    assert len(calls) >= 2, "the guard must be asked again on the newer state"
    assert lake.count() == 11


@pytest.mark.req("E3")
def test_a_commit_whose_answer_was_lost_is_found_at_the_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = lake.at()
    handle = lake.staged(10, at)
    lose_answers(lake.session, monkeypatch)
    outcome = commit(lake.session, lake.ref, handle, at)

    assert not outcome.already, "it was our own"
    assert lake.count() == 10
    assert len(lake.snapshots()) == 1


def test_an_epoch_without_rows_spends_its_token_too(lake: Lake) -> None:
    at = lake.at()
    handle = lake.staged(0, at)
    assert handle.rows == 0

    commit(lake.session, lake.ref, handle, at)

    assert some(look(lake.session, lake.ref, at)).by is SpentBy.DATA
    assert commit(lake.session, lake.ref, handle, at).already


@pytest.mark.req("E6")
def test_what_was_deleted_is_never_committed(lake: Lake) -> None:
    at = lake.at()
    handle = lake.staged(10, at)
    for path in lake.folder(at).glob("*.avro"):
        path.unlink()

    with pytest.raises(Refused, match="gone or damaged"):
        commit(lake.session, lake.ref, handle, at)
    assert lake.count() == 0


def test_a_table_made_anew_does_not_take_what_was_staged_for_the_old_one(lake: Lake) -> None:
    at = lake.at()
    handle = lake.staged(10, at)
    sql(lake.session, f"DROP TABLE {lake.table}")
    sql(lake.session, f"CREATE TABLE {lake.table} (id bigint, name string) USING iceberg")

    with pytest.raises(Refused, match="dropped and made anew"):
        commit(lake.session, lake.ref, handle, at)


def test_two_sinks_of_one_pipeline_may_write_to_one_table(lake: Lake) -> None:
    first = lake.at()
    second = type(first)(first.epoch_at, "Iceberg-2")
    a, b = lake.staged(5, first), lake.staged(5, second)

    commit(lake.session, lake.ref, a, first)

    assert not commit(lake.session, lake.ref, b, second).already
