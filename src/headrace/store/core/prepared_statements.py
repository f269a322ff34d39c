"""Prepared statements: compiled once, and run on the driver's own cursor.

SQLAlchemy builds a statement's text, parameters and rows again each time it runs one. For the short
statements that every sync and every pass consists of, that costs ten times what the database itself
takes. The statements are still built with Core, so there is one form for both databases; they run
inside the Connection's transaction, and what the driver raises becomes the same DBAPIError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    BindParameter,
    ColumnElement,
    Connection,
    Delete,
    Dialect,
    Insert,
    Select,
    Update,
    bindparam,
    column,
    func,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY, psycopg
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import Boolean, Float, Text, TypeEngine

Statement = Select[*tuple[Any, ...]] | Insert | Update | Delete
Values = Mapping[str, Any]
ValueCoder = Callable[[Any], Any]  # between a Python value and what the driver takes or gives
RowColumns = Mapping[str, ColumnElement[Any]]  # the values of one row of a batch, by name

NOTHING: Values = {}
# Both take parameters by name, whatever the paramstyle of the engine at hand is.
_DIALECTS: Mapping[str, Dialect] = {
    "sqlite": pysqlite.dialect(paramstyle="named"),
    "postgresql": psycopg.dialect(),
}


class _CompiledStatement:
    """A statement compiled for one database, with the coders of its parameters and columns."""

    def __init__(self, statement: Statement, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        self.sql = str(compiled)
        self.fixed: dict[str, Any] = {}
        self._coders: list[tuple[str, ValueCoder]] = []
        for bind, name in compiled.bind_names.items():
            coder = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if not bind.required:
                self.fixed[name] = coder(bind.value) if coder else bind.value
            elif coder:
                self._coders.append((name, coder))
        self._decoders: list[tuple[int, ValueCoder]] = [
            (place, decoder)
            for place, one in enumerate(statement.exported_columns)
            # Both drivers give a float as it is; SQLAlchemy would ask them for its type first.
            if not isinstance(one.type, Float)
            and (decoder := one.type.dialect_impl(dialect).result_processor(dialect, None))
        ]

    def encoded(self, values: Values) -> Values:
        """All parameters, in the form that the driver takes."""
        encoded = {**self.fixed, **values}
        for name, coder in self._coders:
            encoded[name] = coder(encoded[name])
        return encoded

    def decoded(self, rows: list[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """The rows, with the values that Core would have returned."""
        if not self._decoders:
            return rows
        decoded: list[tuple[Any, ...]] = []
        for row in rows:
            values = list(row)
            for place, decoder in self._decoders:
                values[place] = decoder(values[place])
            decoded.append(tuple(values))
        return decoded


class PreparedStatement:
    """One statement. Its `bindparam`s without a value are passed by name when it runs."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._by_dialect: dict[str, _CompiledStatement] = {}

    def rows(self, conn: Connection, values: Values = NOTHING) -> Sequence[tuple[Any, ...]]:
        compiled = self._compiled(conn)
        return compiled.decoded(_run(conn, compiled.sql, compiled.encoded(values)).fetchall())

    def row(self, conn: Connection, values: Values = NOTHING) -> tuple[Any, ...] | None:
        """The only row. None: there is none."""
        rows = self.rows(conn, values)
        assert len(rows) <= 1
        return rows[0] if rows else None

    def change(self, conn: Connection, values: Values = NOTHING) -> int:
        """Run it, and return how many rows it changed."""
        compiled = self._compiled(conn)
        return _run(conn, compiled.sql, compiled.encoded(values)).rowcount

    def _compiled(self, conn: Connection) -> _CompiledStatement:
        name = conn.dialect.name
        if (compiled := self._by_dialect.get(name)) is None:
            compiled = self._by_dialect[name] = _CompiledStatement(self._statement, _DIALECTS[name])
        return compiled


