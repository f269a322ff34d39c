"""Records of files that Spark has no reader of its own for, read by Python in executors.

These are members of archives, excel and xml files, csv below some lines to skip, and files that are
handed on as they are (binary). Only `read_records` knows Arrow; the rest turns an open file into
records, each a list of texts, and needs neither Spark nor a schema. Nothing is read as a whole but
the central directory of a zip archive, and excel files, which can't be read otherwise.

A file that can't be read gives one last record that says why, with its name and place. The frame
made of it fails by that text, as it does by a value that is none of its type.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib
import io
import itertools
import json
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import IO, Any, BinaryIO, TextIO, cast
from urllib.parse import unquote
from xml.etree import ElementTree

from headrace.connectors.files.error_cells import error_cell

RECORDS_PER_BATCH_MAX = 1_000
BATCH_BYTES_MAX = 8_000_000  # of binary chunks in one batch
CELL_CHARS_MAX = 100_000_000  # of csv: a cell that is longer has lost its closing quote
READ_CHARS = 65_536  # of xml, and of text with line ends of its own, at a time
LAST_EXACT_INTEGER = 1 << 63  # above it a number of excel is written as it is: 1e+30
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # the folder of rows without a value
_UTF8 = frozenset({"utf-8", "utf8"})
# Ends of names by which Spark unpacks files, and Python can't.
_PACKED = (".lzo", ".lzo_deflate", ".lz4", ".snappy", ".zst", ".deflate")
_SPOILED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    EOFError,
    zlib.error,
    csv.Error,
    UnicodeError,
    NotImplementedError,  # a zip whose method Python does not know
    RuntimeError,  # a zip that is encrypted
)


class UnreadableFileError(Exception):
    """Why a file can't be read: its text follows the name of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordForm:
    """How a file becomes records. It is sent to executors."""

    format: str
    archive: str = "none"
    base: str | None = None  # `k=v` folders below it are values; None: they are not
    encoding: str = "UTF-8"
    skip: int = 0  # lines at the top, of excel rows
    names: tuple[str, ...] = ()  # the columns to give; empty: all that are there
    by_header: bool = False  # csv: the first line that is not skipped says which cell is which
    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None
    line_end: str | None = None  # None: any of the usual ones
    sheet: str | None = None  # None: the first
    row_tag: str = ""
    attributes: bool = False  # of xml: values are attributes of the row's element
    chunk_bytes: int | None = None  # of binary; None: the whole file is one
    records_max: int | None = None  # of each file, or member of an archive; None: all


@dataclass(frozen=True, slots=True)
class Record:
    line: int  # of the file, or the record's number where it has no lines
    cells: Sequence[str | None]


def read_records(paths: Sequence[str], form: RecordForm, batches: Iterable[Any]) -> Iterator[Any]:
    """Records of the files that the batches name, as Arrow batches. Runs in executors.

    A batch holds numbers of local `paths`, or the names and contents of files from elsewhere.
    """
    for batch in batches:
        names = batch.schema.names
        for row in batch.to_pylist():
            if "content" in names:
                yield from _file_batches(row["path"], io.BytesIO(row["content"]), form)
            else:
                path = paths[int(row["id"])]
                with open(path.removeprefix("file:"), "rb") as file:
                    yield from _file_batches(path, file, form)


def _file_batches(path: str, file: BinaryIO, form: RecordForm) -> Iterator[Any]:
    make = _binary_batches if form.format == "binary" else _text_batches
    yield from make(path, file, form)


def _text_batches(path: str, file: BinaryIO, form: RecordForm) -> Iterator[Any]:
    folders = folder_values(path, form.base)
    rows = (
        {"file": name, "line": record.line, "cells": record.cells, "folders": folders}
        if isinstance(record, Record)
        else {"problem": record}
        for name, record in _records_or_problem(path, file, form)
    )
    schema = _arrow_schema(("file", "line", "cells", "folders", "problem"))
    arrow: Any = importlib.import_module("pyarrow")
    while some := list(itertools.islice(rows, RECORDS_PER_BATCH_MAX)):
        yield arrow.RecordBatch.from_pylist(some, schema=schema)


