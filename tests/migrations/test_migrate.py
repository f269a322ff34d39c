"""Migrations build schema.py, run once however many start, and refuse what is not theirs (L4)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, inspect, select, text, update

from headrace.errors import StoreRefused
from headrace.seams import arm
from headrace.store import migrate
from headrace.store.core.engine import is_sqlite, reading, writing
from headrace.store.core.schema import PROGRAM_LEVEL, facts, metadata, store_id
from headrace.store.migrate import REVISIONS, prepare_store, revision
from tests.postgresql import PostgreSQL
from tests.stores import open_store

STARTS = 4
BOUND_S = 120.0  # for a state to come, also on a busy machine


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, store_folder: Path) -> Iterator[Engine]:
    """A database with nothing in it, once of each kind."""
    if request.param == "sqlite":
        engine = open_store(f"sqlite:///{store_folder}/empty.db")
        yield engine
        engine.dispose()
        return
    server: PostgreSQL = request.getfixturevalue("postgresql")
    name = server.create_database(template="template1")
    engine = open_store(server.url(name))
    yield engine
    engine.dispose()
    server.drop_database(name)


# SQLite writes a column that was added on the line of the one before it.
ADDED = r"\n|, (?=\w+ (?:BIGINT|INTEGER|TEXT|JSON))"


def definitions(conn: Connection) -> set[str]:
    """Every column, constraint and index of the database, as the database itself writes it."""
    if is_sqlite(conn):
        question = "SELECT tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        rows = conn.execute(text(question)).all()
        return {
            f"{row.tbl_name}: {' '.join(part.split())}"
            for row in rows
            for part in re.split(ADDED, row.sql)
        }
    # NOT NULL is a constraint since PostgreSQL 18, and keeps its name when its column gets another.
    question = """
        SELECT conrelid::regclass || ': ' || conname || ' ' || pg_get_constraintdef(oid)
            FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
        UNION SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
        UNION SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default)
            FROM information_schema.columns WHERE table_schema = 'public'
    """
    return set(conn.execute(text(question)).scalars())


def without_commas(lines: set[str]) -> set[str]:
    """And without the quotes that SQLite puts around a table that was made anew."""
    return {line.rstrip(", ").replace('"', "") for line in lines if REVISIONS not in line}


def test_migrations_build_what_the_schema_says(empty: Engine) -> None:
    metadata.create_all(empty)
    with reading(empty) as conn:
        wanted = without_commas(definitions(conn))
    metadata.drop_all(empty)
    prepare_store(empty)
    with reading(empty) as conn:
        assert without_commas(definitions(conn)) == wanted
    assert len(wanted) > len(metadata.tables)


def test_alembic_finds_nothing_to_change(store: Engine) -> None:
    with reading(store) as conn:
        context = MigrationContext.configure(conn, opts={"version_table": REVISIONS})
        assert compare_metadata(context, metadata) == []


@pytest.mark.req("L4")
def test_preparing_again_changes_nothing(empty: Engine) -> None:
    prepare_store(empty)
    with reading(empty) as conn:
        first = store_id(conn), revision(conn)
    arm("before transaction", lambda: pytest.fail("a prepared store was written to"))
    prepare_store(empty)
    with reading(empty) as conn:
        assert (store_id(conn), revision(conn)) == first


@pytest.mark.req("L4")
def test_starts_at_once_prepare_one_store(empty: Engine) -> None:
    line = Barrier(STARTS)

    def start(_: int) -> str:
        line.wait(BOUND_S)
        prepare_store(empty)
        with reading(empty) as conn:
            return store_id(conn)

    with ThreadPoolExecutor(STARTS) as pool:
        ids = list(pool.map(start, range(STARTS)))
    assert len(set(ids)) == 1


@pytest.mark.req("L4")
def test_a_migration_that_fails_half_way_leaves_nothing(
    empty: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(migrate, "insert_new", fail)  # the last step, after all tables are made
        with pytest.raises(InterruptedError):
            prepare_store(empty)
    assert inspect(empty).get_table_names() == []
    prepare_store(empty)
    assert "facts" in inspect(empty).get_table_names()


@pytest.mark.req("L4")
def test_the_database_of_another_application_is_refused(empty: Engine) -> None:
    with writing(empty) as conn:
        conn.execute(text("CREATE TABLE customers (id integer)"))
    with pytest.raises(
        StoreRefused,
        match=r"holds tables of another application \(customers\); give headrace a database of its",
    ):
        prepare_store(empty)
    assert inspect(empty).get_table_names() == ["customers"]


@pytest.mark.req("L4")
def test_the_database_of_another_user_of_alembic_is_refused(empty: Engine) -> None:
    with writing(empty) as conn:
        conn.execute(text("CREATE TABLE alembic_version (version_num varchar(32) NOT NULL)"))
        conn.execute(text("INSERT INTO alembic_version VALUES ('0001')"))
    with pytest.raises(StoreRefused, match="another application"):
        prepare_store(empty)


@pytest.mark.req("L4")
def test_a_newer_store_that_still_admits_this_program_is_used_as_it_is(store: Engine) -> None:
    set_revision(store, "9999")
    arm("before transaction", lambda: pytest.fail("an older program migrated a newer store"))
    prepare_store(store)
    with reading(store) as conn:
        assert revision(conn) == "9999"


@pytest.mark.req("L4")
@pytest.mark.parametrize("known", ["0001", "9999"])
def test_a_store_that_needs_a_newer_program_is_refused(store: Engine, known: str) -> None:
    set_revision(store, known)
    with writing(store) as conn:
        oldest = update(facts).where(facts.c.name == "oldest_program")
        conn.execute(oldest.values(value=str(PROGRAM_LEVEL + 1)))
    with pytest.raises(StoreRefused, match="install the release that upgraded it"):
        prepare_store(store)


def set_revision(store: Engine, name: str) -> None:
    with writing(store) as conn:
        conn.execute(text(f"UPDATE {REVISIONS} SET version_num = '{name}'"))
        assert (
            conn.execute(select(text("version_num")).select_from(text(REVISIONS))).scalar() == name
        )


def test_a_first_start_beside_another_one_does_not_take_its_tables_for_foreign(
    postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one commits between the question for a revision and the one for tables."""
    name = postgresql.create_database(template="template1")
    first, second = open_store(postgresql.url(name)), open_store(postgresql.url(name))
    really, once = migrate.revision, iter([True])

    def overtaken(conn: Connection) -> str | None:
        found = really(conn)
        if conn.engine is second and next(once, False):
            prepare_store(first)
        return found

    monkeypatch.setattr(migrate, "revision", overtaken)
    prepare_store(second)

    with reading(second) as conn:
        assert really(conn) is not None
    first.dispose()
    second.dispose()
    postgresql.drop_database(name)
