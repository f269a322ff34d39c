"""Iceberg is a table format, on real tables that plain Spark writes and reads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from headrace.clock import SystemClock
from headrace.exactly_once.target import SpendLimits
from headrace.lake.iceberg.commit_target import SPEND_TRIES_MAX, IcebergTarget
from headrace.lake.iceberg.table_format import IcebergFormat, at
from headrace.lake.table_format import ProcessExecution
from tests.contracts.table_format import FormatHarness, TableFormatContract
from tests.spark.written import TARGET_BYTES, Written

COLUMNS = "id bigint, p int, name string"


class IcebergHarness(FormatHarness):
    """Two files in each of two partitions."""

    written: Written

    def fill(self) -> None:
        for first in (0, 10):
            self.written.append(first)

    def rows(self) -> Sequence[object]:
        return self.written.rows()

    def append(self) -> None:
        self.written.append(100, rows=1)

    def remove_file(self, path: str) -> None:
        [row] = self.written.sql(
            f"SELECT min(id) AS first, max(id) AS last, min(p) AS p FROM {{t}} "
            f"WHERE _file = '{path}'"
        )
        where = f"p = {row['p']} AND id BETWEEN {row['first']} AND {row['last']}"
        self.written.sql(f"DELETE FROM {{t}} WHERE {where}")

    def make_anew(self) -> None:
        self.written.sql("DROP TABLE {t}")
        self.written.sql(f"CREATE TABLE {{t}} ({COLUMNS}) USING iceberg PARTITIONED BY (p)")
        self.fill()

    def staged(self, process: ProcessExecution) -> int:
        return len(self.written.staged(at(process)))


class TestIceberg(TableFormatContract):
    @pytest.fixture
    def lake(
        self, session: SparkSession, warehouse: str, monkeypatch: pytest.MonkeyPatch
    ) -> FormatHarness:
        monkeypatch.setattr(IcebergTarget, "limits", SpendLimits(SPEND_TRIES_MAX, wait_s=0))
        written = Written(session, warehouse, columns=COLUMNS, partitioned="p")
        made = IcebergHarness(IcebergFormat(), session, SystemClock(), written.ref, TARGET_BYTES)
        made.written = written
        made.fill()
        return made
