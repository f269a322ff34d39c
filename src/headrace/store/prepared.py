"""Statements that are compiled once, and run on the driver's own cursor.

SQLAlchemy makes a statement's text, parameters and rows anew each time it runs one: for the short
statements that every sync and every pass consists of, ten times what the database itself takes.
The statements are still built with Core, so there is one form for both databases; they run inside
the Connection's transaction, and what the driver raises becomes the same DBAPIError.
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
Process = Callable[[Any], Any]
Said = Mapping[str, ColumnElement[Any]]

NOTHING: Values = {}
# Both take parameters by name, whatever the engine at hand was set to.
_DIALECTS: Mapping[str, Dialect] = {
    "sqlite": pysqlite.dialect(paramstyle="named"),
    "postgresql": psycopg.dialect(),
}


class _Text:
    """A statement in the words of one database."""

    def __init__(self, statement: Statement, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        self.sql = str(compiled)
        self.fixed: dict[str, Any] = {}
        self._coders: list[tuple[str, Process]] = []
        for bind, name in compiled.bind_names.items():
            coder = bind.type.dialect_impl(dialect).bind_processor(dialect)
            if not bind.required:
                self.fixed[name] = coder(bind.value) if coder else bind.value
            elif coder:
                self._coders.append((name, coder))
        self._decoders: list[tuple[int, Process]] = [
            (place, decoder)
            for place, one in enumerate(statement.exported_columns)
            # Both drivers give a float as it is; SQLAlchemy would ask them for its type first.
            if not isinstance(one.type, Float)
            and (decoder := one.type.dialect_impl(dialect).result_processor(dialect, None))
        ]

    def coded(self, values: Values) -> Values:
        coded = {**self.fixed, **values}
        for name, coder in self._coders:
            coded[name] = coder(coded[name])
        return coded

    def decoded(self, rows: list[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        if not self._decoders:
            return rows
        decoded: list[tuple[Any, ...]] = []
        for row in rows:
            values = list(row)
            for place, decoder in self._decoders:
                values[place] = decoder(values[place])
            decoded.append(tuple(values))
        return decoded


class Prepared:
    """One statement. Its `bindparam`s without a value are given by name when it runs."""

    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._texts: dict[str, _Text] = {}

    def rows(self, conn: Connection, values: Values = NOTHING) -> Sequence[tuple[Any, ...]]:
        text = self._text(conn)
        return text.decoded(_run(conn, text.sql, text.coded(values)).fetchall())

    def row(self, conn: Connection, values: Values = NOTHING) -> tuple[Any, ...] | None:
        """The only row; None: there is none."""
        found = self.rows(conn, values)
        assert len(found) <= 1
        return found[0] if found else None

    def change(self, conn: Connection, values: Values = NOTHING) -> int:
        """How many rows it changed."""
        text = self._text(conn)
        return _run(conn, text.sql, text.coded(values)).rowcount

    def _text(self, conn: Connection) -> _Text:
        name = conn.dialect.name
        if (text := self._texts.get(name)) is None:
            text = self._texts[name] = _Text(self._statement, _DIALECTS[name])
        return text


class PreparedMany:
    """One change for many rows, each with values of its own, which `make` gets as expressions.

    It runs once: the rows arrive as one JSON array, and are joined. Once a row would be a round
    trip or, on SQLite, a struggle for the interpreter's lock with the thread that serves HTTP.
    No two rows may be meant for the same one: which of them counts would be chance.
    """

    def __init__(
        self, make: Callable[[Said], Update], *, key: ColumnElement[str], **types: TypeEngine[Any]
    ) -> None:
        """`key` is the column by which the first value of each row names what it changes."""
        self._name = next(iter(types))
        # PostgreSQL keeps a plan, and one made for a small table would go on reading all of a
        # large one. The keys once more, apart, make it use their index from the beginning.
        joined = make(_said_to_postgresql(types)).where(one_of(key, "keys"))
        self._forms = {
            "sqlite": Prepared(make(_said_to_sqlite(types))),
            "postgresql": Prepared(joined),
        }

    def change(self, conn: Connection, rows: Sequence[Values]) -> None:
        values = {"said": rows, "keys": [row[self._name] for row in rows]}
        self._forms[conn.dialect.name].change(conn, values)


def _said_to_sqlite(types: Mapping[str, TypeEngine[Any]]) -> Said:
    each = func.json_each(bindparam("said", type_=JSON())).table_valued("value")
    fields = [func.json_extract(each.c.value, f"$.{name}").label(name) for name in types]
    return dict(select(*fields).subquery("said").c.items())


def _said_to_postgresql(types: Mapping[str, TypeEngine[Any]]) -> Said:
    array = func.json_to_recordset(bindparam("said", type_=JSON()))
    fields = [column(name, kind) for name, kind in types.items()]
    rows = array.table_valued(*fields).render_derived(name="said", with_types=True)
    return dict(rows.c.items())


class one_of(ColumnElement[bool]):  # noqa: N801  reads as an operator
    """`column` is among the texts of the parameter `name`: a list, sorted, of any length.

    Unlike IN it has one text for all lengths.
    """

    inherit_cache = False  # should Core ever run it: two of them are not the same
    type = Boolean()

    def __init__(self, column: ColumnElement[str], name: str) -> None:
        self.column = column
        self.json: BindParameter[Any] = bindparam(name, type_=JSON())
        self.array: BindParameter[Any] = bindparam(name, type_=ARRAY(Text))

    def self_group(self, against: Any = None) -> one_of:  # noqa: ARG002
        return self  # or SQLite, which has no booleans, would be asked whether it "= 1"


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
        conn.begin()  # as Core does: on SQLite, what is read together is read at one moment
    return execute(conn, sql, values)


def execute(conn: Connection, sql: str, values: Values = NOTHING) -> Any:
    """Run a statement as it stands; return the cursor.

    It begins no transaction: an event that begins one runs its BEGIN with it.
    """
    try:
        cursor: Any = conn.connection.cursor()  # a connection that was lost refuses one
        cursor.execute(sql, values)
    except conn.dialect.loaded_dbapi.Error as error:
        raise _as_sqlalchemys(conn, sql, error) from error
    return cursor


def _as_sqlalchemys(conn: Connection, sql: str, error: Exception) -> BaseException:
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
        conn.invalidate(error)  # the pool must not give it to anybody again
    return wrapped
