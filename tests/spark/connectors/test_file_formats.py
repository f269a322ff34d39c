"""Formats that Python reads and writes in executors, archives, lzo, and columns found in files."""

from __future__ import annotations

import gzip
import importlib
import logging
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.connectors.files import executor_read
from headrace.errors import Refused
from headrace.protocol.messages import Slice
from tests.connectors.files.test_records import tarred, zipped
from tests.spark.connectors.test_fake import ALL_TYPES
from tests.spark.connectors.test_files_source import everything, put, source
from tests.spark.connectors.test_iceberg_sink import fake
from tests.spark.folder import numbers, query, sink, told, write, written
from tests.spark.lake import some
from tests.spark.settings import at

FIELDS = {"fields": {"id": "bigint", "name": "string"}}
INT96 = "parquet_avro_write_timestamp_as_int96"


@pytest.mark.parametrize("form", ["xml", "excel"])
def test_every_type_comes_back_from_a_format_of_texts(
    session: SparkSession, tmp_path: Path, form: str
) -> None:
    # Keys of a JSON object are texts, and floats of excel are doubles.
    left_out = {"c_flags"}
    fields = {name: of for name, of in ALL_TYPES.items() if name not in left_out}
    frame = fake(session, 5, fields)
    options: dict[str, Any] = {"file_format_type": form, "schema": {"fields": fields}}
    options |= {"xml_row_tag": "RECORD"} if form == "xml" else {"skip_header_row_number": 1}
    write(session, sink(tmp_path, file_format_type=form), frame)

    back = source(tmp_path, **options)
    found = back.read(session, some(back.plan(session, None)))
    assert found.dtypes == frame.dtypes
    assert told(found) == told(frame)


def test_files_are_copied_as_they_are_and_never_over_others(
    session: SparkSession, tmp_path: Path
) -> None:
    data = bytes(range(256)) * 20
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "a b.bin").write_bytes(data)
    (tmp_path / "in" / "empty").write_bytes(b"")
    made = source(tmp_path / "in", file_format_type="binary", schema=None)
    frame = made.read(session, some(made.plan(session, None)))
    to = sink(tmp_path / "out", file_format_type="binary")
    staged = to.stage(session, frame, at())
    assert written(tmp_path / "out") == []
    to.commit(session, staged.handle, at())
    to.commit(session, staged.handle, at())  # again, as after a crash
    to.sweep(session, staged.handle, at())

    assert written(tmp_path / "out") == ["deep/a b.bin", "empty"]
    assert (tmp_path / "out" / "deep" / "a b.bin").read_bytes() == data
    with pytest.raises(Refused, match=r"deep/a b\.bin is there already, and is not overwritten"):
        to.stage(session, frame, at(2))


def test_parts_that_were_lost_on_the_way_make_no_file(
    session: SparkSession, tmp_path: Path
) -> None:
    to = sink(tmp_path, file_format_type="binary")
    parts = "SELECT X'00' AS data, '{}' AS relativePath, {}L AS partIndex"
    with pytest.raises(Refused, match="part 0 of the file is missing"):
        to.stage(session, query(session, parts.format("a", 1)), at())
    with pytest.raises(Refused, match=r"'\.\./a' is no path below the target folder"):
        to.stage(session, query(session, parts.format("../a", 0)), at(2))
    with pytest.raises(Refused, match="binary needs the columns data, relativePath, partIndex"):
        to.stage(session, numbers(session, 1), at(3))
    assert written(tmp_path) == []


@pytest.mark.parametrize("form", ["csv", "json"])
def test_an_archive_is_read_by_its_members_and_slices_are_archives(
    session: SparkSession, tmp_path: Path, form: str
) -> None:
    line = b"{},x\n" if form == "csv" else b'{"id": {}, "name": "x"}\n'
    one, two, three = (line.replace(b"{}", str(n).encode()) for n in (1, 2, 3))
    (tmp_path / "k=v").mkdir()
    (tmp_path / "k=v" / "a.tar.gz").write_bytes(tarred({"a": one, "b": two}, "w:gz"))
    (tmp_path / "k=v" / "b.tar.gz").write_bytes(tarred({"a": three}, "w:gz"))
    made = source(tmp_path, file_format_type=form, schema=FIELDS, archive_compress_codec="tar_gz")
    first = some(made.plan(session, None, rows_max=0))
    assert [path for path, _, _ in first.data["files"]] == ["k=v/a.tar.gz"]  # type: ignore[index]
    assert told(made.read(session, first)) == ["Row(1, x, v)", "Row(2, x, v)"]
    assert everything(session, made) == [(1, "x", "v"), (2, "x", "v"), (3, "x", "v")]


@pytest.mark.req("E5")
def test_an_archive_that_changed_is_refused(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped({"a": b"1,x\n"}))
    made = source(tmp_path, archive_compress_codec="zip")
    part = some(made.plan(session, None))
    (tmp_path / "a.zip").write_bytes(zipped({"a": b"1,x\n2,y\n"}))
    with pytest.raises(Refused, match=r"a\.zip has changed since the epoch was planned"):
        made.read(session, part)