def _binary_batches(path: str, file: BinaryIO, form: RecordForm) -> Iterator[Any]:
    schema = _arrow_schema(("data", "relativePath", "partIndex", "problem"))
    arrow: Any = importlib.import_module("pyarrow")
    base = (form.base or "").rstrip("/") + "/"
    rows: list[Mapping[str, Any]] = []
    size = 0
    try:
        for name, member in _members(path, file, form.archive):
            relative = name.removeprefix(base) if name.startswith(base) else name.rpartition("/")[2]
            for index, chunk in enumerate(_chunks(member, form.chunk_bytes)):
                rows.append({"data": chunk, "relativePath": relative, "partIndex": index})
                size += len(chunk)
                if size > BATCH_BYTES_MAX:
                    yield arrow.RecordBatch.from_pylist(rows, schema=schema)
                    rows, size = [], 0
    except (UnreadableFileError, *_SPOILED) as error:
        rows.append({"problem": f"{path}: {_reason(error)}"})
    yield arrow.RecordBatch.from_pylist(rows, schema=schema)


def _chunks(member: IO[bytes], chunk_bytes: int | None) -> Iterator[bytes]:
    """The parts of a file. An empty file is one empty part, or it would vanish."""
    first = member.read(-1 if chunk_bytes is None else chunk_bytes)
    yield first
    while chunk_bytes is not None and first:
        first = member.read(chunk_bytes)
        if first:
            yield first


def _arrow_schema(names: Sequence[str]) -> Any:
    arrow: Any = importlib.import_module("pyarrow")
    texts = arrow.list_(arrow.string())
    kinds = {
        "line": arrow.int64(),
        "partIndex": arrow.int64(),
        "cells": texts,
        "folders": texts,
        "data": arrow.binary(),
    }
    return arrow.schema([(name, kinds.get(name, arrow.string())) for name in names])


def _records_or_problem(
    path: str, file: BinaryIO, form: RecordForm
) -> Iterator[tuple[str, Record | str]]:
    name = path
    try:
        for name, member in _members(path, file, form.archive, unpacks=True):
            for record in itertools.islice(records(member, form), form.records_max):
                yield name, record
    except (UnreadableFileError, *_SPOILED) as error:
        yield name, f"{name}: {_reason(error)}"
    except OSError as error:
        if error.errno is not None:  # the disk's; that of bz2 has no number
            raise
        yield name, f"{name}: {_reason(error)}"


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _members(
    path: str, file: BinaryIO, archive: str, *, unpacks: bool = False
) -> Iterator[tuple[str, IO[bytes]]]:
    """The files in an archive with their names, `a.zip!b.csv`; without one, the file itself.

    `unpacks`: a file is unpacked by the end of its name, as Spark's readers do.
    """
    match archive:
        case "none":
            yield path, _unpacked(path, file) if unpacks else file
        case "gz":
            with gzip.open(file) as member:
                yield path, cast("IO[bytes]", member)
        case "zip":
            yield from _zip_members(path, file)
        case _:
            yield from _tar_members(path, file, "r:gz" if archive == "tar_gz" else "r:")


def _unpacked(path: str, file: BinaryIO) -> IO[bytes]:
    if path.endswith(".gz"):
        return cast("IO[bytes]", gzip.open(file))
    if path.endswith(".bz2"):
        return cast("IO[bytes]", bz2.open(file))
    if path.endswith(_PACKED):
        raise UnreadableFileError(
            "files of this ending are unpacked only where Spark reads text, csv or json with a "
            "'schema'; unpack it, or pack it as .gz"
        )
    return file


def _zip_members(path: str, file: BinaryIO) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(file) as opened:
        for info in opened.infolist():
            if not info.is_dir() and _is_visible(info.filename):
                with opened.open(info) as member:
                    yield f"{path}!{info.filename}", member


def _tar_members(path: str, file: BinaryIO, mode: Any) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(fileobj=file, mode=mode) as opened:
        for info in opened:
            member = opened.extractfile(info) if info.isfile() else None
            if member is not None and _is_visible(info.name):
                yield f"{path}!{info.name}", member
        # Python takes a damaged header, and a lost rest, for the end.
        source = cast("IO[bytes]", opened.fileobj)
        source.seek(opened.offset)
        if source.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise UnreadableFileError(
                f"the archive is damaged or cut at byte {opened.offset}: there is neither a file "
                "nor its end; make it again"
            )


def _is_visible(name: str) -> bool:
    """As in folders, names that begin with a dot or an underscore are passed over."""
    return not any(part.startswith((".", "_")) for part in name.removeprefix("./").split("/"))


def folder_values(path: str, base: str | None) -> list[str | None]:
    """The values of the `k=v` folders below `base`, in their order."""
    return [value for _, value in folder_pairs(path, base)]


def folder_pairs(path: str, base: str | None) -> Iterator[tuple[str, str | None]]:
    if base is None:
        return
    for part in path.removeprefix(base).split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals:
            yield unquote(key), None if value == NO_VALUE else unquote(value)


