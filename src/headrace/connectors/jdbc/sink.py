"""The Jdbc sink: exactly once, whatever `is_exactly_once` says, since it costs little.

Rows are staged in a table beside the target; one transaction of the database moves them and raises
the pipeline's mark in `headrace_commits`. Save modes are epoch 0 (commit.py has both).
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
from headrace.connectors.jdbc.commit import (
    CREATES,
    DatabaseOpening,
    abort,
    commit,
    look_marked,
    open_target,
    survey,
    sweep,
)
from headrace.connectors.jdbc.database import Connection, connected, database_of
from headrace.connectors.jdbc.dialect import MARKS, TableName, parts_of
from headrace.connectors.jdbc.forget import forget, forget_strays
from headrace.connectors.jdbc.stage import NewTable, StageHandle, stage
from headrace.connectors.jdbc.target import (
    Insert,
    TargetColumn,
    check_database,
    columns_of,
    create_statement,
    ensure_marks,
    match_columns,
    new_columns,
    qualified,
    read_insert,
    table_exists,
)
from headrace.errors import Refused
from headrace.jobfile.option_values import SchemaMode, opens, schema_mode
from headrace.model.jobs.epoch import CommitAt, Deadline, EpochAt, SpentBy, now


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
        self._committed = setting.has_committed  # from the first commit on the table exists
        self._planned = setting.planned_tables

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:
        with connected(session, self._database, doing="reading the mark") as connection:
            marks = qualified(connection, self._target).beside(MARKS)
            if not table_exists(connection, marks):
                return None
            mark = look_marked(connection, self._database, marks, CommitAt(at, self.name))
        return mark and Mark(mark[0], aborted=mark[1] is SpentBy.ABORT)

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:  # noqa: ARG002
        with connected(session, self._database, doing="looking at the table") as connection:
            check_database(connection, self._database, self._in_database)
            opening = survey(
                connection,
                self._database,
                qualified(connection, self._target),
                self._new_columns(frame),
                keys=self._keys(),
                options=self._options,
            )
        return opening.model_dump(mode="json")

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        opening = DatabaseOpening.model_validate(handle)
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
        committed = self._committed  # read before the table is: if that is missing, it was dropped
        with connected(session, self._database, doing="looking at the table") as connection:
            check_database(connection, self._database, self._in_database)
            target = qualified(connection, self._target)
            columns, new_table = self._columns(connection, target, frame)
            ensure_marks(connection, self._database, target)
        handle = stage(
            session,
            frame,
            self._database,
            target,
            CommitAt(at, self.name),
            columns=columns,
            batch_size=int(self._options.get("batch_size") or 1000),
            new_table=new_table,
            is_first=not committed,
        )
        return Staged(handle.model_dump(mode="json"), handle.rows)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        staged = StageHandle.model_validate(handle)
        if staged.is_first and self._committed:
            # This was staged beside the first rows. Whoever dropped the table since does not want
            # it back without those, so it is not created again, and the move is refused.
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
        if outcome.spent.epoch == at.epoch:  # a mark knows the rows of its own epoch only
            facts["rows"] = outcome.spent.rows
        return Committed(outcome.already, facts)

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:  # noqa: ARG002
        """Drop the epoch's stage tables, also this execution's: the commit has moved its rows."""
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
    ) -> tuple[Sequence[str], NewTable | None]:
        """The target column of each column of the rows, and how a missing table is created."""
        existing, new_table = columns_of(connection, target), None
        if not existing:
            if schema_mode(self._options) not in CREATES:
                raise Refused(
                    f"{self._title}: there is no table {target} in {self._database}; make it, or "
                    f"set schema_save_mode = {SchemaMode.CREATE}"
                )
            new_table = self._new_table(target, frame)
            existing = [
                TargetColumn(new.name, new.name in new_table.keys) for new in new_table.columns
            ]
        named = None
        if self._insert is not None:
            named = self._insert.columns or [column.name for column in existing]
        return match_columns(self._database, target, frame.columns, existing, named), new_table

    def _new_table(self, target: TableName, frame: DataFrame) -> NewTable:
        """How a missing table is going to be created.

        All sinks of a pipeline create it in the same way, or the move of the second one's rows
        would be refused when they are committed.
        """
        key = (self._database.url, target)
        if key not in self._planned:
            wanted, keys = self._new_columns(frame), self._keys()
            create = create_statement(self._database, target, wanted, keys)
            self._planned[key] = NewTable(new_columns(wanted), keys, create)
        return self._planned[key]

    def _new_columns(self, frame: DataFrame) -> StructType:
        """The columns of a table that is created here, named as in `query`, if it names any."""
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
        """The database that the options name, if they do, and the table."""
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
    """The database and the table of: table, schema.table or database.schema.table."""
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
