"""A database and its JDBC connections, opened in Spark's JVM by the same driver as for rows.

There is one driver, one URL and one set of properties for rows and control statements alike, so
that what can be written can be committed, whatever the database (docs/adr: the JDBC sink).
`database_of` reads them from the options that the source and the sink share.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from headrace.connectors.jdbc.descriptor import DatabaseOptions
from headrace.connectors.jdbc.dialect import Dialect, dialect_of
from headrace.errors import HeadraceError, Refused, Unavailable
from headrace.logs import is_secret
from headrace.model.text import shortened
from headrace.spark.errors import is_permanent
from headrace.spark.jvm_bridge import CAUSES_MAX, JAVA_ERRORS, java_exception, jvm

CONNECT_TIMEOUT_S = 30
STATEMENT_TIMEOUT_S = 3600  # for one control statement; the move of an epoch's rows is one
MESSAGE_CHARACTERS_MAX = 300
REDACTED = "******"
_SQL_EXCEPTION = "java.sql.SQLException"
_BIGINT = -5  # java.sql.Types
_READ_COMMITTED = 2  # java.sql.Connection
Value = str | int | None


@dataclass(frozen=True, slots=True)
class Database:
    """The address of a database and its credentials. `str()` and `repr()` show no secrets."""

    plugin: str  # shown to people: "sink Jdbc-1"
    url: str = field(repr=False)
    driver: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    connect_timeout_s: int = CONNECT_TIMEOUT_S
    statement_timeout_s: int = STATEMENT_TIMEOUT_S

    @property
    def dialect(self) -> Dialect:
        return dialect_of(self.url)

    def __str__(self) -> str:
        """The URL without what may be secret: its parameters, and whatever stands before an @."""
        head, _, rest = self.url.partition("?")[0].partition("//")
        return f"{head}//{rest.rpartition('@')[2]}" if rest else head

    def properties(self) -> dict[str, str]:
        """The properties of a connection. The user's own override ours."""
        merged = dict(self.dialect.properties())
        merged |= dict.fromkeys(("connectTimeout", "loginTimeout"), str(self.connect_timeout_s))
        merged |= self.extra
        if self.user is not None:
            merged["user"] = self.user
        if self.password is not None:
            merged["password"] = self.password
        return merged

    def secrets(self) -> Sequence[str]:
        """Every secret value, the longest first, since one may be a part of another."""
        place, _, query = self.url.partition("?")
        values = [self.password, *(value for key, value in self.extra.items() if is_secret(key))]
        parameters = (each.partition("=") for each in query.split("&"))
        in_url = [value for key, _, value in parameters if is_secret(key)]
        in_url.append(place.partition("//")[2].rpartition("@")[0].partition(":")[2])
        values += [*in_url, *map(unquote, in_url)]
        return sorted({value for value in values if value}, key=len, reverse=True)

    def spark_options(self) -> dict[str, str]:
        return {**self.properties(), "url": self.url, "driver": self.driver}

    def failed(
        self, session: SparkSession, error: Exception, *, doing: str, detail: str | None = None
    ) -> HeadraceError:
        """The error to raise: one line without secrets; `Unavailable` if a retry may help.

        `detail`: what is known beyond the database's own message.
        """
        state, message = sql_state_and_message(session, error)
        if detail:
            message = f"{detail} ({message})"
        for secret in self.secrets():
            message = message.replace(secret, REDACTED)
        text = f"{self.plugin}: {self}: {doing}: {message}"
        return Refused(text) if is_permanent(state) else Unavailable(text)


def sql_state_and_message(session: SparkSession, error: Exception) -> tuple[str | None, str]:
    """The SQLSTATE and first line of the innermost error; no state if the database sent none."""
    innermost = sql_exception(session, error)
    if innermost is not None:
        return innermost.getSQLState(), _first_line(str(innermost.getMessage()))
    if not isinstance(error, JAVA_ERRORS):
        return None, _first_line(str(error))
    cause = java_exception(error)
    return None, _first_line(str(cause.getMessage() or cause.getClass().getSimpleName()))


def sql_exception(session: SparkSession, error: Exception) -> Any:
    """The innermost java.sql.SQLException behind an error; None when there is none."""
    if not isinstance(error, JAVA_ERRORS):
        return None
    kind = jvm(session).java.lang.Class.forName(_SQL_EXCEPTION)
    innermost: Any = None
    cause: Any = java_exception(error)
    for _ in range(CAUSES_MAX):
        if cause is None:
            break
        following = None
        if kind.isInstance(cause):
            innermost = cause
            following = cause.getNextException()  # in a batch, the error of the row
        cause = following if following is not None else cause.getCause()
    return innermost


