"""How a failed job of Spark reads, and whether it is tried again: file or table, column, value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.connectors.files.sink import FileSink
from headrace.connectors.files.source import FileSource
from headrace.connectors.jdbc.sink import JdbcSink
from headrace.errors import HeadraceError, Refused
from headrace.model.jobs.epoch import EpochAt
from headrace.spark.jvm_bridge import translated_errors
from tests.spark.base import Base
from tests.spark.folder import query
from tests.spark.lake import some
from tests.spark.settings import setting

FIELDS = {"id": "bigint", "price": "decimal(4,1)", "day": "date", "at": "timestamp"}


def source(folder: Path, form: str, fields: dict[str, str], **options: Any) -> FileSource:
    given = {"path": str(folder), "file_format_type": form, "schema": {"fields": fields}, **options}
    return FileSource("LocalFile-1", *setting("LocalFile", "source", given))


def failure(session: SparkSession, does: Callable[[], object]) -> HeadraceError:
    with pytest.raises(HeadraceError) as raised, translated_errors(session):
        does()
    assert "\n" not in str(raised.value), "it is one line"
    assert "SQLSTATE" not in str(raised.value)
    return raised.value


def reading(session: SparkSession, made: FileSource) -> Callable[[], object]:
    return lambda: made.read(session, some(made.plan(session, None))).collect()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("three,1,2026-01-02,2026-01-02 03:04:05", "column 'id': 'three' is no bigint"),
        ("1,12345.6,2026-01-02,2026-01-02 03:04:05", "column 'price': '12345.6' is no decimal"),
        ("1,1,02.01.2026,2026-01-02 03:04:05", "column 'day': '02.01.2026' is no date"),
        ("1,1,2026-01-02,noon", "column 'at': 'noon' is no timestamp"),
        (f"{'x' * 500},1,2026-01-02,", f"column 'id': '{'x' * 100}' is no bigint"),
    ],
)
@pytest.mark.parametrize("formats", [{}, {"date_format": "yyyy-MM-dd"}], ids=["free", "given"])
def test_a_value_that_is_none_of_its_type_is_named_with_file_and_column(
    session: SparkSession, tmp_path: Path, row: str, said: str, formats: dict[str, str]
) -> None:
    (tmp_path / "good.csv").write_text("1,2.5,2026-01-02,2026-01-02 03:04:05\n,,,\n")
    (tmp_path / "bad.csv").write_text(f"1,2.5,2026-01-02,2026-01-02 03:04:05\n{row}\n")
    if formats:
        formats = {**formats, "datetime_format": "yyyy-MM-dd HH:mm:ss"}
    error = failure(session, reading(session, source(tmp_path, "csv", FIELDS, **formats)))

    assert isinstance(error, Refused), "the same file would fail again"
    assert f"{tmp_path}/bad.csv: {said}" in str(error)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": "three"}', "column 'id': 'three' is no bigint"),
        ('{"id": 2, "na', "a record can't be read: Unexpected end-of-input"),
    ],
)
def test_a_json_record_that_can_not_be_read_is_named_with_its_file(
    session: SparkSession, tmp_path: Path, line: str, said: str
) -> None:
    (tmp_path / "a.json").write_text(f'{{"id": 1}}\n{line}\n')
    error = failure(session, reading(session, source(tmp_path, "json", {"id": "bigint"})))

    assert isinstance(error, Refused)
    assert f"{tmp_path}/a.json: {said}" in str(error)


def test_a_csv_record_with_too_few_columns_is_shown(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,x\n")
    fields = {"id": "int", "name": "string", "more": "string"}
    error = failure(session, reading(session, source(tmp_path, "csv", fields)))

    assert isinstance(error, Refused)
    assert f"{tmp_path}/a.csv: a record has not the columns of 'schema': '1,x'" in str(error)


def test_a_parquet_file_with_another_value_is_named_too(
    session: SparkSession, tmp_path: Path
) -> None:
    query(session, "SELECT 'three' AS id").write.parquet(str(tmp_path / "in"))
    error = failure(session, reading(session, source(tmp_path / "in", "parquet", {"id": "int"})))

    assert isinstance(error, Refused)
    assert ".parquet: column 'id': 'three' is no int" in str(error)


def test_a_query_says_where_in_it_a_value_failed(session: SparkSession) -> None:
    frame = query(session, "SELECT cast(concat('x', id) AS int) AS n FROM range(1)")
    error = failure(session, frame.collect)

    assert isinstance(error, Refused)
    assert "'x0' of the type" in str(error)
    assert "in the query at \"cast(concat('x', id) AS int)\"" in str(error)


def test_a_folder_below_a_file_is_refused_in_words(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    given = {"path": f"{tmp_path}/a file/below", "file_format_type": "csv"}
    sink = FileSink("LocalFile-1", *setting("LocalFile", "sink", given))
    with pytest.raises(Refused, match=r"sink LocalFile-1: .*/a file/below: Not a directory; check"):
        sink.stage(session, session.range(1), EpochAt("i", 1, 1, "t.1"))


def test_a_row_that_fails_is_not_blamed_on_a_folder_that_can_be_written(
    session: SparkSession, tmp_path: Path
) -> None:
    given = {"path": f"{tmp_path}/out", "file_format_type": "csv"}
    sink = FileSink("LocalFile-1", *setting("LocalFile", "sink", given))
    frame = query(session, "SELECT raise_error('the row is to blame') AS x")
    error = failure(session, lambda: sink.stage(session, frame, EpochAt("i", 1, 1, "t.1")))

    assert str(error) == "the row is to blame"
    assert not list(tmp_path.glob("tmp*")), "nothing is left of the look"


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("name varchar(3)", "'abcdef'", "column 'name': 'abcdef' does not fit into varchar(3)"),
        ("name char(3)", "'abcdef'", "column 'name': 'abcdef' does not fit into bpchar(3)"),
        ("name int", "99999999999", "column 'name': '99999999999' does not fit into int4"),
        ("name smallint", "-99999", "column 'name': '-99999' does not fit into int2"),
        ("name numeric(4,1)", "cast(12345 as decimal(9,1))", "'12345.0' does not fit into numeric"),
    ],
)
def test_a_value_that_does_not_fit_a_table_is_named_with_its_column(
    base: Base, column: str, value: str, said: str
) -> None:
    base.run(f"CREATE TABLE t (id bigint, {column})")
    good = "1" if "'" not in value else "'abc'"
    frame = base.frame(5).selectExpr("id", f"if(id = 3, {value}, {good}) AS name")
    with pytest.raises(Refused, match=r"staging rows for table public\.t: ") as refused:
        base.sink(table="t").stage(base.session, frame, base.at())

    assert said in str(refused.value)


def test_a_key_that_is_there_already_is_named(base: Base) -> None:
    base.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    base.run("INSERT INTO t VALUES (1003, 'x')")
    sink: JdbcSink = base.sink(table="t")
    handle = base.staged(10, base.at(), sink)
    with pytest.raises(Refused, match=r"Detail: Key \(id\)=\(1003\) already exists"):
        sink.commit(base.session, handle, base.at())


@pytest.mark.parametrize("wrong", ["database", "schema", "rights"])
def test_a_misspelled_target_and_a_missing_right_are_not_tried_again(
    base: Base, wrong: str
) -> None:
    options: dict[str, Any] = {
        "database": {"url": f"{base.url}x", "database": f"{base.database}x"},
        "schema": {"table": "nowhere.orders"},
        "rights": {"user": "clerk"},
    }[wrong]
    base.run("CREATE ROLE clerk LOGIN")
    try:
        with pytest.raises(Refused, match="sink Jdbc-1: "):
            base.sink(**options).stage(base.session, base.frame(1), base.at())
    finally:
        base.run("DROP ROLE clerk")
