"""What differs between databases, as SQL texts, and the names of tables. Pure: opens no connection.

Identifiers are quoted here and nowhere else; values are bound by whoever runs the statement. A
further database is a further class, and an entry in `_DIALECTS`.

The name of a stage table is a hash, because what it stands for (incarnation, pipeline, sink, epoch,
execution) is longer than the 63 bytes a name may have. All stage tables of an epoch share a prefix,
so that a sweep finds them whichever execution made them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import types as spark

from headrace.connectors.jdbc.descriptor import DATABASES
from headrace.errors import Refused
from headrace.model.jobs.epoch import CommitAt

MARKS = "headrace_commits"
NAME_BYTES_MAX = 63  # PostgreSQL silently truncates longer names
STAGE = "headrace_stage_"
_EPOCH_BYTES, _EXECUTION_BYTES = 16, 6
_QUOTED, _PLAIN = r'"(?P<quoted>(?:[^"]|"")+)"', r'(?P<plain>[^".]+)'
_PART = re.compile(f"{_QUOTED}|{_PLAIN}")
_ANY = r'(?:"(?:[^"]|"")+"|[^".]+)'
_DOTTED = re.compile(rf"{_ANY}(?:\.{_ANY})*")
# Further columns of a stage table: which Spark task wrote a row.
PARTITION, ATTEMPT = "headrace_partition", "headrace_attempt"
IDLE_IN_TRANSACTION_MAX_S = 60  # a paused committer must not block its successor for ever
TCP_TIMEOUT_S = 3660  # the longest silence of a connection; above the statement timeout
# Length of the list of aborted epochs in a mark, which is some hundreds of them: an execution that
# could still ask for an older one has failed as many times since.
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
class TableName:
    schema: str | None  # None: the default schema of the connection
    table: str

    def __str__(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"

    def beside(self, table: str) -> TableName:
        """Another table of the same schema."""
        return TableName(self.schema, table)


@dataclass(frozen=True, slots=True)
class NewColumn:
    name: str
    type: spark.DataType


class Dialect(Protocol):
    name: str
    driver: str
    fetch_size: int  # rows; the driver's own default may be to fetch all at once

    def properties(self) -> Mapping[str, str]:
        """Properties of every connection; the user's own override them."""
        ...

    def begin(self) -> Sequence[str]:
        """The statements that a control connection runs first."""
        ...

    def table(self, name: TableName) -> str: ...

    def columns(self, names: Sequence[str]) -> str: ...

    def create_table(
        self, name: TableName, columns: Sequence[NewColumn], keys: Sequence[str]
    ) -> str: ...

    def create_stage(self, stage: TableName, target: TableName, columns: Sequence[str]) -> str: ...

    def create_first_stage(self, stage: TableName, columns: Sequence[NewColumn]) -> str:
        """As `create_stage`, for a target that does not exist before the commit creates it."""
        ...

    def comment(self, table: TableName, text: str) -> str:
        """Set the comment of a table, which drivers list with its name."""
        ...

    def now_ms(self) -> str:
        """Select the database's own time, in epoch milliseconds."""
        ...

    def create_marks(self, marks: TableName) -> str: ...

    def raise_mark(self, marks: TableName) -> str:
        """Takes MARK_COLUMNS; changes no row when the mark is at the epoch or above it (E1).

        `aborted_epochs` is appended to the list that the mark has.
        """
        ...

    def read_mark(self, marks: TableName) -> str:
        """Takes incarnation, pipeline and sink; selects MARK_COLUMNS."""
        ...

    def forget_mark(self, marks: TableName) -> str:
        """Takes incarnation, pipeline, sink and an epoch above which nothing is deleted."""
        ...

    def marks_touched(self, marks: TableName) -> str:
        """Select each incarnation, and when a mark of it was last raised, in epoch milliseconds."""
        ...

    def forget_marks(self, marks: TableName) -> str:
        """Takes an incarnation, and epoch milliseconds: marks raised before then are deleted."""
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
        """Delete all rows, as a part of the transaction."""
        ...

    def some_row(self, table: TableName) -> str:
        """Select one row, if there is any."""
        ...


