"""Stage rows as files: Spark writes them below the target's hidden folder, then they are listed.

Only files of successful task attempts count: Spark's committer moves them out of `_temporary` when
its job commits, and the listing is made after that. What a straggler writes later is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.files.commit import FilesHandle, Listing, Move, digest
from headrace.connectors.files.places import PARTITION_COLUMN, FileNames, Places
from headrace.connectors.files.read import join, to_text, too_deep
from headrace.errors import Refused
from headrace.seams import seam
from headrace.spark.filesystem import FileSystem
from headrace.spark.row_counts import ROW_BITS, require_metrics

_LISTING = "_files.json"
_ROWS = "rows"
_STAGED = "part-"  # how the names of Spark's files begin
_UTF8 = frozenset({"utf-8", "utf8"})


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
    hadoop: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


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
    rows = _write(session, frame, f"{files.root}/{places.folder}", layout)
    moves = _moves(files, places, names, rows=rows, keep_empty=layout.keep_empty)
    data = Listing(rows=rows, moves=moves).encoded()
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


def _write(session: SparkSession, frame: DataFrame, folder: str, layout: Layout) -> int:
    if layout.encoding.lower() not in _UTF8:
        session.conf.set("spark.sql.legacy.javaCharsets", "true")  # GBK and others
    if layout.single:
        frame = frame.coalesce(1)
    row_count = Observation()
    frame = _shaped(frame, layout).observe(row_count, f.count(f.lit(1)).alias(_ROWS))
    writer = frame.write.format(layout.format).options(**_options(layout)).mode("errorifexists")
    if layout.partition_by:
        count = range(len(layout.partition_by))
        writer = writer.partitionBy(*(PARTITION_COLUMN + str(n) for n in count))
    writer.save(folder)
    return int(require_metrics(row_count)[_ROWS])


def _options(layout: Layout) -> dict[str, str]:
    options = {**layout.hadoop, "compression": layout.codec}
    if layout.rows_per_file and not layout.single:
        options["maxRecordsPerFile"] = str(layout.rows_per_file)
    match layout.format:
        case "text":
            options["lineSep"] = layout.row_delimiter
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
    if layout.format not in {"text", "csv"}:
        return frame.select(*partitions, *(frame[f"`{name}`"] for name in names))
    texts = [_text(frame, name, layout) for name in names]
    if layout.format == "csv":
        return frame.select(*partitions, *texts)
    return frame.select(*partitions, _lines(texts, names, layout).alias("value"))


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
