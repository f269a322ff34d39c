"""Read a table as it was at a snapshot, or what was appended between two. Nothing is cached.

The very table that was looked at is handed to Spark, as a relation of its own: a job may bring a
catalog that no session knows, and what is checked and what is read can't drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import metadata_of
from headrace.formats.iceberg.history import History
from headrace.formats.iceberg.jvm import jvm, string_map


def history_of(session: SparkSession, table: Any) -> History:
    return History.of(str(table.name()), metadata_of(session, table))


def read_snapshot(session: SparkSession, table: Any, snapshot: int) -> DataFrame:
    """All rows of a snapshot, with the columns that the table had then."""
    spark = jvm(session).org.apache.iceberg.spark
    found = spark.source.SparkTable.create(table, spark.TimeTravel.version(str(snapshot)))
    return _frame(session, found, {})


def read_appended(
    session: SparkSession, table: Any, *, after: int, until: int, schema: int
) -> DataFrame:
    """Rows of the append snapshots behind `after` up to `until`, with the columns of `schema`."""
    found = jvm(session).org.apache.iceberg.spark.source.SparkTable(table)
    options = {"start-snapshot-id": str(after), "end-snapshot-id": str(until)}
    return _as_then(_frame(session, found, options), history_of(session, table), schema)


def read_nothing(session: SparkSession, table: Any, *, schema: int | None = None) -> DataFrame:
    """No rows, with the columns that the table has now, or those of `schema`."""
    found = jvm(session).org.apache.iceberg.spark.source.SparkTable(table)
    history = history_of(session, table)
    wanted = history.schema if schema is None else schema
    return _as_then(_frame(session, found, {}).limit(0), history, wanted)


def count_rows(session: SparkSession, table: Any) -> int:
    """Read from the current snapshot where it tells, and counted where it does not."""
    current = history_of(session, table).current
    if current is None:
        return 0
    told = current.total_rows
    return read_snapshot(session, table, current.id).count() if told is None else told


def all_data_files(session: SparkSession, table: Any) -> DataFrame:
    """Every data file that any snapshot of the loaded table refers to; `file_path` is its name."""
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
    made: Any = sql.classic.Dataset.ofRows(session._jsparkSession, relation)  # noqa: SLF001  # pyright: ignore
    return DataFrame(made, session)


def _as_then(frame: DataFrame, history: History, schema: int) -> DataFrame:
    """Undo what was done to the columns since: a slice must give the same rows again (E5)."""
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
