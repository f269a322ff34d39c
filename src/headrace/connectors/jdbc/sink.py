"""Jdbc, as a sink: exactly once, whatever `is_exactly_once` says, since it costs little.

Rows are staged in a table beside the target; one transaction of the database moves them and
raises the pipeline's mark in `headrace_commits` (commit.py). Save modes: opening.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from pydantic import JsonValue
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.clock import SystemClock
from headrace.connectors.connector import (
    Committed,
    Mark,
    Setting,
    Staged,
    check_given_up,
    check_spender,
)
from headrace.connectors.jdbc.commit import abort, commit, sweep
from headrace.connectors.jdbc.database import Connection, connected
from headrace.connectors.jdbc.forget import forget
from headrace.connectors.jdbc.insert import Insert, read_insert
from headrace.connectors.jdbc.names import MARKS, TableName, parts_of
from headrace.connectors.jdbc.opening import CREATES, Opening, open_target, survey
from headrace.connectors.jdbc.settings import database_of
from headrace.connectors.jdbc.spend import SpentBy, look_marked
from headrace.connectors.jdbc.staging import FirstRows, Handle, stage
from headrace.connectors.jdbc.strays import forget_strays
from headrace.connectors.jdbc.target import (
    TargetColumn,
    check_database,
    columns_of,
    create_statement,
    ensure_marks,
    is_there,
    located,
    matched,
    new_columns,
)
from headrace.errors import Refused
from headrace.jobfile.saving import SchemaMode, opens, schema_mode
from headrace.model.deadline import Deadline, now
from headrace.model.epoch import CommitAt, EpochAt


class JdbcSink:
    leaves_stage = True

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self._options, self._deadline_s = setting.options, setting.commit_deadline_s
        self.opens = opens(setting.options)
        self._title = f"sink {name}"
        self._database = database_of(self._title, setting.options)
        self._refuse_upserts()
        self._insert = self._read_query()
        self._in_database, self._target = self._read_target()
        self._committed = setting.has_committed  # from then on the table is there
        self._planned = setting.planned_tables

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:
        with connected(session, self._database, doing="reading the mark") as connection:
            marks = located(connection, self._target).beside(MARKS)
            if not is_there(connection, marks):
                return None
            found = look_marked(connection, self._database, marks, CommitAt(at, self.name))
        return found and Mark(found[0], aborted=found[1] is SpentBy.ABORT)

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:  # noqa: ARG002
        with connected(session, self._database, doing="looking at the table") as connection:
            check_database(connection, self._database, self._in_database)
            opening = survey(
                connection,
                self._database,
                located(connection, self._target),
                self._new_columns(frame),
                keys=self._keys(),
                options=self._options,
            )
        return opening.model_dump(mode="json")

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        opening = Opening.model_validate(handle)
        outcome = open_target(
            session,
            self._database,
            opening,
            CommitAt(at, self.name),
            tries_max=self._tries_max,
            deadline=self._deadline(at),
        )
        facts: dict[str, JsonValue] = {
            "database": str(self._database),
            "table": str(opening.target_table),
            "statements": len(opening.statements),
        }
        return Committed(outcome.already, facts)

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:
        committed = self._committed  # before the look: a table that is missing then was dropped
        with connected(session, self._database, doing="looking at the table") as connection:
            check_database(connection, self._database, self._in_database)
            target = located(connection, self._target)
            columns, first = self._columns(connection, target, frame)
            ensure_marks(connection, self._database, target)
        handle = stage(
            session,
            frame,
            self._database,
            target,
            CommitAt(at, self.name),
            columns=columns,
            batch_size=int(self._options.get("batch_size") or 1000),
            first=first,
            is_first=not committed,
        )
        return Staged(handle.model_dump(mode="json"), handle.rows)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        staged = Handle.model_validate(handle)
        if staged.is_first and self._committed:
            # Staged beside the first rows. Whoever dropped the table since does not want it back
            # without these: the move is refused.
            staged = staged.model_copy(update={"create": None})
        outcome = commit(
            session,
            self._database,
            staged,
            CommitAt(at, self.name),
            tries_max=self._tries_max,
            deadline=self._deadline(at),
        )
        self._committed = True
        target = f"{self._title}: table {staged.target_table} in {self._database}"
        check_spender(target, at, staged=staged.execution, held=outcome.spent.execution)
        facts: dict[str, JsonValue] = {
            "database": str(self._database),
            "table": str(staged.target_table),
        }
        if outcome.spent.epoch == at.epoch:  # the mark says it of its own epoch only
            facts["rows"] = outcome.spent.rows
        return Committed(outcome.already, facts)

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:  # noqa: ARG002
        """Of this execution, too: its rows were moved, and nothing refers to the stage table."""
        sweep(session, self._database, self._target, CommitAt(at, self.name))

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        spent = abort(session, self._database, self._target, CommitAt(at, self.name))
        target = f"{self._title}: table {self._target} in {self._database}"
        check_given_up(target, at, holds_rows=spent.by is SpentBy.DATA)

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:
        forget(session, self._database, self._target, CommitAt(at, self.name))
        if owners is not None:
            known = {at.incarnation, *owners}
            forget_strays(session, self._database, self._target, known)

    def close(self, rows: int) -> None:
        """Nothing is open between two epochs."""

    def _deadline(self, at: EpochAt) -> Deadline:
        clock = SystemClock()
        return Deadline(clock, at.since or now(clock), self._deadline_s)

    @property
    def _tries_max(self) -> int:
        return int(self._options.get("max_commit_attempts") or 1)

    def _columns(
        self, connection: Connection, target: TableName, frame: DataFrame
    ) -> tuple[Sequence[str], FirstRows | None]:
        """Where each column goes, and what is needed to make a table that is not there."""
        found, first = columns_of(connection, target), None
        if not found:
            if schema_mode(self._options) not in CREATES:
                raise Refused(
                    f"{self._title}: there is no table {target} in {self._database}; make it, or "
                    f"set schema_save_mode = {SchemaMode.CREATE}"
                )
            first = self._first_rows(target, frame)
            found = [TargetColumn(new.name, new.name in first.keys) for new in first.columns]
        named = None
        if self._insert is not None:
            named = self._insert.columns or [column.name for column in found]
        return matched(self._database, target, frame.columns, found, named), first

    def _first_rows(self, target: TableName, frame: DataFrame) -> FirstRows:
        """How a table that is missing is going to be made: by all sinks of a pipeline in the same
        way, or the move of the second one's rows would be refused when they are committed."""
        key = (self._database.url, target)
        if key not in self._planned:
            wanted, keys = self._new_columns(frame), self._keys()
            create = create_statement(self._database, target, wanted, keys)
            self._planned[key] = FirstRows(new_columns(wanted), keys, create)
        return self._planned[key]

    def _new_columns(self, frame: DataFrame) -> StructType:
        """Of a table that is made here: called as `query` has them, where it names them."""
        named = self._insert.columns if self._insert else None
        return (frame.toDF(*named) if named and len(named) == len(frame.columns) else frame).schema

    def _keys(self) -> Sequence[str]:
        return cast("Sequence[str]", self._options.get("primary_keys") or ())

    def _refuse_upserts(self) -> None:
        if self._keys() and self._options.get("enable_upsert") is not False:
            raise Refused(
                f"{self._title}: 'primary_keys' asks for upserts, which come later; set "
                "enable_upsert = false to insert every row, or leave 'primary_keys' out"
            )

    def _read_query(self) -> Insert | None:
        query = self._options.get("query")
        if not query:
            return None
        if self._options.get("generate_sink_sql"):
            raise Refused(f"{self._title}: give 'query' or generate_sink_sql = true, not both")
        try:
            return read_insert(str(query))
        except Refused as refused:
            raise Refused(f"{self._title}: {refused}") from None

    def _read_target(self) -> tuple[str | None, TableName]:
        """The database that was named, and the table."""
        named: Any = self._options.get("database")
        if self._insert is not None:
            parts = list(self._insert.table)
        else:
            table: Any = self._options.get("table")
            if not table:
                raise Refused(
                    f"{self._title} needs generate_sink_sql = true with 'database' and 'table', "
                    "or 'query'"
                )
            parts = parts_of(str(table))
        return split_name(self._title, parts, database=None if named is None else str(named))


def split_name(
    title: str, parts: Sequence[str], *, database: str | None
) -> tuple[str | None, TableName]:
    """table, schema.table or database.schema.table."""
    match list(parts):
        case [table]:
            return database, TableName(None, table)
        case [schema, table]:
            return database, TableName(schema, table)
        case [inside, schema, table] if database in {None, inside}:
            return inside, TableName(schema, table)
        case _:
            raise Refused(
                f"{title}: {'.'.join(parts)!r} must be table, schema.table or database.schema.table"
            )
