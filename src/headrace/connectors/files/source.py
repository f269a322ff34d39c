"""The LocalFile and HdfsFile sources. A slice lists files with their sizes and modification times.

When a file of a slice has changed or vanished since it was planned, the slice can't give the same
rows again, and reading it is refused (E5). Which files come next is decided in arrivals.py, and
which are read at all in filters.py. Where a job gives no columns, those that the first files have
are recorded with the plan and the position (inference.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import BaseModel, JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from headrace.connectors.columns import spark_schema
from headrace.connectors.connector import Setting, Source
from headrace.connectors.files.arrivals import (
    FilesPosition,
    choose_arrived,
    choose_batch,
    settled,
)
from headrace.connectors.files.filters import FileFilter, glob_flaw, joined, split_glob
from headrace.connectors.files.inference import INFERRED, Columns, infer_columns, schema_text
from headrace.connectors.files.places import Target
from headrace.connectors.files.read import CONTENT, ReadAs, check_headers, read
from headrace.connectors.files.source_options import FileSourceOptions
from headrace.connectors.files.text_values import SEPARATORS, TextForm, too_deep
from headrace.errors import Refused, Unavailable
from headrace.model.text import legible, storing_flaw
from headrace.plugins.schema import PlainType, TableSchema, parse_schema
from headrace.protocol.messages import Slice
from headrace.spark.errors import one_line
from headrace.spark.filesystem import FileInfo, FileSystem, is_hidden
from headrace.spark.jvm_bridge import JAVA_ERRORS, spark_failure

_LINES = frozenset({"text", "csv"})
_OWN_LINE_ENDS = frozenset({"text", "json"})
_USUAL_LINE_ENDS = frozenset({None, "", "\n", "\r", "\r\n"})
_COLUMNAR = frozenset({"parquet", "orc"})
_DELIMITERS = {"text": SEPARATORS[0], "excel": ";"}
_BINARY = spark.StructType(
    [
        spark.StructField("data", spark.BinaryType()),
        spark.StructField("relativePath", spark.StringType()),
        spark.StructField("partIndex", spark.LongType()),
    ]
)


class _Files(BaseModel):
    """What a slice holds: (path below the root, bytes, time modified in ms) of each file."""

    files: tuple[tuple[str, int, int], ...]
    columns: tuple[dict[str, JsonValue], ...] | None = None  # as in the position


class FileSource(Source):
    def __init__(
        self,
        name: str,
        options: FileSourceOptions,
        setting: Setting,
        *,
        files: FileSystem | None = None,
    ) -> None:
        self.name = name
        self.bounded = not setting.streaming
        self._files, self._clock, self._log = files, setting.clock, setting.log
        self._late = 0  # late files, as of the last warning
        root, glob = split_glob(options.folder.path)
        self._literal = Target.of(f"source {name}", options.folder)
        self._target = Target.of(f"source {name}", replace(options.folder, path=root))
        self._how = _read_as(self._target, options)
        self._time_format = options.time_format
        self._infers = options.schema is None and options.format in INFERRED
        self._columns: Columns | None = None  # that were found, if the job gives none
        self.takes_conditions = self._how.format in _COLUMNAR
        self._filter = FileFilter(options.filters, glob)
        self._warn_idle(options)

    def _warn_idle(self, options: FileSourceOptions) -> None:
        """Say of an option that it does nothing: it was given before it could do anything."""
        if options.format not in _OWN_LINE_ENDS and _line_end(options) is not None:
            facts = {"source": self.name, "format": options.format}
            self._log.warning("row_delimiter is for text and json, and does nothing", extra=facts)

    def _open(self, session: SparkSession) -> FileSystem:
        if self._files is not None:
            return self._files
        if self._filter.glob is not None:
            self._check_glob(session, self._filter.glob)
        return self._target.open(session)

    def _check_glob(self, session: SparkSession, glob: str) -> None:
        """Take a `path` that is there as it stands for no glob: `*` and `?` may be in a name.

        Asked each time: a folder of that name may only be away for a while, and its files must not
        be read again under other names when it comes back.
        """
        if self._literal.open(session).exists(""):
            self._target, self._filter = self._literal, replace(self._filter, glob=None)
        elif flaw := glob_flaw(glob):
            raise Refused(f"source {self.name}: {flaw}")

    def plan(
        self, session: SparkSession, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        """The next slice. None at the end, or while streaming, when nothing has arrived yet."""
        before = FilesPosition.model_validate(position) if position is not None else None
        with self._target.translating_errors():
            files = self._open(session)
            if not files.exists(""):
                raise self._missing_error(before)
            listing = list(self._matching_files(files))
        choose = choose_batch if self.bounded else choose_arrived
        try:
            choice = choose(listing, before, rows_max=rows_max)
        except Refused as refused:
            raise Refused(f"source {self.name}: {refused}") from refused
        self._warn_late(choice.late)
        if not choice.files and (before is not None or not self.bounded):
            return None
        columns = self._found_columns(session, files, listing, before)
        marks = tuple((one.path, one.bytes, one.modified_ms) for one in choice.files)
        data = _Files(files=marks, columns=columns).model_dump(mode="json", exclude_none=True)
        reached = choice.after.model_copy(update={"columns": columns})
        after = reached.model_dump(mode="json", exclude_defaults=True)
        return Slice(data=data, after=after, last=choice.last)

    def _found_columns(
        self,
        session: SparkSession,
        files: FileSystem,
        listing: Sequence[FileInfo],
        before: FilesPosition | None,
    ) -> tuple[dict[str, JsonValue], ...] | None:
        """The columns of all slices: those of the slices before, or what the first files say."""
        if not self._infers:
            return None
        if before is not None and before.columns is not None:
            self._columns = before.columns
        names = [info.path for info in sorted(listing, key=lambda info: info.path) if info.bytes]
        if self._columns is None and names:
            self._columns = self._infer(session, files, names)
        return None if self._columns is None else tuple(dict(one) for one in self._columns)

    def _infer(self, session: SparkSession, files: FileSystem, names: Sequence[str]) -> Columns:
        try:
            columns = infer_columns(session, *self._paths(session, files, names, self._how))
        except Refused as refused:
            raise Refused(f"source {self.name}: {refused}") from refused
        except JAVA_ERRORS as error:
            failure = spark_failure(session, error)
            raise type(failure)(f"source {self.name}: {failure}") from error
        facts = {"source": self.name, "schema": schema_text(columns)}
        self._log.info("schema found in the first files", extra=facts)
        return columns

    def committed(
        self,
        session: SparkSession,  # noqa: ARG002
        position: JsonValue,
        *,
        learned: JsonValue,  # noqa: ARG002
    ) -> None:
        """Take over the columns that an earlier execution found: they may be needed for no rows."""
        if self._infers and self._columns is None:
            self._columns = FilesPosition.model_validate(position).columns

    def _missing_error(self, before: FilesPosition | None) -> Refused | Unavailable:
        message = f"source {self.name}: there is no {self._target.root}"
        if before is None or self.bounded:
            return Refused(f"{message}; create it, or mend 'path'")
        # It was there before: a disk that is not mounted at the moment must not end the stream.
        return Unavailable(f"{message} any more; mount it, or create it again")

    def _warn_late(self, late: int) -> None:
        """Warn of files that arrived too late to be read, or only counting rows would show it."""
        if late > self._late:
            facts = {"source": self.name, "files": late}
            self._log.warning("files came in too old to be read; touch them", extra=facts)
        self._late = late

    def _matching_files(self, files: FileSystem) -> Iterator[FileInfo]:
        now_ms = self._clock.wall_ms()  # before the listing: what settles during it may wait
        for info in self._listed(files):
            if not self.bounded and not settled(info, now_ms=now_ms):
                continue
            name = (info.path or self._target.root).rpartition("/")[2]
            if name.endswith("._COPYING_"):  # `hdfs dfs -put` is still writing it
                continue
            if self._filter.accepts(info, files.root):
                self._check_name(files, info)
                yield info

    def _listed(self, files: FileSystem) -> Iterator[FileInfo]:
        """All files that a glob may mean: at its beginning, other folders are not walked."""
        if self._filter.glob is None:
            yield from files.files()
            return
        for entry in files.entries(""):
            name = entry.path.strip("/")
            if not is_hidden(name) and self._filter.may_hold(name):
                yield from files.files(name)

    def _check_name(self, files: FileSystem, info: FileInfo) -> None:
        """Refuse a name that is not UTF-8: the JVM can't open it, and a position can't hold it."""
        if storing_flaw(info.path) is None:
            return
        raise Refused(
            f"source {self.name}: the name of {files.root}/{legible(info.path)} is not UTF-8, and "
            "Spark can't open such a file; rename it, or leave it out by 'file_filter_pattern'. "
            "Until then no further file of the folder is read"
        )

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        planned = _Files.model_validate(part.data)
        wanted = planned.files
        with self._target.translating_errors():
            files = self._open(session)
            self._check_unchanged(files, wanted)
        if self._infers and planned.columns is not None:
            self._columns = planned.columns
        # Spark skips files of 0 bytes; reading the header of an empty .gz file would fail.
        filled = [path for path, size, _ in wanted if size > 0]
        if not wanted or (self._how.by_header and not filled):
            return self.empty(session)
        how = self._how_found()
        self._check_headers(session, files, filled, how)
        names = filled if how.by_header else [path for path, _, _ in wanted]
        return self._frame(session, files, names, how)

    def _check_headers(
        self, session: SparkSession, files: FileSystem, names: Sequence[str], how: ReadAs
    ) -> None:
        if not names:
            return
        try:
            check_headers(session, *self._paths(session, files, names, how))
        except Refused as refused:
            raise Refused(f"source {self.name}: {refused}") from refused

    def _how_found(self) -> ReadAs:
        """How files are read, with the columns that were found when the job gives none."""
        if not self._infers or self._columns is None:
            return self._how
        block: JsonValue = {"columns": [dict(one) for one in self._columns]}
        try:
            table = parse_schema(block)
        except Refused as refused:
            raise Refused(
                f"source {self.name}: the columns found in the files: {refused}"
            ) from None
        clocks = _clock_columns(table, self._time_format)
        return replace(self._how, schema=spark_schema(table), clock_columns=clocks)

    def empty(self, session: SparkSession) -> DataFrame:
        """No rows, with the columns of a file that is there: files and folders may add columns."""
        with self._target.translating_errors():
            files = self._open(session)
            listing = sorted(self._matching_files(files), key=lambda info: info.path)
        self._found_columns(session, files, listing, None)
        how = self._how_found()
        filled = (info for info in listing if info.bytes > 0 or not how.by_header)
        example = next(filled, None)
        if example is None:
            return self._declared(session)
        return self._frame(session, files, [example.path], how).limit(0)

    def _frame(
        self, session: SparkSession, files: FileSystem, names: Sequence[str], how: ReadAs
    ) -> DataFrame:
        try:
            return read(session, *self._paths(session, files, names, how))
        except AnalysisException as error:
            raise Refused(f"source {self.name}: {one_line(error)}") from error
        except Refused as refused:
            raise Refused(f"source {self.name}: {refused}") from refused

    def _paths(
        self, session: SparkSession, files: FileSystem, names: Sequence[str], how: ReadAs
    ) -> tuple[Sequence[str], ReadAs]:
        """The full paths of the files, and how they are read."""
        paths = [joined(files.root, name) for name in names]
        how = replace(how, hadoop=self._target.settings(session))
        # A `path` that names a file stands for the folder it is in.
        root = files.root if names[0] else files.root.rpartition("/")[0]
        if how.format == "binary":
            how = replace(how, base=root)
        elif how.base is not None:
            how = replace(how, base=_partition_base(root))
        return paths, how

    def _check_unchanged(self, files: FileSystem, wanted: Sequence[tuple[str, int, int]]) -> None:
        current = {info.path: info for info in self._listed(files)}
        for path, size, modified_ms in wanted:
            now = current.get(path)
            if now is not None and (now.bytes, now.modified_ms) == (size, modified_ms):
                continue
            what = "is gone" if now is None else "has changed"
            raise Refused(
                f"source {self.name}: {files.root}/{path} {what} since the epoch was planned "
                f"({size} bytes then), so the epoch can't give the same rows again; "
                "put the file back as it was, or submit the job anew"
            )

    def _declared(self, session: SparkSession) -> DataFrame:
        schema = _BINARY if self._how.format == "binary" else self._how_found().schema
        if schema is None and self._how.format != "text":
            raise Refused(
                f"source {self.name}: there are no files in {self._target.root} to take columns "
                "from; add 'schema', or files"
            )
        if schema is None:
            schema = spark.StructType([spark.StructField(CONTENT, spark.StringType())])
        if self._how.columns:
            schema = spark.StructType([schema[name] for name in self._how.columns])
        return session.createDataFrame([], schema)  # pyright: ignore[reportUnknownMemberType]


def _read_as(target: Target, options: FileSourceOptions) -> ReadAs:
    form, table = options.format, options.schema
    schema = spark_schema(table) if table else None
    delimiter = options.delimiter or _DELIMITERS.get(form, ",")
    how = ReadAs(
        format=form,
        schema=schema,
        base=target.root if options.parses_partitions else None,
        title=target.title,
        archive=options.archive,
        delimiter=delimiter,
        quote=options.quote,
        escape=options.escape,
        line_end=_line_end(options) if form in _OWN_LINE_ENDS else None,
        skip_lines=options.skip_lines,
        by_header=options.uses_header,
        encoding=options.encoding,
        lzo=options.codec == "lzo",
        sheet=options.sheet_name,
        row_tag=options.row_tag or "",
        attributes=options.uses_attributes,
        chunk_bytes=options.chunk_bytes,
        text=TextForm(
            date=options.date_format,
            datetime=options.datetime_format,
            null=options.null_format,
            json_parts=form in {"excel", "xml"},
            row_separator=delimiter if form == "excel" else None,
            native_times=form == "excel",
        ),
        clock_columns=_clock_columns(table, options.time_format),
        columns=options.columns,
    )
    flaw = _flaw(options, how)
    if flaw is not None:
        raise Refused(f"{target.title}: {flaw}")
    return how


def _line_end(options: FileSourceOptions) -> str | None:
    """None: any of the usual ones."""
    return None if options.row_delimiter in _USUAL_LINE_ENDS else options.row_delimiter


def _partition_base(root: str) -> str:
    """The folder above the first `k=v` of a path: those in `path` itself are columns, too."""
    parts = root.split("/")
    first = next((number for number, part in enumerate(parts) if "=" in part), len(parts))
    return "/".join(parts[:first])


def _clock_columns(table: TableSchema | None, pattern: str | None) -> dict[str, str]:
    """Columns of times of day, which are texts in Spark, with their format or ''."""
    return {
        column.name: pattern or ""
        for column in (table.columns if table else ())
        if isinstance(column.type, PlainType) and column.type.name == "time"
    }


def _flaw(options: FileSourceOptions, how: ReadAs) -> str | None:
    """What can't be met of the options together, or None."""
    form, archive = options.format, options.archive
    if options.skip_lines and form not in {*_LINES, "excel"}:
        return f"{form} has no header; leave 'skip_header_row_number' out"
    if form in _COLUMNAR and archive != "none":
        return f"{form} is not read from archives; unpack them, or set another format"
    if form == "xml" and options.row_tag is None:
        return "xml needs the option 'xml_row_tag', the element that is a row"
    for name, given, of in (
        ("csv_use_header_line", options.uses_header, {"csv"}),
        ("null_format", options.null_format is not None, _LINES),
        ("compress_codec = lzo", options.codec == "lzo", {"text", "csv", "json", "orc"}),
    ):
        if given and form not in of:
            return (
                f"{name} is for {' and '.join(sorted(of))}, and the format is {form}; leave it out"
            )
    if how.by_python and form == "csv" and len(how.delimiter) > 1 and how.delimiter != "\\t":
        return "field_delimiter must be one letter, where csv is read from archives or below lines"
    return _lzo_flaw(options, how) or _deep_column_flaw(form, how.schema)


def _lzo_flaw(options: FileSourceOptions, how: ReadAs) -> str | None:
    if options.codec != "lzo":
        return None
    if options.archive != "none":
        return "compress_codec = lzo and an archive_compress_codec exclude each other"
    if how.by_python or (how.schema is None and options.format in INFERRED):
        return (
            "compress_codec = lzo needs 'schema', and csv without lines to skip or an escape_char "
            "or quote_char of its own; leave those out, or unpack the files"
        )
    return None


def _deep_column_flaw(form: str, schema: spark.StructType | None) -> str | None:
    for column in schema.fields if schema and form in _LINES else ():
        if too_deep(column.dataType):
            return f"column {column.name!r} is nested too deep for {form}"
    return None