class PostgreSQL:
    name = "PostgreSQL"
    driver = "org.postgresql.Driver"
    fetch_size = 10_000  # 0 would read the whole table into memory

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
            "reWriteBatchedInserts": "true",  # makes inserts about twice as fast
            "tcpKeepAlive": "true",
            "socketTimeout": str(TCP_TIMEOUT_S),
            "ApplicationName": "headrace",
            "options": "-c synchronous_commit=on",  # staged rows survive a crash of the server
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
        # It has the target's own types, so that rows which do not fit fail while they are staged.
        return (
            f"CREATE TABLE {self.table(stage)} AS SELECT {self.columns(columns)}, "  # noqa: S608
            f"CAST(0 AS integer) AS {PARTITION}, CAST(0 AS bigint) AS {ATTEMPT} "
            f"FROM {self.table(target)} WHERE 1 = 0"
        )

    def create_first_stage(self, stage: TableName, columns: Sequence[NewColumn]) -> str:
        parts = [f"{_quoted(column.name)} {self._type(column)}" for column in columns]
        parts += [f"{PARTITION} integer", f"{ATTEMPT} bigint"]
        return f"CREATE TABLE {self.table(stage)} ({', '.join(parts)})"

    def comment(self, table: TableName, text: str) -> str:
        escaped = text.replace("'", "''")
        return f"COMMENT ON TABLE {self.table(table)} IS '{escaped}'"

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
        # Integers from Spark. They are not bound: there may be ten thousand, more than can be.
        listed = ", ".join(str(int(attempt)) for attempt in attempts)
        names = self.columns(columns)
        return (
            f"INSERT INTO {self.table(target)} ({names}) SELECT {names} "  # noqa: S608
            f"FROM {self.table(stage)} WHERE {ATTEMPT} IN ({listed})"
        )

    def drop(self, table: TableName) -> str:
        return f"DROP TABLE IF EXISTS {self.table(table)}"

    def empty(self, table: TableName) -> str:
        # In PostgreSQL TRUNCATE is rolled back with its transaction, as DELETE is. It takes no time
        # and leaves no dead rows, however large the table.
        return f"TRUNCATE TABLE {self.table(table)}"

    def some_row(self, table: TableName) -> str:
        return f"SELECT 1 FROM {self.table(table)} LIMIT 1"  # noqa: S608

    def _type(self, column: NewColumn) -> str:
        data_type = column.type
        if isinstance(data_type, spark.DecimalType):
            return f"numeric({data_type.precision}, {data_type.scale})"
        inner = data_type.elementType if isinstance(data_type, spark.ArrayType) else data_type
        if type(inner) in self._TYPES:
            return self._TYPES[type(inner)] + ("[]" if inner is not data_type else "")
        raise Refused(
            f"column {column.name} is of type {data_type.simpleString()}, which has no place in "
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


def parts_of(text: str) -> list[str]:
    """The parts of `a.b` or `"a"."b"`; a quoted part may hold dots. Raises `Refused`."""
    if not _DOTTED.fullmatch(text) or "\0" in text:
        raise Refused(f"{text!r} is no name of a table; write table, schema.table, or quote a part")
    parts: list[str] = []
    for match in _PART.finditer(text):
        quoted = match["quoted"]
        parts.append(quoted.replace('""', '"') if quoted is not None else match["plain"].strip())
    if not all(parts):
        raise Refused(f"{text!r} is no name of a table: a part of it is empty")
    return parts


def stage_prefix(at: CommitAt) -> str:
    """The prefix of this epoch's stage tables, whichever execution made them."""
    epoch_at = at.epoch_at
    key = _digest(
        _EPOCH_BYTES, epoch_at.incarnation, str(epoch_at.pipeline), at.sink, str(epoch_at.epoch)
    )
    return f"{STAGE}{key}_"


def stage_name(at: CommitAt) -> str:
    return stage_prefix(at) + _digest(_EXECUTION_BYTES, at.execution)


def _digest(size: int, *parts: str) -> str:
    # Each part has its length in front, so that ("a", "bc") and ("ab", "c") differ.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()
