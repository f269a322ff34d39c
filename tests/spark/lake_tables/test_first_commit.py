"""A table that is not there yet is made by the transaction of its first commit, or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.clock import SystemClock
from headrace.connectors.iceberg.sink import IcebergSink
from headrace.errors import Fenced, Refused, Unavailable
from headrace.lake.iceberg import commit as committing
from headrace.lake.iceberg.catalogs import exists, identifier, load_table, metadata_of, open_catalog
from headrace.lake.iceberg.commit_target import IcebergTarget
from headrace.lake.iceberg.creation import TableExists, has_namespace, location_to_be
from headrace.lake.iceberg.snapshots import count_rows
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S
from tests.spark.lake import lose_answers, some
from tests.spark.settings import at, setting

Make = Callable[..., IcebergSink]


@pytest.fixture(params=["embedded", "hadoop"])
def make(request: pytest.FixtureRequest, warehouse: str, tmp_path: Path) -> Make:
    """Makes sinks to one table, in a catalog of each kind."""
    named: dict[str, Any] = {"namespace": "firsts", "table": f"t_{uuid.uuid4().hex[:12]}"}
    if request.param == "hadoop":
        place = {"type": "hadoop", "warehouse": f"file://{tmp_path}/wh"}
        named |= {"catalog_name": "own", "iceberg.catalog.config": place}

    def made(
        name: str = "Iceberg-1",
        *,
        has_committed: bool = False,
        planned_tables: dict[Hashable, Any] | None = None,
        **options: Any,
    ) -> IcebergSink:
        more = {key.replace("__", "."): value for key, value in options.items()}
        given = setting(
            "Iceberg",
            "sink",
            named | more,
            warehouse=warehouse,
            has_committed=has_committed,
            planned_tables=planned_tables,
        )
        return IcebergSink(name, *given)

    return made


def frame(session: SparkSession, rows: int = 2, first: int = 0) -> DataFrame:
    return session.range(first, first + rows).selectExpr("id", "concat('n', id) as name")


def drop(session: SparkSession, to: IcebergSink) -> None:
    """Without its files, as DROP TABLE does."""
    catalog = open_catalog(session, to.table_ref.catalog)
    assert catalog.dropTable(identifier(session, to.table_ref), False)  # noqa: FBT003


def count(session: SparkSession, to: IcebergSink) -> int:
    return count_rows(session, load_table(session, to.table_ref))


def staged(session: SparkSession, to: IcebergSink) -> list[Path]:
    """Files in the folder that the table has, or is going to have."""
    return list(place(session, to).rglob("*.parquet"))


def place(session: SparkSession, to: IcebergSink) -> Path:
    try:
        location, _ = location_to_be(session, to.table_ref)
    except TableExists:
        location = str(load_table(session, to.table_ref).location())
    return Path(location.removeprefix("file:"))


def test_an_abort_asks_nothing_of_a_catalog_without_the_namespace(
    session: SparkSession, make: Make
) -> None:
    """A settle task would fail until its time is over, with nothing to settle."""
    to = make(namespace=f"never_{uuid.uuid4().hex[:12]}")

    to.abort(session, at())
    to.forget(session, at(), owners=None)

    assert not has_namespace(session, to.table_ref)


def test_files_of_a_table_that_was_dropped_without_them_are_not_forgotten(
    session: SparkSession, make: Make
) -> None:
    to = make()
    to.commit(session, to.stage(session, frame(session), at()).handle, at())
    folder = place(session, to)
    drop(session, to)
    files = set(folder.rglob("*.parquet"))
    assert files or not folder.exists(), "a catalog of folders drops them with the table"

    to.forget(session, at(), owners=None)

    assert set(folder.rglob("*.parquet")) == files


def test_a_stream_that_restarts_before_its_first_row_has_nothing_to_sweep(
    session: SparkSession, make: Make
) -> None:
    to = make()

    to.sweep(session, None, at())

    assert not exists(session, to.table_ref)


def test_a_job_that_fails_before_its_first_commit_leaves_no_table(
    session: SparkSession, make: Make
) -> None:
    """The next one, with other columns, would be refused by it."""
    to = make()
    to.stage(session, frame(session), at())
    assert not exists(session, to.table_ref)
    assert staged(session, to)
    to.abort(session, at(execution="t1.2"))
    assert not exists(session, to.table_ref)
    assert staged(session, to) == []
    to.forget(session, at(), owners=None)
    assert not place(session, to).exists(), "no empty folder either"

    other = frame(session).selectExpr("name as something_else")
    to = make()
    to.commit(session, to.stage(session, other, at(2)).handle, at(2))

    assert [field.name() for field in load_table(session, to.table_ref).schema().columns()] == [
        "something_else"
    ]


def test_the_first_commit_makes_the_table_with_rows_mark_and_all_that_was_asked_for(
    session: SparkSession, make: Make
) -> None:
    to = make(
        **{
            "iceberg.table.partition-keys": ["bucket(id, 4)"],
            "iceberg.table.primary-keys": ["id"],
            "iceberg.table.auto-create-props": {"note": "first", "format-version": "2"},
        }
    )
    rows = frame(session, 20)
    handle = to.stage(session, rows, at()).handle
    assert not exists(session, to.table_ref)

    done = to.commit(session, handle, at(execution="t1.2"))

    table = load_table(session, to.table_ref)
    metadata = metadata_of(session, table)
    assert not done.already
    assert done.facts["rows"] == count(session, to) == 20
    assert len(metadata["snapshots"]) == 1
    assert metadata["format-version"] == 2
    assert metadata["metadata-log"] == [], "one version of the metadata, made with its rows"
    assert "bucket[4]" in str(table.spec())
    assert [str(name) for name in table.schema().identifierFieldNames()] == ["id"]
    assert dict(table.properties())["note"] == "first"
    assert "write.data.path" not in dict(table.properties())
    assert some(to.read_mark(session, at())).epoch == 1
    assert to.commit(session, handle, at(execution="t1.3")).already
    assert count(session, to) == 20


def test_an_epoch_without_rows_makes_the_table(session: SparkSession, make: Make) -> None:
    to = make()
    to.commit(session, to.stage(session, frame(session, 0), at()).handle, at())
    assert count(session, to) == 0


@pytest.mark.req("E1")
def test_rows_staged_before_the_table_was_made_go_to_the_table_that_is_there(
    session: SparkSession, make: Make
) -> None:
    """The next epoch is staged before the first is committed; another sink has the same table."""
    one, other = make(), make("Iceberg-2")
    work = [(one, 1), (one, 2), (other, 1)]
    handles = [
        to.stage(session, frame(session, 2, first=10 * n), at(epoch)).handle
        for n, (to, epoch) in enumerate(work)
    ]
    for (to, epoch), handle in zip(work, handles, strict=True):
        assert not to.commit(session, handle, at(epoch)).already
    for (to, epoch), handle in zip(work, handles, strict=True):
        assert to.commit(session, handle, at(epoch)).already

    assert count(session, one) == 6


@pytest.mark.req("E1")
def test_a_zombie_that_was_about_to_make_the_table_is_refused_by_the_catalog(
    session: SparkSession, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told that there is none, and was stopped right before its transaction."""
    owner, zombie = make(), make()
    handle = owner.stage(session, frame(session, 5), at()).handle
    attempt: Any = IcebergTarget.attempt
    asleep = [True]

    def paused(*args: Any, **more: Any) -> Any:
        if asleep:
            asleep.clear()
            assert not owner.commit(session, handle, at(execution="t1.2")).already
        return attempt(*args, **more)

    monkeypatch.setattr(IcebergTarget, "attempt", paused)

    assert zombie.commit(session, handle, at()).already
    assert count(session, owner) == 5


