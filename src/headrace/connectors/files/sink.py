"""The LocalFile and HdfsFile sinks: exactly once, by means of a manifest (commit.py).

A folder has no schema, so RECREATE_SCHEMA deletes its files, as DROP_DATA does.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headrace.clock import Clock, SystemClock
from headrace.connectors.connector import (
    Committed,
    Mark,
    Setting,
    Staged,
    check_given_up,
    check_spender,
)
from headrace.connectors.files.commit import (
    FilesHandle,
    FolderOpening,
    abort,
    commit,
    look_marked,
    open_target,
    survey,
    sweep,
)
from headrace.connectors.files.forget import forget, forget_strays
from headrace.connectors.files.places import PARTITION_EXPRESSION, FileNames, Places, Target
from headrace.connectors.files.read import SEPARATORS
from headrace.connectors.files.write import Layout, stage
from headrace.errors import Refused
from headrace.jobfile.option_values import DataMode, SchemaMode, data_mode, opens, schema_mode
from headrace.model.jobs.epoch import EpochAt, SpentBy
from headrace.model.text import legible
from headrace.spark.errors import one_line
from headrace.spark.filesystem import FileSystem
from headrace.spark.jvm import JAVA_ERRORS

log = logging.getLogger(__name__)

_EXTENSIONS = {"text": "txt", "csv": "csv", "json": "json", "parquet": "parquet", "orc": "orc"}
_LINES = {"none": "none", "gzip": "gzip"}
# For each format: SeaTunnel's name of a codec, and Spark's.
_CODECS: Mapping[str, Mapping[str, str]] = {
    "text": _LINES,
    "csv": _LINES,
    "json": _LINES,
    "parquet": {
        "none": "uncompressed",
        "snappy": "snappy",
        "gzip": "gzip",
        "lz4": "lz4raw",
        "zstd": "zstd",
    },
    "orc": {"none": "none", "snappy": "snappy", "zlib": "zlib", "lz4": "lz4", "zstd": "zstd"},
}
_ANY_ENCODING = frozenset({"text", "csv", "json"})


class FileSink:
    leaves_stage = True

    def __init__(
        self,
        name: str,
        setting: Setting,
        *,
        clock: Clock | None = None,
        files: FileSystem | None = None,
    ) -> None:
        self.name = name
        self._options, self._clock, self._files = setting.options, clock or SystemClock(), files
        self._target = Target.of(f"sink {name}", setting.options)
        self._layout = _layout(name, setting.options)
        self.opens = opens(setting.options)

    def read_mark(self, session: SparkSession, at: EpochAt) -> Mark | None:
        with self._target.translating_errors():
            mark = look_marked(self._open(session), Places(at, self.name))
        return mark and Mark(mark[0], aborted=mark[1].by is SpentBy.ABORT)

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:  # noqa: ARG002
        schema, data = schema_mode(self._options), data_mode(self._options)
        with self._target.translating_errors():
            files = self._open(session)
            self._check_may_open(files, schema, data)
            deletes = schema is SchemaMode.RECREATE or data is DataMode.DROP
            opening = survey(files, Places(at, self.name), deletes=deletes)
        return opening.model_dump(mode="json")

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        with self._target.translating_errors():
            opening = FolderOpening.model_validate(handle)
            outcome = open_target(self._open(session), Places(at, self.name), opening)
        deleted = len(outcome.manifest.deletes)
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
        with self._target.translating_errors():
            staged = FilesHandle.model_validate(handle)
            outcome = commit(self._open(session), Places(at, self.name), staged)
        target, held = f"{self._target.title}: {self._target.root}", outcome.manifest.execution
        check_spender(target, at, staged=staged.execution, held=held)
        moves = outcome.manifest.moves
        facts: dict[str, JsonValue] = {
            "folder": self._target.root,
            "files": len(moves),
            "rows": outcome.manifest.rows,
            "bytes": sum(move.bytes for move in moves),
        }
        return Committed(outcome.already, facts)

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:  # noqa: ARG002
        # The handle is not needed: the manifest says everything.
        with self._target.translating_errors():
            sweep(self._open(session), Places(at, self.name))

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        with self._target.translating_errors():
            manifest = abort(self._open(session), Places(at, self.name))
        target = f"{self._target.title}: folder {self._target.root}"
        check_given_up(target, at, holds_rows=manifest.by is SpentBy.DATA)

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:
        with self._target.translating_errors():
            files = self._open(session)
            forget(files, Places(at, self.name))
            if owners is not None:
                known = {at.incarnation, *owners}
                forget_strays(files, known, now_ms=self._clock.wall_ms())

    def close(self, rows: int) -> None:
        """Nothing is open between two epochs."""

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

    def _open(self, session: SparkSession) -> FileSystem:
        return self._files or self._target.open(session, exclusive=True)

    def _names(self) -> FileNames:
        options, layout = self._options, self._layout
        extension = options.get("filename_extension") or _EXTENSIONS[layout.format]
        custom = bool(options.get("custom_filename"))
        return FileNames(
            expression=str(options["file_name_expression"]) if custom else "${transactionId}",
            now=datetime.fromtimestamp(self._clock.wall_ms() / 1000, tz=UTC),
            time_format=str(options["filename_time_format"]),
            extension="." + str(extension).lstrip(".") + (".gz" if layout.codec == "gzip" else ""),
            partition_keys=layout.partition_by,
            partition_expression=str(
                options.get("partition_dir_expression") or PARTITION_EXPRESSION
            ),
            numbered=not layout.single,
        )


def _layout(name: str, options: Mapping[str, Any]) -> Layout:
    form = str(options.get("file_format_type") or "csv")
    encoding = str(options.get("encoding") or "UTF-8")
    if form not in _ANY_ENCODING and encoding.lower() not in {"utf-8", "utf8"}:
        raise Refused(f"sink {name}: {form} has no 'encoding'; leave it out")
    layout = Layout(
        format=form,
        codec=_codec(name, form, str(options.get("compress_codec") or "none")),
        delimiter=str(options.get("field_delimiter") or (SEPARATORS[0] if form == "text" else ",")),
        row_delimiter=str(options.get("row_delimiter") or "\n"),
        header=bool(options.get("enable_header_write")),
        encoding=encoding,
        columns=_list(options.get("sink_columns")),
        partition_by=_partition_by(name, options),
        keep_partition_columns=bool(options.get("is_partition_field_write_in_file")),
        rows_per_file=int(options.get("batch_size") or 0),
        single=bool(options.get("single_file_mode")),
        keep_empty=bool(options.get("create_empty_file_when_no_data")),
    )
    if layout.header and form == "text" and layout.partition_by:
        raise Refused(
            f"sink {name}: text with partitions has no header yet; set file_format_type = csv, "
            "or leave 'enable_header_write' out"
        )
    return layout


def _codec(name: str, form: str, wanted: str) -> str:
    codec = _CODECS[form].get(wanted)
    if codec is None:
        known = ", ".join(_CODECS[form])
        raise Refused(f"sink {name}: {form} can't be compressed by {wanted!r}; known are {known}")
    return codec


def _partition_by(name: str, options: Mapping[str, Any]) -> Sequence[str]:
    keys = _list(options.get("partition_by"))
    if options.get("have_partition"):
        if not keys:
            raise Refused(f"sink {name}: have_partition = true needs the option 'partition_by'")
        return keys
    if keys:  # ignored, as in SeaTunnel
        message = "partition_by has no effect while have_partition is false"
        log.warning(message, extra={"sink": name})
    return ()


def _list(value: Any) -> list[str]:
    return [str(item) for item in cast("Sequence[Any]", value or ())]
