"""Tables come and go by themselves, as their catalogs say."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from headrace.coordinator.context import run_once
from headrace.coordinator.tables.catalogs import (
    PAGES_PER_PASS_MAX,
    TABLES_PER_PAGE,
    CatalogReconciler,
)
from headrace.model.ids import identifier_of
from headrace.model.tables.schedule import DISCOVER_INTERVAL_MS
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.protocol.messages import Assignment
from headrace.protocol.tables import Discovered
from headrace.store.core.engine import reading, writing
from headrace.store.tables import catalogs, table_changes
from headrace.store.tables.catalogs import NewCatalog
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.table_harness import TableHarness
from tests.stores import given_catalog


@pytest.fixture
def rounds(desk: LeaderHarness) -> TableHarness:
    return TableHarness(desk)


def asked(rounds: TableHarness) -> Assignment:
    """The discovery that a worker is given now."""
    rounds.run(rounds.catalogs)
    [given] = [each for each in rounds.given() if each.kind is TaskKind.DISCOVER]
    return given


def found(rounds: TableHarness, tables: dict[str, tuple[str, ...]], **more: object) -> None:
    """A discovery, from its task to its last page."""
    rounds.succeed(asked(rounds), Discovered.model_validate({"tables": tables, **more}))
    while rounds.run(rounds.catalogs).done:
        pass


def later(rounds: TableHarness) -> None:
    rounds.advance(DISCOVER_INTERVAL_MS / 1000)


def test_a_table_that_is_found_is_known_and_to_be_evaluated_at_once(rounds: TableHarness) -> None:
    found(rounds, {"sales": ("orders",), "sales\x1feu": ("orders",)})

    assert rounds.identifiers() == ["headrace.sales.eu.orders", "headrace.sales.orders"]
    table = rounds.named("headrace.sales.eu.orders")
    assert table is not None
    assert (table.namespace, table.name) == (("sales", "eu"), "orders")
    assert (table.status, table.group) == (TableStatus.IDLE, "default")
    assert table.due_at_ms <= rounds.clock.wall_ms()
    assert rounds.catalog().discovered_at_ms == rounds.clock.wall_ms()
    assert not rounds.tasks(TaskKind.DISCOVER)  # it went with its result


def test_a_catalog_has_one_discovery_at_a_time_and_the_next_after_the_interval(
    rounds: TableHarness,
) -> None:
    given = asked(rounds)
    assert not rounds.run(rounds.catalogs).done
    rounds.succeed(given, Discovered(tables={}))
    rounds.run(rounds.catalogs)

    rounds.advance(DISCOVER_INTERVAL_MS / 1000 - 1)
    assert not rounds.run(rounds.catalogs).done
    rounds.advance(1)

    assert rounds.run(rounds.catalogs).done == ["headrace"]


def test_a_known_table_stays_as_it_is(rounds: TableHarness) -> None:
    known = rounds.lakes.table("t", TableStatus.PENDING, failures=3)
    before = rounds.table(known)

    found(rounds, {"db": ("t", "new")})

    assert rounds.table(known) == before
    assert rounds.identifiers() == ["headrace.db.new", "headrace.db.t"]


def test_a_table_that_is_gone_ends_its_process_and_its_history_stays(rounds: TableHarness) -> None:
    table = rounds.lakes.table("t", TableStatus.MINOR_OPTIMIZING)
    process = rounds.lakes.process(table, rewrites=[TaskStatus.PLANNED, TaskStatus.ACKED])
    rounds.lakes.name_process(table, process)

    found(rounds, {"db": ("other",)})

    assert rounds.identifiers() == ["headrace.db.other"]
    ended = rounds.lakes.read_process(process)
    assert ended.status is ProcessStatus.CLOSED
    assert ended.error is not None
    assert "no longer in catalog 'headrace'" in ended.error
    open_tasks = [t for t in rounds.lakes.tasks_of(process).values() if t.status == "PLANNED"]
    assert not open_tasks


def test_a_table_that_is_gone_while_it_is_planned_cancels_its_plan(rounds: TableHarness) -> None:
    table = rounds.lakes.table("t", TableStatus.PENDING, pending_since_ms=1)
    rounds.run(rounds.turns)
    assert rounds.status(table) is TableStatus.PLANNING

    found(rounds, {})

    [plan] = rounds.tasks(TaskKind.PLAN)
    assert plan["status"] == TaskStatus.CANCELED


def test_what_lies_in_a_namespace_that_could_not_be_listed_is_not_dropped(
    rounds: TableHarness,
) -> None:
    found(rounds, {"a": ("t",), "a\x1fb": ("t",), "ab": ("t",)})
    later(rounds)

    found(rounds, {}, failed={"a": "no permission"})

    assert rounds.identifiers() == ["headrace.a.b.t", "headrace.a.t"]
    assert rounds.catalog().error == (
        "1 namespace could not be listed, and nothing in it counts as dropped: a: no permission"
    )
    later(rounds)
    found(rounds, {"a": ("t",)})
    assert rounds.identifiers() == ["headrace.a.t"]
    assert rounds.catalog().error is None


def test_a_catalog_that_is_away_shows_why_changes_no_table_and_is_asked_later_and_later(
    rounds: TableHarness,
) -> None:
    found(rounds, {"db": ("t",)})
    waits: list[int] = []
    for _ in range(3):
        rounds.clock.set_wall(rounds.catalog().due_at_ms)
        rounds.fail(asked(rounds), "connection refused")
        rounds.run(rounds.catalogs)
        waits.append(rounds.catalog().due_at_ms - rounds.clock.wall_ms())

    assert waits == [60_000, 120_000, 240_000]
    assert rounds.catalog().error == "connection refused"
    assert rounds.identifiers() == ["headrace.db.t"]
    rounds.clock.set_wall(rounds.catalog().due_at_ms)
    found(rounds, {"db": ("t",)})
    assert (rounds.catalog().error, rounds.catalog().failures) == (None, 0)


def test_a_discovery_that_vanished_is_made_again(rounds: TableHarness) -> None:
    with writing(rounds.desk.store) as conn:
        given_catalog(conn, "headrace", task_id="nobody-knows-it")

    rounds.run(rounds.catalogs)
    rounds.run(rounds.catalogs)

    assert len(rounds.tasks(TaskKind.DISCOVER)) == 1


def test_a_large_catalog_is_applied_in_pages_and_another_leader_goes_on(
    rounds: TableHarness,
) -> None:
    names = tuple(f"t{n:05}" for n in range(2 * TABLES_PER_PAGE + 1))
    rounds.succeed(asked(rounds), Discovered(tables={"db": names}))
    rounds.desk.take_over()
    rounds.catalogs.keys(rounds.desk.store)
    with writing(rounds.desk.store) as conn:
        assert rounds.catalogs.due(conn, "headrace")
        rounds.catalogs.reconcile(conn, "headrace")
    assert len(rounds.identifiers()) == TABLES_PER_PAGE

    other = TableHarness(rounds.desk, worker=None)  # remembers nothing
    first, second = (other.run(other.catalogs).done for _ in range(2))

    assert (len(first), len(second)) == (1, 2)  # the last one finds nothing left to do
    assert len(second) <= PAGES_PER_PASS_MAX
    assert len(other.identifiers()) == len(names)


def test_a_page_that_was_not_committed_is_applied_all_the_same(rounds: TableHarness) -> None:
    rounds.succeed(asked(rounds), Discovered(tables={"db": ("a", "b")}))
    with writing(rounds.desk.store) as conn:
        assert rounds.catalogs.due(conn, "headrace")
        page = conn.begin_nested()
        rounds.catalogs.reconcile(conn, "headrace")
        page.rollback()
    assert rounds.identifiers() == []

    rounds.run(rounds.catalogs)

    assert rounds.identifiers() == ["headrace.db.a", "headrace.db.b"]


def test_a_removed_catalog_goes_with_its_tables_and_its_secrets(rounds: TableHarness) -> None:
    new = NewCatalog("lake", "rest", {}, "default", secrets={"lake.token": "s"})
    with writing(rounds.desk.store) as conn:
        catalogs.add(conn, new, now_ms=rounds.clock.wall_ms())
    table = rounds.lakes.table("t", catalog="lake", identifier="lake.db.t")
    process = rounds.lakes.process(table)
    kept = rounds.lakes.table("kept")
    with writing(rounds.desk.store) as conn:
        given_catalog(conn, "lake", wanted_removed=1)

    rounds.run(rounds.catalogs)

    assert rounds.identifiers() == ["headrace.db.kept"]
    assert rounds.table(kept)
    assert rounds.lakes.read_process(process).status is ProcessStatus.CLOSED
    with reading(rounds.desk.store) as conn:
        assert catalogs.get(conn, "lake") is None
        assert catalogs.secrets_of(conn, "lake") == {}


@pytest.mark.req("T6")
def test_a_table_that_can_not_be_dropped_keeps_no_other(
    rounds: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = rounds.lakes.table("broken")
    rounds.lakes.table("sound")
    really = table_changes.drop

    def drop(conn: Connection, table_id: str) -> None:
        if table_id == broken:
            raise RuntimeError("the store plays tricks")
        really(conn, table_id)

    monkeypatch.setattr(table_changes, "drop", drop)
    found(rounds, {"db": ("new",)})

    assert rounds.identifiers() == ["headrace.db.broken", "headrace.db.new"]
    assert rounds.catalog().task_id is None  # and its next discovery comes in its time


def test_no_two_tables_have_the_same_identifier() -> None:
    assert identifier_of("c", ("a", "b"), "t-1") == "c.a.b.t-1"
    assert identifier_of("c", ("a.b",), "t") == "c.`a.b`.t"
    assert identifier_of("c", ("a",), "b`.`c") == "c.a.`b``.``c`"
    assert identifier_of("c", (), "größe") == "c.größe"
    assert identifier_of("c", ("",), "t") == "c.``.t"


def test_nothing_is_written_for_a_group_in_which_nobody_works(desk: LeaderHarness) -> None:
    catalogs_loop = CatalogReconciler(desk.clock, desk.ids)

    found = run_once(desk.store, desk.term, catalogs_loop, catalogs_loop.keys(desk.store))

    assert found.done == []
