"""Whether the header of each csv file fits the schema, by whose order its columns are read.

Executors read line 1 of every file of a slice and nothing more of it, many files in a task: a
folder may hold more files than a driver should open. What is no header is passed over: a line is
one when at least half of the schema's names are in it, whatever their case. A header may go on
behind the last column of the schema.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from headrace.formats.iceberg.jvm import gateway, jvm

FILES_PER_TASK_MAX = 100
LINE_BYTES_MAX = 1_000_000  # of a header; a longer line is none
BEYOND_CHARS_MAX = 4_000  # of a header, beside twice the schema's own names
UTF8 = frozenset({"utf-8", "utf8"})
LEADING_BYTES_MAX = 4096  # of empty lines in front of a header
LEADING_LINES_MAX = 100  # as many of them
_LINE_MAX_SETTING = "mapreduce.input.linerecordreader.line.maxlength"
# A codec that can be split tells its place by blocks, and so gives all lines of the first block.
_SPLITTABLE = ".bz2"
_ROW_MASK = (1 << 33) - 1  # of monotonically_increasing_id: the number of a row in its partition


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
    delimiter: str
    encoding: str
    hadoop: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def other_headers(session: SparkSession, paths: Sequence[str], how: HeaderFormat) -> list[Header]:
    """The headers that have the names in another order, or miss some; in the order of files."""
    lines = _first_lines(session, paths, how.hadoop)
    lines = lines.where(~f.col("file").endswith(_SPLITTABLE) | (f.col("number") == 0))
    found = _worth_a_look(lines, how).collect()
    headers = [_header(row, how, line=1) for row in found]
    empty = [unquote(row["file"]) for row in found if not row["text"]]
    if empty:
        headers += _behind_empty_lines(session, empty, how)
    others = (header for header in headers if _is_other(header.names, how.names))
    return sorted(others, key=lambda header: header.file)


def _behind_empty_lines(
    session: SparkSession, paths: Sequence[str], how: HeaderFormat
) -> list[Header]:
    """As Spark skips them: the first line with anything in it is the header."""
    lines = _first_lines(session, paths, how.hadoop, bytes_each=LEADING_BYTES_MAX)
    lines = lines.where((f.col("number") < LEADING_LINES_MAX) & (f.length("value") > 0))
    first: dict[str, Row] = {}
    for row in sorted(_shortened(lines, how).collect(), key=lambda row: row["number"]):
        first.setdefault(row["file"], row)
    return [_header(row, how, line=row["number"] + 1) for row in first.values()]


def _worth_a_look(lines: DataFrame, how: HeaderFormat) -> DataFrame:
    """Lines that may be a header of the schema, and empty ones; all others stay where they are.

    An expression for each column would be more exact, and slower to plan than the rows to read.
    """
    some_name = "|".join(re.escape(name.strip()) for name in how.names)
    may_be = f.col("text").rlike(f"(?iu){some_name}") | (f.length("text") == 0)
    return _shortened(lines, how).where(may_be)


def _shortened(lines: DataFrame, how: HeaderFormat) -> DataFrame:
    text = f.col("value")
    if how.encoding.lower() not in UTF8:
        text = f.decode(text.cast("binary"), how.encoding)
    chars = BEYOND_CHARS_MAX + 2 * sum(len(name) + len(how.delimiter) + 2 for name in how.names)
    return lines.select("file", "number", f.substring(text, 1, chars).alias("text"))


def _header(row: Row, how: HeaderFormat, *, line: int) -> Header:
    return Header(unquote(row["file"]), line, tuple(_cells(row["text"], how.delimiter)))


def _cells(text: str, delimiter: str) -> Iterator[str]:
    try:
        parts = list(
            itertools.chain.from_iterable(
                csv.reader([text], delimiter=delimiter, skipinitialspace=True)
            )
        )
    except (TypeError, ValueError, csv.Error):  # more than a letter, or one that quotes
        parts = text.split(delimiter)
    for part in parts:
        yield part.strip().strip('"').strip()


def _is_other(found: Sequence[str], wanted: Sequence[str]) -> bool:
    cells = [cell.lower() for cell in found]
    names = [name.strip().lower() for name in wanted]
    is_header = len(set(cells) & set(names)) * 2 >= len(names)
    return is_header and cells[: len(names)] != names


def _first_lines(
    session: SparkSession, paths: Sequence[str], hadoop: Mapping[str, str], *, bytes_each: int = 0
) -> DataFrame:
    """Columns `value`, `file`, a URI, and `number`, of the line where a file is alone in its task.

    Spark's readers give whole files, and split them by size only. A split of no bytes at a file's
    beginning holds its first line, so such splits are made here; with `bytes_each`, all lines that
    begin so early. A byte order mark is no part of a line.
    """
    java = jvm(session)
    js: Any = session._jsparkSession  # noqa: SLF001  # pyright: ignore
    to_scala = java.org.apache.spark.api.python.PythonUtils
    none, nothing = to_scala.toSeq([]), to_scala.toScalaMap({})
    line = java.org.apache.spark.sql.types.StructType.fromDDL("value string")
    no_columns = java.org.apache.spark.sql.types.StructType()
    conf = js.sessionState().newHadoopConfWithOptions(to_scala.toScalaMap(dict(hadoop)))
    conf.set(_LINE_MAX_SETTING, str(LINE_BYTES_MAX))
    sources = java.org.apache.spark.sql.execution.datasources
    reader = sources.text.TextFileFormat().buildReaderWithPartitionValues(
        js, line, no_columns, line, none, nothing, conf
    )
    splits = to_scala.toSeq(list(_splits(session, paths, bytes_each)))
    options = java.org.apache.spark.sql.catalyst.FileSourceOptions(nothing)
    rdd = sources.FileScanRDD(js, reader, splits, line, none, nothing, options)
    made = js.internalCreateDataFrame(rdd, line, False)  # noqa: FBT003 - Java's isStreaming
    number = f.monotonically_increasing_id().bitwiseAND(f.lit(_ROW_MASK))
    return DataFrame(made, session).select(
        "value", f.input_file_name().alias("file"), number.alias("number")
    )


def _splits(session: SparkSession, paths: Sequence[str], bytes_each: int) -> Iterator[Any]:
    java, arrays = jvm(session), gateway(session)
    sources = java.org.apache.spark.sql.execution.datasources
    to_path = java.org.apache.spark.paths.SparkPath.fromPathString
    no_values = java.org.apache.spark.sql.catalyst.InternalRow.empty()
    no_hosts = arrays.new_array(java.java.lang.String, 0)
    nothing = java.org.apache.spark.api.python.PythonUtils.toScalaMap({})
    groups = _together(paths) if bytes_each == 0 else ([path] for path in paths)
    for number, together in enumerate(groups):
        files = arrays.new_array(sources.PartitionedFile, len(together))
        for place, path in enumerate(together):
            files[place] = sources.PartitionedFile(
                no_values, to_path(path), 0, bytes_each, no_hosts, 0, 0, nothing
            )
        yield sources.FilePartition(number, files)


def _together(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """What one task reads: a file that gives more than a line is alone, and counts its own."""
    alone = [path for path in paths if path.endswith(_SPLITTABLE)]
    packed = [path for path in paths if not path.endswith(_SPLITTABLE)]
    for path in alone:
        yield [path]
    for first in range(0, len(packed), FILES_PER_TASK_MAX):
        yield packed[first : first + FILES_PER_TASK_MAX]
