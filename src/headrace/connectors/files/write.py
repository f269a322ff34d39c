"""Stage rows as files: Spark writes them below the target's hidden folder, then they are listed.

Only files of successful task attempts count: Spark's committer moves them out of `_temporary` when
its job commits, and the listing is made after that. What a straggler writes later is not in it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.files.commit import FilesHandle, Listing, Move, check_final_names, digest
from headrace.connectors.files.executor_write import (
    BookForm,
    WrittenFile,
    write_books,
    write_copies,
)
from headrace.connectors.files.places import PARTITION_COLUMN, FileNames, Places
from headrace.connectors.files.text_values import (
    VALUE_CHARACTERS_SHOWN,
    join,
    to_parts,
    to_text,
    too_deep,
)
from headrace.errors import Refused
from headrace.seams import seam
from headrace.spark.filesystem import FileSystem
from headrace.spark.row_counts import ROW_BITS, require_metrics

_LISTING = "_files.json"
_ROWS = "rows"
_STAGED = "part-"  # how the names of Spark's files begin
_UTF8 = frozenset({"utf-8", "utf8"})
_TEXTS = frozenset({"text", "csv", "xml"})  # formats whose values are written as texts
_ATTRIBUTE = "\u2063"  # invisible: what Spark knows the columns by that are attributes of xml
_TIMES_SETTING = "spark.sql.parquet.outputTimestampType"
_PYTHON_FORMATS = frozenset({"excel", "binary"})


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows become files: format, columns, partitions, and when a file is full."""

    format: str
    codec: str  # Spark's name
    delimiter: str = ","
    row_delimiter: str = "\n"
    header: bool = False
    encoding: str = "UTF-8"
    columns: Sequence[str] = ()  # empty: all
    partition_by: Sequence[str] = ()
    keep_partition_columns: bool = False
    rows_per_file: int = 0  # 0: no limit
    single: bool = False
    keep_empty: bool = False
    quote_mode: str = "MINIMAL"
    int96: bool | None = None  # None: as Spark is set
    sheet: str = "Sheet0"
    sheet_rows_max: int = 1_048_576
    root_tag: str = "RECORDS"
    row_tag: str = "RECORD"
    attributes: bool = False
    title: str = "sink"  # shown to people
    hadoop: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def is_lines(self) -> bool:
        """Whether a row is one text: csv without quotes is no other than text."""
        return self.format == "text" or (self.format == "csv" and self.quote_mode == "NONE")


def stage(
    session: SparkSession,
    frame: DataFrame,
    files: FileSystem,
    places: Places,
    names: FileNames,
    layout: Layout,
) -> FilesHandle:
    """Write the rows of `frame` to the hidden folder of `places`. Nothing becomes visible."""
    seam("before stage")
    is_copy = layout.format == "binary"
    if layout.format in _PYTHON_FORMATS:
        written = _write_by_python(session, frame, f"{files.root}/{places.folder}", layout)
        rows = sum(file.rows for file in written)
        moves = moves_of(places, names, written, is_copy=is_copy)
    else:
        rows = _write(session, frame, f"{files.root}/{places.folder}", layout)
        moves = _moves(files, places, names, rows=rows, keep_empty=layout.keep_empty)
    staged = Listing(rows=rows, moves=moves, are_copies=is_copy)
    check_final_names(files, staged)
    data = staged.encoded()
    listing = f"{places.folder}/{_LISTING}"
    files.sync(move.staged for move in moves)
    files.create(listing, data, scratch=places.folder)
    seam("staged")
    return FilesHandle(
        folder=files.root,
        execution=places.execution,
        listing=listing,
        sha256=digest(data),
        files=len(moves),
        bytes=sum(move.bytes for move in moves),
        rows=rows,
    )


def _moves(
    files: FileSystem, places: Places, names: FileNames, *, rows: int, keep_empty: bool
) -> tuple[Move, ...]:
    """The files that Spark's job committed, with final names. Files without rows are left out."""
    staged = [
        info
        for info in sorted(files.files(places.folder, hidden=True), key=lambda info: info.path)
        if info.path.rpartition("/")[2].startswith(_STAGED) and "/_temporary/" not in info.path
    ]
    if rows == 0:
        staged = staged[:1] if keep_empty else []
    else:
        staged = [info for info in staged if info.bytes > 0]
    below = len(places.folder) + 1
    return tuple(
        Move(
            staged=info.path,
            final=names.name(places, info.path[below:], number),
            bytes=info.bytes,
        )
        for number, info in enumerate(staged)
    )


