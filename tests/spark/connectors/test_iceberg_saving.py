"""Save modes of the Iceberg sink: done once, before the first row, and never again."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import Refused, StoreOlderThanTarget
from headrace.lake.iceberg import commit as committing
from headrace.lake.iceberg.catalogs import exists, load_table
from headrace.lake.iceberg.commit_target import IcebergTarget
from tests.spark.lake import lose_answers, sql
from tests.spark.settings import at
from tests.spark.stand import Stand

DROP = {"data_save_mode": "DROP_DATA"}
ERROR = {"data_save_mode": "ERROR_WHEN_DATA_EXISTS"}
RECREATE = {"schema_save_mode": "RECREATE_SCHEMA"}
OWNER, ZOMBIE = at(0, "t1.2"), at(0, "t1.1")


@pytest.fixture
def stand(session: SparkSession, warehouse: str) -> Stand:
    return Stand(session, warehouse)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"schema_save_mode": "IGNORE"}, False),
        (DROP, True),
        (RECREATE, True),
        ({"schema_save_mode": "ERROR_WHEN_SCHEMA_NOT_EXIST"}, True),
        (ERROR, True),
    ],
)
def test_save_modes_that_change_or_forbid_something_take_an_epoch(
    stand: Stand, options: dict[str, Any], expected: object
) -> None:
    assert stand.sink(options).opens is expected


@pytest.mark.req("E1")
@pytest.mark.parametrize("options", [DROP, RECREATE])
def test_a_zombie_that_wakes_in_epoch_0_when_epoch_1_is_in_changes_nothing(
    stand: Stand, options: dict[str, Any]
) -> None:
    to = stand.made().sink(options)
    asleep = to.survey(stand.session, stand.frame(), ZOMBIE)
    handle = to.survey(stand.session, stand.frame(), OWNER)
    opened = to.open(stand.session, handle, OWNER)
    assert not opened.already
    assert opened.facts["dropped_rows"] == 3
    assert stand.rows() == []
    stand.write(to, stand.frame(2))

    assert to.open(stand.session, asleep, ZOMBIE).already
    assert to.open(stand.session, handle, OWNER).already
    assert stand.rows() == [(100, "new"), (101, "new")]


@pytest.mark.req("E1")
@pytest.mark.parametrize("options", [DROP, RECREATE])
def test_a_zombie_paused_inside_of_its_opening_is_refused_by_the_table(
    stand: Stand, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had asked, was told "unspent", and was stopped right before its transaction."""
    to = stand.made().sink(options)
    handle = to.survey(stand.session, stand.frame(), ZOMBIE)
    attempt: Any = IcebergTarget.attempt
    asleep = [ZOMBIE.execution]

    def paused(*args: Any, **more: Any) -> str | None:
        if asleep:
            asleep.clear()
            to.open(stand.session, handle, OWNER)
            stand.write(to, stand.frame(2))
        return attempt(*args, **more)

    monkeypatch.setattr(IcebergTarget, "attempt", paused)

    assert to.open(stand.session, handle, ZOMBIE).already
    assert stand.rows() == [(100, "new"), (101, "new")]


