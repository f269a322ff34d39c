"""What differs between databases, as SQL texts. Pure: nothing here opens a connection.

Identifiers are quoted here and nowhere else; values are bound by whoever runs the statement. A
further database is a further class, and an entry in `_DIALECTS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import types as spark

from headrace.connectors.jdbc.names import TableName
from headrace.errors import Refused
from headrace.jobfile.plugins.jdbc import DATABASES

# Of a stage table, beside the columns of its rows: which Spark task wrote them.
PARTITION, ATTEMPT = "headrace_partition", "headrace_attempt"
IDLE_IN_TRANSACTION_MAX_S = 60  # a paused committer must not keep its successor waiting for ever
TCP_TIMEOUT_S = 3660  # of a connection's longest silence; above the longest statement
# Of the list of aborted epochs in a mark. Some hundreds of them: whoever could still ask for an
# older one has failed as many times since.
ABORTED_CHARACTERS_MAX = 4_000
MARK_COLUMNS = (
    "incarnation",
    "pipeline",
    "sink",
    "epoch",
    "spent_by",
    "aborted_epochs",
    "moved_rows",
    "execution",
    "committer",
)


@dataclass(frozen=True, slots=True)
class NewColumn:
    name: str
    type: spark.DataType


class Dialect(Protocol):
    name: str
    driver: str
    fetch_size: int  # rows, where the driver's own default would take all at once

    def properties(self) -> Mapping[str, str]:
        """Of every connection; the user's own win."""
        ...

    def begin(self) -> Sequence[str]:
        """What a control connection runs before anything else."""
        ...

    def table(self, name: TableName) -> str: ...

    def columns(self, names: Sequence[str]) -> str: ...

    def create_table(
        self, name: TableName, columns: Sequence[NewColumn], keys: Sequence[str]
    ) -> str: ...

    def create_stage(self, stage: TableName, target: TableName, columns: Sequence[str]) -> str: ...

    def create_first_stage(self, stage: TableName, columns: Sequence[NewColumn]) -> str:
        """As `create_stage`, for a target that the commit of what is staged will make."""
        ...

    def comment(self, table: TableName, said: str) -> str:
        """Gives a table a comment that drivers tell with its name."""
        ...

    def now_ms(self) -> str:
        """Gives the database's own time, in epoch milliseconds."""
        ...

    def create_marks(self, marks: TableName) -> str: ...

    def raise_mark(self, marks: TableName) -> str:
        """Takes MARK_COLUMNS; changes no row when the mark is at the epoch or above it (E1).

        `aborted_epochs` is added to what the mark has.
        """
        ...

    def read_mark(self, marks: TableName) -> str:
        """Takes incarnation, pipeline and sink; gives MARK_COLUMNS."""
        ...

    def forget_mark(self, marks: TableName) -> str:
        """Takes incarnation, pipeline, sink and an epoch above which nothing is deleted."""
        ...

    def marks_touched(self, marks: TableName) -> str:
        """Gives each incarnation, and when a mark of it was last raised, in epoch milliseconds."""
        ...

    def forget_marks(self, marks: TableName) -> str:
        """Takes an incarnation, and epoch milliseconds since when no mark of it was raised."""
        ...

    def move(
        self,
        target: TableName,
        stage: TableName,
        columns: Sequence[str],
        attempts: Sequence[int],
    ) -> str: ...

    def drop(self, table: TableName) -> str: ...

    def empty(self, table: TableName) -> str:
        """Takes all rows away, as a part of its transaction."""
        ...

    def some_row(self, table: TableName) -> str:
        """Gives one row when there is any."""
        ...