def _write_by_python(
    session: SparkSession, frame: DataFrame, folder: str, layout: Layout
) -> Sequence[WrittenFile]:
    local = folder.removeprefix("file:")
    if layout.single:
        frame = frame.coalesce(1)
    if layout.format == "binary":
        return write_copies(session, frame, local, needed_by=layout.title)
    shaped = _shaped(frame, layout)
    keys = [PARTITION_COLUMN + str(number) for number in range(len(layout.partition_by))]
    form = BookForm(
        folder=local,
        keys=tuple(keys),
        columns=tuple(name for name in shaped.columns if name not in keys),
        rows_max=0 if layout.single else layout.rows_per_file,
        sheet=layout.sheet,
        sheet_rows_max=layout.sheet_rows_max,
        keep_empty=layout.keep_empty,
    )
    return write_books(session, shaped, form, needed_by=layout.title)


def moves_of(
    places: Places,
    names: FileNames,
    written: Sequence[WrittenFile],
    *,
    is_copy: bool,
) -> tuple[Move, ...]:
    """The files that tasks answered, with final names; a copy keeps its path below its attempt."""
    moves: list[Move] = []
    for number, file in enumerate(sorted(written, key=lambda file: file.path)):
        kept = file.path.partition("/")[2]
        final = kept if is_copy else names.name(places, file.path, number)
        moves.append(Move(staged=f"{places.folder}/{file.path}", final=final, bytes=file.bytes))
    return tuple(moves)


def _write(session: SparkSession, frame: DataFrame, folder: str, layout: Layout) -> int:
    if layout.encoding.lower() not in _UTF8:
        session.conf.set("spark.sql.legacy.javaCharsets", "true")  # GBK and others
    if layout.single:
        frame = frame.coalesce(1)
    row_count = Observation()
    frame = _shaped(frame, layout).observe(row_count, f.count(f.lit(1)).alias(_ROWS))
    form = "text" if layout.is_lines else layout.format
    writer = frame.write.format(form).options(**_options(layout)).mode("errorifexists")
    if layout.partition_by:
        count = range(len(layout.partition_by))
        writer = writer.partitionBy(*(PARTITION_COLUMN + str(n) for n in count))
    with _parquet_times(session, layout):
        writer.save(folder)
    return int(require_metrics(row_count)[_ROWS])


