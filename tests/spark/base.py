"""A database that a test's Jdbc sink writes to, and psycopg looking at it from outside."""

from __future__ import annotations

import uuid
from collections.abc import Hashable
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.jdbc.sink import JdbcSink
from headrace.model.jobs.epoch import EpochAt
from tests.postgresql import PostgreSQL
from tests.spark.settings import setting
from tests.spark.wire import Wire

SECRET = "s3cr3t-Passw0rd"


class Base:
    def __init__(self, session: SparkSession, server: PostgreSQL) -> None:
        self.session, self._server = session, server
        self.database = server.create_database(template="template1")
        folder = server.server.get_postmaster_info().socket_dir
        self.wire = Wire(f"{folder}/.s.PGSQL.5432")
        self.url = f"jdbc:postgresql://127.0.0.1:{self.wire.port}/{self.database}"
        self.incarnation = uuid.uuid4().hex
        self.run("CREATE TABLE orders (id bigint, name text)")

    def close(self) -> None:
        self.wire.close()
        self._server.drop_database(self.database)

    def sink(
        self,
        name: str = "Jdbc-1",
        *,
        has_committed: bool = False,
        planned_tables: dict[Hashable, Any] | None = None,
        **options: Any,
    ) -> JdbcSink:
        given = {"url": self.url, "user": "postgres", "password": SECRET}
        if "query" not in options:
            given |= {"generate_sink_sql": True, "database": self.database, "table": "orders"}
        given |= {key.replace("__", "."): value for key, value in options.items()}
        made = setting(
            "Jdbc", "sink", given, has_committed=has_committed, planned_tables=planned_tables
        )
        return JdbcSink(name, *made)

    def frame(self, rows: int, *, first: int = 0) -> DataFrame:
        made = self.session.range(first, first + rows, 1, 2)
        return made.selectExpr("id", "cast(id as string) as name")

    def at(self, epoch: int = 1, execution: str = "t1.1") -> EpochAt:
        return EpochAt(self.incarnation, 1, epoch, execution)

    def staged(self, rows: int, at: EpochAt, to: JdbcSink | None = None) -> Any:
        frame = self.frame(rows, first=at.epoch * 1000)
        return (to or self.sink()).stage(self.session, frame, at).handle

    @property
    def server_url(self) -> str:
        return self._server.url(self.database)

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server_url) as conn:
            done = conn.execute(statement.encode(), values or None)
            return done.fetchall() if done.description else []

    def count(self, table: str = "orders") -> int:
        ((rows, ids),) = self.run(f"SELECT count(*), count(DISTINCT id) FROM {table}")
        assert rows == ids, "rows came twice"
        return int(rows)

    def stages(self) -> list[str]:
        found = self.run("SELECT tablename FROM pg_tables WHERE starts_with(tablename, %s)", _STAGE)
        return [name for (name,) in found]

    def marks(self) -> list[tuple[Any, ...]]:
        return self.run("SELECT epoch, spent_by, moved_rows FROM headrace_commits")


_STAGE = "headrace_stage_"