class PreparedBatch:
    """One UPDATE for many rows, each with its own values, which `make` gets as expressions.

    It runs once: the rows arrive as one JSON array, and are joined. One statement for each row
    would cost a round trip or, on SQLite, contention for the interpreter's lock with the thread
    that serves HTTP. No two rows may change the same row of the table: which of them wins would be
    chance.
    """

    def __init__(
        self,
        make: Callable[[RowColumns], Update],
        *,
        key: ColumnElement[str],
        **types: TypeEngine[Any],
    ) -> None:
        """`key` is the column that the first value of each row is compared with."""
        self._name = next(iter(types))
        # PostgreSQL caches its plan, and one made while the table was small would go on scanning
        # all of it. The keys, passed a second time by themselves, make it use their index from
        # the start.
        joined = make(_rows_in_postgresql(types)).where(one_of(key, "keys"))
        self._forms = {
            "sqlite": PreparedStatement(make(_rows_in_sqlite(types))),
            "postgresql": PreparedStatement(joined),
        }

    def change(self, conn: Connection, rows: Sequence[Values]) -> int:
        """Run it, and return how many rows it changed."""
        values = {"said": rows, "keys": [row[self._name] for row in rows]}
        return self._forms[conn.dialect.name].change(conn, values)


def _rows_in_sqlite(types: Mapping[str, TypeEngine[Any]]) -> RowColumns:
    """The columns of the JSON array of rows, as SQLite unpacks it."""
    each = func.json_each(bindparam("said", type_=JSON())).table_valued("value")
    fields = [func.json_extract(each.c.value, f"$.{name}").label(name) for name in types]
    return dict(select(*fields).subquery("said").c.items())


def _rows_in_postgresql(types: Mapping[str, TypeEngine[Any]]) -> RowColumns:
    """The columns of the JSON array of rows, as PostgreSQL unpacks it."""
    array = func.json_to_recordset(bindparam("said", type_=JSON()))
    fields = [column(name, kind) for name, kind in types.items()]
    rows = array.table_valued(*fields).render_derived(name="said", with_types=True)
    return dict(rows.c.items())


class one_of(ColumnElement[bool]):  # noqa: N801  reads as an operator
    """Whether `column` is among the texts of the parameter `name`: a sorted list of any length.

    Unlike IN it has one SQL text for all lengths, so it can be prepared.
    """

    inherit_cache = False  # should Core ever run it: two of them must not share a cache entry
    type = Boolean()

    def __init__(self, column: ColumnElement[str], name: str) -> None:
        self.column = column
        self.json: BindParameter[Any] = bindparam(name, type_=JSON())
        self.array: BindParameter[Any] = bindparam(name, type_=ARRAY(Text))

    def self_group(self, against: Any = None) -> one_of:  # noqa: ARG002
        return self  # else Core would append "= 1" on SQLite, which has no booleans


@compiles(one_of, "sqlite")
def _in_json(element: one_of, compiler: SQLCompiler, **kw: Any) -> str:
    column, texts = compiler.process(element.column, **kw), compiler.process(element.json, **kw)
    return f"{column} IN (SELECT value FROM json_each({texts}))"  # noqa: S608  both are compiled


@compiles(one_of, "postgresql")
def _in_array(element: one_of, compiler: SQLCompiler, **kw: Any) -> str:
    column, texts = compiler.process(element.column, **kw), compiler.process(element.array, **kw)
    return f"{column} = ANY({texts})"


def _run(conn: Connection, sql: str, values: Values) -> Any:
    if not conn.in_transaction():
        conn.begin()  # as Core does: on SQLite all reads of a transaction see one snapshot
    return execute(conn, sql, values)


def execute(conn: Connection, sql: str, values: Values = NOTHING) -> Any:
    """Run a statement as it stands; return the cursor.

    It begins no transaction itself: the event that begins one runs its BEGIN with it.
    """
    try:
        cursor: Any = conn.connection.cursor()  # raises on a lost connection
        cursor.execute(sql, values)
    except conn.dialect.loaded_dbapi.Error as error:
        raise _to_dbapi_error(conn, sql, error) from error
    return cursor


def _to_dbapi_error(conn: Connection, sql: str, error: Exception) -> BaseException:
    """The driver's error as Core would have wrapped it; a lost connection leaves the pool."""
    dialect = conn.dialect
    lost = dialect.is_disconnect(error, conn.connection.dbapi_connection, None)  # type: ignore[arg-type]
    wrapped = DBAPIError.instance(
        sql,
        None,
        error,
        dialect.loaded_dbapi.Error,
        connection_invalidated=lost,
        dialect=dialect,
    )
    if lost:
        conn.invalidate(error)  # the pool must not hand it out again
    return wrapped
