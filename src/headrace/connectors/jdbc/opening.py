"""Epoch 0 at a database: what the save modes ask, in the transaction that raises the mark to 0.

`survey` turns the modes into statements and changes nothing. `open_target` runs them all or none,
and the mark refuses them from then on: a zombie that wakes when epoch 1 is in drops nothing.
Databases whose DDL is no part of a transaction could not be opened so; PostgreSQL's is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, JsonValue
from pyspark.sql import SparkSession
from pyspark.sql import types as spark

from headrace.connectors.jdbc.commit import Outcome, outcome
from headrace.connectors.jdbc.database import Connection, Database, connected
from headrace.connectors.jdbc.names import TableName
from headrace.connectors.jdbc.spend import Spending, spend
from headrace.connectors.jdbc.target import columns_of, create_statement, ensure_marks
from headrace.errors import Refused
from headrace.jobfile.saving import DataMode, SchemaMode, data_mode, schema_mode
from headrace.model.deadline import Deadline
from headrace.model.epoch import CommitAt
from headrace.seams import seam

CREATES = frozenset({SchemaMode.CREATE, SchemaMode.RECREATE})


class Opening(BaseModel):
    """All that a stranger needs in order to open."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    db_schema: str | None
    table: str
    statements: list[str]

    @property
    def target_table(self) -> TableName:
        return TableName(self.db_schema, self.table)


def survey(
    connection: Connection,
    database: Database,
    target: TableName,
    columns: spark.StructType,
    *,
    keys: Sequence[str],
    options: Mapping[str, JsonValue],
) -> Opening:
    """What is to be done, when the table is as the modes want it."""
    schema, data = schema_mode(options), data_mode(options)
    exists = bool(columns_of(connection, target))
    if schema is SchemaMode.ERROR and not exists:
        raise Refused(
            f"{database.plugin}: there is no table {target} in {database}; make it, or set "
            f"schema_save_mode = {SchemaMode.CREATE}"
        )
    if (
        data is DataMode.ERROR
        and exists
        and connection.rows(database.dialect.some_row(target))  # before a RECREATE_SCHEMA, too
    ):
        raise Refused(
            f"{database.plugin}: table {target} in {database} holds rows, and data_save_mode is "
            f"{DataMode.ERROR}; empty the table, or set another mode"
        )
    statements: list[str] = []
    if not exists:
        # The first commit of rows makes it, and a job that fails before leaves none. What the user
        # wrote may speak of the table, and needs it now.
        if data is DataMode.CUSTOM and schema in CREATES:
            statements.append(create_statement(database, target, columns, keys))
    elif schema is SchemaMode.RECREATE:
        statements.append(database.dialect.drop(target))
        statements.append(create_statement(database, target, columns, keys))
    elif data is DataMode.DROP:
        statements.append(database.dialect.empty(target))
    if data is DataMode.CUSTOM:
        statements.append(str(options["custom_sql"]))
    return Opening(db_schema=target.schema, table=target.table, statements=statements)


def open_target(
    session: SparkSession,
    database: Database,
    opening: Opening,
    at: CommitAt,
    *,
    tries_max: int,
    deadline: Deadline | None = None,
) -> Outcome:
    """Do it, once. `TokenSpent` when an abort was first."""
    seam("before sink open")
    target = opening.target_table

    def work(connection: Connection) -> None:
        for statement in opening.statements:
            connection.execute(statement)

    with connected(session, database, doing="opening") as connection:
        ensure_marks(connection, database, target)
    spending = Spending(
        database, target, at, work, at.execution, tries_max=tries_max, deadline=deadline
    )
    spent = spend(session, spending)
    seam("sink opened")
    return outcome(spending, spent)
