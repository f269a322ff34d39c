"""The first lines of files, as text, read by executors: of a gigabyte no more than is needed.

Spark's readers give whole files, and split them by size only. A split of no bytes at a file's
beginning holds its first line, so such splits are made here. Lines are cut as the encoding has
them: in UTF-16 the byte 0A is also a part of other characters.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headrace.formats.iceberg.jvm import gateway, jvm

FILES_PER_TASK_MAX = 100
LINE_BYTES_MAX = 1_000_000  # nobody has longer headers
UTF8 = frozenset({"utf-8", "utf8"})
_LINE_MAX_SETTING = "mapreduce.input.linerecordreader.line.maxlength"
_REPLACES_SETTING = "spark.sql.legacy.codingErrorAction"
_BYTE_ORDER_MARK = "\ufeff"
# A codec that can be split tells its place by blocks, and so gives all lines of the first block.
_SPLITTABLE = ".bz2"
_ROW_MASK = (1 << 33) - 1  # of monotonically_increasing_id: the number of a row in its partition


@dataclass(frozen=True, slots=True)
class LineCoding:
    """How bytes become lines of text."""

    charset: str | None = None  # None: UTF-8, as Spark's texts are
    end: str | None = None  # of a line, by its bytes; None: 0A, 0D or both
    unit_bytes: int = 1  # a line of another multiple was cut within a character
    # Of the files that begin with these bytes, or of all others; None: of any file.
    begins: tuple[bytes, bool] | None = None


_UTF_16LE = LineCoding("UTF-16LE", "\n\0", 2)
_UTF_16BE = LineCoding("UTF-16BE", "\0\n", 2)
_UTF_32LE = LineCoding("UTF-32LE", "\n\0\0\0", 4)
_UTF_32BE = LineCoding("UTF-32BE", "\0\0\0\n", 4)


def _by_mark(mark: bytes, little: LineCoding, big: LineCoding) -> Sequence[LineCoding]:
    """As Java does: by the byte order mark of a file, and big-endian where it has none."""
    return replace(little, begins=(mark, True)), replace(big, begins=(mark, False))


_WIDE: Mapping[str, Sequence[LineCoding]] = {
    "UTF-16LE": (_UTF_16LE,),
    "UTF-16BE": (_UTF_16BE,),
    "UTF-16": _by_mark(b"\xff\xfe", _UTF_16LE, _UTF_16BE),
    "UTF-32LE": (_UTF_32LE,),
    "UTF-32BE": (_UTF_32BE,),
    "UTF-32": _by_mark(b"\xff\xfe\0\0", _UTF_32LE, _UTF_32BE),
}


def line_codings(session: SparkSession, encoding: str) -> Sequence[LineCoding]:
    """One for each kind of file that the encoding allows.

    Empty: its line ends can't be told by their bytes, as in EBCDIC.
    """
    if encoding.lower() in UTF8:
        return (LineCoding(),)
    java = jvm(session).java.nio
    charset = java.charset.Charset.forName(encoding)
    if wide := _WIDE.get(str(charset.name())):
        return wide
    ends = b"\r\n"
    is_told = str(charset.decode(java.ByteBuffer.wrap(ends)).toString()) == ends.decode()
    return (LineCoding(encoding),) if is_told else ()


def first_lines(
    session: SparkSession,
    paths: Sequence[str],
    hadoop: Mapping[str, str],
    coding: LineCoding,
    *,
    bytes_each: int = 0,
) -> DataFrame:
    """Columns `file`, a URI, `text`, and `number`, of the line where a file is alone in its task.

    With `bytes_each`, all lines that begin so early, and each file is alone. A byte order mark is
    no part of a line. Bytes that are none of the encoding's become U+FFFD, as where Spark reads
    csv; a line that was cut within a character has no text.
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
    """`decode` fails for what is no text, unless it is planned in here."""
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
    """Columns `value`, whose bytes are those of the file, `file` and `number`."""
    java = jvm(session)
    js: Any = session._jsparkSession  # noqa: SLF001  # pyright: ignore
    to_scala = java.org.apache.spark.api.python.PythonUtils
    none, nothing = to_scala.toSeq([]), to_scala.toScalaMap({})
    line = java.org.apache.spark.sql.types.StructType.fromDDL("value string")
    no_columns = java.org.apache.spark.sql.types.StructType()
    conf = js.sessionState().newHadoopConfWithOptions(to_scala.toScalaMap(dict(hadoop)))
    conf.set(_LINE_MAX_SETTING, str(LINE_BYTES_MAX))
    options = {} if coding.end is None else {"lineSep": coding.end}
    sources = java.org.apache.spark.sql.execution.datasources
    reader = sources.text.TextFileFormat().buildReaderWithPartitionValues(
        js, line, no_columns, line, none, to_scala.toScalaMap(options), conf
    )
    splits = to_scala.toSeq(list(_splits(session, paths, bytes_each)))
    tolerating = java.org.apache.spark.sql.catalyst.FileSourceOptions(nothing)
    rdd = sources.FileScanRDD(js, reader, splits, line, none, nothing, tolerating)
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
