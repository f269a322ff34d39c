"""Source and sink of examples/connector-toy keep the contracts of sources and of sinks."""

from __future__ import annotations

import importlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.connectors.connector import Sink, Source
from headrace.connectors.registry import make_sink, make_source
from headrace.model.jobs.spec import PluginSpec
from tests.contracts.sink_commits import CommitContract
from tests.contracts.sink_deletions import DeletionContract, ForgettingContract
from tests.contracts.sink_harness import SinkHarness
from tests.contracts.sink_openings import MarkContract
from tests.contracts.source import (
    PIECES,
    ArrivalContract,
    ChangingInputContract,
    SourceContract,
    SourceHarness,
    ids_of,
)
from tests.spark.settings import setting


def query(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(statement).fetchall()


class ToySourceHarness(SourceHarness):
    """A piece is a row or more: it cuts wherever it is told."""

    def __init__(self, session: SparkSession, path: Path) -> None:
        super().__init__(session)
        self._path = path
        self._query("CREATE TABLE people (id INTEGER, name TEXT)")
        for piece in range(PIECES):
            self.add(piece)

    def source(self) -> Source:
        fields = {"id": "bigint", "name": "string"}
        options: dict[str, Any] = {"path": str(self._path), "table": "people"}
        options["schema"] = {"fields": fields}
        spec = PluginSpec(name="ToySqlite-1", plugin="ToySqlite", options=options)
        made = setting("ToySqlite", "source", options, streaming=True)[1]
        return make_source(spec, made, secrets={})

    def add(self, piece: int) -> None:
        for number in ids_of(piece):
            self._query(f"INSERT INTO people VALUES ({number}, 'x')")

    def change(self) -> None:
        self._query("UPDATE people SET name = 'y' WHERE id = 0")

    def remove(self) -> None:
        self._query("DELETE FROM people WHERE id = 0")

    def _query(self, statement: str) -> list[Any]:
        return query(self._path, statement)


class ToySinkHarness(SinkHarness):
    def __init__(self, session: SparkSession, path: Path) -> None:
        super().__init__(session)
        self.target_class = importlib.import_module("headrace_connector_toy.target").ToySqliteTarget
        self._path, self._aged_ms = path, 0

    def sink(self, *, drops: bool = False) -> Sink:
        assert not drops, "it has no save modes"
        options: dict[str, Any] = {"path": str(self._path), "table": "people"}
        spec = PluginSpec(name="ToySqlite-1", plugin="ToySqlite", options=options)
        return make_sink(spec, setting("ToySqlite", "sink", options)[1], secrets={})

    def ids(self) -> list[int]:
        if not self._query("SELECT 1 FROM sqlite_master WHERE name = 'people'"):
            return []
        return [number for (number,) in self._query("SELECT id FROM people ORDER BY id")]

    def staged(self) -> list[str]:
        query = "SELECT incarnation, epoch, execution, part FROM headrace_stage ORDER BY 1, 2, 3, 4"
        return [str(one) for one in self._query(query)]

    def age(self, seconds: float) -> None:
        more, self._aged_ms = round(seconds * 1000) - self._aged_ms, round(seconds * 1000)
        for table in ("headrace_stage", "headrace_tokens"):
            self._query(f"UPDATE {table} SET touched_ms = touched_ms - {more}")

    def _query(self, statement: str) -> list[Any]:
        return query(self._path, statement)


class TestToySource(SourceContract, ChangingInputContract, ArrivalContract):
    @pytest.fixture
    def harness(self, installed: Path, session: SparkSession, tmp_path: Path) -> SourceHarness:
        return ToySourceHarness(session, tmp_path / "toy.db")


class TestToySink(CommitContract, DeletionContract, MarkContract, ForgettingContract):
    """All of the contract but save modes, which it has none of."""

    @pytest.fixture
    def harness(self, installed: Path, session: SparkSession, tmp_path: Path) -> SinkHarness:
        return ToySinkHarness(session, tmp_path / "toy.db")