def test_a_value_in_an_archive_is_told_with_its_place(
    session: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"1,x\none,y\n"))
    made = source(tmp_path, archive_compress_codec="gz")
    with pytest.raises(Exception, match=r"a\.gz: line 2: column 'id': 'one' is no int"):
        everything(session, made)
    (tmp_path / "a.gz").write_bytes(b"none")
    with pytest.raises(Exception, match=r"a\.gz: Not a gzipped file"):
        everything(session, made)


def test_lzo_is_written_and_read(session: SparkSession, tmp_path: Path) -> None:
    options: dict[str, Any] = {"file_format_type": "text", "compress_codec": "lzo"}
    write(session, sink(tmp_path, **options), numbers(session, 5))
    assert all(name.endswith(".txt.lzo") for name in written(tmp_path))
    back = source(tmp_path, **options, schema=FIELDS)
    assert everything(session, back) == [(n, str(n)) for n in range(5)]


@pytest.mark.req("E5")
def test_columns_are_found_once_and_kept_by_every_slice(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "a.csv", "id,name\n1,x\n")
    put(tmp_path, "b.csv", "name,id\ny,2\n")
    options: dict[str, Any] = {"schema": None, "csv_use_header_line": True}
    made = source(tmp_path, **options)
    with caplog.at_level(logging.INFO):
        first = some(made.plan(session, None, rows_max=0))
    shown = [getattr(record, "schema", None) for record in caplog.records]
    assert "schema = { fields { id = bigint, name = string } }" in shown
    assert told(made.read(session, first)) == ["Row(1, x)"]

    put(tmp_path, "0.csv", "id,name\nfirst,x\n")  # it would make `id` a text
    later = source(tmp_path, **options)
    second = some(later.plan(session, first.after))
    found = later.read(session, second)
    assert (told(found), found.dtypes[0]) == (["Row(2, y)"], ("id", "bigint"))
    again = source(tmp_path, **options)
    assert told(again.read(session, Slice.model_validate(first.model_dump()))) == ["Row(1, x)"]
    restored = source(tmp_path, **options)
    restored.committed(session, second.after, learned=None)
    assert restored.empty(session).dtypes == [("id", "bigint"), ("name", "string")]


@pytest.mark.parametrize(
    ("form", "text", "options", "found"),
    [
        ("csv", "1,x\n2.5,y\n", {}, [("c0", "double"), ("c1", "string")]),
        (
            "json",
            '{"a": {"b": [1]}, "c": "x"}\n',
            {},
            [("a", "struct<b:array<bigint>>"), ("c", "string")],
        ),
        ("xml", "<x><r><a>1</a></r></x>", {"xml_row_tag": "r"}, [("a", "bigint")]),
    ],
)
def test_columns_are_found_in_what_there_is(
    session: SparkSession, tmp_path: Path, form: str, text: str, options: Any, found: Any
) -> None:
    put(tmp_path, "a", text)
    made = source(tmp_path, file_format_type=form, schema=None, **options)
    frame = made.read(session, some(made.plan(session, None)))
    assert frame.dtypes == found
    assert frame.count() >= 1


def test_a_header_that_lacks_a_column_is_told_with_the_file(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "a.csv", "name,id\nx,1\n")
    put(tmp_path, "b.csv", "id,title\n2,y\n")
    made = source(tmp_path, csv_use_header_line=True)
    with pytest.raises(Refused, match=r"b\.csv: its header has no column 'name': id, title; mend"):
        made.read(session, some(made.plan(session, None)))
    put(tmp_path, "b.csv", "1,2\n")
    with pytest.raises(Refused, match=r"b\.csv: its first line holds no header with a name of"):
        made.read(session, some(made.plan(session, None)))


def test_an_empty_folder_without_a_schema_says_what_to_add(
    session: SparkSession, tmp_path: Path
) -> None:
    made = source(tmp_path, schema=None)
    with pytest.raises(Refused, match=r"there are no files in .* add 'schema', or files"):
        made.read(session, some(made.plan(session, None)))


