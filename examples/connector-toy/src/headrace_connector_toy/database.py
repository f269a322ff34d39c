"""Transactions in a SQLite file, and the two tables that the sink keeps beside the user's own.

A token is the primary key of a row: whoever comes second is refused by the database itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager

from headrace.errors import Refused, Unavailable

BUSY_TIMEOUT_S = 60.0
_TABLES = """
CREATE TABLE IF NOT EXISTS headrace_tokens (
    incarnation TEXT, pipeline INTEGER, epoch INTEGER, sink TEXT,
    spent_by TEXT, execution TEXT, committer TEXT, touched_ms INTEGER,
    PRIMARY KEY (incarnation, pipeline, epoch, sink)
);
CREATE TABLE IF NOT EXISTS headrace_stage (
    incarnation TEXT, pipeline INTEGER, epoch INTEGER, sink TEXT,
    execution TEXT, part INTEGER, touched_ms INTEGER, columns_json TEXT, rows_json TEXT,
    PRIMARY KEY (incarnation, pipeline, epoch, sink, execution, part)
);
"""


@contextmanager
def transaction(path: str) -> Generator[sqlite3.Connection]:
    """A transaction that no other writer runs beside; rolled back when its block raises."""
    try:
        with closing(sqlite3.connect(path, BUSY_TIMEOUT_S, isolation_level=None)) as database:
            database.executescript(_TABLES)
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")
    except sqlite3.OperationalError as error:
        wrong = error.sqlite_errorcode == sqlite3.SQLITE_ERROR  # such as a column that is missing
        raise (Refused if wrong else Unavailable)(f"{path}: {error}") from error


def key_of(token: str) -> tuple[str, int, int, str]:
    """The columns that both tables begin with."""
    incarnation, pipeline, epoch, sink = token.split("/", 3)
    return incarnation, int(pipeline), int(epoch), sink


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
