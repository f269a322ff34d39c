"""A table that one of our pipelines wrote to is looked at soon, and not with every epoch."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from headrace.coordinator.tables.evaluation import COMMIT_NOTICE_PAUSE_MS, notice_commits
from headrace.store.core.engine import reading, writing
from headrace.store.tables import catalogs
from headrace.store.tables.schema import catalogs as catalog_rows
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.lake_rows import CATALOG, LakeRows

LONG_MS = 600_000


@pytest.fixture
def lakes(desk: LeaderHarness) -> LakeRows:
    return LakeRows(desk.store, now_ms=desk.clock.wall_ms())


def tell(desk: LeaderHarness, table: str) -> None:
    with writing(desk.store) as conn:
        notice_commits(conn, {"Iceberg-1": {"table": table}}, now_ms=desk.clock.wall_ms())


def test_a_table_that_was_written_to_is_evaluated_at_once(
    desk: LeaderHarness, lakes: LakeRows
) -> None:
    now_ms = desk.clock.wall_ms()
    table = lakes.table("t", due_at_ms=now_ms + LONG_MS, evaluated_at_ms=now_ms - LONG_MS)

    tell(desk, "headrace.db.t")

    assert lakes.read(table).due_at_ms == now_ms


def test_one_that_was_evaluated_a_moment_ago_rests_first(
    desk: LeaderHarness, lakes: LakeRows
) -> None:
    now_ms = desk.clock.wall_ms()
    table = lakes.table("t", due_at_ms=now_ms + LONG_MS, evaluated_at_ms=now_ms - 1)

    tell(desk, "headrace.db.t")

    assert lakes.read(table).due_at_ms == now_ms - 1 + COMMIT_NOTICE_PAUSE_MS


def test_one_that_is_due_already_is_not_put_off(desk: LeaderHarness, lakes: LakeRows) -> None:
    now_ms = desk.clock.wall_ms()
    table = lakes.table("t", due_at_ms=now_ms - 5, evaluated_at_ms=now_ms - 1)

    tell(desk, "headrace.db.t")

    assert lakes.read(table).due_at_ms == now_ms - 5


@pytest.mark.parametrize("table", ["headrace.db.new", "elsewhere.db.new", "no table at all"])
def test_a_table_nobody_has_seen_has_its_catalog_looked_into(
    desk: LeaderHarness, table: str
) -> None:
    now_ms = desk.clock.wall_ms()
    with writing(desk.store) as conn:
        later = {"due_at_ms": now_ms + LONG_MS, "discovered_at_ms": now_ms - LONG_MS}
        conn.execute(update(catalog_rows).values(**later))

    tell(desk, table)

    with reading(desk.store) as conn:
        found = catalogs.get(conn, CATALOG)
    assert found is not None
    assert (found.due_at_ms == now_ms) is table.startswith(CATALOG)


def test_a_sink_that_is_no_table_is_no_news(desk: LeaderHarness) -> None:
    with writing(desk.store) as conn:
        before = catalogs.all_of_them(conn)
        notice_commits(conn, {"Console-1": {"rows": 7}}, now_ms=desk.clock.wall_ms())
        assert catalogs.all_of_them(conn) == before
