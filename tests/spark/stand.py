"""A table for an Iceberg sink whose save modes are tried, and plain Spark looking at it."""

from __future__ import annotations

import uuid
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.iceberg.sink import IcebergSink
from headrace.lake.iceberg.catalogs import load_table
from tests.spark.lake import sql
from tests.spark.settings import at, setting


class Stand:
    """A table with a few rows of somebody else, and sinks that write to it."""

    def __init__(self, session: SparkSession, warehouse: str) -> None:
        self.session, self._warehouse = session, warehouse
        self.name = f"t_{uuid.uuid4().hex[:12]}"
        self.table = f"headrace.saving.{self.name}"
        sql(session, "CREATE NAMESPACE IF NOT EXISTS headrace.saving")

    def made(self, rows: int = 3) -> Stand:
        frame = self.session.range(rows).selectExpr("id", "'old' as name")
        frame.writeTo(self.table).using("iceberg").create()
        return self

    def sink(self, options: dict[str, Any]) -> IcebergSink:
        named = {"namespace": "saving", "table": self.name, **options}
        return IcebergSink(
            "Iceberg-1", *setting("Iceberg", "sink", named, warehouse=self._warehouse)
        )

    def frame(self, rows: int = 0, *, first: int = 100) -> DataFrame:
        return self.session.range(first, first + rows).selectExpr("id", "'new' as name")

    def other(self, rows: int = 0) -> DataFrame:
        """Of a column that changes its type, one that is new, and none called name."""
        return self.session.range(rows).selectExpr("cast(id as string) as id", "id as size")

    def write(self, to: IcebergSink, frame: DataFrame, epoch: int = 1) -> None:
        staged = to.stage(self.session, frame, at(epoch))
        to.commit(self.session, staged.handle, at(epoch))

    def rows(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = list(sql(self.session, f"SELECT * FROM {self.table}"))
        return sorted(map(tuple, found))

    def mark(self, to: IcebergSink) -> str | None:
        properties = dict(load_table(self.session, to.table_ref).properties())
        return next((v for k, v in properties.items() if k.startswith("headrace.mark.")), None)
