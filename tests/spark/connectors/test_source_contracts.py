"""FakeSource, files, Iceberg and Jdbc keep what every source promises."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.connectors.fake.source import FakeSource
from headrace.connectors.files.source import FileSource
from headrace.connectors.iceberg.source import IcebergSource
from headrace.connectors.jdbc.source import JdbcSource
from headrace.spark.filesystem import HadoopFiles
from tests.contracts.source import (
    PIECE_ROWS,
    PIECES,
    ArrivalContract,
    ChangingInputContract,
    RepeatableContract,
    SourceContract,
    SourceHarness,
    ids_of,
)
from tests.fakes import FakeClock
from tests.spark.base import SECRET, Base
from tests.spark.lake import Lake, sql
from tests.spark.scans import STREAM, expire, source
from tests.spark.settings import setting

WRITTEN_S = 1_700_000_000  # when the first file was
NOW_MS = (WRITTEN_S + 600) * 1000
OTHER_IDS = (8, 9)  # as many digits as those of the first piece
ROW = "x" * 60  # two of these are more bytes than a file may have to share a slice of one row


class FakeHarness(SourceHarness):
    def __init__(self, session: SparkSession, *, streaming: bool) -> None:
        super().__init__(session)
        self._streaming, self._clock = streaming, FakeClock()

    def source(self) -> FakeSource:
        key = {"name": "id", "columnNames": ["id"]}
        options: dict[str, Any] = {
            "row.num": PIECES * PIECE_ROWS,
            "schema": {"fields": {"id": "bigint", "name": "string"}, "primaryKey": key},
            "auto.increment.enabled": True,
            "auto.increment.start": 0,
        }
        made = setting(
            "FakeSource", "source", options, streaming=self._streaming, clock=self._clock
        )
        return FakeSource("FakeSource-1", *made)


class FilesHarness(SourceHarness):
    """A piece is a file."""

    plugin = "LocalFile"

    def __init__(self, session: SparkSession, folder: Path, *, streaming: bool) -> None:
        super().__init__(session)
        self.folder, self._streaming = folder, streaming
        self._clock = FakeClock(wall_ms=NOW_MS)
        folder.mkdir()
        for piece in range(PIECES):
            self.add(piece)

    def source(self) -> FileSource:
        options: dict[str, Any] = {
            "path": str(self.folder),
            "file_format_type": "csv",
            "schema": {"fields": {"id": "int", "name": "string"}},
            **self.place(),
        }
        made = setting(self.plugin, "source", options, streaming=self._streaming, clock=self._clock)
        return FileSource(f"{self.plugin}-1", *made, **self.files())

    def place(self) -> dict[str, str]:
        return {}

    def files(self) -> dict[str, Any]:
        return {}

    def add(self, piece: int) -> None:
        self._put(piece, ids_of(piece), modified_s=WRITTEN_S + piece)

    def change(self) -> None:
        """As many bytes as before: nothing but its time tells."""
        self._put(0, OTHER_IDS, modified_s=WRITTEN_S + PIECES)

    def remove(self) -> None:
        (self.folder / "0.csv").unlink()

    def _put(self, piece: int, ids: Sequence[int], *, modified_s: int) -> None:
        file = self.folder / f"{piece}.csv"
        file.write_text("".join(f"{number},{ROW}\n" for number in ids))
        os.utime(file, (modified_s, modified_s))


class HadoopHarness(FilesHarness):
    """Through the file system of Hadoop, as with HDFS."""

    plugin = "HdfsFile"

    def place(self) -> dict[str, str]:
        return {"fs.defaultFS": "file:///"}

    def files(self) -> dict[str, Any]:
        return {"files": HadoopFiles(self.session, f"file:{self.folder}", {})}


class IcebergHarness(SourceHarness):
    """A piece is a snapshot. What the first slice holds is one, and is not cut."""

    cuts = False

    def __init__(self, lake: Lake, *, streaming: bool) -> None:
        super().__init__(lake.session)
        self._lake, self._streaming = lake, streaming
        for piece in range(PIECES):
            self.add(piece)

    def source(self) -> IcebergSource:
        return source(self._lake, STREAM if self._streaming else {}, streaming=self._streaming)

    def add(self, piece: int) -> None:
        self._lake.append_foreign(first=ids_of(piece)[0], rows=PIECE_ROWS)

    def change(self) -> None:
        table = self._lake.table
        sql(self.session, f"UPDATE {table} SET name = 'other' WHERE id IN (0, 1)")
        sql(self.session, f"ALTER TABLE {table} RENAME COLUMN name TO title")

    def remove(self) -> None:
        sql(self.session, f"DELETE FROM {self._lake.table} WHERE id IN (0, 1)")
        expire(self._lake)


class JdbcHarness(SourceHarness):
    """It reads all rows at once, and can't promise to find the same ones again."""

    cuts = False

    def __init__(self, base: Base) -> None:
        super().__init__(base.session)
        self._base = base
        last = ids_of(PIECES - 1)[-1]
        base.run(f"INSERT INTO orders SELECT n, 'x' FROM generate_series(0, {last}) AS n")

    def source(self) -> JdbcSource:
        options: dict[str, Any] = {
            "url": self._base.url,
            "user": "postgres",
            "password": SECRET,
            "table_path": "orders",
        }
        return JdbcSource("Jdbc-1", *setting("Jdbc", "source", options))


class TestFakeSource(SourceContract, RepeatableContract):
    @pytest.fixture(params=[False, True], ids=["batch", "stream"])
    def harness(self, request: pytest.FixtureRequest, session: SparkSession) -> SourceHarness:
        return FakeHarness(session, streaming=request.param)


class TestFiles(SourceContract, ChangingInputContract):
    @pytest.fixture
    def harness(self, session: SparkSession, tmp_path: Path) -> SourceHarness:
        return FilesHarness(session, tmp_path / "in", streaming=False)


class TestArrivingFiles(SourceContract, ChangingInputContract, ArrivalContract):
    @pytest.fixture
    def harness(self, session: SparkSession, tmp_path: Path) -> SourceHarness:
        return FilesHarness(session, tmp_path / "in", streaming=True)


class TestHadoopFiles(SourceContract, ChangingInputContract):
    @pytest.fixture
    def harness(self, session: SparkSession, tmp_path: Path) -> SourceHarness:
        return HadoopHarness(session, tmp_path / "in", streaming=False)


class TestIceberg(SourceContract, ChangingInputContract):
    @pytest.fixture
    def harness(self, lake: Lake) -> SourceHarness:
        return IcebergHarness(lake, streaming=False)


class TestIcebergStream(SourceContract, ChangingInputContract, ArrivalContract):
    @pytest.fixture
    def harness(self, lake: Lake) -> SourceHarness:
        return IcebergHarness(lake, streaming=True)


class TestJdbc(SourceContract):
    @pytest.fixture
    def harness(self, base: Base) -> SourceHarness:
        return JdbcHarness(base)
