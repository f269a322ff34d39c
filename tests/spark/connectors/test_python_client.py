"""Sinks by a Python client: rows go from executors as Arrow, and who is at least once says so.

That `PythonClientSink` is exactly once is proved by the toy's sink: test_example_connector.py.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.connectors.python_client import write_parts
from headrace.errors import Refused
from headrace.model.jobs.epoch import CommitAt
from headrace.plugins.descriptor import Guarantee
from headrace.spark.executors import check_executors
from tests.contracts.sink_harness import at, rows
from tests.contracts.sqlite_sink import MODULE, KeyedSqliteSink


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.db"


def ids(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT id FROM target ORDER BY id").fetchall()
    return [number for (number,) in found]


def test_at_least_once_says_so_writes_when_it_stages_and_answers_each_commit(
    session: SparkSession, path: Path
) -> None:
    to = KeyedSqliteSink("Keyed-1", {"path": str(path)})
    assert to.guarantee is Guarantee.AT_LEAST_ONCE
    assert to.read_mark(session, at()) is None
    frame = session.range(3).selectExpr("id", "'x' as name")
    staged = to.stage(session, frame, at())
    assert (staged.rows, ids(path)) == (3, rows(0))

    for _ in range(2):
        assert not to.commit(session, staged.handle, at()).already
    assert ids(path) == rows(0)

    to.stage(session, frame, at(execution="t1.2"))
    assert ids(path) == rows(0, 0), "another execution writes them again: at least once"


def test_what_comes_again_under_a_known_key_is_not_added(session: SparkSession, path: Path) -> None:
    """An execution stages again, and Spark repeats one of its tasks."""
    thread = f.java_method(f.lit("java.lang.Thread"), f.lit("currentThread"))
    first = thread.contains(".0 in stage")
    to = KeyedSqliteSink("Keyed-1", {"path": str(path)})
    to.stage(session, session.range(0, 4, 1, 2).selectExpr("id", "'x' as name"), at())
    fails = f.when(first & (f.col("id") == 3), f.raise_error(f.lit("now")).cast("string"))
    frame = session.range(0, 4, 1, 2).withColumn("name", f.coalesce(fails, f.lit("x")))

    assert to.stage(session, frame, at()).rows == 4
    assert ids(path) == [0, 1, 2, 3]


def test_what_a_part_writer_refuses_is_refused_here_and_not_repeated(
    session: SparkSession, path: Path
) -> None:
    to = KeyedSqliteSink("Keyed-1", {"path": str(path), "refuses": True})
    with pytest.raises(Refused, match=r"^the store does not take these rows$"):
        to.stage(session, session.range(3).selectExpr("id", "'x' as name"), at())


def test_a_module_that_executors_lack_is_named_with_the_machine(session: SparkSession) -> None:
    check_executors(session, ["sqlite3", "headrace.connectors"], needed_by="sink Keyed-1")
    missing = (
        r"^sink Keyed-1: the Python of Spark's executors does not find no_such_client on \S+; "
        "install it there"
    )
    with pytest.raises(Refused, match=missing):
        check_executors(session, ["sqlite3", "no_such_client.dbapi"], needed_by="sink Keyed-1")


def test_a_part_writer_that_is_not_in_its_module_is_refused_by_its_name(
    session: SparkSession, path: Path
) -> None:
    with pytest.raises(Refused, match=rf"executors can't import {MODULE}:nobody: "):
        write_parts(
            session, session.range(3), CommitAt(at(), "S-1"), f"{MODULE}:nobody", {"path": "x"}
        )
    assert not path.exists()
