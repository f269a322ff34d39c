"""Check that the header of each csv file fits the schema, whose order decides how columns are read.

Executors read line 1 of every file of a slice and nothing more of it, many files in a task: a
folder may hold more files than a driver should open. A line counts as a header when at least half
of the schema's names are in it, whatever their case; other lines are passed over. A header may go
on behind the last column of the schema. A file is refused only for what is certain. One whose
header can't be told from what follows, because a quoted cell goes on for pages, is passed over,
too.

Spark's readers give whole files, and split them by size only. A split of no bytes at a file's
beginning holds its first line, so such splits are made here: of a gigabyte no more is read than is
needed. Lines are cut as the encoding demands: in UTF-16 the byte 0A is also a part of other
characters.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from headrace.connectors.files.records import is_mismatched
from headrace.spark.jvm_bridge import gateway, jvm

FILES_PER_TASK_MAX = 100
LINE_BYTES_MAX = 1_000_000  # longer than any real header
UTF8 = frozenset({"utf-8", "utf8"})
_LINE_MAX_SETTING = "mapreduce.input.linerecordreader.line.maxlength"
_REPLACES_SETTING = "spark.sql.legacy.codingErrorAction"
_BYTE_ORDER_MARK = "\ufeff"
# A splittable codec reports its place by blocks, and so gives all lines of the first block.
_SPLITTABLE = ".bz2"
_ROW_MASK = (1 << 33) - 1  # these bits of monotonically_increasing_id number a partition's rows
BEYOND_CHARS_MAX = 4_000  # kept of a header line, beyond twice the length of the schema's names
LEADING_BYTES_MAX = 4096  # read of a file whose header is not all on line 1
LEADING_LINES_MAX = 100  # of these lines are kept at most


@dataclass(frozen=True, slots=True)
class LineCoding:
    """How bytes become lines of text."""

    charset: str | None = None  # None: UTF-8, the encoding of Spark's own strings
    end: str | None = None  # the bytes that end a line; None: 0A, 0D or both
    unit_bytes: int = 1  # a line whose length is no multiple of it was cut within a character
    # Applies to files that begin with these bytes (True) or do not (False); None: to every file.
    begins: tuple[bytes, bool] | None = None


_UTF_16LE = LineCoding("UTF-16LE", "\n\0", 2)
_UTF_16BE = LineCoding("UTF-16BE", "\0\n", 2)
_UTF_32LE = LineCoding("UTF-32LE", "\n\0\0\0", 4)
_UTF_32BE = LineCoding("UTF-32BE", "\0\0\0\n", 4)


def _by_mark(mark: bytes, little: LineCoding, big: LineCoding) -> Sequence[LineCoding]:
    """As Java decides: by the byte order mark of a file, and big-endian where it has none."""
    return replace(little, begins=(mark, True)), replace(big, begins=(mark, False))


_WIDE: Mapping[str, Sequence[LineCoding]] = {
    "UTF-16LE": (_UTF_16LE,),
    "UTF-16BE": (_UTF_16BE,),
    "UTF-16": _by_mark(b"\xff\xfe", _UTF_16LE, _UTF_16BE),
    "UTF-32LE": (_UTF_32LE,),
    "UTF-32BE": (_UTF_32BE,),
    "UTF-32": _by_mark(b"\xff\xfe\0\0", _UTF_32LE, _UTF_32BE),
}


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file, as it is written there."""

    file: str
    line: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeaderFormat:
    """The names that a header should have, and how it is written."""

    names: Sequence[str]
    delimiter: str  # as in Spark's option, where a backslash and a `t` mean a tab
    encoding: str
    hadoop: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def line_chars_max(self) -> int:
        """How many characters of a line are looked at."""
        names = sum(len(name) + len(self.delimiter) + 2 for name in self.names)
        return BEYOND_CHARS_MAX + 2 * names


def mismatched_headers(
    session: SparkSession, paths: Sequence[str], how: HeaderFormat
) -> list[Header]:
    """The headers that have the names in another order, or lack some; sorted by file."""
    to_delimiter = jvm(session).org.apache.spark.sql.catalyst.csv.CSVExprUtils.toDelimiterStr
    how = replace(how, delimiter=str(to_delimiter(how.delimiter)))
    mismatched = [
        header
        for coding in line_codings(session, how.encoding)
        for header in _headers(session, paths, how, coding)
        if is_mismatched(header.names, how.names)
    ]
    return sorted(mismatched, key=lambda header: header.file)


def read_headers(
    session: SparkSession, paths: Sequence[str], how: HeaderFormat
) -> dict[str, tuple[str, ...]]:
    """The header of each file in which any of the names occurs, by the file's path."""
    to_delimiter = jvm(session).org.apache.spark.sql.catalyst.csv.CSVExprUtils.toDelimiterStr
    how = replace(how, delimiter=str(to_delimiter(how.delimiter)))
    codings = line_codings(session, how.encoding)
    found = {
        _comparable(header.file): header.names
        for coding in codings
        for header in _headers(session, paths, how, coding)
    }
    return {path: found[_comparable(path)] for path in paths if _comparable(path) in found}