@contextmanager
def _parquet_times(session: SparkSession, layout: Layout) -> Generator[None]:
    """Set how Spark writes times, if the job says so. The setting is the session's, and goes back:
    another sink may leave it to Spark."""
    if layout.int96 is None:
        yield
        return
    before = session.conf.get(_TIMES_SETTING)
    session.conf.set(_TIMES_SETTING, "INT96" if layout.int96 else "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        session.conf.set(_TIMES_SETTING, str(before))


def _options(layout: Layout) -> dict[str, str]:
    options = {**layout.hadoop, "compression": layout.codec}
    if layout.rows_per_file and not layout.single:
        options["maxRecordsPerFile"] = str(layout.rows_per_file)
    match layout.format:
        case _ if layout.is_lines:
            options["lineSep"] = layout.row_delimiter
        case "xml":
            options |= {
                "rootTag": layout.root_tag,
                "rowTag": layout.row_tag,
                "encoding": layout.encoding,
                "attributePrefix": _ATTRIBUTE,
                "declaration": f'version="1.0" encoding="{layout.encoding}"',
            }
        case "json":
            options |= {
                "lineSep": layout.row_delimiter,
                "ignoreNullFields": "false",
                "encoding": layout.encoding,
            }
        case "csv":
            options |= {
                "sep": layout.delimiter,
                "lineSep": layout.row_delimiter,
                "header": str(layout.header).lower(),
                "encoding": layout.encoding,
                "escape": '"',
                "ignoreLeadingWhiteSpace": "false",
                "ignoreTrailingWhiteSpace": "false",
                "quoteAll": str(layout.quote_mode == "ALL").lower(),
            }
        case _:
            pass
    return options


def _shaped(frame: DataFrame, layout: Layout) -> DataFrame:
    """The frame that Spark writes: partition columns first, under names of our own."""
    names = _columns(frame, layout)
    partitions = [
        frame[f"`{_column_named(frame, key)}`"].alias(f"{PARTITION_COLUMN}{number}")
        for number, key in enumerate(layout.partition_by)
    ]
    if layout.format == "excel":
        values = [_cell(frame, name, layout) for name in names]
        return frame.select(*partitions, *values)
    if layout.format not in _TEXTS:
        values = [_with_zone(frame, name, layout) for name in names]
        return frame.select(*partitions, *values)
    texts = [_text(frame, name, layout) for name in names]
    if not layout.is_lines:
        return frame.select(*partitions, *texts)
    if layout.format == "csv":
        texts = [_unquoted(text, name, layout) for text, name in zip(texts, names, strict=True)]
    return frame.select(*partitions, _lines(texts, names, layout).alias("value"))


def _with_zone(frame: DataFrame, name: str, layout: Layout) -> Column:
    """The column; for INT96 a time without a zone is one in UTC, as Spark writes no other so.

    It goes by its text: in the session's zone there may be no such time.
    """
    column = frame[f"`{name}`"]
    if layout.int96 and isinstance(frame.schema[name].dataType, spark.TimestampNTZType):
        return f.concat(column.cast("string"), f.lit("Z")).cast("timestamp").alias(name)
    return column


def _cell(frame: DataFrame, name: str, layout: Layout) -> Column:
    """A value as a cell of excel takes it: numbers, dates and times are themselves."""
    column, data_type = frame[f"`{name}`"], frame.schema[name].dataType
    nested = spark.ArrayType, spark.MapType, spark.StructType
    if isinstance(data_type, (*nested, spark.BinaryType, spark.TimestampType, spark.NullType)):
        return to_parts(column, data_type, layout.delimiter).alias(name)
    return column


def _unquoted(text: Column, name: str, layout: Layout) -> Column:
    """The text, failing where csv would need quotes."""
    odd = text.contains(layout.delimiter)
    for mark in (layout.row_delimiter, '"', "\n", "\r"):
        odd |= text.contains(mark)
    message = f.concat(
        f.lit(f"column '{name}': '"),
        f.substring(text, 1, VALUE_CHARACTERS_SHOWN),
        f.lit("' holds a delimiter, a quote or a line end, and csv_string_quote_mode = NONE; "),
        f.lit("set MINIMAL"),
    )
    return f.when(odd, f.raise_error(message).cast("string")).otherwise(text)


def _columns(frame: DataFrame, layout: Layout) -> list[str]:
    names = [_column_named(frame, name) for name in layout.columns] or list(frame.columns)
    if not layout.keep_partition_columns:
        keys = {_column_named(frame, key) for key in layout.partition_by}
        names = [name for name in names if name not in keys]
    if not names:
        raise Refused(
            "no column is left to write besides those of 'partition_by'; "
            "set is_partition_field_write_in_file = true"
        )
    return names


def _column_named(frame: DataFrame, name: str) -> str:
    for column in frame.columns:
        if column.lower() == name.lower():
            return column
    raise Refused(f"there is no column {name!r}; there are {', '.join(frame.columns)}")


def _text(frame: DataFrame, name: str, layout: Layout) -> Column:
    data_type: spark.DataType = frame.schema[name].dataType
    if layout.format == "xml":
        shown = _ATTRIBUTE + name if layout.attributes else name
        return to_parts(frame[f"`{name}`"], data_type, None).alias(shown)
    if too_deep(data_type):
        raise Refused(f"column {name!r} is nested too deep for {layout.format}; write json instead")
    return to_text(frame[f"`{name}`"], data_type).alias(name)


def _lines(texts: Sequence[Column], names: Sequence[str], layout: Layout) -> Column:
    line = join(texts, layout.delimiter)
    if layout.header:
        # A file begins with the first row of a partition, or when the file before it is full.
        number = f.monotonically_increasing_id().bitwiseAND(f.lit((1 << ROW_BITS) - 1))
        if layout.rows_per_file and not layout.single:
            number = number % f.lit(layout.rows_per_file)
        first = f.lit(layout.delimiter.join(names) + layout.row_delimiter)
        line = f.when(number == 0, f.concat(first, line)).otherwise(line)
    if layout.encoding.lower() not in _UTF8:
        line = f.encode(line, layout.encoding).cast("string")  # keeps the encoded bytes
    return line
