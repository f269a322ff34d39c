"""Columns of csv are read by their place: a header that says otherwise stops the job."""

from __future__ import annotations

import bz2
import codecs
import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.connectors.files import headers as file_headers
from headrace.connectors.files.source import FileSource
from headrace.errors import Refused
from tests.spark.connectors.test_files_source import everything, put, source
from tests.spark.lake import some

FIELDS = {"id": "int", "name": "string", "city": "string"}
RIGHT = "id,name,city\n"


def headed(path: Path, **options: Any) -> FileSource:
    return source(path, schema={"fields": FIELDS}, skip_header_row_number=1, **options)


def refusal(session: SparkSession, made: FileSource) -> str:
    with pytest.raises(Refused) as refused:
        made.read(session, some(made.plan(session, None)))
    return str(refused.value)


def test_a_file_with_its_columns_in_another_order_is_refused_by_name(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "a.csv", RIGHT + "1,Ann,Rome\n")
    put(tmp_path, "odd [1]+ä.csv", "id,city,name\n2,Oslo,Bob\n")
    put(tmp_path, "c.csv", RIGHT + "3,Cid,Riga\n")

    assert refusal(session, headed(tmp_path)) == (
        f"source LocalFile-1: file:{tmp_path}/odd [1]+ä.csv: line 1 has id, city, name; schema has "
        "id, name, city; the columns of csv are read by their place, so give 'schema' the names "
        "and the order of the file, or set csv_use_header_line = true instead of "
        "'skip_header_row_number'"
    )


@pytest.mark.parametrize(
    "line",
    [
        "id,city",  # one is missing
        "name,city",
        "id,name,town",
        "id,zip,name,city",  # one more in the middle
        "ID , City, NAME",
        '"id","city","name"',
        "\ufeffid,city,name",
    ],
)
def test_a_header_of_at_least_half_of_the_names_must_have_them_in_their_places(
    session: SparkSession, tmp_path: Path, line: str
) -> None:
    put(tmp_path, "a.csv", f"{line}\n1,x,y\n")

    assert f"file:{tmp_path}/a.csv: line 1 has " in refusal(session, headed(tmp_path))


@pytest.mark.parametrize(
    "line",
    [
        "id,name,city",
        " ID ,Name,CITY",
        '"id","name","city"',
        "\ufeffid,name,city",
        "Report of 2026,,",  # no header, and skipped as in SeaTunnel
        "7,Ann,Rome",
        "city,,",
        ",,",
    ],
)
def test_any_other_first_line_is_skipped(session: SparkSession, tmp_path: Path, line: str) -> None:
    put(tmp_path, "a.csv", f"{line}\n1,x,y\n")

    assert everything(session, headed(tmp_path)) == [(1, "x", "y")]


def test_empty_lines_in_front_of_a_header_are_passed_over_as_spark_does(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "good/a.csv", "\n\n" + RIGHT + "1,x,y\n")
    put(tmp_path, "good/b.csv", "\r\n\r\nid,name,city\r\n2,x,y\r\n")
    put(tmp_path, "bad/a.csv", "\n\n\nid,city,name\n1,x,y\n")
    put(tmp_path, "bad/b.csv", "\n")

    assert everything(session, headed(tmp_path / "good")) == [(1, "x", "y"), (2, "x", "y")]
    assert "bad/a.csv: line 4 has id, city, name;" in refusal(session, headed(tmp_path / "bad"))


def test_files_without_a_line_or_without_a_header_to_skip_are_read(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "empty.csv", "")
    put(tmp_path, "a.csv", "1,name,city\n")

    assert everything(session, source(tmp_path, schema={"fields": FIELDS})) == [(1, "name", "city")]
    assert everything(session, headed(tmp_path / "empty.csv")) == []