def _comparable(path: str) -> str:
    """`file:///a` and `file:/a` are one file: Spark writes the first."""
    return re.sub(r"^file:/+", "file:/", path)


def _headers(
    session: SparkSession, paths: Sequence[str], how: HeaderFormat, coding: LineCoding
) -> Iterator[Header]:
    lines = _shortened(first_lines(session, paths, how.hadoop, coding), how)
    incomplete: list[str] = []
    for row in _candidate_lines(lines, how).collect():
        if header := _header([row], how):
            yield header
        else:
            incomplete.append(unquote(row["file"]))
    if incomplete:
        yield from _headers_after_line_1(session, incomplete, how, coding)


def _headers_after_line_1(
    session: SparkSession, paths: Sequence[str], how: HeaderFormat, coding: LineCoding
) -> Iterator[Header]:
    """Headers that line 1 does not hold in full, because of empty lines or quoted line ends.

    They are read as Spark reads them: empty lines are skipped, and a quoted cell may hold a line
    end.
    """
    lines = first_lines(session, paths, how.hadoop, coding, bytes_each=LEADING_BYTES_MAX)
    lines = _shortened(lines.where(f.col("number") < LEADING_LINES_MAX), how)
    by_file: dict[str, list[Row]] = {}
    for row in sorted(lines.collect(), key=lambda row: row["number"]):
        by_file.setdefault(row["file"], []).append(row)
    for rows in by_file.values():
        if header := _header(rows, how):
            yield header


def _candidate_lines(lines: DataFrame, how: HeaderFormat) -> DataFrame:
    """Lines that may be a header of the schema or its beginning; only these reach the driver.

    One expression for each column would be more exact, but planning it would take longer than
    reading the rows.
    """
    text = f.col("text")
    some_name = "|".join(re.escape(name.strip()) for name in how.names)
    has_name, is_empty = text.rlike(f"(?iu){some_name}"), text.rlike(r"\A\r*\z")
    quotes = f.length(text) - f.length(f.translate(text, '"', ""))
    return lines.where(has_name | is_empty | (quotes % 2 == 1))


def _shortened(lines: DataFrame, how: HeaderFormat) -> DataFrame:
    text = f.substring("text", 1, how.line_chars_max).alias("text")
    return lines.select("file", "number", text)


def _header(rows: Sequence[Row], how: HeaderFormat) -> Header | None:
    """The header in the first lines of a file; None when they hold too little of it."""
    texts: list[str] = []
    is_shortened = False
    for row in rows:
        if row["text"] is None or is_shortened:
            break
        texts.append(row["text"])
        is_shortened = len(row["text"]) == how.line_chars_max
    text = "\n".join(texts)
    record = text.lstrip("\r\n")
    cells, is_whole = _cells(record, how.delimiter, is_shortened=is_shortened)
    if not is_whole and len(cells) < len(how.names):
        return None
    line = len(text[: len(text) - len(record)].splitlines()) + 1
    return Header(unquote(rows[0]["file"]), line, tuple(cells))


def _cells(text: str, delimiter: str, *, is_shortened: bool) -> tuple[list[str], bool]:
    """The cells of the first record, as Spark reads it, and whether these are all of them.

    A cell that goes on behind the end of the text is left out: one whose quotes are not closed, and
    the last one of a text that was shortened.
    """
    if not text:
        return [], False
    between = re.escape(delimiter)
    spaces = "" if delimiter.startswith(" ") else " *"
    cell = re.compile(
        rf'(?:{spaces}"(?P<quoted>(?:[^"]|"")*+)")?'
        rf"(?P<plain>(?:(?!{between})[^\r\n])*+)(?P<end>{between}|[\r\n]|\Z)"
    )
    cells: list[str] = []
    place = 0
    while match := cell.match(text, place):
        quoted, plain, end = match["quoted"], match["plain"], match["end"]
        if quoted is None and plain.lstrip(" ").startswith('"'):
            break
        if is_shortened and not end:
            break
        cells.append(((quoted or "") + plain).strip().strip('"').strip())
        if end != delimiter:
            return cells, True
        place = match.end()
    return cells, False


def line_codings(session: SparkSession, encoding: str) -> Sequence[LineCoding]:
    """One coding for each kind of file that the encoding allows.

    Empty when line ends can't be recognised by their bytes, as in EBCDIC.
    """
    if encoding.lower() in UTF8:
        return (LineCoding(),)
    java = jvm(session).java.nio
    charset = java.charset.Charset.forName(encoding)
    if wide := _WIDE.get(str(charset.name())):
        return wide
    ends = b"\r\n"
    is_recognised = str(charset.decode(java.ByteBuffer.wrap(ends)).toString()) == ends.decode()
    return (LineCoding(encoding),) if is_recognised else ()


