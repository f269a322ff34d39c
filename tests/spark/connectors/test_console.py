"""Console shows some rows, says how many more there are, and moves no more than that."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from headrace.connectors.console.sink import LINE_CHARACTERS_MAX, ROWS_SHOWN_MAX, ConsoleSink
from headrace.plugins.row_kinds import KIND_COLUMN, TABLE_COLUMN
from tests.spark.settings import at, setting


def shown(session: SparkSession, rows: int, **options: Any) -> list[str]:
    lines: list[str] = []
    sink = ConsoleSink("Console-1", *setting("Console", "sink", options), write=lines.append)
    frame = session.range(rows).selectExpr("id", "cast(null as string)", "encode('hi', 'utf-8')")
    staged = sink.stage(session, frame, at())
    assert staged.rows == rows
    assert lines == [], "nothing is shown before it is committed"
    sink.commit(session, staged.handle, at())
    return lines


def test_a_few_rows_are_shown_whole(session: SparkSession) -> None:
    assert sorted(line.partition(": ")[2] for line in shown(session, 2)) == [
        "kind=INSERT: 0, null, 6869",
        "kind=INSERT: 1, null, 6869",
    ]


def test_many_rows_are_cut_and_counted(session: SparkSession) -> None:
    lines = shown(session, ROWS_SHOWN_MAX + 150)
    assert len(lines) == ROWS_SHOWN_MAX + 1
    assert lines[-1] == "… and 150 more rows in epoch 1"


def test_showing_can_be_turned_off(session: SparkSession) -> None:
    assert shown(session, 3, **{"log.print.data": False}) == []


def test_a_long_row_is_cut(session: SparkSession) -> None:
    lines: list[str] = []
    sink = ConsoleSink("Console-1", *setting("Console", "sink", {}), write=lines.append)
    frame = session.range(1).selectExpr("repeat('x', 10000)")
    sink.commit(session, sink.stage(session, frame, at()).handle, at())
    assert [len(line) for line in lines] == [LINE_CHARACTERS_MAX]


def test_kinds_and_tables_are_shown_where_rows_have_them(session: SparkSession) -> None:
    lines: list[str] = []
    sink = ConsoleSink("Console-1", *setting("Console", "sink", {}), write=lines.append)
    frame = session.sql(  # pyright: ignore[reportUnknownMemberType]
        f"select 1 as id, '-U' as {KIND_COLUMN}, 'x' as name, 'db.users' as {TABLE_COLUMN} "
        "union all select 1, '+U', 'y', 'db.users' union all select 2, '-D', 'z', 'db.roles'"
    )
    sink.commit(session, sink.stage(session, frame.coalesce(1), at()).handle, at())

    assert lines == [
        "rowIndex=1: tableId=db.users: kind=UPDATE_BEFORE: 1, x",
        "rowIndex=2: tableId=db.users: kind=UPDATE_AFTER: 1, y",
        "rowIndex=3: tableId=db.roles: kind=DELETE: 2, z",
    ]
