"""A table's snapshots: how they follow one another, and how to read them or their appends.

Rows come into a table by *append* snapshots. A *replace* snapshot (compaction) holds the same rows
in other files, so an incremental read steps over it. *overwrite* and *delete* snapshots take rows
away again, which an incremental read of appends can't show. `Snapshot` and `History` are pure.

Reading hands the loaded table itself to Spark, as a relation of its own, and caches nothing: a job
may bring a catalog that no session knows, and what is checked and what is read can't drift apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.errors import Refused
from headrace.lake.iceberg.catalogs import metadata_of
from headrace.spark.jvm_bridge import jvm, string_map

APPEND = "append"
OVERWRITE = "overwrite"
REPLACE = "replace"
_CHANGES = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")
_DELETES = ("total-position-deletes", "total-equality-deletes")


class SnapshotGone(Refused):
    """A snapshot that was planned, or named in a job file, no longer exists."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    id: int
    parent: int | None
    at_ms: int
    summary: Mapping[str, str]
    schema: int | None = None

    @property
    def operation(self) -> str:
        return self.summary.get("operation", APPEND)  # format version 1 may lack it

    @property
    def changes_nothing(self) -> bool:
        """Whether its summary says that it holds the same rows as the snapshot before it."""
        if self.operation == REPLACE:
            return True
        has_totals = "total-records" in self.summary
        return has_totals and all(int(self.summary.get(key, "0")) == 0 for key in _CHANGES)

    @property
    def added_rows(self) -> int | None:
        """How many rows it appended; None when its summary does not say."""
        if self.changes_nothing:
            return 0
        count = self.summary.get("added-records")
        return int(count) if count is not None else None

    @property
    def total_rows(self) -> int | None:
        """How many rows it holds; None when its summary does not say, or counts rows that are
        marked as deleted."""
        count = self.summary.get("total-records")
        if count is None or any(int(self.summary.get(key, "0")) > 0 for key in _DELETES):
            return None
        return int(count)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one schema of a table."""

    id: int
    name: str
    type: Any  # as in Iceberg's JSON: a text, or an object


@dataclass(frozen=True, slots=True)
class History:
    """The snapshots and schemas of a table at one moment."""

    table: str  # for people
    snapshots: Mapping[int, Snapshot]
    current: Snapshot | None
    schema: int
    schemas: Mapping[int, Sequence[Column]]

    @classmethod
    def of(cls, table: str, metadata: Mapping[str, Any]) -> History:
        """From a table's metadata, in Iceberg's JSON."""
        snapshots = {one.id: one for one in map(_snapshot, metadata.get("snapshots", ()))}
        return cls(
            table=table,
            snapshots=snapshots,
            current=snapshots.get(metadata.get("current-snapshot-id") or -1),
            schema=int(metadata["current-schema-id"]),
            schemas={
                int(one["schema-id"]): [
                    Column(int(field["id"]), field["name"], field["type"])
                    for field in one["fields"]
                ]
                for one in metadata["schemas"]
            },
        )

    def lineage(self, until: Snapshot | None) -> Iterator[Snapshot]:
        """`until` and its ancestors, newest first, as far as they are kept."""
        for _ in range(len(self.snapshots)):
            if until is None:
                return
            yield until
            until = self.snapshots.get(until.parent) if until.parent is not None else None

    def find(self, snapshot: int) -> Snapshot:
        """The snapshot of this id, or `SnapshotGone`."""
        kept = self.snapshots.get(snapshot)
        if kept is None:
            raise SnapshotGone(
                f"{self.table} has no snapshot {snapshot}: it was expired, or never was; keep "
                "snapshots longer, and submit the job anew"
            )
        return kept

    def as_of(self, at_ms: int) -> Snapshot:
        """The snapshot that was current at that time, or `SnapshotGone`."""
        for snapshot in self.lineage(self.current):
            if snapshot.at_ms <= at_ms:
                return snapshot
        raise SnapshotGone(
            f"{self.table} has no snapshot as old as {at_ms} ms; name a later time, or a snapshot"
        )

    def between(self, after: int | None, until: Snapshot) -> list[Snapshot]:
        """Snapshots after `after` up to `until`, oldest first; all of them, or `SnapshotGone`.

        `after` itself may have been expired: only what came after it counts. None: from the very
        first one.
        """
        steps: list[Snapshot] = []
        for snapshot in self.lineage(until):
            if snapshot.id == after:
                return steps[::-1]
            steps.append(snapshot)
            if snapshot.parent == after:
                return steps[::-1]
        raise SnapshotGone(self._gap_reason(after, until))

    def _gap_reason(self, after: int | None, until: Snapshot) -> str:
        """Why the snapshots between the two are not all there: a rollback, or expiry."""
        whole = next(reversed(list(self.lineage(until)))).parent is None
        if whole and after in self.snapshots:
            return (
                f"{self.table} was rolled back: snapshot {after}, up to which it was read, is not "
                f"before snapshot {until.id}; submit the job anew"
            )
        named = "its first snapshot" if after is None else f"snapshot {after}"
        return (
            f"snapshots of {self.table} between {named} and {until.id} were expired before they "
            "were read, so rows appended in between can't be told from others; keep snapshots "
            "longer than the job may stand still, and submit it anew with stream_scan_strategy = "
            "TABLE_SCAN_THEN_INCREMENTAL"
        )


def _snapshot(fields: Mapping[str, Any]) -> Snapshot:
    parent, schema = fields.get("parent-snapshot-id"), fields.get("schema-id")
    return Snapshot(
        id=int(fields["snapshot-id"]),
        parent=int(parent) if parent is not None else None,
        at_ms=int(fields["timestamp-ms"]),
        summary=fields.get("summary", {}),
        schema=int(schema) if schema is not None else None,
    )


def history_of(session: SparkSession, table: Any) -> History:
    return History.of(str(table.name()), metadata_of(session, table))


def read_snapshot(session: SparkSession, table: Any, snapshot: int) -> DataFrame:
    """All rows of a snapshot, with the columns that the table had then."""
    spark = jvm(session).org.apache.iceberg.spark
    spark_table = spark.source.SparkTable.create(table, spark.TimeTravel.version(str(snapshot)))
    return _frame(session, spark_table, {})


def read_appended(
    session: SparkSession, table: Any, *, after: int, until: int, schema: int
) -> DataFrame:
    """Rows of the append snapshots after `after` up to `until`, with the columns of `schema`."""
    spark_table = jvm(session).org.apache.iceberg.spark.source.SparkTable(table)
    options = {"start-snapshot-id": str(after), "end-snapshot-id": str(until)}
    return _with_columns_of(
        _frame(session, spark_table, options), history_of(session, table), schema
    )


def read_nothing(session: SparkSession, table: Any, *, schema: int | None = None) -> DataFrame:
    """No rows, with the columns of `schema`, by default those that the table has now."""
    spark_table = jvm(session).org.apache.iceberg.spark.source.SparkTable(table)
    history = history_of(session, table)
    wanted = history.schema if schema is None else schema
    return _with_columns_of(_frame(session, spark_table, {}).limit(0), history, wanted)


def count_rows(session: SparkSession, table: Any) -> int:
    """How many rows the table has: from the summary of the current snapshot, or counted where it
    does not say."""
    current = history_of(session, table).current
    if current is None:
        return 0
    total = current.total_rows
    return read_snapshot(session, table, current.id).count() if total is None else total


def all_data_files(session: SparkSession, table: Any) -> DataFrame:
    """Every data file that any snapshot of the loaded table refers to, as `file_path`."""
    iceberg = jvm(session).org.apache.iceberg
    kind = iceberg.MetadataTableType.ALL_DATA_FILES
    files = iceberg.MetadataTableUtils.createMetadataTableInstance(table, kind)
    return _frame(session, iceberg.spark.source.SparkTable(files), {})


def _frame(session: SparkSession, table: Any, options: Mapping[str, str]) -> DataFrame:
    sql = jvm(session).org.apache.spark.sql
    none = jvm(session).scala.Option.empty()
    settings = sql.util.CaseInsensitiveStringMap(string_map(session, options))
    relations = sql.execution.datasources.v2.DataSourceV2Relation
    relation = relations.create(table, none, none, settings, none)
    dataset: Any = sql.classic.Dataset.ofRows(session._jsparkSession, relation)  # noqa: SLF001  # pyright: ignore
    return DataFrame(dataset, session)


def _with_columns_of(frame: DataFrame, history: History, schema: int) -> DataFrame:
    """Undo changes to the columns since `schema`: a slice must give the same rows again (E5).
    Raises `Refused` when a column was dropped or has another type."""
    if schema == history.schema:
        return frame
    now = {column.id: column for column in history.schemas[history.schema]}
    columns = history.schemas.get(schema)
    if columns is None:
        raise Refused(
            f"{history.table} no longer knows its schema {schema}, with which the epoch was "
            "planned; submit the job anew"
        )
    for column in columns:
        if column.id not in now or now[column.id].type != column.type:
            raise Refused(
                f"column {column.name} of {history.table} was dropped or given another type since "
                "the epoch was planned, so it can't give the same rows again; submit the job anew"
            )
    return frame.select(*(f.col(_quoted(now[one.id].name)).alias(one.name) for one in columns))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
