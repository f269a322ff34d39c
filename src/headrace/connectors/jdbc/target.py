"""The table that rows go to: where it is, which columns it has, and making it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as spark

from headrace.connectors.jdbc.database import Connection, Database
from headrace.connectors.jdbc.dialect import NewColumn
from headrace.connectors.jdbc.names import MARKS, TableName
from headrace.errors import Refused
from headrace.formats.iceberg.jvm import JAVA_ERRORS, string_array
from headrace.jobfile.saving import SchemaMode


@dataclass(frozen=True, slots=True)
class TargetColumn:
    name: str
    needed: bool  # not null, and the database has nothing to put in its place


def located(connection: Connection, name: TableName) -> TableName:
    """The same table with its schema, the connection's own where none was named."""
    return name if name.schema else TableName(connection.java.getSchema(), name.table)


def check_database(connection: Connection, database: Database, named: str | None) -> None:
    """The option 'database' can't lead elsewhere than the URL."""
    here = connection.java.getCatalog()
    if named is not None and here is not None and named != here:
        raise Refused(
            f"{database.plugin}: option 'database' is {named!r}, but the url leads to {here!r}; "
            "name the same one in both"
        )


def columns_of(connection: Connection, table: TableName) -> list[TargetColumn]:
    """In their order; empty when there is no such table."""
    about = connection.java.getMetaData()
    schema, name = (pattern_of(about, part) for part in (table.schema or "", table.table))
    found = about.getColumns(connection.java.getCatalog(), schema, name, "%")
    columns: list[TargetColumn] = []
    while found.next():
        filled = found.getString("COLUMN_DEF") is not None or "YES" in {
            found.getString("IS_AUTOINCREMENT"),
            found.getString("IS_GENERATEDCOLUMN"),
        }
        needed = found.getString("IS_NULLABLE") == "NO" and not filled
        columns.append(TargetColumn(found.getString("COLUMN_NAME"), needed))
    found.close()
    return columns


def tables_with(connection: Connection, schema: str | None, prefix: str) -> list[TableName]:
    """Tables of a schema whose names begin with `prefix`, to the letter."""
    return [table for table, _ in comments_of(connection, schema, prefix)]


def is_there(connection: Connection, table: TableName) -> bool:
    """A table of this very name: a longer one that begins alike, say a copy, is another table."""
    return table in tables_with(connection, table.schema, table.table)


def comments_of(
    connection: Connection, schema: str | None, prefix: str
) -> list[tuple[TableName, str]]:
    """Tables whose names begin with `prefix`, each with its comment."""
    about = connection.java.getMetaData()
    kinds = string_array(connection.session, "TABLE")
    pattern = pattern_of(about, prefix) + "%"
    found = about.getTables(
        connection.java.getCatalog(), pattern_of(about, schema or ""), pattern, kinds
    )
    tables: list[tuple[TableName, str]] = []
    while found.next():
        name = str(found.getString("TABLE_NAME"))
        if name.startswith(prefix):
            tables.append((TableName(schema, name), str(found.getString("REMARKS") or "")))
    found.close()
    return tables


def create_with_first_rows(connection: Connection, table: TableName, statement: str) -> None:
    """Make the table as a part of the transaction that is open, so that it is never there without
    what that commits. Of two that make it at once the second waits for the first, and goes on with
    its table; when its own columns are others, the move of its rows is refused."""
    if columns_of(connection, table):
        return
    before = connection.java.setSavepoint()
    try:
        connection.run(statement)
    except JAVA_ERRORS:
        connection.java.rollback(before)  # or the rest of the transaction would be refused, too
        if not columns_of(connection, table):
            raise


def new_columns(columns: spark.StructType) -> list[NewColumn]:
    return [NewColumn(field.name, field.dataType) for field in columns.fields]


def create_statement(
    database: Database, table: TableName, columns: spark.StructType, keys: Sequence[str]
) -> str:
    wrong = [key for key in keys if key not in columns.names]
    if wrong:
        raise Refused(f"{database.plugin}: primary key {wrong[0]!r} is no column of its rows")
    return database.dialect.create_table(table, new_columns(columns), keys)


def ensure_marks(connection: Connection, database: Database, beside: TableName) -> TableName:
    marks = beside.beside(MARKS)
    if not is_there(connection, marks):
        _make(connection, marks, database.dialect.create_marks(marks))
    return marks


def _make(connection: Connection, table: TableName, statement: str) -> None:
    try:
        connection.run(statement)
    except JAVA_ERRORS:
        # Two that make it at once: IF NOT EXISTS does not keep PostgreSQL from failing one.
        if not columns_of(connection, table):
            raise


def matched(
    database: Database,
    table: TableName,
    given: Sequence[str],
    wanted: Sequence[TargetColumn],
    named: Sequence[str] | None = None,
) -> list[str]:
    """For each column of the rows, the column of the table it goes to.

    By name, or by position to the `named` ones. A column with no place is refused, since dropping
    it would lose data without a word.
    """
    where = f"{database.plugin}: table {table}"
    exact = {column.name: column.name for column in wanted}
    folded = {column.name.lower(): column.name for column in wanted}
    asked = given if named is None else named
    if len(asked) != len(given):
        raise Refused(
            f"{where}: option 'query' has {len(asked)} values, and the rows have {len(given)} "
            f"columns: {', '.join(given)}"
        )
    found = [exact.get(name) or folded.get(name.lower()) for name in asked]
    lost = [name for name, place in zip(asked, found, strict=True) if place is None]
    if lost:
        raise Refused(
            f"{where} has no column {', '.join(lost)}; drop it in a transform, add it to the "
            f"table, or set schema_save_mode = {SchemaMode.RECREATE} to make the table anew"
        )
    places = [place for place in found if place is not None]
    if len(set(places)) != len(places):
        raise Refused(f"{where}: two columns of the rows go to one; rename one in a transform")
    missing = [column.name for column in wanted if column.needed and column.name not in places]
    if missing:
        raise Refused(
            f"{where} needs a value for column {', '.join(missing)}, and gets none; give it one in "
            f"a transform, or set schema_save_mode = {SchemaMode.RECREATE} to make the table anew"
        )
    return places


def pattern_of(about: Any, name: str) -> str:
    """`name` for a look-up that would take % and _ as wildcards."""
    escape = str(about.getSearchStringEscape())
    for character in (escape, "%", "_"):
        name = name.replace(character, escape + character)
    return name
