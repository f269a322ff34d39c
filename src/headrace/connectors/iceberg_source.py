"""Iceberg, as a source: a snapshot in batch mode, what is appended in streaming mode.

A slice names snapshots, which never change, and the schema its columns come from. So it gives the
same rows again, or is refused because a snapshot was expired (E5). Which one is next: iceberg_scan.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from pydantic import JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.connector import Setting
from headrace.connectors.iceberg_scan import (
    Batch,
    Choice,
    Part,
    Position,
    Strategy,
    Stream,
    choose_batch,
    choose_stream,
)
from headrace.connectors.iceberg_table import table_ref
from headrace.connectors.types import spark_schema
from headrace.errors import Refused
from headrace.formats.iceberg.catalogs import TableMissing, load_table
from headrace.formats.iceberg.history import History
from headrace.formats.iceberg.jvm import running_session
from headrace.formats.iceberg.reading import (
    history_of,
    read_appended,
    read_nothing,
    read_snapshot,
)
from headrace.formats.spark_errors import one_line
from headrace.formats.spark_queries import code_function_of_condition, runs_code
from headrace.jobfile.plugins.iceberg import mode_flaw, source_flaw
from headrace.jobfile.schema import parse_schema
from headrace.protocol.payloads import Slice


class IcebergSource:
    repeatable = True
    takes_conditions = True

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self.bounded = not setting.streaming
        self._title = f"source {name}"
        self._options = options = setting.options
        self.table_ref = table_ref(self._title, setting)
        flaw = source_flaw(options) or mode_flaw(options, streaming=setting.streaming)
        if flaw:
            raise Refused(f"{self._title}: {flaw}")
        self._batch = Batch(
            snapshot=options.get("use_snapshot_id"),
            at_ms=options.get("use_snapshot_timestamp"),
            start=options.get("start_snapshot_id"),
            end=options.get("end_snapshot_id"),
        )
        self._stream = Stream(
            Strategy(str(options["stream_scan_strategy"])),
            snapshot=options.get("start_snapshot_id"),
            at_ms=options.get("start_snapshot_timestamp"),
        )
        table = options.get("schema")
        self._columns = spark_schema(parse_schema(table)) if table else None

    def plan(self, position: JsonValue, *, rows_max: int | None = None) -> Slice | None:
        """While streaming, None says that nothing was appended yet."""
        before = Position.model_validate(position) if position is not None else None
        with self._told():
            session = running_session(self._title)
            history = history_of(session, load_table(session, self.table_ref))
            choice = self._choose(history, before, rows_max)
        if choice is None:
            return None
        return Slice(
            data=choice.part.model_dump(mode="json", exclude_none=True),
            after=choice.after.model_dump(mode="json", exclude_defaults=True),
            rows=choice.rows if not self._options.get("where_clause") else None,
            last=choice.last,
        )

    def _choose(
        self, history: History, before: Position | None, rows_max: int | None
    ) -> Choice | None:
        if self.bounded:
            return choose_batch(history, before, self._batch, rows_max=rows_max)
        return choose_stream(history, before, self._stream, rows_max=rows_max)

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        wanted = Part.model_validate(part.data)
        with self._told():
            table = load_table(session, self.table_ref)
            return self._shown(_read(session, table, wanted))

    def empty(self, session: SparkSession) -> DataFrame:
        with self._told():
            table = load_table(session, self.table_ref)
            history = history_of(session, table)
            fixed = history.snapshots.get(self._batch.snapshot or -1) if self.bounded else None
            schema = fixed.schema if fixed is not None else None
            return self._shown(read_nothing(session, table, schema=schema))

    def _filtered(self, frame: DataFrame, where: str) -> DataFrame:
        """A condition only asks, as a query of the Sql transform does."""
        if (function := code_function_of_condition(frame.sparkSession, where)) is not None:
            raise Refused(f"where_clause: function {function} runs Java code; leave it out")
        filtered = frame.filter(where)
        if (why := runs_code(filtered)) is not None:
            raise Refused(f"where_clause: {why}")
        return filtered

    def _shown(self, frame: DataFrame) -> DataFrame:
        """What `where_clause` and `schema` leave of it."""
        if where := self._options.get("where_clause"):
            frame = self._filtered(frame, str(where))
        if self._columns is None:
            return frame
        return frame.select(*(self._shown_column(frame, field) for field in self._columns.fields))

    def _shown_column(self, frame: DataFrame, field: spark.StructField) -> Any:
        exact = bool(self._options.get("case_sensitive"))
        for column in frame.schema.fields:
            if field.name == column.name or (
                not exact and field.name.lower() == column.name.lower()
            ):
                found = f.col("`" + column.name.replace("`", "``") + "`")
                return found.cast(field.dataType).alias(field.name)
        named = ", ".join(frame.columns)
        raise Refused(
            f"{self.table_ref} has no column {field.name}, which 'schema' names; it has {named}"
        )

    @contextmanager
    def _told(self) -> Generator[None]:
        """What the table refuses, with the plugin's name on it."""
        try:
            yield
        except TableMissing as error:
            raise Refused(
                f"{self._title}: there is no table {error.ref}; create it, or mend 'table'"
            ) from error
        except AnalysisException as error:
            raise Refused(f"{self._title}: {self.table_ref}: {one_line(error)}") from error
        except Refused as refused:
            raise Refused(f"{self._title}: {refused}") from refused


def _read(session: SparkSession, table: Any, wanted: Part) -> DataFrame:
    history = history_of(session, table)
    if wanted.whole is not None:
        return read_snapshot(session, table, history.find(wanted.whole).id)
    if wanted.until is None or wanted.after is None or wanted.until == wanted.after:
        return read_nothing(session, table, schema=wanted.schema_id)
    # Spark would step over what is missing in between, and lose its rows.
    history.between(wanted.after, history.find(wanted.until))
    return read_appended(
        session, table, after=wanted.after, until=wanted.until, schema=wanted.schema_id
    )
