"""The table that rows go to: its place, its columns, its creation, and the user's own INSERT.

Of an INSERT only the plain form is understood: a table, perhaps its columns, and one `?` for each.
Rows pass through a stage table first, so anything more (functions of a value, ON CONFLICT,
RETURNING) would have to be understood in order to be kept, and is refused instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as spark

from headrace.connectors.jdbc.database import Connection, Database
from headrace.connectors.jdbc.descriptor import INSERT, INSERT_NAME
from headrace.connectors.jdbc.dialect import MARKS, NewColumn, TableName, parts_of
from headrace.errors import Refused
from headrace.plugins.save_modes import SchemaMode
from headrace.spark.jvm_bridge import JAVA_ERRORS, string_array


@dataclass(frozen=True, slots=True)
class Insert:
    table: tuple[str, ...]
    columns: tuple[str, ...] | None  # None: all columns of the table, in its order
    values: int


@dataclass(frozen=True, slots=True)
class TargetColumn:
    name: str
    needed: bool  # it is NOT NULL, and the database has no default for it


def qualified(connection: Connection, name: TableName) -> TableName:
    """The table with its schema: the connection's default where none was named."""
    return name if name.schema else TableName(connection.java.getSchema(), name.table)


def check_database(connection: Connection, database: Database, named: str | None) -> None:
    """Refuse an option 'database' that names another database than the URL."""
    here = connection.java.getCatalog()
    if named is not None and here is not None and named != here:
        raise Refused(
            f"{database.plugin}: option 'database' is {named!r}, but the url leads to {here!r}; "
            "name the same one in both"
        )


def columns_of(connection: Connection, table: TableName) -> list[TargetColumn]:
    """The columns of a table, in their order; empty when there is no such table."""
    metadata = connection.java.getMetaData()
    schema, name = (pattern_of(metadata, part) for part in (table.schema or "", table.table))
    result = metadata.getColumns(connection.java.getCatalog(), schema, name, "%")
    columns: list[TargetColumn] = []
    while result.next():
        filled = result.getString("COLUMN_DEF") is not None or "YES" in {
            result.getString("IS_AUTOINCREMENT"),
            result.getString("IS_GENERATEDCOLUMN"),
        }
        needed = result.getString("IS_NULLABLE") == "NO" and not filled
        columns.append(TargetColumn(result.getString("COLUMN_NAME"), needed))
    result.close()
    return columns


def tables_with_prefix(connection: Connection, schema: str | None, prefix: str) -> list[TableName]:
    """The tables of a schema whose names begin with exactly `prefix`."""
    return [table for table, _ in comments_of(connection, schema, prefix)]


def table_exists(connection: Connection, table: TableName) -> bool:
    """Whether there is a table of exactly this name; a longer one with this prefix is another."""
    return table in tables_with_prefix(connection, table.schema, table.table)


def comments_of(
    connection: Connection, schema: str | None, prefix: str
) -> list[tuple[TableName, str]]:
    """The tables whose names begin with `prefix`, each with its comment."""
    metadata = connection.java.getMetaData()
    kinds = string_array(connection.session, "TABLE")
    pattern = pattern_of(metadata, prefix) + "%"
    result = metadata.getTables(
        connection.java.getCatalog(), pattern_of(metadata, schema or ""), pattern, kinds
    )
    tables: list[tuple[TableName, str]] = []
    while result.next():
        name = str(result.getString("TABLE_NAME"))
        if name.startswith(prefix):
            tables.append((TableName(schema, name), str(result.getString("REMARKS") or "")))
    result.close()
    return tables


def pattern_of(metadata: Any, name: str) -> str:
    """`name` with % and _ escaped, for a metadata look-up that takes them as wildcards."""
    escape = str(metadata.getSearchStringEscape())
    for character in (escape, "%", "_"):
        name = name.replace(character, escape + character)
    return name


def create_with_first_rows(connection: Connection, table: TableName, statement: str) -> None:
    """Create the table in the open transaction, so that it never exists without its first rows.

    Of two that create it at once the second waits for the first, and goes on with that table; when
    its own columns differ, the move of its rows is refused.
    """
    if columns_of(connection, table):
        return
    before = connection.java.setSavepoint()
    try:
        connection.run(statement)
    except JAVA_ERRORS:
        connection.java.rollback(before)  # else the database refuses the rest of the transaction
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
    if not table_exists(connection, marks):
        _create_table(connection, marks, database.dialect.create_marks(marks))
    return marks


def _create_table(connection: Connection, table: TableName, statement: str) -> None:
    try:
        connection.run(statement)
    except JAVA_ERRORS:
        # If two create it at once, PostgreSQL fails one of them, in spite of IF NOT EXISTS.
        if not columns_of(connection, table):
            raise


def match_columns(
    database: Database,
    table: TableName,
    columns: Sequence[str],
    table_columns: Sequence[TargetColumn],
    named: Sequence[str] | None = None,
) -> list[str]:
    """For each column of the rows, the column of the table it goes to.

    Columns are matched by name, or by position to the `named` ones. A column without a place is
    refused, since dropping it would silently lose data.
    """
    where = f"{database.plugin}: table {table}"
    exact = {column.name: column.name for column in table_columns}
    folded = {column.name.lower(): column.name for column in table_columns}
    names = columns if named is None else named
    if len(names) != len(columns):
        raise Refused(
            f"{where}: option 'query' has {len(names)} values, and the rows have {len(columns)} "
            f"columns: {', '.join(columns)}"
        )
    matches = [exact.get(name) or folded.get(name.lower()) for name in names]
    lost = [name for name, place in zip(names, matches, strict=True) if place is None]
    if lost:
        raise Refused(
            f"{where} has no column {', '.join(lost)}; drop it in a transform, add it to the "
            f"table, or set schema_save_mode = {SchemaMode.RECREATE} to make the table anew"
        )
    places = [place for place in matches if place is not None]
    if len(set(places)) != len(places):
        raise Refused(f"{where}: two columns of the rows go to one; rename one in a transform")
    missing = [
        column.name for column in table_columns if column.needed and column.name not in places
    ]
    if missing:
        raise Refused(
            f"{where} needs a value for column {', '.join(missing)}, and gets none; give it one in "
            f"a transform, or set schema_save_mode = {SchemaMode.RECREATE} to make the table anew"
        )
    return places


def read_insert(query: str) -> Insert:
    """Parse an INSERT of the plain form; raises `Refused` for any other statement.

    Names without quotes are folded to lower case.
    """
    match = INSERT.fullmatch(query)
    if match is None:
        raise Refused(
            "option 'query' must have the form INSERT INTO t (a, b) VALUES (?, ?); for anything "
            "else shape the rows in a transform, and set generate_sink_sql = true with 'table'"
        )
    columns = match["columns"]
    names = tuple(_folded(name) for name in INSERT_NAME.findall(columns)) if columns else None
    values = match["values"].count("?")
    if names is not None and len(names) != values:
        raise Refused(f"option 'query' names {len(names)} columns and has {values} values")
    if names is not None and len(set(names)) != len(names):
        raise Refused("option 'query' names a column twice")
    return Insert(
        tuple(_folded(name) for name in INSERT_NAME.findall(match["table"])), names, values
    )


def _folded(name: str) -> str:
    (part,) = parts_of(name)
    return part if name.startswith('"') else part.lower()
