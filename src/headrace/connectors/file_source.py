"""LocalFile and HdfsFile, as sources. A slice is a list of files with their sizes and times (E5).

When a file of a slice has changed or gone since it was planned, the slice can't give the same rows
again, and reading it is refused. A job in batch mode reads what is there; in streaming mode it
reads what arrives, see arrivals.py.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic import BaseModel, JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from headrace.clock import Clock, SystemClock
from headrace.connectors.arrivals import Position, choose_arrived, choose_batch, settled
from headrace.connectors.connector import Setting
from headrace.connectors.file_target import Target
from headrace.connectors.types import spark_schema
from headrace.errors import Refused, Unavailable
from headrace.formats.files.filesystem import FileInfo, FileSystem
from headrace.formats.files.reading import CONTENT, ReadAs, check_headers, read
from headrace.formats.files.text import SEPARATORS, TimeFormats, too_deep
from headrace.formats.spark_errors import one_line
from headrace.jobfile.schema import TableSchema, parse_schema
from headrace.jobfile.types import PlainType
from headrace.model.text import legible, storing_flaw
from headrace.protocol.payloads import Slice

log = logging.getLogger(__name__)

_NEED_SCHEMA = frozenset({"csv", "json"})
_LINES = frozenset({"text", "csv"})
_COLUMNAR = frozenset({"parquet", "orc"})


class _Files(BaseModel):
    """What a slice holds: (path below the root, bytes, time modified in ms) of each file."""

    files: tuple[tuple[str, int, int], ...]


class FileSource:
    repeatable = True

    def __init__(
        self,
        name: str,
        setting: Setting,
        *,
        files: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.bounded = not setting.streaming
        self._options, self._files, self._clock = setting.options, files, clock or SystemClock()
        self._late = 0  # files, as last told
        self._target = Target.of(f"source {name}", setting.options)
        self._how = self._read_as()
        self.takes_conditions = self._how.format in _COLUMNAR
        pattern = setting.options.get("file_filter_pattern")
        self._pattern = re.compile(str(pattern)) if pattern else None

    def plan(self, position: JsonValue, *, rows_max: int | None = None) -> Slice | None:
        """While streaming, None says that nothing has arrived yet."""
        before = Position.model_validate(position) if position is not None else None
        with self._target.told():
            files = self._files or self._target.open()
            if not files.exists(""):
                raise self._missing(before)
            found = list(self._listed(files))
        choose = choose_batch if self.bounded else choose_arrived
        try:
            choice = choose(found, before, rows_max=rows_max)
        except Refused as refused:
            raise Refused(f"source {self.name}: {refused}") from refused
        self._tell_late(choice.late)
        if not choice.files and (before is not None or not self.bounded):
            return None
        data = _Files(files=tuple((one.path, one.bytes, one.modified_ms) for one in choice.files))
        after = choice.after.model_dump(mode="json", exclude_defaults=True)
        return Slice(data=data.model_dump(mode="json"), after=after, last=choice.last)

    def _missing(self, before: Position | None) -> Refused | Unavailable:
        said = f"source {self.name}: there is no {self._target.root}"
        if before is None or self.bounded:
            return Refused(f"{said}; create it, or mend 'path'")
        # It was there: a disk that is not mounted at the moment ends no stream.
        return Unavailable(f"{said} any more; mount it, or create it again")

    def _tell_late(self, late: int) -> None:
        """They can't be read any more, but nobody should have to find that out by counting."""
        if late > self._late:
            facts = {"source": self.name, "files": late}
            log.warning("files came in too old to be read; touch them", extra=facts)
        self._late = late

    def _listed(self, files: FileSystem) -> Iterator[FileInfo]:
        now_ms = self._clock.wall_ms()  # before the listing: what settles meanwhile may wait
        for info in files.files():
            if not self.bounded and not settled(info, now_ms=now_ms):
                continue
            name = (info.path or self._target.root).rpartition("/")[2]
            if name.endswith("._COPYING_"):  # as `hdfs dfs -put` names a file that it still writes
                continue
            if self._pattern is None or self._pattern.fullmatch(name):
                self._check_name(files, info)
                yield info

    def _check_name(self, files: FileSystem, info: FileInfo) -> None:
        """The JVM opens no file whose name is no text, and a position could not tell of it."""
        if storing_flaw(info.path) is None:
            return
        raise Refused(
            f"source {self.name}: the name of {files.root}/{legible(info.path)} is not UTF-8, and "
            "Spark can't open such a file; rename it, or leave it out by 'file_filter_pattern'. "
            "Until then no further file of the folder is read"
        )

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        wanted = _Files.model_validate(part.data).files
        with self._target.told():
            files = self._files or self._target.open(session)
            self._check_unchanged(files, wanted)
        if not wanted:
            return self.empty(session)
        # Spark opens no file of 0 bytes, and one that is called .gz could not be unpacked.
        self._check_headers(session, files, [path for path, size, _ in wanted if size > 0])
        return self._frame(session, files, [path for path, _, _ in wanted])

    def _check_headers(
        self, session: SparkSession, files: FileSystem, names: Sequence[str]
    ) -> None:
        if not names:
            return
        try:
            check_headers(session, *self._paths(session, files, names))
        except Refused as refused:
            raise Refused(f"source {self.name}: {refused}") from refused

    def empty(self, session: SparkSession) -> DataFrame:
        """With the columns of a file that is there, since folders and files may bring their own."""
        with self._target.told():
            files = self._files or self._target.open(session)
            some = next(self._listed(files), None)
        if some is None:
            return self._declared(session)
        return self._frame(session, files, [some.path]).limit(0)

    def _frame(self, session: SparkSession, files: FileSystem, names: Sequence[str]) -> DataFrame:
        try:
            return read(session, *self._paths(session, files, names))
        except AnalysisException as error:
            raise Refused(f"source {self.name}: {one_line(error)}") from error

    def _paths(
        self, session: SparkSession, files: FileSystem, names: Sequence[str]
    ) -> tuple[Sequence[str], ReadAs]:
        """Where the files are, and how they are read."""
        paths = [f"{files.root}/{name}" if name else files.root for name in names]
        how = replace(self._how, hadoop=self._target.settings(session))
        if how.base is not None:
            # A `path` that names a file stands for the folder it is in.
            root = files.root if names[0] else files.root.rpartition("/")[0]
            how = replace(how, base=_base(root))
        return paths, how

    def _check_unchanged(self, files: FileSystem, wanted: Sequence[tuple[str, int, int]]) -> None:
        there = {info.path: info for info in files.files()}
        for path, size, modified_ms in wanted:
            now = there.get(path)
            if now is not None and (now.bytes, now.modified_ms) == (size, modified_ms):
                continue
            what = "is gone" if now is None else "has changed"
            raise Refused(
                f"source {self.name}: {files.root}/{path} {what} since the epoch was planned "
                f"({size} bytes then), so the epoch can't give the same rows again; "
                "put the file back as it was, or submit the job anew"
            )

    def _declared(self, session: SparkSession) -> DataFrame:
        schema = self._how.schema
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

    def _read_as(self) -> ReadAs:
        options = self._options
        form = str(options["file_format_type"])
        table = parse_schema(options["schema"]) if options.get("schema") else None
        if table is None and form in _NEED_SCHEMA:
            raise Refused(f"source {self.name}: {form} needs the option 'schema'")
        schema = spark_schema(table) if table else None
        skip = int(options.get("skip_header_row_number") or 0)
        self._check(form, schema, skip)
        return ReadAs(
            format=form,
            schema=schema,
            base=self._target.root if options.get("parse_partition_from_path") else None,
            delimiter=str(
                options.get("field_delimiter") or (SEPARATORS[0] if form == "text" else ",")
            ),
            skip_lines=skip,
            encoding=str(options.get("encoding") or "UTF-8"),
            times=TimeFormats(
                date=options.get("date_format"), datetime=options.get("datetime_format")
            ),
            clock_columns=_clock_columns(table, options.get("time_format")),
            columns=[
                str(name) for name in cast("Sequence[Any]", options.get("read_columns") or ())
            ],
        )

    def _check(self, form: str, schema: spark.StructType | None, skip: int) -> None:
        if form == "csv" and skip > 1:
            raise Refused(
                f"source {self.name}: skip_header_row_number of csv may be 0 or 1, and is {skip}"
            )
        if skip and form not in _LINES:
            raise Refused(
                f"source {self.name}: {form} has no header; leave 'skip_header_row_number' out"
            )
        for column in schema.fields if schema and form in _LINES else ():
            if too_deep(column.dataType):
                raise Refused(
                    f"source {self.name}: column {column.name!r} is nested too deep for {form}"
                )


def _base(root: str) -> str:
    """The folder above the first `k=v` of a path: also what stands in `path` itself is a column."""
    parts = root.split("/")
    first = next((number for number, part in enumerate(parts) if "=" in part), len(parts))
    return "/".join(parts[:first])


def _clock_columns(table: TableSchema | None, pattern: str | None) -> dict[str, str]:
    """Times of day are texts in Spark; with their format, when one is given."""
    return {
        column.name: pattern or ""
        for column in (table.columns if table else ())
        if isinstance(column.type, PlainType) and column.type.name == "time"
    }