def _first_line(text: str) -> str:
    """The first line of a message, with its detail, which names the column and the value."""
    first, *more = text.strip().splitlines() or [""]
    details = [line.strip() for line in more if line.strip().startswith("Detail: ")]
    return shortened(" ".join([first, *details[:1]]), MESSAGE_CHARACTERS_MAX)


class Connection:
    """One JDBC connection; values are bound to statements."""

    def __init__(self, session: SparkSession, java: Any, timeout_s: int) -> None:
        self.session, self.java, self._timeout_s = session, java, timeout_s

    def run(self, statement: str, *values: Value) -> int:
        """Run a statement; returns the number of rows it changed."""
        prepared = self._bound(statement, values)
        try:
            return int(prepared.executeUpdate())
        finally:
            prepared.close()

    def execute(self, statement: str) -> None:
        """Run a statement as it is written: a `?` in it is no placeholder."""
        java_statement = self.java.createStatement()
        java_statement.setQueryTimeout(self._timeout_s)
        try:
            java_statement.execute(statement)
        finally:
            java_statement.close()

    def rows(self, statement: str, *values: Value) -> list[tuple[str | None, ...]]:
        """The rows of a query, every value as a text. For few rows: each costs calls to the JVM."""
        prepared = self._bound(statement, values)
        try:
            result = prepared.executeQuery()
            width = int(result.getMetaData().getColumnCount())
            texts: list[tuple[str | None, ...]] = []
            while result.next():
                texts.append(tuple(result.getString(index + 1) for index in range(width)))
            return texts
        finally:
            prepared.close()

    def _bound(self, statement: str, values: Sequence[Value]) -> Any:
        prepared = self.java.prepareStatement(statement)
        prepared.setQueryTimeout(self._timeout_s)
        for index, value in enumerate(values, start=1):
            if value is None:
                prepared.setNull(index, _BIGINT)
            elif isinstance(value, int):
                prepared.setLong(index, value)
            else:
                prepared.setString(index, value)
        return prepared


@contextmanager
def connected(
    session: SparkSession, database: Database, *, doing: str, timeout_s: int | None = None
) -> Generator[Connection]:
    """A connection in autocommit mode. Every JVM error is raised as one of ours."""
    try:
        java = _open(session, database)
        try:
            yield Connection(session, java, timeout_s or database.statement_timeout_s)
        finally:
            java.close()
    except JAVA_ERRORS as error:
        raise database.failed(session, error, doing=doing) from None


@contextmanager
def transaction(connection: Connection) -> Generator[None]:
    """Commit all statements or none. After an error of the commit itself either is possible."""
    java = connection.java
    java.setTransactionIsolation(_READ_COMMITTED)
    java.setAutoCommit(False)
    try:
        yield
    except BaseException:
        if not java.isClosed():
            java.rollback()
        raise
    java.commit()
    java.setAutoCommit(True)


def _open(session: SparkSession, database: Database) -> Any:
    java = jvm(session)
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        driver = loader.loadClass(database.driver).newInstance()
    except JAVA_ERRORS:
        raise Refused(
            f"{database.plugin}: the driver {database.driver} is not on the class path of this "
            f"worker; leave option 'driver' out for {database.dialect.driver}, which comes along"
        ) from None
    properties = java.java.util.Properties()
    for key, value in database.properties().items():
        properties.setProperty(key, value)
    connection = driver.connect(database.url, properties)
    if connection is None:
        raise Refused(f"{database.plugin}: {database.driver} does not understand {database}")
    for statement in database.dialect.begin():
        prepared = connection.prepareStatement(statement)
        prepared.execute()
        prepared.close()
    return connection


def database_of(plugin: str, options: DatabaseOptions) -> Database:
    """The database that the options name. `plugin` is shown to people, such as "sink Jdbc-1"."""
    try:
        dialect = dialect_of(options.url)
    except Refused as refused:
        raise Refused(f"{plugin}: {refused}") from None
    return Database(
        plugin=plugin,
        url=options.url,
        driver=options.driver or dialect.driver,
        user=options.user,
        password=options.password,
        extra=options.properties,
        connect_timeout_s=options.connect_timeout_s,
        statement_timeout_s=options.statement_timeout_s or STATEMENT_TIMEOUT_S,
    )
