"""Opening a store: what is refused, with which words, and what the two databases promise."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Engine, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from headrace.errors import BadSetting, StoreRefused, StoreUnavailable
from headrace.store.core.engine import (
    insert_new,
    open_store,
    open_writer,
    reading,
    writing,
    writing_on,
)
from headrace.store.core.schema import facts
from tests.postgresql import PostgreSQL

QUICK_TTL_S = 0.3


@pytest.fixture
def rival(store_url: str) -> Iterator[Engine]:
    """A second program on the same store."""
    engine = open_store(store_url)
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite_store(sqlite_url: str) -> Iterator[Engine]:
    engine = open_store(sqlite_url, ttl_s=QUICK_TTL_S)
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite_rival(sqlite_store: Engine) -> Iterator[sqlite3.Connection]:
    """Some other program that has the file open, and hardly waits."""
    with closing(sqlite3.connect(str(sqlite_store.url.database), timeout=0.1)) as conn:
        conn.isolation_level = None
        yield conn


FACTS = 3  # of a new store


def count_facts(engine: Engine) -> int:
    with reading(engine) as conn:
        return conn.execute(select(func.count()).select_from(facts)).scalar_one()


def test_a_write_transaction_is_undone_when_its_body_raises(store: Engine) -> None:
    before = count_facts(store)
    with pytest.raises(IntegrityError), writing(store) as conn:
        conn.execute(insert(facts), [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}])
    assert count_facts(store) == before


def test_a_row_is_inserted_once(store: Engine) -> None:
    with writing(store) as conn:
        assert insert_new(conn, facts, name="a", value="1")
        assert not insert_new(conn, facts, name="a", value="2")
        assert conn.scalar(select(facts.c.value).where(facts.c.name == "a")) == "1"


def test_reads_do_not_wait_behind_a_writer(store: Engine, rival: Engine) -> None:
    before = count_facts(store)
    with writing(store) as conn:
        insert_new(conn, facts, name="a", value="1")
        assert count_facts(rival) == before


@pytest.mark.req("L1")
def test_a_sqlite_writer_excludes_rivals_before_its_first_write(
    sqlite_store: Engine, sqlite_rival: sqlite3.Connection
) -> None:
    with writing(sqlite_store) as conn:
        assert conn.scalar(select(func.count()).select_from(facts)) == FACTS
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            sqlite_rival.execute("DELETE FROM facts")


def test_a_kept_writer_goes_on_after_it_found_the_store_locked(
    sqlite_store: Engine, sqlite_rival: sqlite3.Connection
) -> None:
    with open_writer(sqlite_store) as kept:
        sqlite_rival.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="database is locked"), writing_on(kept):
            pytest.fail("the store is not locked")
        sqlite_rival.execute("ROLLBACK")
        with writing_on(kept):
            insert_new(kept, facts, name="a", value="1")
    assert count_facts(sqlite_store) == FACTS + 1


def test_sqlite_writers_of_one_process_wait_for_their_turn_but_not_for_ever(
    sqlite_store: Engine,
) -> None:
    with (
        writing(sqlite_store),
        pytest.raises(StoreUnavailable, match="is busy"),
        writing(sqlite_store),
    ):
        pytest.fail("two wrote at once")
    with writing(sqlite_store) as conn:
        insert_new(conn, facts, name="a", value="1")


def test_all_sqlite_writers_of_one_process_get_their_turn(sqlite_url: str) -> None:
    engine = open_store(sqlite_url)

    def write(number: int) -> None:
        with writing(engine) as conn:
            insert_new(conn, facts, name=str(number), value="1")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(20)))
    assert count_facts(engine) == FACTS + 20
    engine.dispose()


def test_sqlite_is_durable_and_checks_foreign_keys(sqlite_store: Engine) -> None:
    with reading(sqlite_store) as conn:
        pragmas = {
            name: conn.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
        busy_timeout_ms = conn.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    assert 0 < busy_timeout_ms < QUICK_TTL_S * 1000


def test_many_may_open_a_new_sqlite_file_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    with ThreadPoolExecutor(8) as pool:
        for engine in pool.map(open_store, [url] * 8):
            engine.dispose()


@pytest.mark.req("L2")
def test_every_wait_on_postgresql_is_shorter_than_the_ttl(postgresql_url: str) -> None:
    engine = open_store(postgresql_url, ttl_s=3.0)
    with reading(engine) as conn:
        rows = conn.execute(
            text(
                "SELECT setting::int AS wait_ms FROM pg_settings WHERE name IN"
                " ('lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout')"
            )
        ).all()
    engine.dispose()
    assert len(rows) == 3
    assert all(0 < row.wait_ms < 3_000 for row in rows)


def test_options_of_the_url_are_kept_beside_ours(postgresql_url: str) -> None:
    engine = open_store(f"{postgresql_url}&options=-c%20work_mem%3D5MB", ttl_s=3.0)
    with reading(engine) as conn:
        assert conn.scalar(text("SELECT current_setting('work_mem')")) == "5MB"
        assert conn.scalar(text("SELECT current_setting('lock_timeout')")) == "1s"
    engine.dispose()


def test_a_restarted_server_is_not_noticed_by_the_next_read(postgresql_url: str) -> None:
    engine = open_store(postgresql_url)
    assert count_facts(engine) == FACTS
    with psycopg.connect(postgresql_url) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert count_facts(engine) == FACTS
    engine.dispose()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://u:geheim@h/db", "'mysql' database; write it as sqlite:///path"),
        ("geheim", "can not be read; write it as sqlite:///path/to/store.db or postgresql://"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
    ],
)
def test_a_bad_url_is_told_the_known_forms(url: str, words: str) -> None:
    with pytest.raises(BadSetting) as told:
        open_store(url)
    assert words in str(told.value)
    assert "geheim" not in str(told.value)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but dear to somebody\n" * 100)
    with pytest.raises(StoreRefused, match=r"notes\.txt can not be used: file is not a database"):
        open_store(f"sqlite:///{path}")
    assert path.read_text().startswith("not a database")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="is a folder; name a file in it"):
        open_store(f"sqlite:///{tmp_path}")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match=r"there is no folder .*nowhere; create it first"):
        open_store(f"sqlite:///{tmp_path}/nowhere/store.db")


def test_a_folder_that_can_not_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(path: Path, mode: int) -> bool:
        return False

    monkeypatch.setattr("os.access", deny)  # permissions do not bind root
    with pytest.raises(StoreRefused, match="this user may not write there"):
        open_store(f"sqlite:///{tmp_path}/store.db")


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/db is not available") as told:
        open_store("postgresql://u:geheim@127.0.0.1:1/db?password=geheim")
    assert "geheim" not in f"{told.value} {told.value.__cause__}"


def test_a_server_that_does_not_sync_its_disk_is_refused(
    postgresql: PostgreSQL, postgresql_url: str
) -> None:
    with postgresql.setting("fsync", "off"), pytest.raises(StoreRefused, match="fsync=off and may"):
        open_store(postgresql_url)
    open_store(postgresql_url).dispose()


def test_a_database_that_commits_without_waiting_is_refused(postgresql_url: str) -> None:
    with psycopg.connect(postgresql_url, autocommit=True) as conn:
        database = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(database))
    with pytest.raises(StoreRefused, match="set synchronous_commit=on"):
        open_store(postgresql_url)


def test_a_new_sqlite_store_is_for_its_owner_only_and_one_that_is_there_keeps_its_mode(
    tmp_path: Path,
) -> None:
    file = tmp_path / "new.db"
    url = f"sqlite:///{file}"
    engine = open_store(url)
    with writing(engine) as conn:
        conn.execute(text("CREATE TABLE t (x TEXT)"))
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    engine.dispose()
    assert modes == dict.fromkeys(("new.db", "new.db-wal", "new.db-shm"), 0o600)

    file.chmod(0o640)
    open_store(url).dispose()
    assert file.stat().st_mode & 0o777 == 0o640


def test_what_is_deleted_from_a_sqlite_store_is_overwritten(sqlite_store: Engine) -> None:
    with reading(sqlite_store) as conn:
        assert conn.scalar(text("PRAGMA secure_delete")) == 1
