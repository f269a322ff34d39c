"""Iceberg, files and PostgreSQL keep what every sink promises that is exactly once."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.connectors.connector import Sink
from headrace.connectors.files.commit import FolderTarget
from headrace.connectors.files.records import RecordForm, records
from headrace.connectors.files.sink import FileSink
from headrace.connectors.iceberg.sink import IcebergSink
from headrace.connectors.jdbc.commit import DatabaseTarget
from headrace.lake.iceberg.catalogs import TableMissing, load_table, local_path
from headrace.lake.iceberg.commit_target import IcebergTarget
from headrace.lake.iceberg.creation import has_namespace, location_to_be
from tests.contracts.sink import SinkContract, SinkHarness
from tests.contracts.sink_commits import CommitContract
from tests.fakes import FakeClock
from tests.postgresql import PostgreSQL
from tests.spark.base import Base
from tests.spark.settings import setting

DROP = {"data_save_mode": "DROP_DATA"}
STAGED_AT_MS = 1_700_000_000_000


class IcebergHarness(SinkHarness):
    target_class = IcebergTarget
    has_strays = False

    def __init__(self, session: SparkSession, warehouse: str) -> None:
        super().__init__(session)
        self._warehouse, self._table = warehouse, f"t_{uuid.uuid4().hex[:12]}"

    def sink(self, *, drops: bool = False) -> IcebergSink:
        options = {"namespace": "contracts", "table": self._table, **(DROP if drops else {})}
        made = setting("Iceberg", "sink", options, warehouse=self._warehouse)
        return IcebergSink("Iceberg-1", *made)

    def ids(self) -> list[int]:
        try:
            load_table(self.session, self.sink().table_ref)
        except TableMissing:
            return []
        return sorted(row["id"] for row in self._frame().select("id").collect())

    def staged(self) -> list[str]:
        """Data files in the table's folder that no snapshot has."""
        ref, known = self.sink().table_ref, set[str]()
        try:
            location = str(load_table(self.session, ref).location())
            files = self.session.table(f"headrace.contracts.{self._table}.all_data_files")
            known = {Path(str(row["file_path"])).name for row in files.collect()}
        except TableMissing:
            if not has_namespace(self.session, ref):
                return []
            location, _ = location_to_be(self.session, ref)
        folder = local_path(location)
        assert folder is not None
        return sorted(str(p) for p in folder.rglob("*.parquet") if p.name not in known)

    def _frame(self) -> Any:
        return self.session.table(f"headrace.contracts.{self._table}")


class FilesHarness(SinkHarness):
    target_class = FolderTarget
    has_deadline = False

    extension = "csv"

    def __init__(self, session: SparkSession, folder: Path) -> None:
        super().__init__(session)
        self._folder, self._clock = folder, FakeClock(wall_ms=STAGED_AT_MS)

    def sink(self, *, drops: bool = False) -> FileSink:
        form = "excel" if self.extension == "xlsx" else self.extension
        options = {"path": str(self._folder), "file_format_type": form, **(DROP if drops else {})}
        made = setting("LocalFile", "sink", options, clock=self._clock)
        return FileSink("LocalFile-1", *made)

    def ids(self) -> list[int]:
        texts = [p.read_text() for p in self._folder.glob("*.csv")]
        return sorted(int(line.partition(",")[0]) for text in texts for line in text.splitlines())

    def staged(self) -> list[str]:
        return sorted(str(p) for p in (self._folder / "_headrace").rglob(f"*.{self.extension}"))

    def age(self, seconds: float) -> None:
        hidden = self._folder / "_headrace"
        for path in (hidden, *hidden.rglob("*")):
            at_s = STAGED_AT_MS / 1000 - seconds
            os.utime(path, (at_s, at_s))


class BooksHarness(FilesHarness):
    """Files that Python writes in executors, and not Spark."""

    extension = "xlsx"

    def ids(self) -> list[int]:
        form = RecordForm(format="excel", skip=1)
        found: list[int] = []
        for path in self._folder.glob("*.xlsx"):
            with path.open("rb") as file:
                found += [int(str(record.cells[0])) for record in records(file, form)]
        return sorted(found)


class PostgreSQLHarness(SinkHarness):
    target_class = DatabaseTarget

    def __init__(self, base: Base) -> None:
        super().__init__(base.session)
        self._base, self._aged_s = base, 0.0
        base.run("DROP TABLE orders")

    def sink(self, *, drops: bool = False) -> Sink:
        options: dict[str, Any] = DROP if drops else {}
        return self._base.sink(**options)

    def ids(self) -> list[int]:
        if self._base.run("SELECT to_regclass('orders')::text") == [(None,)]:
            return []
        return [number for (number,) in self._base.run("SELECT id FROM orders ORDER BY id")]

    def staged(self) -> list[str]:
        return sorted(self._base.stages())

    def age(self, seconds: float) -> None:
        more, self._aged_s = seconds - self._aged_s, seconds
        self._base.run(
            f"UPDATE headrace_commits SET spent_at = spent_at - interval '{more} seconds'"
        )
        for table in self._base.stages():
            ((comment,),) = self._base.run(f"SELECT obj_description('{table}'::regclass)")
            begin, made_ms, unit = str(comment).rsplit(" ", 2)
            older = f"{begin} {int(made_ms) - round(more * 1000)} {unit}"
            self._base.run(f"COMMENT ON TABLE {table} IS '{older}'")


class TestIceberg(SinkContract):
    @pytest.fixture
    def harness(self, session: SparkSession, warehouse: str) -> SinkHarness:
        return IcebergHarness(session, warehouse)


class TestFiles(SinkContract):
    @pytest.fixture
    def harness(self, session: SparkSession, tmp_path: Path) -> SinkHarness:
        return FilesHarness(session, tmp_path / "target")


class TestBooks(CommitContract):
    """What is staged in another way; the rest is as for every file."""

    @pytest.fixture
    def harness(self, session: SparkSession, tmp_path: Path) -> SinkHarness:
        return BooksHarness(session, tmp_path / "target")


class TestPostgreSQL(SinkContract):
    @pytest.fixture
    def harness(self, session: SparkSession, postgresql: PostgreSQL) -> Iterator[SinkHarness]:
        base = Base(session, postgresql)
        yield PostgreSQLHarness(base)
        base.close()
