"""Whether the header of each csv file fits the schema, by whose order its columns are read.

Executors read line 1 of every file of a slice and nothing more of it, many files in a task: a
folder may hold more files than a driver should open. What is no header is passed over: a line is
one when at least half of the schema's names are in it, whatever their case. A header may go on
behind the last column of the schema.

A file is refused only for what is sure to stand there. One whose header can't be told from what
follows, since a cell in quotes goes on for pages, is passed over, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from headrace.formats.files.first_lines import LineCoding, first_lines, line_codings
from headrace.formats.iceberg.jvm import jvm

BEYOND_CHARS_MAX = 4_000  # of a header, beside twice the schema's own names
LEADING_BYTES_MAX = 4096  # of empty lines in front of a header, and of one with several lines
LEADING_LINES_MAX = 100  # as many of them


@dataclass(frozen=True, slots=True)
class Header:
    """That of a file, as it stands there."""

    file: str
    line: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeaderFormat:
    """What a header should say, and how it is written."""

    names: Sequence[str]
    delimiter: str  # as Spark's option has it: a backslash and a `t` are a tab
    encoding: str
    hadoop: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def line_chars_max(self) -> int:
        """What a line has beyond them is not looked at."""
        names = sum(len(name) + len(self.delimiter) + 2 for name in self.names)
        return BEYOND_CHARS_MAX + 2 * names


def other_headers(session: SparkSession, paths: Sequence[str], how: HeaderFormat) -> list[Header]:
    """The headers that have the names in another order, or miss some; in the order of files."""
    to_delimiter = jvm(session).org.apache.spark.sql.catalyst.csv.CSVExprUtils.toDelimiterStr
    how = replace(how, delimiter=str(to_delimiter(how.delimiter)))
    others = [
        header
        for coding in line_codings(session, how.encoding)
        for header in _headers(session, paths, how, coding)
        if _is_other(header.names, how.names)
    ]
    return sorted(others, key=lambda header: header.file)


def _headers(
    session: SparkSession, paths: Sequence[str], how: HeaderFormat, coding: LineCoding
) -> Iterator[Header]:
    lines = _shortened(first_lines(session, paths, how.hadoop, coding), how)
    longer: list[str] = []
    for row in _worth_a_look(lines, how).collect():
        if header := _header([row], how):
            yield header
        else:
            longer.append(unquote(row["file"]))
    if longer:
        yield from _behind_line_1(session, longer, how, coding)


def _behind_line_1(
    session: SparkSession, paths: Sequence[str], how: HeaderFormat, coding: LineCoding
) -> Iterator[Header]:
    """As Spark reads them: empty lines are skipped, and a cell in quotes may hold a line's end."""
    early = first_lines(session, paths, how.hadoop, coding, bytes_each=LEADING_BYTES_MAX)
    early = _shortened(early.where(f.col("number") < LEADING_LINES_MAX), how)
    by_file: dict[str, list[Row]] = {}
    for row in sorted(early.collect(), key=lambda row: row["number"]):
        by_file.setdefault(row["file"], []).append(row)
    for rows in by_file.values():
        if header := _header(rows, how):
            yield header


def _worth_a_look(lines: DataFrame, how: HeaderFormat) -> DataFrame:
    """Lines that may be a header of the schema or its beginning; all others stay where they are.

    An expression for each column would be more exact, and slower to plan than the rows to read.
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
    """In the first lines of a file; None: they hold too little of it."""
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
    """Of the first record, as Spark reads it, and whether these are all.

    A cell that goes on behind the text is left out: one in quotes that are not closed, and the last
    one of a text that was shortened.
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
    while found := cell.match(text, place):
        quoted, plain, end = found["quoted"], found["plain"], found["end"]
        if quoted is None and plain.lstrip(" ").startswith('"'):
            break
        if is_shortened and not end:
            break
        cells.append(((quoted or "") + plain).strip().strip('"').strip())
        if end != delimiter:
            return cells, True
        place = found.end()
    return cells, False


def _is_other(found: Sequence[str], wanted: Sequence[str]) -> bool:
    cells = [cell.lower() for cell in found]
    names = [name.strip().lower() for name in wanted]
    is_header = len(set(cells) & set(names)) * 2 >= len(names)
    return is_header and cells[: len(names)] != names
