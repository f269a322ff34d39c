"""The Jdbc sink: exactly once, whatever `is_exactly_once` says, since it costs little.

Rows are staged in a table beside the target; one transaction of the database moves them and raises
the pipeline's mark in `headrace_commits`. Save modes are epoch 0 (commit.py has both).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic import JsonValue
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.connectors.connector import Committed, Setting, Sink, Staged
from headrace.connectors.jdbc.commit import (
    CREATES,
    DatabaseOpening,
    DatabaseTarget,
    opening_change,
    rows_change,
    survey,
)
from headrace.connectors.jdbc.database import Connection, connected, database_of
from headrace.connectors.jdbc.descriptor import JdbcSinkOptions
from headrace.connectors.jdbc.dialect import TableName, parts_of
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
)
from headrace.errors import Refused
from headrace.exactly_once.operations import abort, commit, forget, open_target, sweep
from headrace.exactly_once.spend import deadline_of
from headrace.exactly_once.target import Mark
from headrace.model.jobs.epoch import CommitAt, EpochAt
from headrace.plugins.save_modes import SchemaMode


class JdbcSink(Sink):
    def __init__(self, name: str, options: JdbcSinkOptions, setting: Setting) -> None:
        self.name = name
        self._options, self._deadline_s = options, setting.commit_deadline_s
        self._modes, self.opens = options.save_modes, options.save_modes.opens
        self._title, self._clock = f"sink {name}", setting.clock
        self._database = database_of(self._title, options.database)
        self._refuse_upserts()
        self._insert = self._read_query()
        self._in_database, self._target = self._read_target()
        self._committed = setting.has_committed  # from the first commit on the table exists
        self._planned = setting.planned_tables

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:
        target = DatabaseTarget(session, self._database, self._target)
        return target.read_mark(CommitAt(at, self.name))

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:  # noqa: ARG002
        with connected(session, self._database, doing="looking at the table") as connection:
            check_database(connection, self._database, self._in_database)
            opening = survey(
                connection,
                self._database,
                qualified(connection, self._target),
                self._new_columns(frame),
                keys=self._options.primary_keys,
                modes=self._modes,
                custom_sql=self._options.custom_sql,
            )
        return opening.model_dump(mode="json")

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        opening, commit_at = DatabaseOpening.model_validate(handle), CommitAt(at, self.name)
        outcome = open_target(
            self._committing(session, opening.target_table),
            commit_at,
            opening_change(opening, commit_at),
            deadline=deadline_of(at, self._deadline_s, clock=self._clock),
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
            batch_size=self._options.batch_size,
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
            self._committing(session, staged.target_table),
            CommitAt(at, self.name),
            rows_change(self._database, staged),
            deadline=deadline_of(at, self._deadline_s, clock=self._clock),
        )
        self._committed = True
        facts: dict[str, JsonValue] = {
            "database": str(self._database),
            "table": str(staged.target_table),
        }
        if outcome.spent.epoch == at.epoch:  # a mark knows the rows of its own epoch only
            facts["rows"] = outcome.spent.rows
        return Committed(outcome.already, facts)

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:  # noqa: ARG002
        target = DatabaseTarget(session, self._database, self._target)
        sweep(target, CommitAt(at, self.name), completed_by=None)

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        target = DatabaseTarget(session, self._database, self._target)
        abort(target, CommitAt(at, self.name))

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:
        target = DatabaseTarget(session, self._database, self._target)
        forget(target, CommitAt(at, self.name), owners=owners)

    def _committing(self, session: SparkSession, table: TableName) -> DatabaseTarget:
        tries_max = self._options.commit_tries_max
        return DatabaseTarget(session, self._database, table, tries_max=tries_max)

    def _columns(
        self, connection: Connection, target: TableName, frame: DataFrame
    ) -> tuple[Sequence[str], NewTable | None]:
        """The target column of each column of the rows, and how a missing table is created."""
        existing, new_table = columns_of(connection, target), None
        if not existing:
            if self._modes.schema not in CREATES:
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
            wanted, keys = self._new_columns(frame), self._options.primary_keys
            create = create_statement(self._database, target, wanted, keys)
            self._planned[key] = NewTable(new_columns(wanted), keys, create)
        return self._planned[key]

    def _new_columns(self, frame: DataFrame) -> StructType:
        """The columns of a table that is created here, named as in `query`, if it names any."""
        named = self._insert.columns if self._insert else None
        return (frame.toDF(*named) if named and len(named) == len(frame.columns) else frame).schema

    def _refuse_upserts(self) -> None:
        if self._options.primary_keys and self._options.upserts:
            raise Refused(
                f"{self._title}: 'primary_keys' asks for upserts, which come later; set "
                "enable_upsert = false to insert every row, or leave 'primary_keys' out"
            )

    def _read_query(self) -> Insert | None:
        query = self._options.query
        if not query:
            return None
        if self._options.generates_sql:
            raise Refused(f"{self._title}: give 'query' or generate_sink_sql = true, not both")
        try:
            return read_insert(query)
        except Refused as refused:
            raise Refused(f"{self._title}: {refused}") from None

    def _read_target(self) -> tuple[str | None, TableName]:
        """The database that the options name, if they do, and the table."""
        named = self._options.database_name
        if self._insert is not None:
            parts = list(self._insert.table)
        else:
            table = self._options.table
            if not table:
                raise Refused(
                    f"{self._title} needs generate_sink_sql = true with 'database' and 'table', "
                    "or 'query'"
                )
            parts = parts_of(table)
        return split_name(self._title, parts, database=named)


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
