"""A small sink into a SQLite file, by Python's own client, that is at least once.

It writes at once, under an idempotence key. Executors import this module by its name. One that is
exactly once is in examples/connector-toy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.at_least_once import AtLeastOnceSink, Written
from headrace.connectors.python_client import Batch, EpochPart, Options, write_parts
from headrace.errors import Refused
from headrace.model.jobs.epoch import CommitAt

MODULE = "tests.contracts.sqlite_sink"
BUSY_TIMEOUT_S = 60.0
_TABLE = "CREATE TABLE IF NOT EXISTS target (id INTEGER, name TEXT, written_under TEXT)"


def write_keyed(part: EpochPart, options: Options, batches: Iterator[Batch]) -> int:
    """A part writer: write the rows of a part, unless they were written under this key before."""
    if options.get("refuses"):
        raise Refused("the store does not take these rows")
    rows = [row for batch in batches for row in batch.to_pylist()]
    path = str(options["path"])
    with closing(sqlite3.connect(path, BUSY_TIMEOUT_S, isolation_level=None)) as connection:
        connection.execute(_TABLE)
        connection.execute("BEGIN IMMEDIATE")
        known = "SELECT 1 FROM target WHERE written_under = ? LIMIT 1"
        if connection.execute(known, (part.key,)).fetchone() is None:
            values = [(row["id"], row["name"], part.key) for row in rows]
            connection.executemany("INSERT INTO target VALUES (?, ?, ?)", values)
        connection.execute("COMMIT")
    return len(rows)


class KeyedSqliteSink(AtLeastOnceSink):
    def __init__(self, name: str, options: Options) -> None:
        self.name, self._options = name, options

    def write(self, session: SparkSession, frame: DataFrame, at: CommitAt) -> Written:
        writer = f"{MODULE}:write_keyed"
        handle = write_parts(session, frame, at, writer, self._options, modules=("sqlite3",))
        return Written(handle.rows, {"parts": handle.parts})
