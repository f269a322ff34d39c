"""Records of files that Python reads in executors: formats, archives, and what bad ones say."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.files.records import RecordForm, cell_text, read_records, records


def cells(data: bytes, **form: Any) -> list[list[str | None]]:
    return [list(one.cells) for one in records(io.BytesIO(data), RecordForm(**form))]


def read(path: Path, **form: Any) -> list[dict[str, Any]]:
    arrow: Any = importlib.import_module("pyarrow")
    numbers = arrow.RecordBatch.from_pylist([{"id": 0}])
    made = read_records([f"file:{path}"], RecordForm(**form), [numbers])
    return [row for batch in made for row in batch.to_pylist()]


def zipped(files: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def tarred(files: Mapping[str, bytes], mode: Any = "w") -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def tarred_and_packed(files: Mapping[str, bytes]) -> bytes:
    return tarred(files, "w:gz")


def book(path: Path, sheets: Mapping[str, list[list[Any]]]) -> Path:
    made: Any = importlib.import_module("xlsxwriter").Workbook(str(path))
    for name, rows in sheets.items():
        sheet = made.add_worksheet(name)
        for at, row in enumerate(rows):
            sheet.write_row(at, 0, row)
    made.close()
    return path


def test_lines_end_as_in_any_text_or_as_was_said() -> None:
    assert cells(b"a\r\nb\n\nc", format="text") == [["a"], ["b"], [""], ["c"]]
    assert cells(b"a;b\n;c", format="text", line_end=";") == [["a"], ["b\n"], ["c"]]
    assert cells(b"{}\n \t\n\n[]", format="json") == [["{}"], ["[]"]]


def test_lines_at_the_top_are_skipped_and_encodings_decoded() -> None:
    data = "top\n中文\n".encode("gbk")
    assert cells(data, format="text", skip=1, encoding="gbk") == [["中文"]]
    assert cells(b"\xef\xbb\xbfa", format="text") == [["a"]]


@pytest.mark.parametrize(
    ("text", "form", "found"),
    [
        ('1,"a, ""b""\nc"\n\n2,d\n', {}, [["1", 'a, "b"\nc'], ["2", "d"]]),
        ("top\n1\t2\n", {"skip": 1, "delimiter": "\\t"}, [["1", "2"]]),
        ("'a,b',c\n", {"quote": "'"}, [["a,b", "c"]]),
        ('"a,b"\n', {"quote": ""}, [['"a', 'b"']]),
        ('"a\\"b"\n', {"escape": "\\"}, [['a"b']]),
        ("B,a,c\n1,2,3\n", {"by_header": True, "names": ("a", "b")}, [["2", "1"]]),
        ("a, B\n1,2\n", {"skip": 1, "names": ("a", "b")}, [["1", "2"]]),
        ("by me\n1,2\n", {"skip": 1, "names": ("a", "b")}, [["1", "2"]]),
    ],
)
def test_cells_of_csv_are_parted_as_was_said(text: str, form: Any, found: Any) -> None:
    assert cells(text.encode(), format="csv", **form) == found


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ("1,2\n3\n", {"names": ("a", "b")}, "line 2 has 1 values; schema has 2 columns"),
        ("a,b\n1\n", {"names": ("a",), "by_header": True}, "line 2 has 1 values; the header has 2"),
        ("a\n1,2\n", {"names": ("a",), "by_header": True}, "line 2 has 2 values; the header has 1"),
        ('1,"x\n2,y\n', {"names": ("a", "b")}, "line 2: unexpected end of data"),
        ("b,a\n1,2\n", {"names": ("a", "b"), "skip": 1}, "line 1 has b, a; schema has a, b; the"),
        ("a,c\n", {"names": ("a", "b"), "by_header": True}, "header has no column 'b': a, c"),
        ("b,B\n", {"names": ("bB",), "by_header": True}, "has no column 'bB'"),
        ("A,a\n", {"names": ("a",), "by_header": True}, None),
        ("A,Aa,a\n", {"names": ("aA",), "by_header": True}, None),
        ("a,a\n", {"names": ("a",), "by_header": True}, "more than one column 'a': a, a"),
    ],
)
def test_a_header_or_a_row_that_does_not_fit_is_told(
    tmp_path: Path, text: str, form: Any, said: str | None
) -> None:
    (tmp_path / "a.csv").write_text(text)
    problems = [row["problem"] for row in read(tmp_path / "a.csv", format="csv", **form)]
    if said is None:
        assert problems == []
    else:
        assert problems[-1].startswith(f"file:{tmp_path}/a.csv: ")
        assert said in problems[-1]


XML = b"""<?xml version="1.0" encoding="UTF-8"?><!-- a --><t:all xmlns:t="u">
<row id="1"><a>x</a><b>1</b><b>2</b><row><a>inner</a></row></row><t:row><c><d>y</d></c></t:row>
</t:all>"""


def test_rows_of_xml_are_its_elements_or_their_attributes() -> None:
    names = ("a", "b", "c", "id")
    inside = cells(XML, format="xml", row_tag="row", names=names)
    assert inside == [["x", '["1", "2"]', None, None], [None, None, '{"d": "y"}', None]]
    attributes = cells(XML, format="xml", row_tag="row", names=("id",), attributes=True)
    assert attributes == [["1"], [None]]
    assert cells(b"<all/>", format="xml", row_tag="row") == []
    large = b"<all>" + b"<row><a>x</a></row>" * 10_000 + b"</all>"
    assert len(cells(large, format="xml", row_tag="row", names=("a",))) == 10_000


def test_xml_is_in_the_encoding_that_it_declares_or_that_was_said() -> None:
    told = '<?xml version="1.0" encoding="ISO-8859-1"?><r><n>ol\xe9</n></r>'.encode("latin-1")
    row: dict[str, Any] = {"format": "xml", "row_tag": "r", "names": ("n",)}
    assert cells(told, **row) == [["ol\xe9"]]
    other = told.replace(b"ISO-8859-1", b"GBK").replace(b"ol\xe9", "\u4e2d".encode("gbk"))
    assert cells(other, **row, encoding="gbk") == [["\u4e2d"]]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<a><b></a>", "it is no XML: mismatched tag: line 1"),
        (b"<a><b/></a>", "no element <row>"),
        (b'<?xml version="1.0" encoding="GBK"?><row/>', "name it by the option 'encoding'"),
    ],
)
def test_xml_that_is_none_is_told(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "a.xml").write_bytes(data)
    ((row),) = read(tmp_path / "a.xml", format="xml", row_tag="row")
    assert said in row["problem"]


def test_a_sheet_of_excel_is_read_below_its_header(tmp_path: Path) -> None:
    sheets = {"one": [["id", "w"], [7, "x"], [], [2.5, None, "more"]], "two": [[True]]}
    data = book(tmp_path / "a.xlsx", sheets).read_bytes()
    assert cells(data, format="excel", skip=1, names=("id", "w")) == [["7", "x"], ["2.5", None]]
    assert cells(data, format="excel", sheet="two") == [["true"]]
    for form, said in (({"sheet": "no"}, "no sheet 'no'; there are one, two"), ({}, None)):
        (tmp_path / "b.xlsx").write_bytes(data if said else b"none")
        (row,) = read(tmp_path / "b.xlsx", format="excel", **form)
        assert (said or "it is no excel file") in row["problem"]


def test_a_cell_of_excel_with_an_error_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    made: Any = importlib.import_module("xlsxwriter").Workbook(str(path))
    made.add_worksheet("one").write_row(0, 0, [1, "#N/A"])  # a text
    sheet = made.add_worksheet("two")
    sheet.write_row(0, 0, ["a", "b"])
    sheet.write_formula(2, 1, "=1/0", None, "#DIV/0!")
    made.close()
    assert cells(path.read_bytes(), format="excel", names=("a", "b")) == [["1", "#N/A"]]
    (row,) = read(path, format="excel", sheet="two", skip=1, names=("a", "b"))
    assert row["problem"] == f"file:{path}: sheet 'two': cell B3 holds an error; mend it"
    assert read(path, format="excel", sheet="two", skip=1, names=("a",)) == []
    assert read(path, format="excel", sheet="two", skip=3, names=("a", "b")) == []


def test_numbers_of_excel_are_whole_where_they_are() -> None:
    assert [cell_text(cell) for cell in (7.0, -0.5, 1e30, "", True)] == [
        "7",
        "-0.5",
        "1e+30",
        None,
        "true",
    ]


FILES = {"a.csv": b"1,x\n", "deep/b.csv": b"2,y\n", "__MACOSX/c.csv": b"9,no\n", ".d": b"9,no\n"}


@pytest.mark.parametrize(
    ("archive", "pack"),
    [("zip", zipped), ("tar", tarred), ("tar_gz", tarred_and_packed)],
)
def test_members_of_an_archive_are_read_and_named(
    tmp_path: Path, archive: str, pack: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    path = tmp_path / "k=v" / "in"
    path.parent.mkdir()
    path.write_bytes(pack(FILES))
    found = read(path, format="csv", archive=archive, base=f"file:{tmp_path}")
    assert [(row["file"], row["cells"], row["folders"]) for row in found] == [
        (f"file:{path}!a.csv", ["1", "x"], ["v"]),
        (f"file:{path}!deep/b.csv", ["2", "y"], ["v"]),
    ]


@pytest.mark.parametrize("archive", ["zip", "tar", "tar_gz", "gz"])
def test_what_is_no_such_archive_is_told_by_its_name(tmp_path: Path, archive: str) -> None:
    (tmp_path / "a").write_bytes(b"no archive at all")
    (row,) = read(tmp_path / "a", format="text", archive=archive)
    assert row["problem"].startswith(f"file:{tmp_path}/a: ")


def test_an_archive_that_was_cut_gives_no_rows_without_a_word(tmp_path: Path) -> None:
    whole = gzip.compress(b"line\n" * 10_000)
    (tmp_path / "a.gz").write_bytes(whole[: len(whole) // 2])
    *_, last = read(tmp_path / "a.gz", format="text", archive="gz")
    assert last["problem"].startswith(f"file:{tmp_path}/a.gz: ")


def test_a_file_is_handed_on_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.bin"
    path.parent.mkdir()
    path.write_bytes(bytes(range(10)))
    base = f"file:{tmp_path}"
    parts = read(path, format="binary", base=base, chunk_bytes=4)
    assert [row["data"] for row in parts] == [bytes(range(4)), bytes(range(4, 8)), bytes([8, 9])]
    assert {row["relativePath"] for row in parts} == {"deep/a.bin"}
    assert [row["partIndex"] for row in parts] == [0, 1, 2]
    (whole,) = read(path, format="binary", base=base)
    assert whole["data"] == path.read_bytes()
    path.write_bytes(b"")
    assert [row["data"] for row in read(path, format="binary", base=base, chunk_bytes=4)] == [b""]


def test_only_so_many_records_of_each_file_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"line\n" * 50)
    assert len(read(tmp_path / "a", format="text", records_max=3)) == 3


@pytest.mark.parametrize("archive", ["tar", "tar_gz"])
@pytest.mark.parametrize("spoil", ["header", "cut", "cut within"])
def test_a_tar_that_lost_its_rest_is_told(tmp_path: Path, archive: str, spoil: str) -> None:
    data = bytearray(tarred({"a.csv": b"1,x\n", "b.csv": b"2,y\n"}))
    if spoil == "header":
        data[1024 + 150] ^= 0xFF
    else:
        del data[1024 if spoil == "cut" else 1124 :]
    (tmp_path / "a").write_bytes(gzip.compress(data) if archive == "tar_gz" else data)
    *_, last = read(tmp_path / "a", format="csv", archive=archive)
    assert "the archive is damaged or cut at byte 1024" in last["problem"]


def test_a_file_is_unpacked_by_the_end_of_its_name(tmp_path: Path) -> None:
    for name, data in (
        ("a.csv.gz", gzip.compress(b"1,x\n")),
        ("a.csv.bz2", bz2.compress(b"1,x\n")),
    ):
        (tmp_path / name).write_bytes(data)
        (row,) = read(tmp_path / name, format="csv", names=("a", "b"))
        assert row["cells"] == ["1", "x"]
        (as_it_is,) = read(tmp_path / name, format="binary")
        assert as_it_is["data"] == data
    for name, said in (("b.lzo", "unpacked only where Spark"), ("b.bz2", "Invalid data stream")):
        (tmp_path / name).write_bytes(b"no archive at all")
        (row,) = read(tmp_path / name, format="text")
        assert row["problem"].startswith(f"file:{tmp_path}/{name}: ")
        assert said in row["problem"]
