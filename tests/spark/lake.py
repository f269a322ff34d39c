"""A table that a test stages to and commits to, and plain Spark looking at it from outside.

`commit`, `abort`, `sweep` and `forget` drive a table through exactly_once, without a sink.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from headrace.clock import Clock
from headrace.errors import StoreOlderThanTarget
from headrace.exactly_once import operations
from headrace.exactly_once.spend import SpendOutcome, deadline_of
from headrace.lake.catalog import TableMissing, TableRef
from headrace.lake.iceberg import commit_target
from headrace.lake.iceberg.catalogs import embedded_catalog, load_table, local_path
from headrace.lake.iceberg.commit import look, rows_change
from headrace.lake.iceberg.commit_target import IcebergTarget
from headrace.lake.iceberg.creation import TableDefinition, plan_creation
from headrace.lake.iceberg.stage import StagedFilesHandle, stage
from headrace.lake.iceberg.token import SpentAtTable, TableCommitAt
from headrace.model.jobs.epoch import COMMIT_DEADLINE_S, EpochAt


def sql(session: SparkSession, text: str) -> list[Row]:
    return session.sql(text).collect()  # pyright: ignore[reportUnknownMemberType]


def make_table(session: SparkSession, ref: TableRef, wanted: TableDefinition) -> None:
    """One without rows, as a catalog makes it."""
    transaction, _ = plan_creation(session, ref, wanted)
    transaction.commitTransaction()


class Lake:
    def __init__(self, session: SparkSession, warehouse: str) -> None:
        self.session = session
        self.incarnation = uuid.uuid4().hex
        name = f"t_{self.incarnation[:12]}"
        self.ref = TableRef(embedded_catalog(warehouse), ("tests",), name)
        self.table = f"headrace.tests.{name}"
        make_table(session, self.ref, TableDefinition(columns=self.frame(1).schema))

    def make_anew(self, properties: Mapping[str, str]) -> None:
        sql(self.session, f"DROP TABLE {self.table}")
        columns = self.frame(1).schema
        make_table(self.session, self.ref, TableDefinition(columns, properties=properties))

    def frame(self, rows: int, *, first: int = 0) -> DataFrame:
        made = session_range(self.session, first, first + rows)
        return made.selectExpr("id", "cast(id as string) as name")

    def at(self, epoch: int = 1, execution: str = "t1.1") -> TableCommitAt:
        return TableCommitAt(EpochAt(self.incarnation, 1, epoch, execution), "Iceberg-1")

    def staged(self, rows: int, at: TableCommitAt) -> StagedFilesHandle:
        return stage(self.session, self.frame(rows, first=at.epoch * 1000), self.ref, at)

    def count(self) -> int:
        """As a stranger's session sees it, reading every row."""
        found = sql(
            self.session, f"SELECT count(*) AS n, count(DISTINCT id) AS d FROM {self.table}"
        )
        assert found[0]["n"] == found[0]["d"], "rows came twice"
        return int(found[0]["n"])

    def append_foreign(self, first: int, rows: int = 1) -> None:
        self.frame(rows, first=first).writeTo(self.table).append()

    def compact_and_expire(self) -> None:
        """What somebody else's maintenance does, with plain Spark."""
        sql(
            self.session,
            f"CALL headrace.system.rewrite_data_files(table => '{self.table}', "
            "options => map('rewrite-all', 'true'))",
        )
        self.expire()

    def expire(self) -> None:
        sql(
            self.session,
            f"CALL headrace.system.expire_snapshots(table => '{self.table}', "
            "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)",
        )

    def snapshots(self) -> list[dict[str, str]]:
        rows = sql(self.session, f"SELECT summary FROM {self.table}.snapshots")
        return [dict(row["summary"]) for row in rows]

    def properties(self) -> dict[str, str]:
        return dict(load_table(self.session, self.ref).properties())

    def folder(self, at: TableCommitAt) -> Path:
        return _path(at.folder(self.location))

    def epoch_folder(self, at: TableCommitAt) -> Path:
        return _path(at.epoch_folder(self.location))

    @property
    def location(self) -> str:
        return str(load_table(self.session, self.ref).location())


def commit(
    session: SparkSession,
    ref: TableRef,
    handle: StagedFilesHandle,
    at: TableCommitAt,
    *,
    clock: Clock | None = None,
    deadline_s: float = COMMIT_DEADLINE_S,
) -> SpendOutcome[SpentAtTable]:
    """As the table sees it: `already` also when it holds rows that another execution staged."""
    change = rows_change(session, ref, handle, at)
    deadline = deadline_of(at.epoch_at, deadline_s, clock=clock)
    try:
        return operations.commit(IcebergTarget(session, ref), at, change, deadline=deadline)
    except StoreOlderThanTarget:
        return SpendOutcome(already=True, spent=some(look(session, ref, at)))


def abort(session: SparkSession, ref: TableRef, at: TableCommitAt) -> SpentAtTable | None:
    """What spent the token: the abort, or data before it; None when there is no table."""
    with suppress(StoreOlderThanTarget):
        operations.abort(IcebergTarget(session, ref), at)
    try:
        return look(session, ref, at)
    except TableMissing:
        return None


def sweep(
    session: SparkSession, ref: TableRef, handle: StagedFilesHandle | None, at: TableCommitAt
) -> None:
    completed_by = handle.execution if handle else None
    operations.sweep(IcebergTarget(session, ref), at, completed_by=completed_by)


def forget(session: SparkSession, ref: TableRef, at: TableCommitAt) -> None:
    operations.forget(IcebergTarget(session, ref), at, owners=None)


def lose_answers(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each change of a table is made, and an error comes back. The list grows with each."""
    make: Any = commit_target.make_change
    tries: list[int] = []

    def lost(*args: Any, **more: Any) -> None:
        tries.append(len(tries))
        make(*args, **more)
        java: Any = session.sparkContext._jvm  # pyright: ignore
        java.org.apache.iceberg.TableMetadataParser.fromJson("an answer that never came")

    monkeypatch.setattr(commit_target, "make_change", lost)
    return tries


def session_range(session: SparkSession, first: int, end: int) -> DataFrame:
    return session.range(first, end, 1, 2)


def staged_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def _path(uri: str) -> Path:
    found = local_path(uri)
    assert found is not None
    return found


def some(values: Any) -> Any:
    """Not None, for the type checker and the reader alike."""
    assert values is not None
    return values
