"""The LocalFile and HdfsFile sinks: exactly once, by means of a manifest (commit.py).

A folder has no schema, so RECREATE_SCHEMA deletes its files, as DROP_DATA does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pydantic import JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headrace.connectors.connector import Committed, Setting, Sink, Staged
from headrace.connectors.files.commit import (
    FilesHandle,
    FolderOpening,
    FolderTarget,
    opening_change,
    rows_change,
    survey,
)
from headrace.connectors.files.options import ENCODED
from headrace.connectors.files.places import FileNames, Places, Target
from headrace.connectors.files.read import LZOP
from headrace.connectors.files.sink_options import FileSinkOptions
from headrace.connectors.files.text_values import SEPARATORS
from headrace.connectors.files.write import Layout, stage
from headrace.errors import Refused
from headrace.exactly_once.operations import abort, commit, forget, open_target, sweep
from headrace.exactly_once.target import Mark
from headrace.model.jobs.epoch import EpochAt
from headrace.model.text import legible
from headrace.plugins.save_modes import DataMode, SchemaMode
from headrace.spark.errors import one_line
from headrace.spark.filesystem import FileSystem
from headrace.spark.jvm_bridge import JAVA_ERRORS

_EXTENSIONS = {"text": "txt", "excel": "xlsx", "binary": ""}
_LINES = {"none": "none", "gzip": "gzip", "lzo": LZOP}
# For each format: SeaTunnel's name of a codec, and Spark's.
_CODECS: Mapping[str, Mapping[str, str]] = {
    "text": _LINES,
    "csv": _LINES,
    "json": _LINES,
    "xml": {"none": "none", "gzip": "gzip"},
    "excel": {"none": "none"},
    "binary": {"none": "none"},
    "parquet": {
        "none": "uncompressed",
        "snappy": "snappy",
        "gzip": "gzip",
        "lz4": "lz4raw",
        "zstd": "zstd",
    },
    "orc": {
        "none": "none",
        "snappy": "snappy",
        "zlib": "zlib",
        "lz4": "lz4",
        "zstd": "zstd",
        "lzo": "lzo",
    },
}
_SUFFIXES = {"gzip": ".gz", "lzo": ".lzo"}  # behind the extension of a format of lines
_LOCAL_ONLY = frozenset({"excel", "binary"})
_DELIMITERS = {"text": SEPARATORS[0], "excel": ";"}


class FileSink(Sink):
    def __init__(
        self,
        name: str,
        options: FileSinkOptions,
        setting: Setting,
        *,
        files: FileSystem | None = None,
    ) -> None:
        self.name = name
        self._options, self._clock, self._files = options, setting.clock, files
        self._target = Target.of(f"sink {name}", options.folder)
        self._layout = _layout(self._target, options)
        self.opens = options.save_modes.opens
        if options.partition_by and not options.has_partitions:  # ignored, as in SeaTunnel
            message = "partition_by has no effect while have_partition is false"
            setting.log.warning(message, extra={"sink": name})

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:
        with self._target.translating_errors():
            return self._folder(self._open(session)).read_mark(Places(at, self.name))

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:  # noqa: ARG002
        schema, data = self._options.save_modes.schema, self._options.save_modes.data
        with self._target.translating_errors():
            files = self._open(session)
            self._check_may_open(files, schema, data)
            deletes = schema is SchemaMode.RECREATE or data is DataMode.DROP
            opening = survey(files, Places(at, self.name), deletes=deletes)
        return opening.model_dump(mode="json")

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        opening, places = FolderOpening.model_validate(handle), Places(at, self.name)
        with self._target.translating_errors():
            files = self._open(session)
            change = opening_change(files, places, opening)
            outcome = open_target(self._folder(files), places, change)
        deleted = len(outcome.spent.deletes)
        return Committed(outcome.already, {"folder": self._target.root, "deleted": deleted})

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:
        layout = replace(self._layout, hadoop=self._target.settings(session))
        places = Places(at, self.name)
        with self._target.translating_local_errors():
            try:
                handle = stage(session, frame, self._open(session), places, self._names(), layout)
            except AnalysisException as error:
                raise Refused(f"sink {self.name}: {one_line(error)}") from error
            except JAVA_ERRORS:
                self._target.check_writable()
                raise  # the cause is a row, a transform or the source
        return Staged(handle.model_dump(mode="json"), handle.rows)

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        staged, places = FilesHandle.model_validate(handle), Places(at, self.name)
        with self._target.translating_errors():
            files = self._open(session)
            outcome = commit(self._folder(files), places, rows_change(files, places, staged))
        manifest = outcome.spent
        facts: dict[str, JsonValue] = {
            "folder": self._target.root,
            "files": len(manifest.moves),
            "rows": manifest.rows,
            "bytes": sum(move.bytes for move in manifest.moves),
        }
        return Committed(outcome.already, facts)

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:  # noqa: ARG002
        # The handle is not needed: the manifest says everything.
        with self._target.translating_errors():
            folder = self._folder(self._open(session))
            sweep(folder, Places(at, self.name), completed_by=None)

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        with self._target.translating_errors():
            abort(self._folder(self._open(session)), Places(at, self.name))

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:
        with self._target.translating_errors():
            forget(self._folder(self._open(session)), Places(at, self.name), owners=owners)

    def _check_may_open(self, files: FileSystem, schema: SchemaMode, data: DataMode) -> None:
        title, root = self._target.title, self._target.root
        if schema is SchemaMode.ERROR and not files.exists(""):
            raise Refused(
                f"{title}: there is no folder {root}; make it, or set schema_save_mode = "
                f"{SchemaMode.CREATE}"
            )
        info = next(files.files(), None) if data is DataMode.ERROR else None
        if info is not None:
            raise Refused(
                f"{title}: {root} holds files, such as {legible(info.path)}, and data_save_mode is "
                f"{DataMode.ERROR}; move them elsewhere, or set another mode"
            )

    def _folder(self, files: FileSystem) -> FolderTarget:
        title = f"{self._target.title}: folder {self._target.root}"
        return FolderTarget(files, title=title, clock=self._clock)

    def _open(self, session: SparkSession) -> FileSystem:
        return self._files or self._target.open(session, exclusive=True)

    def _names(self) -> FileNames:
        options, layout = self._options, self._layout
        extension = options.extension or _EXTENSIONS.get(layout.format, layout.format)
        is_native = layout.format in {"parquet", "orc"}
        suffix = "" if is_native else _SUFFIXES.get(options.codec, "")
        return FileNames(
            expression=options.name_expression or "${transactionId}",
            now=datetime.fromtimestamp(self._clock.wall_ms() / 1000, tz=UTC),
            time_format=options.name_time_format,
            extension="." + extension.lstrip(".") + suffix,
            partition_keys=layout.partition_by,
            partition_expression=options.partition_expression,
            numbered=not layout.single,
        )


def _layout(target: Target, options: FileSinkOptions) -> Layout:
    form = options.format
    layout = Layout(
        format=form,
        codec=_codec(target.title, form, options.codec),
        delimiter=options.delimiter or _DELIMITERS.get(form, ","),
        row_delimiter=options.row_delimiter or "\n",
        header=options.header,
        encoding=options.encoding,
        columns=options.columns,
        partition_by=_partition_by(target.title, options),
        keep_partition_columns=options.keeps_partition_columns,
        rows_per_file=options.rows_per_file,
        single=options.single_file,
        keep_empty=options.keeps_empty,
        quote_mode=options.quote_mode,
        int96=options.int96,
        sheet=options.sheet_name,
        sheet_rows_max=options.sheet_rows_max,
        root_tag=options.root_tag,
        row_tag=options.row_tag,
        attributes=options.uses_attributes,
        title=target.title,
    )
    flaw = _flaw(target, options, layout)
    if flaw is not None:
        raise Refused(f"{target.title}: {flaw}")
    return layout


def _flaw(target: Target, options: FileSinkOptions, layout: Layout) -> str | None:
    """What can't be met of the options together, or None."""
    form = options.format
    if form not in ENCODED and options.encoding.lower() not in {"utf-8", "utf8"}:
        return f"{form} has no 'encoding'; leave it out"
    if layout.header and layout.is_lines and layout.partition_by:
        return (
            f"{form} with partitions has no header yet; set file_format_type = csv with quotes, "
            "or leave 'enable_header_write' out"
        )
    if form in _LOCAL_ONLY and target.scheme != "file":
        return f"{form} is written to local folders only, and not to {target.scheme}://"
    if form == "binary" and (layout.partition_by or layout.columns or options.name_expression):
        return (
            "binary files keep their paths; leave 'sink_columns', 'have_partition' and "
            "'custom_filename' out"
        )
    for name, given, of in (
        ("parquet_avro_write_timestamp_as_int96", options.int96, "parquet"),
        ("csv_string_quote_mode", options.quote_mode != "MINIMAL", "csv"),
    ):
        if given and form != of:
            return f"{name} is for {of}, and the format is {form}; leave it out"
    return None


def _codec(title: str, form: str, wanted: str) -> str:
    codec = _CODECS[form].get(wanted)
    if codec is None:
        known = ", ".join(_CODECS[form])
        raise Refused(f"{title}: {form} can't be compressed by {wanted!r}; known are {known}")
    return codec


def _partition_by(title: str, options: FileSinkOptions) -> Sequence[str]:
    if not options.has_partitions:
        return ()
    if not options.partition_by:
        raise Refused(f"{title}: have_partition = true needs the option 'partition_by'")
    return options.partition_by
