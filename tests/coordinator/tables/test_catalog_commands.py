"""Catalogs as people add, change and remove them: their secrets apart, refused with the fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import Engine, select

from headrace.coordinator.tables.catalog_commands import CatalogChange
from headrace.coordinator.tables.commands import TableCommands
from headrace.errors import BadSetting, NotFound, Refused
from headrace.model.ids import RandomIds
from headrace.model.jobs.spec import REDACTED
from headrace.model.tables.status import TableStatus
from headrace.store.core.engine import reading, writing
from headrace.store.tables import catalogs
from headrace.store.tables.catalogs import NewCatalog
from headrace.store.tables.schema import catalogs as catalog_rows
from tests.coordinator.tables.lake_rows import LakeRows
from tests.fakes import FakeClock
from tests.stores import given_catalog

SECRET = "hush-4711"


JDBC = {"uri": "jdbc:postgresql://db:5432/lake", "warehouse": "s3://lake", "jdbc.password": SECRET}


@pytest.fixture
def commands(store: Engine, clock: FakeClock) -> TableCommands:
    return TableCommands(store, clock, RandomIds())


@pytest.fixture
def lakes(store: Engine, clock: FakeClock) -> LakeRows:
    return LakeRows(store, now_ms=clock.wall_ms())


def lake_catalog(name: str = "lake", **changed: Any) -> NewCatalog:
    told: dict[str, Any] = {"type": "jdbc", "properties": JDBC, "group": "default", **changed}
    return NewCatalog(name, **told)


def secrets(store: Engine, name: str = "lake") -> Mapping[str, str]:
    with reading(store) as conn:
        return catalogs.secrets_of(conn, name)


def test_a_catalog_is_added_with_its_secrets_apart(commands: TableCommands, store: Engine) -> None:
    added = commands.catalogs.add(lake_catalog())

    assert added.properties == {**JDBC, "jdbc.password": REDACTED}
    assert secrets(store) == {"lake.jdbc.password": SECRET}
    with reading(store) as conn:
        assert SECRET not in str(conn.execute(select(catalog_rows)).all())


def test_the_same_catalog_twice_is_one(commands: TableCommands) -> None:
    assert commands.catalogs.add(lake_catalog()) == commands.catalogs.add(lake_catalog())
    assert [each.name for each in commands.catalogs.listed()] == ["headrace", "lake"]


@pytest.mark.parametrize(
    "other",
    [{"properties": {**JDBC, "jdbc.password": "another"}}, {"group": "etl"}],
    ids=["secret", "group"],
)
def test_another_catalog_of_the_same_name_is_refused(
    commands: TableCommands, other: dict[str, Any]
) -> None:
    commands.catalogs.add(lake_catalog())

    with pytest.raises(Refused, match="change it with `headrace catalog set lake`"):
        commands.catalogs.add(lake_catalog(**other))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "a b"}, "catalog name 'a b' can't be used"),
        ({"name": "a.b"}, "the point stands between"),
        ({"type": "jbdc"}, "did you mean 'jdbc'"),
        ({"type": "embedded"}, "known types: jdbc, rest, hive, glue, hadoop"),
        ({"properties": {"uri": "jdbc:x"}}, "needs warehouse.*--property warehouse="),
        ({"properties": {**JDBC, "type": "jdbc"}}, "leave property 'type' out"),
        (
            {"properties": {**JDBC, "uri": "jdbc:postgresql://me:pw@db/lake"}},
            "a password in its URI.*jdbc.password",
        ),
        (
            {"properties": {**JDBC, "uri": "jdbc:postgresql://db/lake?user=me&password=pw"}},
            "a password in its URI",
        ),
        (
            {"properties": {**JDBC, "uri": "jdbc:oracle:thin:scott/tiger@//db:1521/lake"}},
            "a password in its URI",
        ),
        (
            {"properties": {**JDBC, "uri": "jdbc:mysql://(host=db,user=me,password=pw)/lake"}},
            "a password in its URI",
        ),
        ({"properties": {**JDBC, "jdbc.password": REDACTED}}, "is redacted; give its value"),
        ({"properties": {**JDBC, "a": "\0"}}, "none of them is NUL"),
        ({"group": "a b"}, "group 'a b' can't be used"),
        ({"table_filter": "sales.("}, "is not a regular expression"),
        ({"table_filter": "x" * 501}, "501 characters, and 500 is the most"),
        (
            {"defaults": {"self-optimizing.quota": "a lot"}},
            r"is 'a lot', expected a number above 0.*then 0.5 holds",
        ),
        (
            {"defaults": {"self-optimizing.quotta": "1"}},
            "did you mean 'self-optimizing.quota'",
        ),
    ],
)
def test_what_can_not_be_used_is_refused_with_its_fix(
    commands: TableCommands, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadSetting, match=said):
        commands.catalogs.add(lake_catalog(**changed))
    assert [each.name for each in commands.catalogs.listed()] == ["headrace"]


def test_a_change_leaves_the_rest_and_its_secret(commands: TableCommands, store: Engine) -> None:
    commands.catalogs.add(lake_catalog(table_filter="a.*"))

    changed = commands.catalogs.change(
        "lake",
        CatalogChange(
            properties={"warehouse": "s3://other", "jdbc.password": REDACTED, "user": "me"},
            defaults={"self-optimizing.quota": "2"},
        ),
    )

    assert changed.properties == {
        **JDBC,
        "warehouse": "s3://other",
        "jdbc.password": REDACTED,
        "user": "me",
    }
    assert (changed.defaults, changed.table_filter) == ({"self-optimizing.quota": "2"}, "a.*")
    assert secrets(store) == {"lake.jdbc.password": SECRET}


def test_a_property_and_its_secret_can_be_taken_away(
    commands: TableCommands, store: Engine
) -> None:
    commands.catalogs.add(lake_catalog(table_filter="a.*"))

    changed = commands.catalogs.change(
        "lake", CatalogChange(properties={"jdbc.password": None, "token": "new"}, table_filter="")
    )

    assert "jdbc.password" not in changed.properties
    assert changed.table_filter is None
    assert secrets(store) == {"lake.token": "new"}


def test_a_new_default_has_every_table_of_the_catalog_scanned_again(
    commands: TableCommands, lakes: LakeRows, clock: FakeClock
) -> None:
    table = lakes.table("t", task_id="an-evaluation")
    planned = lakes.table("p", TableStatus.PLANNING, task_id="a-plan")
    clock.advance(5)

    commands.catalogs.change("headrace", CatalogChange(defaults={"self-optimizing.quota": "2"}))

    found = lakes.read(table)
    assert (found.pointer, found.due_at_ms, found.task_id) == (None, clock.wall_ms(), None)
    assert lakes.read(planned).task_id == "a-plan"


def test_the_embedded_catalog_can_neither_move_nor_go(commands: TableCommands) -> None:
    with pytest.raises(Refused, match="--warehouse of each worker"):
        commands.catalogs.change("headrace", CatalogChange(properties={"uri": "x"}))
    with pytest.raises(Refused, match=r"catalog set headrace --default self-optimizing\.enabled"):
        commands.catalogs.remove("headrace")


def test_a_catalog_that_is_removed_takes_no_change(commands: TableCommands) -> None:
    commands.catalogs.add(lake_catalog())

    assert commands.catalogs.remove("lake").wanted_removed
    assert commands.catalogs.remove("lake").wanted_removed
    with pytest.raises(Refused, match="is being removed"):
        commands.catalogs.change("lake", CatalogChange(group="etl"))
    with pytest.raises(Refused, match="is being removed"):
        commands.catalogs.add(lake_catalog())


def test_an_unknown_catalog_is_answered_with_the_near_name(commands: TableCommands) -> None:
    with pytest.raises(NotFound, match="no catalog 'headrase'; did you mean 'headrace'"):
        commands.catalogs.get("headrase")


def test_a_refresh_has_a_catalog_looked_into_now_once(
    commands: TableCommands, store: Engine, clock: FakeClock
) -> None:
    with writing(store) as conn:
        given_catalog(conn, "headrace", due_at_ms=clock.wall_ms() + 60_000, failures=3)

    found, changed = commands.catalogs.refresh("headrace")

    assert (found.due_at_ms, found.failures, changed) == (clock.wall_ms(), 3, True)
    assert commands.catalogs.refresh("headrace") == (found, False)
    with writing(store) as conn:
        later_ms = clock.wall_ms() + 60_000
        given_catalog(conn, "headrace", due_at_ms=later_ms, task_id="a-look")
    under_way, changed = commands.catalogs.refresh("headrace")
    assert (under_way.due_at_ms, changed) == (later_ms, False)


def test_a_refresh_of_no_catalog_or_of_one_that_goes_is_refused(commands: TableCommands) -> None:
    with pytest.raises(NotFound, match="did you mean 'headrace'"):
        commands.catalogs.refresh("headrase")
    commands.catalogs.add(lake_catalog())
    commands.catalogs.remove("lake")
    with pytest.raises(Refused, match="is being removed"):
        commands.catalogs.refresh("lake")