class PostgreSQL:
    name = "PostgreSQL"
    driver = "org.postgresql.Driver"
    fetch_size = 10_000  # 0 would read a whole table into memory

    _TYPES: Mapping[type[spark.DataType], str] = {
        spark.StringType: "text",
        spark.BooleanType: "boolean",
        spark.ByteType: "smallint",
        spark.ShortType: "smallint",
        spark.IntegerType: "integer",
        spark.LongType: "bigint",
        spark.FloatType: "real",
        spark.DoubleType: "double precision",
        spark.BinaryType: "bytea",
        spark.DateType: "date",
        spark.TimestampType: "timestamp with time zone",
        spark.TimestampNTZType: "timestamp",
    }

    def properties(self) -> Mapping[str, str]:
        return {
            "reWriteBatchedInserts": "true",  # about twice as fast
            "tcpKeepAlive": "true",
            "socketTimeout": str(TCP_TIMEOUT_S),
            "ApplicationName": "headrace",
            "options": "-c synchronous_commit=on",  # what is staged outlives the server's crash
        }

    def begin(self) -> Sequence[str]:
        return (
            f"SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_MAX_S}s'",
            "SET synchronous_commit = on",
            "SET default_transaction_isolation = 'read committed'",
        )

    def table(self, name: TableName) -> str:
        return ".".join(_quoted(part) for part in (name.schema, name.table) if part is not None)

    def columns(self, names: Sequence[str]) -> str:
        return ", ".join(map(_quoted, names))

    def create_table(
        self, name: TableName, columns: Sequence[NewColumn], keys: Sequence[str]
    ) -> str:
        parts = [f"{_quoted(column.name)} {self._type(column)}" for column in columns]
        if keys:
            parts.append(f"PRIMARY KEY ({self.columns(keys)})")
        return f"CREATE TABLE IF NOT EXISTS {self.table(name)} ({', '.join(parts)})"

    def create_stage(self, stage: TableName, target: TableName, columns: Sequence[str]) -> str:
        # The target's own types, so that rows it could not take fail while they are staged.
        return (
            f"CREATE TABLE {self.table(stage)} AS SELECT {self.columns(columns)}, "  # noqa: S608
            f"CAST(0 AS integer) AS {PARTITION}, CAST(0 AS bigint) AS {ATTEMPT} "
            f"FROM {self.table(target)} WHERE 1 = 0"
        )

    def create_first_stage(self, stage: TableName, columns: Sequence[NewColumn]) -> str:
        parts = [f"{_quoted(column.name)} {self._type(column)}" for column in columns]
        parts += [f"{PARTITION} integer", f"{ATTEMPT} bigint"]
        return f"CREATE TABLE {self.table(stage)} ({', '.join(parts)})"

    def comment(self, table: TableName, said: str) -> str:
        text = said.replace("'", "''")
        return f"COMMENT ON TABLE {self.table(table)} IS '{text}'"

    def now_ms(self) -> str:
        return f"SELECT {_epoch_ms('current_timestamp')}"

    def create_marks(self, marks: TableName) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table(marks)} (incarnation varchar(64) NOT NULL, "
            "pipeline integer NOT NULL, sink varchar(255) NOT NULL, epoch bigint NOT NULL, "
            "spent_by varchar(8) NOT NULL, aborted_epochs text NOT NULL, "
            "moved_rows bigint NOT NULL, execution varchar(255) NOT NULL, "
            "committer varchar(64) NOT NULL, "
            "spent_at timestamp with time zone NOT NULL DEFAULT current_timestamp, "
            "PRIMARY KEY (incarnation, pipeline, sink))"
        )

    def raise_mark(self, marks: TableName) -> str:
        table, names = self.table(marks), ", ".join(MARK_COLUMNS)
        return (
            f"INSERT INTO {table} AS held ({names}) "  # noqa: S608 - the names are ours
            f"VALUES ({', '.join('?' for _ in MARK_COLUMNS)}) "
            "ON CONFLICT (incarnation, pipeline, sink) DO UPDATE SET epoch = excluded.epoch, "
            "spent_by = excluded.spent_by, moved_rows = excluded.moved_rows, "
            "aborted_epochs = right(held.aborted_epochs || excluded.aborted_epochs, "
            f"{ABORTED_CHARACTERS_MAX}), "
            "execution = excluded.execution, committer = excluded.committer, "
            "spent_at = current_timestamp "
            "WHERE held.epoch < excluded.epoch"
        )

    def read_mark(self, marks: TableName) -> str:
        return (
            f"SELECT {', '.join(MARK_COLUMNS)} FROM {self.table(marks)} "  # noqa: S608
            "WHERE incarnation = ? AND pipeline = ? AND sink = ?"
        )

    def forget_mark(self, marks: TableName) -> str:
        return (
            f"DELETE FROM {self.table(marks)} "  # noqa: S608
            "WHERE incarnation = ? AND pipeline = ? AND sink = ? AND epoch <= ?"
        )

    def marks_touched(self, marks: TableName) -> str:
        return (
            f"SELECT incarnation, {_epoch_ms('max(spent_at)')} "  # noqa: S608
            f"FROM {self.table(marks)} GROUP BY incarnation"
        )

    def forget_marks(self, marks: TableName) -> str:
        return (
            f"DELETE FROM {self.table(marks)} "  # noqa: S608
            f"WHERE incarnation = ? AND {_epoch_ms('spent_at')} < ?"
        )

    def move(
        self,
        target: TableName,
        stage: TableName,
        columns: Sequence[str],
        attempts: Sequence[int],
    ) -> str:
        # Whole numbers that Spark gave out: ten thousand of them are more than can be bound.
        listed = ", ".join(str(int(attempt)) for attempt in attempts)
        names = self.columns(columns)
        return (
            f"INSERT INTO {self.table(target)} ({names}) SELECT {names} "  # noqa: S608
            f"FROM {self.table(stage)} WHERE {ATTEMPT} IN ({listed})"
        )

    def drop(self, table: TableName) -> str:
        return f"DROP TABLE IF EXISTS {self.table(table)}"

    def empty(self, table: TableName) -> str:
        # In PostgreSQL it is undone with its transaction, as DELETE is; and takes no time and
        # leaves no dead rows, however large the table.
        return f"TRUNCATE TABLE {self.table(table)}"

    def some_row(self, table: TableName) -> str:
        return f"SELECT 1 FROM {self.table(table)} LIMIT 1"  # noqa: S608

    def _type(self, column: NewColumn) -> str:
        of = column.type
        if isinstance(of, spark.DecimalType):
            return f"numeric({of.precision}, {of.scale})"
        inner = of.elementType if isinstance(of, spark.ArrayType) else of
        if type(inner) in self._TYPES:
            return self._TYPES[type(inner)] + ("[]" if inner is not of else "")
        raise Refused(
            f"column {column.name} is of type {of.simpleString()}, which has no place in "
            "a table of PostgreSQL; turn it into a text in a transform, or make the table yourself"
        )


def _epoch_ms(moment: str) -> str:
    return f"CAST(extract(epoch FROM {moment}) * 1000 AS bigint)"


def _quoted(name: str) -> str:
    if "\0" in name or not name:
        raise Refused(f"{name!r} can't be a name in a database")
    return '"' + name.replace('"', '""') + '"'


_DIALECTS: Mapping[str, Dialect] = dict(zip(DATABASES, (PostgreSQL(),), strict=True))


def dialect_of(url: str) -> Dialect:
    for prefix, dialect in _DIALECTS.items():
        if url.startswith(prefix):
            return dialect
    raise Refused(
        "option 'url' must begin with jdbc:postgresql: so far; other databases are not built yet"
    )