@pytest.mark.req("E3")
def test_a_creation_whose_answer_was_lost_is_found_at_the_table(
    session: SparkSession, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = make()
    handle = to.stage(session, frame(session, 5), at()).handle
    lose_answers(session, monkeypatch)

    assert not to.commit(session, handle, at()).already, "it was our own"
    assert count(session, to) == 5


def test_who_finds_another_table_in_its_place_is_refused_and_commits_nothing(
    session: SparkSession, make: Make
) -> None:
    to, other = make(), make("Iceberg-2")
    handle = to.stage(session, frame(session), at()).handle
    # The same names and types in another order: by their ids, columns would be mistaken.
    swapped = frame(session, 3).select("name", "id")
    other.commit(session, other.stage(session, swapped, at(1, "t2.1")).handle, at(1, "t2.1"))

    with pytest.raises(Refused, match=r"made by somebody else .* schema_save_mode"):
        to.commit(session, handle, at())

    assert count(session, to) == 3
    assert to.read_mark(session, at()) is None


def test_a_table_that_was_dropped_since_the_first_commit_is_not_made_again(
    session: SparkSession, make: Make
) -> None:
    to = make()
    first, second = (to.stage(session, frame(session), at(n)).handle for n in (1, 2))
    to.commit(session, first, at(1))
    drop(session, to)
    with pytest.raises(Refused, match="there is no table"):
        to.commit(session, second, at(2))
    later = make(has_committed=True)
    with pytest.raises(Refused, match="there is no table"):
        later.commit(session, second, at(2, "t1.2"))
    assert not exists(session, to.table_ref)

    # Staged after it was dropped, on purpose: what comes from now on has a place.
    third = later.stage(session, frame(session, 3), at(3)).handle
    later.commit(session, third, at(3))
    assert count(session, later) == 3


@pytest.mark.req("E1")
def test_rows_for_a_missing_table_do_not_go_to_one_that_was_made_after_a_drop(
    session: SparkSession, make: Make
) -> None:
    """Its marks went with the table of the job that ended, and the next one has the same columns,
    ids and place."""
    owner, zombie, rerun = make(), make(), make()
    assert zombie.read_mark(session, at()) is None
    handle = zombie.stage(session, frame(session, 5), at()).handle
    owner.commit(session, handle, at(execution="t1.2"))
    drop(session, owner)
    again = at(incarnation="another", execution="t2.1")
    rerun.commit(session, rerun.stage(session, frame(session, 5), again).handle, again)

    with pytest.raises(Unavailable, match=r"made by somebody else since this execution began"):
        zombie.commit(session, handle, at())

    # Nor when what looks late left its marks of an epoch without rows.
    zombie.abort(session, at(2))
    with pytest.raises(Unavailable, match=r"made by somebody else since this execution began"):
        make().commit(session, handle, at(3))
    assert count(session, rerun) == 5


def test_who_finds_the_table_of_another_job_appends_to_it_in_its_next_attempt(
    session: SparkSession, make: Make
) -> None:
    """Two jobs make one table at once."""
    one, other, again = make(), make(), make()
    for sink in (one, other):
        assert sink.read_mark(session, at()) is None
    handle = one.stage(session, frame(session, 2), at()).handle
    theirs = at(incarnation="another", execution="t2.1")
    other.commit(session, other.stage(session, frame(session, 3), theirs).handle, theirs)

    with pytest.raises(Unavailable, match="the next attempt can"):
        one.commit(session, handle, at())
    assert again.read_mark(session, at()) is None
    assert not again.commit(session, handle, at(execution="t1.2")).already

    assert count(session, again) == 5


def test_two_sinks_of_a_pipeline_make_one_table_in_the_same_way(
    session: SparkSession, make: Make
) -> None:
    """Or the epoch would be prepared at both, and could be committed at the first only."""
    planned: dict[Hashable, Any] = {}
    one, other = (make(name, planned_tables=planned) for name in ("Iceberg-1", "Iceberg-2"))
    whole, part = frame(session, 2), frame(session, 3, first=10).select("name")
    one.stage(session, whole, at())
    with pytest.raises(Refused, match=r"as the first sink into it makes it.* has no column more"):
        other.stage(session, whole.selectExpr("id", "id as more"), at())

    work = [
        (one, one.stage(session, whole, at(2))),
        (other, other.stage(session, part, at(2))),
        (other, other.stage(session, whole.select("name", "id"), at(3))),
    ]
    for epoch, (sink, staged_rows) in zip((2, 2, 3), work, strict=True):
        sink.commit(session, staged_rows.handle, at(epoch))

    assert count(session, one) == 7
    rows = load_table(session, one.table_ref)
    assert [field.name() for field in rows.schema().columns()] == ["id", "name"]


def test_a_creation_that_stood_still_before_its_last_step_is_too_late(
    session: SparkSession, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog asks no guard, and the job may be long over, its table dropped."""
    to = make()
    handle = to.stage(session, frame(session, 5), at()).handle
    validate: Any = committing.CommitGuard.validate
    late_s = [0.0]

    def stands_still(guard: Any, snapshots: Any) -> bool:
        agreed = validate(guard, snapshots)
        late_s[0] = 2 * COMMIT_DEADLINE_S
        return agreed

    real = SystemClock.monotonic_s

    def late(clock: SystemClock) -> float:
        return real(clock) + late_s[0]

    monkeypatch.setattr(SystemClock, "monotonic_s", late)
    monkeypatch.setattr(committing.CommitGuard, "validate", stands_still)

    with pytest.raises(Fenced, match="too old to commit"):
        to.commit(session, handle, at())
    assert not exists(session, to.table_ref)


def test_columns_that_do_not_fit_are_refused_with_the_mode_that_makes_the_table_anew(
    session: SparkSession, make: Make
) -> None:
    to = make()
    to.commit(session, to.stage(session, frame(session), at()).handle, at())
    with pytest.raises(Refused, match=r"has no column more; .* schema_save_mode = RECREATE_SCHEMA"):
        to.stage(session, frame(session).selectExpr("id", "id as more"), at(2))
