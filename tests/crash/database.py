"""A database that Jdbc plugins reach over TCP, with a test looking at it from outside."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.postgresql import PostgreSQL
from tests.spark.wire import Wire


class Database:
    def __init__(self, server: PostgreSQL) -> None:
        self._server = server
        self._name = server.create_database(template="template1")
        folder = server.server.get_postmaster_info().socket_dir
        self._wire = Wire(f"{folder}/.s.PGSQL.5432")

    def close(self) -> None:
        self._wire.close()
        self._server.drop_database(self._name)

    def lose_commit_answer(self, said: bytes) -> None:
        """Once: of the next connection that says this, the answer to its COMMIT is lost."""
        self._wire.lose_commit_after(said)

    def lose_nothing_more(self) -> None:
        self._wire.lose_nothing_more()

    @property
    def answers_lost(self) -> int:
        return self._wire.lost

    @property
    def name(self) -> str:
        return self._name

    def source(self, name: str, query: str) -> str:
        return f'Jdbc {{ plugin_output = "{name}", {self._way()}, query = "{query}" }}'

    def sink(self, of: str, table: str, *options: str) -> str:
        parts = [f'plugin_input = "{of}"', self._way(), "generate_sink_sql = true"]
        parts += [f'database = "{self._name}"', f'table = "{table}"', *options]
        return f"Jdbc {{ {', '.join(parts)} }}"

    def _way(self) -> str:
        url = f"jdbc:postgresql://127.0.0.1:{self._wire.port}/{self._name}"
        return f'url = "{url}", driver = "org.postgresql.Driver", user = "postgres"'

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._server.url(self._name)) as conn:
            done = conn.execute(statement.encode())
            return done.fetchall() if done.description else []

    def ids(self, table: str) -> list[int]:
        """As they are there: one that came twice is there twice. None of a table that was never
        made: a job makes it with its first rows."""
        if not self.tables(table):
            return []
        return sorted(int(row[0]) for row in self.run(f"SELECT id FROM {table}"))

    def tables(self, pattern: str) -> list[str]:
        found = self.run(f"SELECT tablename FROM pg_tables WHERE tablename LIKE '{pattern}'")
        return [name for (name,) in found]

    def stages(self) -> list[str]:
        return self.tables("headrace_stage%")

    def marks(self) -> list[tuple[Any, ...]]:
        """Of all jobs."""
        there = self.tables("headrace_commits")
        return self.run("SELECT * FROM headrace_commits") if there else []