def test_archives_from_elsewhere_are_read_by_spark(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on HDFS: Python in executors can't open such a file itself."""
    monkeypatch.setattr(executor_read, "_LOCAL", "nowhere:")
    (tmp_path / "a [1].zip").write_bytes(zipped({"a": b"1,x\n"}))
    made = source(tmp_path, archive_compress_codec="zip")
    assert everything(session, made) == [(1, "x")]


@pytest.mark.parametrize(
    ("form", "name", "text", "options"),
    [
        ("csv", "a.zip", b"1\n", {"archive_compress_codec": "zip"}),
        ("json", "a.zip", b'{"id": 1}\n', {"archive_compress_codec": "zip"}),
        ("text", "a.zip", b"1\n", {"archive_compress_codec": "zip"}),
        ("xml", "a.xml", b"<x><r><id>1</id></r></x>", {"xml_row_tag": "r"}),
    ],
)
def test_a_column_of_the_schema_may_be_a_folder(
    session: SparkSession, tmp_path: Path, form: str, name: str, text: bytes, options: Any
) -> None:
    folder = tmp_path / "day=2026-01-02"
    folder.mkdir()
    (folder / name).write_bytes(zipped({"a": text}) if name == "a.zip" else text)
    schema = {"fields": {"day": "date", "id": "int"}}
    made = source(tmp_path, file_format_type=form, schema=schema, **options)
    assert everything(session, made) == [(date(2026, 1, 2), 1)]


def test_what_is_nested_in_xml_has_its_types_or_fails(
    session: SparkSession, tmp_path: Path
) -> None:
    row = "<x><r><p><n>7</n><f>1.5</f><d>0.10</d></p><l>1</l><l>2</l><m><k>3</k></m></r></x>"
    put(tmp_path, "a.xml", row)
    fields = {
        "p": {"n": "int", "f": "double", "d": "decimal(4, 2)"},
        "l": "array<int>",
        "m": "map<string, int>",
    }
    options: dict[str, Any] = {"file_format_type": "xml", "xml_row_tag": "r"}
    made = source(tmp_path, **options, schema={"fields": fields})
    assert everything(session, made) == [((7, 1.5, Decimal("0.10")), [1, 2], {"k": 3})]
    for text, said in (
        ("<n>seven</n>", "CAST_INVALID_INPUT"),
        ("seven", "'seven' is no struct"),
        ("<d>x</d>", "Malformed|MALFORMED"),
    ):
        put(tmp_path, "a.xml", f"<x><r><p>{text}</p></r></x>")
        with pytest.raises(Exception, match=said):
            everything(session, source(tmp_path, **options, schema={"fields": fields}))


def test_columns_are_found_in_packed_files(session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"1,x\n"))
    assert everything(session, source(tmp_path, schema=None)) == [(1, "x")]


@pytest.mark.parametrize(
    ("options", "physical"), [({}, "INT96"), ({INT96: False}, "INT64"), ({INT96: True}, "INT96")]
)
def test_times_of_parquet_are_as_the_job_says_or_as_spark_is_set(
    session: SparkSession, tmp_path: Path, options: dict[str, Any], physical: str
) -> None:
    before = session.conf.get("spark.sql.parquet.outputTimestampType")
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        to = sink(tmp_path, file_format_type="parquet", **options)
        write(session, to, query(session, "SELECT TIMESTAMP'2026-01-02 03:04:05' AS t"))
        assert session.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"
    finally:
        session.conf.set("spark.sql.parquet.outputTimestampType", str(before))
    (name,) = written(tmp_path)
    parquet: Any = importlib.import_module("pyarrow.parquet")
    assert parquet.ParquetFile(tmp_path / name).schema.column(0).physical_type == physical


def test_a_time_without_a_zone_is_in_utc_as_int96_in_every_session_zone(
    session: SparkSession, tmp_path: Path
) -> None:
    text = "2026-03-29 02:30:00.123456"  # there is no such time in Berlin
    before = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        to = sink(tmp_path, file_format_type="parquet", **{INT96: True})
        write(session, to, query(session, f"SELECT TIMESTAMP_NTZ'{text}' AS t"))
    finally:
        session.conf.set("spark.sql.session.timeZone", str(before))
    (name,) = written(tmp_path)
    parquet: Any = importlib.import_module("pyarrow.parquet")
    [row] = parquet.read_table(tmp_path / name).to_pylist()
    assert str(row["t"])[:26] == text


@pytest.mark.parametrize("value", ['a"b', "a\\nb", "a\\rb", "a,b"])
def test_csv_without_quotes_takes_no_value_that_needs_them(
    session: SparkSession, tmp_path: Path, value: str
) -> None:
    to = sink(tmp_path, file_format_type="csv", csv_string_quote_mode="NONE", row_delimiter="|")
    with pytest.raises(Exception, match="holds a delimiter, a quote or a line end"):
        to.stage(session, query(session, f"SELECT '{value}' AS v"), at())


def test_null_and_empty_keys_share_one_single_book(session: SparkSession, tmp_path: Path) -> None:
    rows = "(null, 'x', 1), ('', 'x', 2), (null, 'y', 3), ('', 'y', 4)"
    options = {"single_file_mode": True, "have_partition": True, "partition_by": ["k", "n"]}
    to = sink(tmp_path, file_format_type="excel", **options)
    write(session, to, query(session, f"SELECT * FROM VALUES {rows} AS t(k, n, v)"))
    folders = [name.rpartition("/")[0] for name in written(tmp_path)]
    empty = "k=__HIVE_DEFAULT_PARTITION__"
    assert folders == [f"{empty}/n=x", f"{empty}/n=y"]