def first_lines(
    session: SparkSession,
    paths: Sequence[str],
    hadoop: Mapping[str, str],
    coding: LineCoding,
    *,
    bytes_each: int = 0,
) -> DataFrame:
    """The first line of each file, as the columns `file` (a URI), `number` and `text`.

    `number` is that of the line in its file, where the file is alone in its task. With `bytes_each`
    every line is given that begins within so many bytes, and each file is alone. A byte order mark
    is no part of a line. Bytes that the encoding does not know become U+FFFD, as when Spark reads
    csv; the text of a line that was cut within a character is null.
    """
    lines = _lines(session, paths, hadoop, coding, bytes_each)
    data, text = f.col("value").cast("binary"), f.col("value")
    if coding.begins is not None and bytes_each == 0:
        mark, wanted = coding.begins
        has_mark = f.substring(data, 1, len(mark)) == f.lit(bytearray(mark))
        lines = lines.where(has_mark == f.lit(wanted))
    if coding.charset is not None:
        is_whole = f.length(data) % coding.unit_bytes == 0
        text = f.when(is_whole, f.decode(data, coding.charset))
    text = f.regexp_replace(text, f"^{_BYTE_ORDER_MARK}", "").alias("text")
    with _replacing(session):
        lines = lines.select("file", "number", text)
    if bytes_each == 0:
        lines = lines.where(~f.col("file").endswith(_SPLITTABLE) | (f.col("number") == 0))
    return lines


@contextmanager
def _replacing(session: SparkSession) -> Generator[None]:
    """Plan `decode` so that it replaces invalid bytes instead of failing."""
    before = session.conf.get(_REPLACES_SETTING)
    session.conf.set(_REPLACES_SETTING, "true")
    try:
        yield
    finally:
        session.conf.set(_REPLACES_SETTING, before or "false")


def _lines(
    session: SparkSession,
    paths: Sequence[str],
    hadoop: Mapping[str, str],
    coding: LineCoding,
    bytes_each: int,
) -> DataFrame:
    """The lines as the columns `value` (with the bytes of the file), `file` and `number`."""
    java = jvm(session)
    java_session: Any = session._jsparkSession  # noqa: SLF001  # pyright: ignore
    to_scala = java.org.apache.spark.api.python.PythonUtils
    none, nothing = to_scala.toSeq([]), to_scala.toScalaMap({})
    line = java.org.apache.spark.sql.types.StructType.fromDDL("value string")
    no_columns = java.org.apache.spark.sql.types.StructType()
    conf = java_session.sessionState().newHadoopConfWithOptions(to_scala.toScalaMap(dict(hadoop)))
    conf.set(_LINE_MAX_SETTING, str(LINE_BYTES_MAX))
    options = {} if coding.end is None else {"lineSep": coding.end}
    sources = java.org.apache.spark.sql.execution.datasources
    reader = sources.text.TextFileFormat().buildReaderWithPartitionValues(
        java_session, line, no_columns, line, none, to_scala.toScalaMap(options), conf
    )
    splits = to_scala.toSeq(list(_splits(session, paths, bytes_each)))
    file_options = java.org.apache.spark.sql.catalyst.FileSourceOptions(nothing)
    rdd = sources.FileScanRDD(java_session, reader, splits, line, none, nothing, file_options)
    java_frame = java_session.internalCreateDataFrame(rdd, line, False)  # noqa: FBT003 - Java's isStreaming
    number = f.monotonically_increasing_id().bitwiseAND(f.lit(_ROW_MASK))
    return DataFrame(java_frame, session).select(
        "value", f.input_file_name().alias("file"), number.alias("number")
    )


def _splits(session: SparkSession, paths: Sequence[str], bytes_each: int) -> Iterator[Any]:
    java, arrays = jvm(session), gateway(session)
    sources = java.org.apache.spark.sql.execution.datasources
    to_path = java.org.apache.spark.paths.SparkPath.fromPathString
    no_values = java.org.apache.spark.sql.catalyst.InternalRow.empty()
    no_hosts = arrays.new_array(java.java.lang.String, 0)
    nothing = java.org.apache.spark.api.python.PythonUtils.toScalaMap({})
    groups = _task_groups(paths) if bytes_each == 0 else ([path] for path in paths)
    for number, group in enumerate(groups):
        files = arrays.new_array(sources.PartitionedFile, len(group))
        for place, path in enumerate(group):
            files[place] = sources.PartitionedFile(
                no_values, to_path(path), 0, bytes_each, no_hosts, 0, 0, nothing
            )
        yield sources.FilePartition(number, files)


def _task_groups(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """The files of each task. One that gives several lines is alone, so that they are numbered."""
    alone = [path for path in paths if path.endswith(_SPLITTABLE)]
    packed = [path for path in paths if not path.endswith(_SPLITTABLE)]
    for path in alone:
        yield [path]
    for first in range(0, len(packed), FILES_PER_TASK_MAX):
        yield packed[first : first + FILES_PER_TASK_MAX]