def records(member: IO[bytes], form: RecordForm) -> Iterator[Record]:
    """The records of one file. Raises `UnreadableFileError`, or what Python's readers raise."""
    match form.format:
        case "excel":
            yield from _excel(member, form)
        case "xml" if form.encoding.lower() in _UTF8:  # or what the file says of itself
            yield from _xml(member, form)
        case "xml":
            with _text(member, form) as text:
                yield from _xml(text, form)
        case "csv":
            with _text(member, form) as text:
                yield from _csv(text, form)
        case _:
            with _text(member, form) as text:
                yield from _lines(text, form)


@contextmanager
def _text(member: IO[bytes], form: RecordForm) -> Generator[TextIO]:
    """Bytes that are no text become U+FFFD, as where Spark reads csv."""
    encoding = "utf-8-sig" if form.encoding.lower() in _UTF8 else form.encoding
    text = io.TextIOWrapper(cast("BinaryIO", member), encoding, errors="replace", newline="")
    try:
        yield text
    finally:
        text.detach()  # whoever opened the file closes it


def _lines(text: TextIO, form: RecordForm) -> Iterator[Record]:
    found = _parted(text, form.line_end) if form.line_end else (one.rstrip("\r\n") for one in text)
    for number, line in enumerate(found, start=1):
        if number > form.skip and (line.strip() or form.format == "text"):
            yield Record(number, (line,))


def _parted(text: TextIO, line_end: str) -> Iterator[str]:
    rest = ""
    while block := text.read(READ_CHARS):
        *whole, rest = (rest + block).split(line_end)
        yield from whole
    if rest:
        yield rest


def _csv(text: TextIO, form: RecordForm) -> Iterator[Record]:
    csv.field_size_limit(CELL_CHARS_MAX)
    skipped = ""
    for _ in range(form.skip):
        skipped = text.readline()
    if form.skip and form.names and not form.by_header:
        _check_skipped(skipped, form)
    reader = _csv_reader(text, form)
    filled = (cells for cells in _told_rows(reader, form.skip) if cells)  # empty lines are none
    header = next(filled, list[str]()) if form.by_header else None
    places = None if header is None else _places_in(header, form.names)
    width, of = (len(form.names), "schema") if header is None else (len(header), "the header")
    for cells in filled:
        line = reader.line_num + form.skip
        if width and len(cells) != width:
            raise UnreadableFileError(
                f"line {line} has {len(cells)} values; {of} has {width} columns"
            )
        yield Record(line, cells if places is None else [cells[at] for at in places])


def _csv_reader(lines: Iterable[str], form: RecordForm) -> Any:
    quoting: dict[str, Any] = {"quotechar": form.quote} if form.quote else {}
    return csv.reader(
        lines,
        delimiter="\t" if form.delimiter == "\\t" else form.delimiter,
        escapechar=form.escape,
        quoting=csv.QUOTE_MINIMAL if form.quote else csv.QUOTE_NONE,
        strict=True,  # or a quote that is never closed makes one value of the rest
        **quoting,
    )


def _told_rows(reader: Any, skipped: int) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise UnreadableFileError(f"line {reader.line_num + skipped}: {error}") from error


def _check_skipped(line: str, form: RecordForm) -> None:
    """Refuse a header above the rows that has the columns in another order than the schema."""
    try:
        cells = [cell.strip() for cell in next(_csv_reader([line], form), list[str]())]
    except csv.Error:
        return  # no header: whatever stands there was to be skipped
    if is_mismatched(cells, form.names):
        raise UnreadableFileError(
            f"line {form.skip} has {', '.join(cells)}; schema has {', '.join(form.names)}; the "
            "columns of csv are read by their place, so give 'schema' the names and the order of "
            "the file, or set csv_use_header_line = true instead of 'skip_header_row_number'"
        )


def is_mismatched(header_names: Sequence[str], schema_names: Sequence[str]) -> bool:
    """Whether a line is a header, and has its names in another order than the schema."""
    cells = [cell.lower() for cell in header_names]
    names = [name.strip().lower() for name in schema_names]
    is_header = len(set(cells) & set(names)) * 2 >= len(names)
    return is_header and cells[: len(names)] != names


def _places_in(header: Sequence[str], names: Sequence[str]) -> Sequence[int]:
    found = header_places(header, names) if header else ()  # an empty file has no header
    if isinstance(found, str):
        raise UnreadableFileError(found)
    return found


