"""A database, spoken to through the JVM that Spark runs in: the driver the rows go through.

One driver, one URL and one set of properties for rows and control statements alike, so that what
can be written can be committed, whatever the database (docs/adr: the JDBC sink).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from headrace.connectors.jdbc.dialect import Dialect, dialect_of
from headrace.errors import HeadraceError, Refused, Unavailable
from headrace.formats.iceberg.jvm import CAUSES_MAX, JAVA_ERRORS, java_exception, jvm
from headrace.formats.spark_errors import is_permanent
from headrace.logs import is_secret
from headrace.model.text import shortened

CONNECT_TIMEOUT_S = 30
STATEMENT_TIMEOUT_S = 3600  # of one control statement, the move of an epoch's rows among them
MESSAGE_CHARACTERS_MAX = 300
REDACTED = "******"
_SQL_EXCEPTION = "java.sql.SQLException"
_BIGINT = -5  # java.sql.Types
_READ_COMMITTED = 2  # java.sql.Connection
Value = str | int | None


@dataclass(frozen=True, slots=True)
class Database:
    """Where it is and how to get in. Never shown as a whole: `str()` has no secrets."""

    plugin: str  # "sink Jdbc-1", for people
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
        """The URL without what may be secret: parameters, and whatever stands before an @."""
        head, _, rest = self.url.partition("?")[0].partition("//")
        return f"{head}//{rest.rpartition('@')[2]}" if rest else head

    def properties(self) -> dict[str, str]:
        """Of a connection. The user's own come last, and win."""
        made = dict(self.dialect.properties())
        made |= dict.fromkeys(("connectTimeout", "loginTimeout"), str(self.connect_timeout_s))
        made |= self.extra
        if self.user is not None:
            made["user"] = self.user
        if self.password is not None:
            made["password"] = self.password
        return made

    def secrets(self) -> Sequence[str]:
        """Every value that nobody should read, the longest first: one may be a part of another."""
        place, _, query = self.url.partition("?")
        given = [self.password, *(value for key, value in self.extra.items() if is_secret(key))]
        parameters = (each.partition("=") for each in query.split("&"))
        in_url = [value for key, _, value in parameters if is_secret(key)]
        in_url.append(place.partition("//")[2].rpartition("@")[0].partition(":")[2])
        given += [*in_url, *map(unquote, in_url)]
        return sorted({value for value in given if value}, key=len, reverse=True)

    def spark_options(self) -> dict[str, str]:
        return {**self.properties(), "url": self.url, "driver": self.driver}

    def failed(
        self, session: SparkSession, error: Exception, *, doing: str, found: str | None = None
    ) -> HeadraceError:
        """The error to raise: in one line, without secrets, and by whether it may pass.

        `found`: what is known beyond the words of the database.
        """
        state, said = told(session, error)
        if found:
            said = f"{found} ({said})"
        for secret in self.secrets():
            said = said.replace(secret, REDACTED)
        text = f"{self.plugin}: {self}: {doing}: {said}"
        return Refused(text) if is_permanent(state) else Unavailable(text)


def told(session: SparkSession, error: Exception) -> tuple[str | None, str]:
    """The SQLSTATE and first line of what the database said last; no state when it was silent."""
    found = sql_exception(session, error)
    if found is not None:
        return found.getSQLState(), _first_line(str(found.getMessage()))
    if not isinstance(error, JAVA_ERRORS):
        return None, _first_line(str(error))
    cause = java_exception(error)
    return None, _first_line(str(cause.getMessage() or cause.getClass().getSimpleName()))


def sql_exception(session: SparkSession, error: Exception) -> Any:
    """The innermost java.sql.SQLException behind an error; None when there is none."""
    if not isinstance(error, JAVA_ERRORS):
        return None
    kind = jvm(session).java.lang.Class.forName(_SQL_EXCEPTION)
    found: Any = None
    cause: Any = java_exception(error)
    for _ in range(CAUSES_MAX):
        if cause is None:
            break
        following = None
        if kind.isInstance(cause):
            found = cause
            following = cause.getNextException()  # of a batch: what happened to its row
        cause = following if following is not None else cause.getCause()
    return found


def _first_line(text: str) -> str:
    """With its detail, if there is one: that has the column and the value."""
    first, *more = text.strip().splitlines() or [""]
    details = [line.strip() for line in more if line.strip().startswith("Detail: ")]
    return shortened(" ".join([first, *details[:1]]), MESSAGE_CHARACTERS_MAX)


class Connection:
    """One JDBC connection; statements take their values bound."""

    def __init__(self, session: SparkSession, java: Any, timeout_s: int) -> None:
        self.session, self.java, self._timeout_s = session, java, timeout_s

    def run(self, statement: str, *values: Value) -> int:
        """The number of rows it changed."""
        prepared = self._bound(statement, values)
        try:
            return int(prepared.executeUpdate())
        finally:
            prepared.close()

    def execute(self, statement: str) -> None:
        """As it is written: a `?` in it is no place for a value."""
        made = self.java.createStatement()
        made.setQueryTimeout(self._timeout_s)
        try:
            made.execute(statement)
        finally:
            made.close()

    def rows(self, statement: str, *values: Value) -> list[tuple[str | None, ...]]:
        """Every value as a text. For a few rows: each one costs calls to the JVM."""
        prepared = self._bound(statement, values)
        try:
            result = prepared.executeQuery()
            width = int(result.getMetaData().getColumnCount())
            found: list[tuple[str | None, ...]] = []
            while result.next():
                found.append(tuple(result.getString(index + 1) for index in range(width)))
            return found
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
    """A connection that commits each statement by itself. Every JVM error leaves as ours."""
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
    """All or nothing. An error of the commit itself leaves open whether it landed."""
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
    made = driver.connect(database.url, properties)
    if made is None:
        raise Refused(f"{database.plugin}: {database.driver} does not understand {database}")
    for statement in database.dialect.begin():
        prepared = made.prepareStatement(statement)
        prepared.execute()
        prepared.close()
    return made
