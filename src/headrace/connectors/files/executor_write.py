"""Files that Python writes in executors, since Spark has no writer for them: excel and binary.

A task writes to names of its own below the folder of the execution, and answers which files it
wrote. Spark takes the answer of one attempt of each task, and only the files in it are listed: what
a failed attempt or a straggler leaves there is swept with the folder. The executor opens the files
itself, so the folder must be local to it.
"""

from __future__ import annotations

import functools
import importlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.files.places import PARTITION_COLUMN
from headrace.connectors.files.records import NO_VALUE
from headrace.errors import Refused
from headrace.spark.executors import check_executors, map_in_arrow
from headrace.spark.filesystem import is_hidden

DIGITS_EXACT = 15  # of a number in excel, which is floating; longer ones are texts
FIRST_DAY = date(1900, 1, 1)  # of excel; older dates are texts, and so are times of this day
CELL_CHARS_MAX = 32_767  # excel's own limit
BINARY_COLUMNS = ("data", "relativePath", "partIndex")
_ANSWER = "path string, rows bigint, bytes bigint, problem string"
_MODULES = ("headrace", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class BookForm:
    """How rows become excel files. It is sent to executors."""

    folder: str  # a path of the machine
    keys: tuple[str, ...]  # columns that are folders, and not in the files
    columns: tuple[str, ...]
    rows_max: int  # of a file; 0: no limit
    sheet: str
    sheet_rows_max: int  # with the header
    keep_empty: bool


@dataclass(frozen=True, slots=True)
class WrittenFile:
    path: str  # below the folder
    rows: int
    bytes: int


def write_books(
    session: SparkSession, frame: DataFrame, form: BookForm, *, needed_by: str
) -> list[WrittenFile]:
    """Write excel files. The columns of `frame` are the keys and the columns of `form`."""
    check_executors(session, (*_MODULES, "xlsxwriter"), needed_by=needed_by)
    if form.keys:
        # By the names of the folders: those of null and '' are one.
        texts = (f.col(f"`{key}`").cast("string") for key in form.keys)
        frame = frame.sortWithinPartitions(*(f.nullif(text, f.lit("")) for text in texts))
    written = _answers(map_in_arrow(frame, functools.partial(write_part_books, form), _ANSWER))
    if not written and form.keep_empty:
        return [_Book(form, ()).close()]
    return written


def write_copies(
    session: SparkSession, frame: DataFrame, folder: str, *, needed_by: str
) -> list[WrittenFile]:
    """Write files of the parts that a binary source gave, below `folder`, by their paths."""
    check_executors(session, _MODULES, needed_by=needed_by)
    _check_parts(frame)
    parts = frame.select(*BINARY_COLUMNS).repartition("relativePath")
    parts = parts.sortWithinPartitions("relativePath", "partIndex")
    return _answers(map_in_arrow(parts, functools.partial(write_part_copies, folder), _ANSWER))


def _check_parts(frame: DataFrame) -> None:
    kinds = {field.name: type(field.dataType) for field in frame.schema.fields}
    wanted = (spark.BinaryType, spark.StringType, spark.LongType)
    if any(kinds.get(name) is not kind for name, kind in zip(BINARY_COLUMNS, wanted, strict=True)):
        raise Refused(
            f"binary needs the columns {', '.join(BINARY_COLUMNS)} of a binary source, and gets "
            f"{', '.join(frame.columns)}; set another file_format_type"
        )


def _answers(frame: DataFrame) -> list[WrittenFile]:
    rows = frame.collect()
    for row in rows:
        if row["problem"] is not None:
            raise Refused(row["problem"])
    return [WrittenFile(row["path"], row["rows"], row["bytes"]) for row in rows]


def _answer_batch(files: Iterable[WrittenFile], problem: str | None) -> Any:
    arrow: Any = importlib.import_module("pyarrow")
    kinds = (arrow.string(), arrow.int64(), arrow.int64(), arrow.string())
    schema = arrow.schema(list(zip(("path", "rows", "bytes", "problem"), kinds, strict=True)))
    rows: list[Mapping[str, Any]] = [
        {"path": one.path, "rows": one.rows, "bytes": one.bytes} for one in files
    ]
    if problem is not None:
        rows = [{"problem": problem}]
    return arrow.RecordBatch.from_pylist(rows, schema=schema)


def write_part_copies(folder: str, batches: Iterable[Any]) -> Iterator[Any]:
    """Write the files of one partition. Runs in an executor."""
    attempt = uuid.uuid4().hex
    written: list[WrittenFile] = []
    name, index, rows = "", 0, 0
    file: Any = None
    problem: str | None = None
    for row in _rows(batches):
        if file is None or row["relativePath"] != name:
            if file is not None:
                written.append(_closed(file, folder, rows))
            name, index, rows = row["relativePath"], 0, 0
            opened = _opened(Path(folder) / attempt, name)
            if isinstance(opened, str):
                problem = opened
                break
            file = opened
        if row["partIndex"] != index:
            problem = f"{name}: part {index} of the file is missing; parts must not be filtered"
            break
        file.write(row["data"] or b"")
        index, rows = index + 1, rows + 1
    if file is not None and not file.closed:
        written.append(_closed(file, folder, rows))
    yield _answer_batch(written, problem)


def _path_problem(name: str | None) -> str | None:
    if name is None:
        return "relativePath is null; each part needs the path of its file"
    parts = name.split("/")
    if "\0" in name or any(part in {"", ".", ".."} for part in parts):
        return f"{name!r} is no path below the target folder"
    if hidden := next((part for part in parts if is_hidden(part)), None):
        # Also the folder of the manifests is hidden: rows must not be able to forge one.
        return (
            f"relativePath {name!r} is hidden from readers by {hidden!r}; the names of files and "
            "folders must not begin with _ or ."
        )
    return None


def _opened(folder: Path, name: str | None) -> BinaryIO | str:
    """The new file, or what is wrong with its path."""
    problem = _path_problem(name)
    if name is None or problem is not None:
        return str(problem)
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")
    except (FileExistsError, NotADirectoryError):
        return f"{name!r} and another relativePath of the same rows can't both be files"


def _closed(file: Any, folder: str, rows: int) -> WrittenFile:
    path = Path(file.name)
    file.close()
    return WrittenFile(path.relative_to(folder).as_posix(), rows, path.stat().st_size)


def write_part_books(form: BookForm, batches: Iterable[Any]) -> Iterator[Any]:
    """Write the excel files of one partition. Runs in an executor."""
    written: list[WrittenFile] = []
    problem: str | None = None
    try:
        written += _books(form, batches)
    except ValueError as error:
        problem = str(error)
    yield _answer_batch(written, problem)


def _books(form: BookForm, batches: Iterable[Any]) -> Iterator[WrittenFile]:
    book: _Book | None = None
    for row in _rows(batches):
        folders = tuple(_folder_name(row[key]) for key in form.keys)
        if book is None or book.folders != folders or book.rows == form.rows_max > 0:
            if book is not None:
                yield book.close()
            book = _Book(form, folders)
        book.add([row[name] for name in form.columns])
    if book is not None:
        yield book.close()


class _Book:
    """One excel file that is being written, row by row."""

    def __init__(self, form: BookForm, folders: tuple[str, ...]) -> None:
        writer: Any = importlib.import_module("xlsxwriter")
        self.folders, self.rows, self._form = folders, 0, form
        parts = [f"{PARTITION_COLUMN}{at}={name}" for at, name in enumerate(folders)]
        self._name = "/".join((*parts, f"part-{uuid.uuid4().hex}.xlsx"))
        path = Path(form.folder) / self._name
        path.parent.mkdir(parents=True, exist_ok=True)
        options = {"constant_memory": True, "strings_to_urls": False, "strings_to_formulas": False}
        self._book = writer.Workbook(str(path), {**options, "in_memory": False})
        self._day = self._book.add_format({"num_format": "yyyy-mm-dd"})
        self._moment = self._book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
        self._sheets = 0
        self._begin_sheet()

    def _begin_sheet(self) -> None:
        number = f"{self._sheets}" if self._sheets else ""
        self._sheet = self._book.add_worksheet(self._form.sheet[: 31 - len(number)] + number)
        self._sheets += 1
        for at, name in enumerate(self._form.columns):
            self._sheet.write_string(0, at, name)
        self._line = 1

    def add(self, values: Sequence[Any]) -> None:
        if self._line == self._form.sheet_rows_max:
            self._begin_sheet()
        for at, value in enumerate(values):
            self._write(at, value)
        self._line += 1
        self.rows += 1

    def _write(self, at: int, value: Any) -> None:
        sheet, line = self._sheet, self._line
        match value:
            case None:
                return
            case bool():
                sheet.write_boolean(line, at, value)
            case int() | float() | Decimal() if is_exact(value):
                sheet.write_number(line, at, value)
            case datetime() if value.date() > FIRST_DAY and not value.microsecond:
                sheet.write_datetime(line, at, value, self._moment)
            case date() if not isinstance(value, datetime) and value >= FIRST_DAY:
                sheet.write_datetime(line, at, value, self._day)
            case _:
                sheet.write_string(line, at, self._text(at, value))

    def _text(self, at: int, value: Any) -> str:
        text = value.isoformat(" ") if isinstance(value, datetime) else str(value)
        if len(text) > CELL_CHARS_MAX:
            raise ValueError(
                f"column {self._form.columns[at]!r}: a text of {len(text)} letters; a cell of "
                f"excel holds {CELL_CHARS_MAX}; write csv or parquet instead"
            )
        return text

    def close(self) -> WrittenFile:
        self._book.close()
        size = (Path(self._form.folder) / self._name).stat().st_size
        return WrittenFile(self._name, self.rows, size)


def is_exact(value: float | Decimal) -> bool:
    """Whether excel, whose numbers are floating, gives the value back as it was."""
    if isinstance(value, float):
        return isfinite(value) and float(f"{value:.16G}") == value  # as xlsxwriter writes it
    digits = Decimal(value).as_tuple()
    return len(digits.digits) <= DIGITS_EXACT


def _folder_name(value: Any) -> str:
    if value is None or value == "":
        return NO_VALUE
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return quote(text, safe=" -_.")


def _rows(batches: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()