def header_places(header: Sequence[str], names: Sequence[str]) -> Sequence[int] | str:
    """The place of each name in a header, or what is wrong with it. Case decides only where a name
    stands there in several."""
    cells = [cell.strip() for cell in header]
    places: list[int] = []
    for name in names:
        exact = [at for at, cell in enumerate(cells) if cell == name.strip()]
        like = [at for at, cell in enumerate(cells) if cell.lower() == name.strip().lower()]
        found = exact or like
        if len(found) != 1:
            what = "has no column" if not found else "has more than one column"
            return f"its header {what} {name!r}: {', '.join(cells)}"
        places.append(found[0])
    return places


def _excel(member: IO[bytes], form: RecordForm) -> Iterator[Record]:
    calamine: Any = importlib.import_module("python_calamine")
    data = io.BytesIO(member.read())
    try:
        book = calamine.CalamineWorkbook.from_filelike(data)
        if form.sheet is not None and form.sheet not in book.sheet_names:
            known = ", ".join(book.sheet_names)
            raise UnreadableFileError(f"it has no sheet {form.sheet!r}; there are {known}")
        sheet = (
            book.get_sheet_by_index(0) if form.sheet is None else book.get_sheet_by_name(form.sheet)
        )
        rows = sheet.to_python(skip_empty_area=False)
    except calamine.CalamineError as error:
        raise UnreadableFileError(f"it is no excel file: {error}") from error
    width = len(form.names)
    wrong = error_cell(data, sheet.name, skip=form.skip, width=width)
    if wrong is not None:
        raise UnreadableFileError(f"sheet {sheet.name!r}: cell {wrong} holds an error; mend it")
    for number, row in enumerate(rows[form.skip :], start=form.skip + 1):
        cells = [cell_text(cell) for cell in row]
        if any(cell is not None for cell in cells):
            yield Record(number, (cells + [None] * width)[:width] if width else cells)


def cell_text(cell: Any) -> str | None:
    """A cell of excel as text. Its numbers are all floating: a whole one has no `.0` here."""
    match cell:
        case "" | None:
            return None
        case bool():
            return str(cell).lower()
        case float() if cell.is_integer() and abs(cell) < LAST_EXACT_INTEGER:
            return str(int(cell))
        case datetime():
            return cell.isoformat(" ")
        case date() | time():
            return cell.isoformat()
        case _:
            return str(cell)


def _xml(source: IO[Any], form: RecordForm) -> Iterator[Record]:
    """Elements of the row's tag, the outermost ones. Each is let go of once it was read."""
    parser: Any = ElementTree.XMLPullParser(("start", "end"))  # pyright: ignore[reportUnknownVariableType]
    open_elements: list[ElementTree.Element] = []
    number, is_other = 0, False
    inside = 0  # how many elements of the row's tag are open
    while block := source.read(READ_CHARS):
        for event, element in _events(parser, block):
            is_row = _tag(element) == form.row_tag
            if event == "start":
                open_elements.append(element)
                inside += is_row
                is_other = is_other or (len(open_elements) > 1 and not inside)
                continue
            open_elements.pop()
            inside -= is_row
            if is_row and inside == 0:
                number += 1
                yield Record(number, _xml_cells(element, form))
            if inside == 0 and open_elements:
                open_elements[-1].remove(element)
    for _ in _events(parser, None):
        pass  # raises where the text ends too early
    if is_other and number == 0:
        raise UnreadableFileError(f"it has no element <{form.row_tag}>; mend 'xml_row_tag'")


def _events(parser: Any, block: str | bytes | None) -> Iterator[tuple[str, ElementTree.Element]]:
    """What begins and ends within a block of the text; None: the text has ended."""
    try:
        if block is None:
            parser.close()
        else:
            parser.feed(block)
        yield from parser.read_events()
    except ElementTree.ParseError as error:
        raise UnreadableFileError(f"it is no XML: {error}") from error
    except (ValueError, LookupError) as error:  # an encoding that the parser does not know
        raise UnreadableFileError(f"{error}; name it by the option 'encoding'") from error


def _xml_cells(element: ElementTree.Element, form: RecordForm) -> list[str | None]:
    """The values of the names; without names one text, which is all that is there as JSON."""
    found = dict(element.attrib) if form.attributes else _children(element)
    if not form.names:
        return [json.dumps(found)]
    return [_xml_text(found.get(name)) for name in form.names]


def _children(element: ElementTree.Element) -> dict[str, Any]:
    """What its elements hold, by their tags; a tag that comes again makes a list."""
    found: dict[str, list[Any]] = {}
    for child in element:
        found.setdefault(_tag(child), []).append(_children(child) if len(child) else child.text)
    return {tag: held[0] if len(held) == 1 else held for tag, held in found.items()}


def _xml_text(value: Any) -> str | None:
    """As text; what is nested is JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