@pytest.mark.parametrize(("suffix", "packed"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_compressed_file_is_looked_into(
    session: SparkSession, tmp_path: Path, suffix: str, packed: Any
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder, header in ((good, RIGHT), (bad, "city,name,id\n")):
        folder.mkdir()
        # Its rows look like a header in another order, and are none.
        text = header + "5,x,y\n" + "7,city,name\n" * 5000
        (folder / f"a.csv{suffix}").write_bytes(packed(text.encode()))

    assert len(everything(session, headed(good))) == 5001
    assert "line 1 has city, name, id; schema has" in refusal(session, headed(bad))


def test_a_header_in_another_encoding_and_with_another_delimiter_is_read(
    session: SparkSession, tmp_path: Path
) -> None:
    made = source(
        tmp_path,
        schema={"fields": {"id": "int", "名": "string", "市": "string"}},
        skip_header_row_number=1,
        encoding="GBK",
        field_delimiter=";",
    )
    (tmp_path / "a.csv").write_bytes("id;市;名\n1;x;y\n".encode("gbk"))

    assert "line 1 has id, 市, 名; schema has id, 名, 市;" in refusal(session, made)
    (tmp_path / "a.csv").write_bytes("id;名;市\n1;x;y\n".encode("gbk"))
    assert everything(session, made) == [(1, "x", "y")]


WIDE = [
    ("UTF-16", "utf-16-be", b""),
    ("UTF-16", "utf-16-be", codecs.BOM_UTF16_BE),
    ("UTF-16", "utf-16-le", codecs.BOM_UTF16_LE),
    ("utf-16be", "utf-16-be", b""),
    ("UTF-16BE", "utf-16-be", codecs.BOM_UTF16_BE),
    ("UTF-16LE", "utf-16-le", b""),
    ("UnicodeLittleUnmarked", "utf-16-le", codecs.BOM_UTF16_LE),
    ("UTF-32", "utf-32-be", b""),
    ("UTF-32", "utf-32-le", codecs.BOM_UTF32_LE),
    ("UTF-32LE", "utf-32-le", b""),
    ("UTF-32BE", "utf-32-be", codecs.BOM_UTF32_BE),
]
# As bytes, these hold 0A and 0D: ends of a line to whoever does not know the encoding.
ODD = {"č": "string", "Ċ\u0a00": "string", "名": "string"}


@pytest.mark.parametrize(("encoding", "python", "mark"), WIDE)
def test_headers_of_wide_encodings_are_read_by_their_characters(
    session: SparkSession, tmp_path: Path, encoding: str, python: str, mark: bytes
) -> None:
    def folder(name: str, headers: list[str]) -> FileSource:
        (tmp_path / name).mkdir()
        for end in ("\n", "\r\n", "\r"):
            for number, header in enumerate(headers):
                text = f"{header}\nž,\u0a05,č\n".replace("\n", end)
                file = tmp_path / name / f"{number}{end.encode().hex()}.csv"
                file.write_bytes(mark + text.encode(python))
        return source(
            tmp_path / name, schema={"fields": ODD}, skip_header_row_number=1, encoding=encoding
        )

    right = ["č,Ċ\u0a00,名", '"č","Ċ\u0a00","名"', "čtvrtletí,,", "\nč,Ċ\u0a00,名"]
    rows = everything(session, folder("right", right))
    assert rows == [("ž", "\u0a05", "č")] * 3 * len(right)
    told = "has č, 名, Ċ\u0a00; schema has č, Ċ\u0a00, 名"
    said = refusal(session, folder("wrong", ["č,名,Ċ\u0a00", "\n\nč,名,Ċ\u0a00"]))
    assert f"line 1 {told} (and 5 more files" in said
    said = refusal(session, folder("later", ["\n\nč,名,Ċ\u0a00"]))
    assert f"line 3 {told} (and 2 more files" in said


def test_a_line_that_seems_to_end_within_a_character_is_not_judged(
    session: SparkSession, tmp_path: Path
) -> None:
    """U+0A05 and U+4E00 together hold the bytes 0A 00, a line's end if they were taken apart."""
    made = headed(tmp_path, encoding="UTF-16LE")
    (tmp_path / "a.csv").write_bytes("id,name,\u0a05\u4e00,city\n1,x,y\n".encode("utf-16-le"))

    assert everything(session, made) == [(1, "x", "y")]


@pytest.mark.parametrize(
    ("encoding", "line"),
    [
        ("GBK", b"R\xe9sum\xe9 \xff,x"),
        ("US-ASCII", "Résumé".encode("latin-1")),
        ("UTF-8", b"citt\xe0,\xff"),
        ("UTF-16LE", b"\x00\xd8,\x00"),  # half of a pair
    ],
)
def test_a_first_line_that_is_no_text_of_its_encoding_is_skipped(
    session: SparkSession, tmp_path: Path, encoding: str, line: bytes
) -> None:
    python = "utf-16-le" if encoding == "UTF-16LE" else "ascii"
    (tmp_path / "a.csv").write_bytes(line + "\n1,x,y\n".encode(python))

    assert everything(session, headed(tmp_path, encoding=encoding)) == [(1, "x", "y")]


def test_bytes_that_are_no_text_do_not_keep_a_header_from_being_read(
    session: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,city,name,\xff\n1,x,y,z\n")

    said = refusal(session, headed(tmp_path, encoding="GBK"))
    assert "line 1 has id, city, name, \ufffd; schema has" in said


def test_rows_of_text_are_still_refused_where_they_are_none_of_the_encoding(
    session: SparkSession, tmp_path: Path
) -> None:
    """A setting that lets headers pass must not outlive their check."""
    put(tmp_path, "csv/a.csv", RIGHT + "1,x,y\n")
    assert everything(session, headed(tmp_path / "csv", encoding="GBK")) == [(1, "x", "y")]
    (tmp_path / "a.txt").write_bytes(b"\xff\xff\n")
    text = source(tmp_path / "a.txt", file_format_type="text", schema=None, encoding="GBK")

    with pytest.raises(Exception, match="MALFORMED_CHARACTER_CODING"):
        everything(session, text)


def test_headers_of_an_encoding_with_other_line_ends_are_not_judged(
    session: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes("id,city,name\r1,x,y\r".encode("cp037"))

    assert everything(session, headed(tmp_path, encoding="IBM037")) == [(1, "x", "y")]


@pytest.mark.parametrize("suffix", [".gz", ".deflate", ".bz2", ".zst", ".snappy"])
def test_a_file_of_no_bytes_is_not_unpacked(
    session: SparkSession, tmp_path: Path, suffix: str
) -> None:
    """Spark does not open it, either. A writer that was killed leaves such files."""
    (tmp_path / f"a.csv{suffix}").touch()

    assert everything(session, headed(tmp_path)) == []
    put(tmp_path, "b.csv", RIGHT + "1,x,y\n")
    assert everything(session, headed(tmp_path)) == [(1, "x", "y")]
    (tmp_path / "c.csv.deflate").write_bytes(zlib.compress(b"id,city,name\n1,x,y\n"))
    assert "c.csv.deflate: line 1 has id, city, name;" in refusal(session, headed(tmp_path))


@pytest.mark.parametrize(
    ("written", "delimiter"), [("\\t", "\t"), ("\t", "\t"), ("||", "||"), ("\\\\", "\\")]
)
def test_a_delimiter_is_the_one_that_spark_reads_by(
    session: SparkSession, tmp_path: Path, written: str, delimiter: str
) -> None:
    made = headed(tmp_path, field_delimiter=written)
    rows = delimiter.join(["1", f'"x{delimiter}"', "y"])

    put(tmp_path, "a.csv", delimiter.join(['"id"', "name", '"city"']) + f"\n{rows}\n")
    assert everything(session, made) == [(1, f"x{delimiter}", "y")]
    put(tmp_path, "a.csv", delimiter.join(["id", '"city"', "name"]) + f"\n{rows}\n")
    assert "line 1 has id, city, name; schema has" in refusal(session, made)


@pytest.mark.parametrize(
    "header",
    [
        '"id\n","name","city"',
        '"id","name","city","a\r\nb"',
        'id,name,city,"a\n\n""b"" c"',
        '"Report\nof id, name"',
        '"Report of id, city, name\n"',
        'id,name,city,"' + "\n" * 5000 + '"',  # too long to be looked at
        'id,city,"name' + "\n" * 5000 + '"',
    ],
)
def test_a_header_with_a_line_end_in_quotes_is_not_refused_for_it(
    session: SparkSession, tmp_path: Path, header: str
) -> None:
    (tmp_path / "a.csv").write_bytes(f"{header}\n1,x,y\n".encode())

    assert everything(session, headed(tmp_path)) == [(1, "x", "y")]


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ('id,city,name,"' + "\n" * 5000 + '"', 1),  # its names come before what is too long
        ('"id\n","city","name"', 1),
        ('\n\n"id","city\n",\n', 3),
        ('"a\nb",id,name,city', 1),
    ],
)
def test_a_header_of_several_lines_is_read_to_its_end(
    session: SparkSession, tmp_path: Path, header: str, line: int
) -> None:
    put(tmp_path, "a.csv", f"{header}\n1,x,y\n")

    assert f"a.csv: line {line} has " in refusal(session, headed(tmp_path))


def test_a_header_too_long_to_be_compared_to_its_last_name_is_not_refused(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "a.csv", f"id,name{' ' * 10_000},city\n1,x,y\n")
    put(tmp_path, "b.csv", f"id,name,city,{'more,' * 5_000}\n2,x,y\n")

    assert everything(session, headed(tmp_path)) == [(1, "x", "y"), (2, "x", "y")]


def test_a_column_that_comes_from_the_folder_is_not_looked_for_in_the_header(
    session: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "name=Ann/a.csv", "id,city\n1,Rome\n")

    assert everything(session, headed(tmp_path)) == [(1, "Ann", "Rome")]


def test_every_file_of_a_slice_is_looked_at_however_many_share_a_task(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_headers, "FILES_PER_TASK_MAX", 3)
    for number in range(7):
        put(tmp_path, f"{number}.csv", ("id,city,name\n" if number > 4 else RIGHT) + "1,x,y\n")

    said = refusal(session, headed(tmp_path))

    assert f"{tmp_path}/5.csv: line 1 has" in said
    assert "schema has id, name, city (and 1 more files are like it);" in said


def test_a_stream_is_stopped_by_such_a_file_too(session: SparkSession, tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "id,city,name\n1,x,y\n", modified_s=1_000)

    assert "line 1 has id, city, name" in refusal(session, headed(tmp_path, streaming=True))
