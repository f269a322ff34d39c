"""The file source: which files a slice holds, that they must not change, and what they say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.files.source import FileSource
from headrace.errors import Refused
from headrace.spark.filesystem import HadoopFiles, LocalFiles
from tests.spark.folder import query
from tests.spark.lake import some
from tests.spark.settings import NO_SESSION, setting

FIELDS = {"id": "int", "name": "string"}


def source(path: Path, *, streaming: bool = False, **options: Any) -> FileSource:
    options = {
        "path": str(path),
        "file_format_type": "csv",
        "schema": {"fields": FIELDS},
        **options,
    }
    return FileSource("LocalFile-1", *setting("LocalFile", "source", options, streaming=streaming))


def put(folder: Path, name: str, text: str, *, modified_s: int | None = None) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    if modified_s is not None:
        os.utime(file, (modified_s, modified_s))
    return file


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = [tuple(row) for row in frame.collect()]  # pyright: ignore[reportUnknownArgumentType]
    return sorted(found, key=str)


def everything(session: SparkSession, made: FileSource) -> list[tuple[Any, ...]]:
    return rows(made.read(session, some(made.plan(session, None))))


def test_a_folder_is_read_with_all_that_is_below_it_and_nothing_hidden(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "a.csv", "1,x\n")
    put(tmp_path, "deep/b.csv", '2,"y, ""z""\nnext"\n')
    put(tmp_path, "odd[1]{2} 3.csv", "3,\n")
    put(tmp_path, "_headrace/c.csv", "9,no\n")
    put(tmp_path, ".d.csv", "9,no\n")

    made = source(tmp_path)
    assert everything(session, made) == [(1, "x"), (2, 'y, "z"\nnext'), (3, None)]
    assert some(made.plan(session, None)).last
    assert made.plan(session, some(made.plan(session, None)).after) is None


def test_one_file_may_be_named(session: SparkSession, tmp_path: Path) -> None:
    file = put(tmp_path, "a.csv", "1,x\n")
    put(tmp_path, "b.csv", "2,y\n")
    assert everything(session, source(file)) == [(1, "x")]


def test_a_file_that_changed_is_told_with_what_it_was(
    session: SparkSession, tmp_path: Path
) -> None:
    file = put(tmp_path, "b.csv", "2,y\n")
    made = source(tmp_path)
    part = some(made.plan(session, None))

    put(tmp_path, "b.csv", "2,other\n")
    with pytest.raises(Refused, match=r"LocalFile-1: .*/b\.csv has changed since the epoch"):
        made.read(session, part)
    file.unlink()
    with pytest.raises(Refused, match=r"/b\.csv is gone since the epoch was planned \(4 bytes"):
        made.read(session, part)


def test_a_streaming_folder_may_be_empty_at_first(tmp_path: Path) -> None:
    assert source(tmp_path, streaming=True).plan(NO_SESSION, None) is None


def test_a_folder_without_files_gives_no_rows(session: SparkSession, tmp_path: Path) -> None:
    made = source(tmp_path, read_columns=["name"])
    part = some(made.plan(session, None))
    assert part.last
    assert made.read(session, part).columns == ["name"]
    assert made.plan(session, part.after) is None


def test_no_rows_have_the_columns_of_the_files(session: SparkSession, tmp_path: Path) -> None:
    session.range(3).write.parquet(str(tmp_path / "in" / "k=v"))
    made = source(tmp_path / "in", file_format_type="parquet", schema=None)
    read = made.read(session, some(made.plan(session, None)))
    assert made.empty(session).dtypes == read.dtypes == [("id", "bigint"), ("k", "string")]
    assert made.empty(session).count() == 0


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"there is no file:.*/nothing; create it"):
        source(tmp_path / "nothing").plan(NO_SESSION, None)


def test_folders_are_columns(session: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "k=007/a.csv", "1,x\n")
    put(tmp_path, "k=a b%3A/b.csv", "2,y\n")

    assert everything(session, source(tmp_path)) == [(1, "x", "007"), (2, "y", "a b:")]
    inside = source(tmp_path / "k=007")
    assert everything(session, inside) == [(1, "x", "007")]
    without = source(tmp_path, parse_partition_from_path=False)
    assert everything(session, without) == [(1, "x"), (2, "y")]


def test_files_are_chosen_by_name_and_columns_by_theirs(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "a.csv", "1,x\n")
    put(tmp_path, "a.csv.bak", "9,no\n")
    made = source(tmp_path, file_filter_pattern=r"a\.csv", read_columns=["name"])
    assert everything(session, made) == [("x",)]


@pytest.mark.parametrize(("form", "skip"), [("csv", 1), ("text", 1), ("text", 2)])
def test_headers_are_skipped_in_every_file(
    session: SparkSession, tmp_path: Path, form: str, skip: int
) -> None:
    for number in range(2):
        put(tmp_path, str(number), "top,line\n" * skip + f"{number},x\n{number},y\n")
    made = source(tmp_path, file_format_type=form, skip_header_row_number=skip, field_delimiter=",")
    assert everything(session, made) == [(0, "x"), (0, "y"), (1, "x"), (1, "y")]


@pytest.mark.parametrize("delimiter", ["|", r"\|", ";"])
def test_text_is_parted_by_a_letter_or_an_expression(
    session: SparkSession, tmp_path: Path, delimiter: str
) -> None:
    put(tmp_path, "a", "1{0}x\n2{0}\n".format(delimiter[-1]))
    made = source(tmp_path, file_format_type="text", field_delimiter=delimiter)
    assert everything(session, made) == [(1, "x"), (2, None)]


def test_text_without_a_schema_is_one_column(session: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "a", "one, two\nthree\n")
    made = source(tmp_path, file_format_type="text", schema=None)
    assert made.read(session, some(made.plan(session, None))).columns == ["content"]
    assert everything(session, made) == [("one, two",), ("three",)]


def test_dates_and_times_have_the_formats_that_were_given(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "a", "02.01.2026,2026-01-02T03:04:05,03.04\n")
    made = source(
        tmp_path,
        schema={"fields": {"day": "date", "at": "timestamp", "clock": "time"}},
        date_format="dd.MM.yyyy",
        datetime_format="yyyy-MM-dd'T'HH:mm:ss",
        time_format="HH.mm",
    )
    found = [str(value) for value in everything(session, made)[0]]
    assert found == ["2026-01-02", "2026-01-02 03:04:05", "03:04:00"]


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_schema_casts_what_the_files_hold(
    session: SparkSession, tmp_path: Path, form: str
) -> None:
    frame = query(session, "SELECT 7 AS id, TIMESTAMP_NTZ '2026-01-02 03:04:05' AS at, 'x' AS rest")
    frame.write.format(form).save(str(tmp_path / "in" / "k=v"))
    fields = {"id": "bigint", "at": "time"}
    made = source(tmp_path / "in", file_format_type=form, schema={"fields": fields})
    found = made.read(session, some(made.plan(session, None)))
    assert found.dtypes == [("id", "bigint"), ("at", "string"), ("k", "string")]
    assert rows(found) == [(7, "03:04:05", "v")]


def test_a_value_that_is_none_of_its_type_fails_the_job(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "a.csv", "one,x\n")
    made = source(tmp_path)
    with pytest.raises(Exception, match=r"a\.csv: column 'id': 'one' is no int"):
        everything(session, made)


def test_a_hadoop_file_system_is_listed_in_the_same_way(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "a b.csv", "1,x\n")
    put(tmp_path, "deep/b.csv", "2,y\n")
    put(tmp_path, "_hidden/c.csv", "3,z\n")
    options = {
        "path": str(tmp_path),
        "fs.defaultFS": "file:///",
        "file_format_type": "csv",
        "schema": {"fields": FIELDS},
    }
    made = setting("HdfsFile", "source", options)
    plain = FileSource("HdfsFile-1", *made)
    through = FileSource("HdfsFile-1", *made, files=HadoopFiles(session, f"file:{tmp_path}", {}))

    assert some(through.plan(session, None)) == some(plain.plan(session, None))
    assert everything(session, through) == [(1, "x"), (2, "y")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"file_format_type": "json", "skip_header_row_number": 1}, "json has no header"),
        ({"file_format_type": "xml"}, "xml needs the option 'xml_row_tag'"),
        ({"file_format_type": "orc", "archive_compress_codec": "zip"}, "not read from archives"),
        ({"file_format_type": "json", "csv_use_header_line": True}, "is for csv"),
        ({"file_format_type": "json", "null_format": "x"}, "is for csv and text"),
        (
            {"compress_codec": "lzo", "skip_header_row_number": 2},
            "compress_codec = lzo needs 'schema', and csv without lines to skip",
        ),
        ({"compress_codec": "lzo", "schema": None}, "compress_codec = lzo needs 'schema'"),
        ({"file_format_type": "parquet", "compress_codec": "lzo"}, "lzo is for csv"),
        ({"compress_codec": "lzo", "archive_compress_codec": "gz"}, "exclude each other"),
        ({"field_delimiter": "||", "archive_compress_codec": "zip"}, "one letter"),
    ],
)
def test_options_that_can_not_be_met_together_are_refused(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        source(tmp_path, **options)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_file_whose_name_is_not_utf_8_is_told_with_the_way_out(
    session: SparkSession, tmp_path: Path, *, streaming: bool
) -> None:
    put(tmp_path, "a.csv", "1,x\n", modified_s=1_000)
    put(tmp_path, os.fsdecode(b"name\xe9/b.csv"), "2,y\n", modified_s=1_000)
    put(tmp_path, os.fsdecode(b".name\xe9.csv"), "9,no\n", modified_s=1_000)

    with pytest.raises(Refused) as refused:
        source(tmp_path, streaming=streaming).plan(session, None)

    said = str(refused.value)
    assert said == (
        f"source LocalFile-1: the name of file:{tmp_path}/name\\xe9/b.csv is not UTF-8, and Spark "
        "can't open such a file; rename it, or leave it out by 'file_filter_pattern'. Until then "
        "no further file of the folder is read"
    )
    assert said.encode(), "it can be sent and shown"
    left_out = source(tmp_path, streaming=streaming, file_filter_pattern="a.*")
    assert everything(session, left_out) == [(1, "x")]


@pytest.mark.req("E5")
def test_a_path_that_is_there_as_it_stands_is_no_glob(
    session: SparkSession, tmp_path: Path
) -> None:
    """The names in a position are those below it: as a glob, every file would be read again."""
    put(tmp_path, "a*b/x.csv", "1,x\n")
    put(tmp_path, "aab/y.csv", "2,y\n")
    made = source(tmp_path / "a*b")
    (tmp_path / "a*b").rename(tmp_path / "away")
    assert some(made.plan(session, None)).data["files"]  # as a glob  # type: ignore[index]
    (tmp_path / "away").rename(tmp_path / "a*b")
    planned = some(made.plan(session, None))
    assert [name for name, _, _ in planned.data["files"]] == ["x.csv"]  # type: ignore[index]
    globbed = some(source(tmp_path / "a?b").plan(session, None))
    names = [name for name, _, _ in globbed.data["files"]]  # type: ignore[index]
    assert names == ["a*b/x.csv", "aab/y.csv"]


def test_a_glob_walks_only_what_may_fit(session: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "in1/x.csv", "1,x\n")
    put(tmp_path, "other/y.csv", "2,y\n")
    made = source(tmp_path / "in*")
    with patch.object(LocalFiles, "files", autospec=True, side_effect=LocalFiles.files) as walked:
        assert everything(session, made) == [(1, "x")]
    assert {call.args[1] for call in walked.call_args_list} == {"in1"}


def test_a_glob_that_means_nothing_is_refused(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"'path' is no glob: bad character range z-a"):
        source(tmp_path / "[z-a]*").plan(session, None)


@pytest.mark.parametrize("line_end", ["\r\n", "\r", ";"])
def test_line_ends_that_do_nothing_are_let_pass(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, line_end: str
) -> None:
    put(tmp_path, "a.csv", "1,x\n2,y\n")
    made = source(tmp_path, row_delimiter=line_end)
    assert everything(session, made) == [(1, "x"), (2, "y")]
    warned = "row_delimiter is for text and json, and does nothing" in caplog.messages
    assert warned == (line_end == ";")


def test_a_usual_line_end_stands_for_all_of_them(session: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "top\n1;x\n2;y\n")
    options: dict[str, Any] = {"file_format_type": "text", "field_delimiter": ";"}
    made = source(tmp_path, **options, row_delimiter="\r\n", skip_header_row_number=1)
    assert everything(session, made) == [(1, "x"), (2, "y")]


def test_a_file_that_is_no_json_is_refused_when_columns_are_looked_for(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "a.json", "{no json\n")
    made = source(tmp_path, file_format_type="json", schema=None)
    with pytest.raises(Refused, match="source LocalFile-1: "):
        made.plan(session, None)