@pytest.mark.req("E1")
@pytest.mark.parametrize("options", [DROP, RECREATE])
def test_an_opening_that_lost_the_race_for_the_table_is_refused_at_its_next_attempt(
    stand: Stand, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard agreed, then the owner was faster: Iceberg has to ask the guard anew."""
    to = stand.made().sink(options)
    handle = to.survey(stand.session, stand.frame(), ZOMBIE)
    validate = committing.CommitGuard.validate
    calls: list[int] = []

    def meddle(self: committing.CommitGuard, snapshots: object) -> bool:
        agreed = validate(self, snapshots)
        calls.append(len(calls))
        if len(calls) == 1:
            assert agreed
            to.open(stand.session, handle, OWNER)
            stand.write(to, stand.frame(2))
        return agreed

    monkeypatch.setattr(committing.CommitGuard, "validate", meddle)

    assert to.open(stand.session, handle, ZOMBIE).already
    assert stand.rows() == [(100, "new"), (101, "new")]


@pytest.mark.req("E4")
def test_an_opening_is_refused_also_after_its_snapshot_was_expired(stand: Stand) -> None:
    to = stand.made().sink(DROP)
    handle = to.survey(stand.session, stand.frame(), ZOMBIE)
    to.open(stand.session, handle, OWNER)
    stand.frame(1).writeTo(stand.table).append()
    table = load_table(stand.session, to.table_ref)
    table.expireSnapshots().expireOlderThan(4_102_444_800_000).retainLast(1).commit()

    assert to.open(stand.session, handle, ZOMBIE).already
    assert stand.rows() == [(100, "new")]


@pytest.mark.req("E3")
@pytest.mark.parametrize("options", [DROP, RECREATE])
def test_an_opening_whose_answer_was_lost_is_found_at_the_table(
    stand: Stand, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    to = stand.made().sink(options)
    handle = to.survey(stand.session, stand.frame(), OWNER)
    tries = lose_answers(stand.session, monkeypatch)

    assert not to.open(stand.session, handle, OWNER).already, "it was our own"
    assert len(tries) == 1
    assert (stand.rows(), stand.mark(to)) == ([], "0")


@pytest.mark.req("E6")
def test_an_abort_after_the_opening_changes_nothing(stand: Stand) -> None:
    to = stand.made().sink(DROP)
    to.open(stand.session, to.survey(stand.session, stand.frame(), OWNER), OWNER)
    stand.write(to, stand.frame(2))
    with pytest.raises(StoreOlderThanTarget):
        to.abort(stand.session, ZOMBIE)
    to.sweep(stand.session, None, OWNER)

    assert stand.rows() == [(100, "new"), (101, "new")]


def test_a_survey_changes_nothing(stand: Stand) -> None:
    to = stand.made().sink({**RECREATE, **DROP})
    before = str(load_table(stand.session, to.table_ref).currentSnapshot().snapshotId())
    to.survey(stand.session, stand.other(), OWNER)
    absent = Stand(stand.session, stand.sink({}).table_ref.catalog.properties["warehouse"])
    to_absent = absent.sink(RECREATE)
    to_absent.survey(stand.session, absent.frame(), OWNER)

    table = load_table(stand.session, to.table_ref)
    assert str(table.currentSnapshot().snapshotId()) == before
    with pytest.raises(Refused, match="there is no table"):
        load_table(stand.session, to_absent.table_ref)


def test_a_recreated_table_has_new_columns_partitions_and_keys(stand: Stand) -> None:
    sql(
        stand.session,
        f"CREATE TABLE {stand.table} (id bigint NOT NULL, name string, at timestamp) "
        "USING iceberg PARTITIONED BY (days(at), name)",
    )
    sql(stand.session, f"ALTER TABLE {stand.table} SET IDENTIFIER FIELDS id")
    sql(stand.session, f"ALTER TABLE {stand.table} WRITE ORDERED BY name")
    sql(stand.session, f"INSERT INTO {stand.table} VALUES (1, 'a', now())")
    to = stand.sink(
        {
            **RECREATE,
            "iceberg.table.partition-keys": ["bucket(id, 4)"],
            "iceberg.table.primary-keys": ["size"],
            "iceberg.table.auto-create-props": {"note": "anew"},
        }
    )
    handle = to.survey(stand.session, stand.other(), OWNER)
    to.open(stand.session, handle, OWNER)
    stand.write(to, stand.other(2))

    table = load_table(stand.session, to.table_ref)
    assert stand.session.table(stand.table).dtypes == [("id", "string"), ("size", "bigint")]
    assert "bucket[4]" in str(table.spec())
    assert table.spec().fields().size() == 1
    assert [str(name) for name in table.schema().identifierFieldNames()] == ["size"]
    assert table.sortOrder().isUnsorted()
    assert dict(table.properties())["note"] == "anew"
    assert stand.rows() == [("0", 0), ("1", 1)]


@pytest.mark.parametrize("options", [DROP, RECREATE, ERROR])
def test_a_table_that_is_not_there_is_made_with_the_first_rows(
    stand: Stand, options: dict[str, Any]
) -> None:
    to = stand.sink(options)
    handle = to.survey(stand.session, stand.frame(), OWNER)

    assert not to.open(stand.session, handle, OWNER).already
    assert not exists(stand.session, to.table_ref), "the first rows make it"
    stand.write(to, stand.frame(1))
    assert to.open(stand.session, handle, ZOMBIE).already
    assert stand.rows() == [(100, "new")]


@pytest.mark.parametrize("options", [DROP, RECREATE])
def test_what_came_in_since_there_was_no_table_stays(stand: Stand, options: dict[str, Any]) -> None:
    to = stand.sink(options)
    handle = to.survey(stand.session, stand.frame(), OWNER)
    stand.made(1)
    to.open(stand.session, handle, OWNER)

    assert (stand.rows(), stand.mark(to)) == ([(0, "old")], "0")


def test_rows_that_must_not_be_there_are_refused_by_their_number(stand: Stand) -> None:
    to = stand.made().sink(ERROR)
    with pytest.raises(Refused, match=rf"sink Iceberg-1: table .*{stand.name} holds 3 rows"):
        to.survey(stand.session, stand.frame(), OWNER)
    sql(stand.session, f"DELETE FROM {stand.table}")
    handle = to.survey(stand.session, stand.frame(), OWNER)
    assert not to.open(stand.session, handle, OWNER).already


def test_rows_that_are_marked_as_deleted_do_not_count(stand: Stand) -> None:
    to = stand.made().sink(ERROR)
    merge = "'write.delete.mode' = 'merge-on-read', 'format-version' = '2'"
    sql(stand.session, f"ALTER TABLE {stand.table} SET TBLPROPERTIES ({merge})")
    sql(stand.session, f"DELETE FROM {stand.table} WHERE id = 1")

    with pytest.raises(Refused, match="holds 2 rows"):
        to.survey(stand.session, stand.frame(), OWNER)


def test_a_table_that_must_be_there_is_asked_for_before_the_first_row(stand: Stand) -> None:
    to = stand.sink({"schema_save_mode": "ERROR_WHEN_SCHEMA_NOT_EXIST"})
    with pytest.raises(Refused, match=rf"there is no table headrace\.saving\.{stand.name}"):
        to.survey(stand.session, stand.frame(), OWNER)
    stand.made()
    handle = to.survey(stand.session, stand.frame(), OWNER)
    to.open(stand.session, handle, OWNER)

    assert (len(stand.rows()), stand.mark(to)) == (3, "0")


def test_a_table_made_anew_since_it_was_looked_at_is_not_opened(stand: Stand) -> None:
    to = stand.made().sink(DROP)
    handle = to.survey(stand.session, stand.frame(), OWNER)
    sql(stand.session, f"DROP TABLE {stand.table}")
    stand.made(5)

    with pytest.raises(Refused, match="dropped and made anew since execution"):
        to.open(stand.session, handle, OWNER)
    assert len(stand.rows()) == 5


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("iceberg.table.partition-keys", "partition key 'nobody'"),
        ("iceberg.table.primary-keys", "primary key 'nobody'"),
    ],
)
def test_a_table_that_could_not_be_recreated_is_refused_before_anything_is_dropped(
    stand: Stand, option: str, said: str
) -> None:
    to = stand.made().sink({**RECREATE, option: ["nobody"]})
    with pytest.raises(Refused, match=said):
        to.survey(stand.session, stand.frame(), OWNER)
