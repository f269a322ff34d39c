"""Every option of the files has an effect: two of its values give two results, or an error.

An option that is declared and in none of these tables fails the last test here.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.files.descriptor import HDFS_FILE_SINK, HDFS_FILE_SOURCE
from headrace.connectors.files.records import RecordForm, records
from headrace.plugins.descriptor import Descriptor
from headrace.plugins.options import common_options
from tests.connectors.files.test_records import book, zipped
from tests.spark.folder import query, sink, source, told, write, written
from tests.spark.lake import some
from tests.spark.settings import at

CSV = {"file_format_type": "csv", "schema": {"fields": {"a": "int", "b": "string"}}}
TEXT = {"file_format_type": "text", "field_delimiter": ",", "schema": CSV["schema"]}
DAY = {"file_format_type": "csv", "schema": {"fields": {"a": "date"}}}
MOMENT = {"file_format_type": "csv", "schema": {"fields": {"a": "timestamp"}}}
CLOCK = {"file_format_type": "csv", "schema": {"fields": {"a": "time"}}}
XML = {"file_format_type": "xml", "schema": {"fields": {"a": "string"}}, "xml_row_tag": "r"}
ROWS = b"1,x\n2,y\n"


@dataclass(frozen=True)
class Pair:
    """Two sets of options that differ in one of them, and what is there to read."""

    base: Mapping[str, Any]
    values: tuple[Any, Any]
    files: Mapping[str, bytes] = field(default_factory=lambda: {"in/a": ROWS})
    folder: str = "in"
    result: str | None = None  # a part of what the second one gives


READ: Mapping[str, Pair] = {
    "path": Pair(CSV, ("in", "in/a?"), {"in/a1": b"1,x\n", "in/b1": b"2,y\n"}, result="Row(1, x)"),
    "file_format_type": Pair({}, ("text", "binary"), result="relativePath"),
    "schema": Pair({"file_format_type": "csv"}, (None, {"fields": {"a": "string", "b": "string"}})),
    "read_columns": Pair(CSV, (None, ["b"]), result="Row(x)"),
    "field_delimiter": Pair(CSV, (",", ";"), {"in/a": b"1;x\n"}, result="Row(1, x)"),
    "row_delimiter": Pair(TEXT, ("\n", "|"), {"in/a": b"1,x|2,y"}, result="Row(2, y)"),
    "csv_use_header_line": Pair(
        CSV, (False, True), {"in/a": b"b,a\nx,1\n", "in/c": b"a,n,b\n2,no,y\n"}, result="Row(2, y)"
    ),
    "skip_header_row_number": Pair(CSV, (0, 2), {"in/a": b"to\np\n1,x\n"}, result="Row(1, x)"),
    "quote_char": Pair(CSV, ('"', "'"), {"in/a": b"1,'x,y'\n"}, result="Row(1, x,y)"),
    "escape_char": Pair(CSV, (None, "\\"), {"in/a": b'1,"x\\"y"\n'}, result='Row(1, x"y)'),
    "null_format": Pair(TEXT, (None, "\\N"), {"in/a": b"\\N,\n"}, result="Row(None, )"),
    "date_format": Pair(DAY, (None, "dd.MM.yyyy"), {"in/a": b"02.01.2026\n"}, result="2026-01-02"),
    "datetime_format": Pair(
        MOMENT,
        (None, "yyyyMMddHHmmss"),
        {"in/a": b"20260102030405\n"},
        result="2026-01-02 03:04:05",
    ),
    "time_format": Pair(CLOCK, (None, "HH.mm"), {"in/a": b"03.04\n"}, result="03:04:00"),
    "encoding": Pair(CSV, ("UTF-8", "gbk"), {"in/a": "1,中\n".encode("gbk")}, result="中"),
    "archive_compress_codec": Pair(
        CSV, ("none", "zip"), {"in/a": zipped({"b.csv": ROWS})}, result="Row(2, y)"
    ),
    "parse_partition_from_path": Pair(CSV, (True, False), {"in/k=v/a": ROWS}, result="Row(1, x)"),
    "read_partitions": Pair(
        CSV, (None, ["k=2"]), {"in/k=1/a": b"1,x\n", "in/k=2/a": b"2,y\n"}, result="Row(2, y, 2)"
    ),
    "file_filter_pattern": Pair(CSV, (None, "a.*"), {"in/a": ROWS, "in/b": b"9,no\n"}),
    "filename_extension": Pair(CSV, (None, "csv"), {"in/a.csv": ROWS, "in/b": b"9,no\n"}),
    "file_filter_modified_start": Pair(CSV, (None, "2026-01-01 00:00:00")),
    "file_filter_modified_end": Pair(CSV, (None, "2026-01-01 00:00:00")),
    "recursive_file_scan": Pair(CSV, (True, False), {"in/a": ROWS, "in/deep/b": b"9,no\n"}),
    "xml_row_tag": Pair({**XML}, ("r", "s"), {"in/a": b"<x><s><a>1</a></s></x>"}, result="Row(1)"),
    "xml_use_attr_format": Pair(
        XML, (False, True), {"in/a": b'<x><r a="1"><a>2</a></r></x>'}, result="Row(1)"
    ),
    "binary_chunk_size": Pair({"file_format_type": "binary"}, (1024, 4), result="a, 1)"),
    "binary_complete_file_mode": Pair(
        {"file_format_type": "binary", "binary_chunk_size": 4}, (False, True), result="a, 0)"
    ),
}


@pytest.mark.parametrize("name", READ)
def test_two_values_of_an_option_of_a_source_read_differently(
    session: SparkSession, tmp_path: Path, name: str
) -> None:
    pair = READ[name]
    for path, data in pair.files.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        if name.startswith("file_filter_modified"):
            os.utime(file, (1.8e9, 1.8e9) if name.endswith("end") else (1e9, 1e9))

    def given(value: Any) -> str:
        options = {**pair.base, name: value}
        folder = tmp_path / (options.pop("path", None) or pair.folder)
        return outcome(
            session, folder, {key: one for key, one in options.items() if one is not None}
        )

    one, other = (given(value) for value in pair.values)
    assert one != other
    assert (pair.result or "") in other


def outcome(session: SparkSession, folder: Path, options: Mapping[str, Any]) -> str:
    """Columns and rows, or what went wrong."""
    try:
        made = source(folder, **options)
        frame = made.read(session, some(made.plan(session, None)))
        return f"{frame.dtypes} {told(frame)}"
    except Exception as error:  # noqa: BLE001  any is a result
        return f"{type(error).__name__}: {error}"


def test_a_sheet_is_read_by_its_name(session: SparkSession, tmp_path: Path) -> None:
    book(tmp_path / "a.xlsx", {"one": [[1]], "two": [[2]]})
    options = {"file_format_type": "excel", "schema": {"fields": {"a": "int"}}}
    results = [outcome(session, tmp_path, {**options, "sheet_name": s}) for s in ("one", "two")]
    assert ["Row(1)" in results[0], "Row(2)" in results[1]] == [True, True]
    assert outcome(session, tmp_path, options) == results[0]
    assert "no sheet 'three'" in outcome(session, tmp_path, {**options, "sheet_name": "three"})


TABLE = (
    "SELECT 1 AS a, 'x' AS b, TIMESTAMP_NTZ '2026-01-02 03:04:05' AS c UNION ALL "
    "SELECT 2, 'y\"', TIMESTAMP_NTZ '2026-01-02 03:04:06'"
)
ONE = {"single_file_mode": True}
XML_ONE = {**ONE, "file_format_type": "xml"}
KEYS = {**ONE, "have_partition": True, "partition_by": ["a"]}
NAMED = {**ONE, "custom_filename": True, "file_name_expression": "f_${now}"}
WRITTEN: Mapping[str, tuple[Mapping[str, Any], Any, Any]] = {
    "file_format_type": (ONE, "csv", "json"),
    "field_delimiter": (ONE, ",", ";"),
    "row_delimiter": ({**ONE, "file_format_type": "text"}, "\n", "|"),
    "enable_header_write": (ONE, False, True),
    "csv_string_quote_mode": (ONE, "MINIMAL", "ALL"),
    "compress_codec": (ONE, "none", "lzo"),
    "encoding": (XML_ONE, "UTF-8", "gbk"),
    "sink_columns": (ONE, None, ["b", "a"]),
    "have_partition": ({**ONE, "partition_by": ["a"]}, False, True),
    "partition_by": ({**ONE, "have_partition": True}, ["a"], ["b"]),
    "partition_dir_expression": (KEYS, None, "of/${v0}"),
    "is_partition_field_write_in_file": (KEYS, False, True),
    "custom_filename": ({**NAMED}, False, True),
    "file_name_expression": (NAMED, "f_${now}", "g_${now}"),
    "filename_time_format": (NAMED, "yyyy", "MM"),
    "filename_extension": (ONE, None, "dat"),
    "batch_size": ({}, 1, 10),
    "single_file_mode": ({"batch_size": 1}, False, True),
    "sheet_name": ({**ONE, "file_format_type": "excel"}, "one", "two"),
    "sheet_max_rows": ({**ONE, "file_format_type": "excel"}, 2, 3),
    "xml_root_tag": (XML_ONE, "all", "some"),
    "xml_row_tag": (XML_ONE, "one", "two"),
    "xml_use_attr_format": (XML_ONE, False, True),
    "parquet_avro_write_timestamp_as_int96": (
        {**ONE, "file_format_type": "parquet", "sink_columns": ["c"]},
        False,
        True,
    ),
    "path": (ONE, "out", "other"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_two_values_of_an_option_of_a_sink_write_differently(
    session: SparkSession, tmp_path: Path, name: str
) -> None:
    base, one, other = WRITTEN[name]
    frame = query(session, TABLE).coalesce(1)
    results: list[Any] = []
    for value in (one, other):
        options = {**base, name: value}
        folder = tmp_path / options.pop("path", f"{name}-{len(results)}")
        given = {key: item for key, item in options.items() if item is not None}
        results.append(files_written(session, folder, frame, given))
    assert results[0] != results[1]


def files_written(
    session: SparkSession, folder: Path, frame: DataFrame, options: Mapping[str, Any]
) -> Any:
    try:
        to = sink(folder, **options)
    except Exception as error:  # noqa: BLE001  any is a result
        return str(error)
    write(session, to, frame)
    names = written(folder) or [str(folder)]
    return [(name, contents(folder / name)) for name in names], folder.name[:3]


def contents(file: Path) -> Any:
    """The bytes; of an excel file, whose bytes hold the time, sheets and cells."""
    if file.suffix != ".xlsx":
        return file.read_bytes()
    calamine: Any = importlib.import_module("python_calamine")
    names = calamine.CalamineWorkbook.from_path(str(file)).sheet_names
    with file.open("rb") as opened:
        found = records(opened, RecordForm(format="excel"))
        return names, [list(one.cells) for one in found]


def test_an_epoch_without_rows_leaves_a_book_where_one_is_wanted(
    session: SparkSession, tmp_path: Path
) -> None:
    none = query(session, TABLE).where("a < 0")
    for keeps in (False, True):
        options = {"file_format_type": "excel", "create_empty_file_when_no_data": keeps}
        write(session, sink(tmp_path / str(keeps), **options), none)
    assert [written(tmp_path / str(keeps)) != [] for keeps in (False, True)] == [False, True]


# Proved elsewhere: save modes by test_files_opening.py, transactions by test_files_commit.py.
ELSEWHERE = {
    "schema_save_mode",
    "data_save_mode",
    "is_enable_transaction",
    "create_empty_file_when_no_data",
    "fs.defaultFS",  # test_files_source.py, through Hadoop
    "hdfs_site_path",
    "sheet_name",
    "compress_codec",  # of a source: test_file_formats.py
}


@pytest.mark.parametrize(
    ("descriptor", "tried"),
    [(HDFS_FILE_SOURCE, READ), (HDFS_FILE_SINK, WRITTEN)],
    ids=["source", "sink"],
)
def test_no_option_is_left_out_here(descriptor: Descriptor[Any], tried: Mapping[str, Any]) -> None:
    common = {option.name for option in common_options(descriptor.role)}
    built = {
        option.name
        for option in descriptor.options.declared
        if not option.idle and (option.supported is None or len(option.supported) > 1)
    }
    assert built - common - ELSEWHERE <= set(tried)
    for option in descriptor.options.declared:
        assert option.doc or option.idle or option.supported == () or json.dumps(option.default)


def test_staged_files_of_python_are_hidden_until_the_commit(
    session: SparkSession, tmp_path: Path
) -> None:
    to = sink(tmp_path, file_format_type="excel")
    staged = to.stage(session, query(session, TABLE), at())
    assert written(tmp_path) == []
    to.commit(session, staged.handle, at())
    assert written(tmp_path) != []
