"""The LocalFile and HdfsFile sources. A slice lists files with their sizes and modification times.

When a file of a slice has changed or vanished since it was planned, the slice can't give the same
rows again, and reading it is refused (E5). `choose_batch` and `choose_arrived` decide which files
come next. They are pure: a listing and a position give a choice and the next position.

*Batch* reads what is there, in the order of names; the position is the last name read.

*Streaming* reads what arrives, in the order of (time modified, name). Files do not arrive in that
order, so the position is a *low mark* and the files that were read above it: a file above the low
mark that was not read is new. The low mark stays LATE_MAX_MS behind the newest file read, and rises
faster when more than SEEN_MAX files, or names of more than SEEN_BYTES_MAX, are above it: a position
never grows beyond that. A file that arrives below the low mark is never read. That there are such
files is noticed by their number: more lie below the mark than were read there.

However fast the low mark rises, it stays below every file that is not *settled*: a file is read
SETTLE_MS after it was last written to. So a file that is moved in whole within that time is never
missed, and one that is still being written is not read in part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from headrace.connectors.columns import spark_schema
from headrace.connectors.connector import Setting, Source
from headrace.connectors.files.descriptor import FileSourceOptions
from headrace.connectors.files.places import Target
from headrace.connectors.files.read import (
    CONTENT,
    SEPARATORS,
    ReadAs,
    TimeFormats,
    check_headers,
    read,
    too_deep,
)
from headrace.errors import Refused, Unavailable
from headrace.model.text import legible, storing_flaw
from headrace.plugins.schema import PlainType, TableSchema
from headrace.protocol.messages import Slice
from headrace.spark.errors import one_line
from headrace.spark.filesystem import FileInfo, FileSystem

SETTLE_MS = 5_000  # without a change, after which a file counts as whole
LATE_MAX_MS = 3_600_000  # how much older than the newest file read a new one may be
SEEN_MAX = 1_000  # files that a position holds by name
SEEN_BYTES_MAX = 100_000  # for these names as JSON, since the store keeps positions
SLICE_BYTES_MAX = 200_000  # for a slice's names as JSON, since the store keeps plans, too
MARK_BYTES = 30  # that a file takes in JSON beside its name: time, size and commas
ROW_BYTES_GUESS = 100  # by which a slice is limited to a number of rows without reading any
_NEED_SCHEMA = frozenset({"csv", "json"})
_LINES = frozenset({"text", "csv"})
_COLUMNAR = frozenset({"parquet", "orc"})
FileMark = tuple[int, str]  # time modified in ms, and name


class FilesPosition(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = ""  # batch: the last name read
    low: FileMark = (-1, "")  # streaming: the low mark
    seen: tuple[FileMark, ...] = ()  # files read above it
    below: int = 0  # how many files were read at the low mark or below it


@dataclass(frozen=True, slots=True)
class ArrivedFiles:
    files: Sequence[FileInfo]
    after: FilesPosition
    last: bool  # no file comes after these
    late: int = 0  # at least so many files arrived below the low mark, and are never read


class _Files(BaseModel):
    """What a slice holds: (path below the root, bytes, time modified in ms) of each file."""

    files: tuple[tuple[str, int, int], ...]


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
        self._target = Target.of(f"source {name}", options.folder)
        self._how = self._read_as(options)
        self.takes_conditions = self._how.format in _COLUMNAR
        self._pattern = re.compile(options.name_pattern) if options.name_pattern else None

    def plan(
        self, session: SparkSession, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        """The next slice. None at the end, or while streaming, when nothing has arrived yet."""
        before = FilesPosition.model_validate(position) if position is not None else None
        with self._target.translating_errors():
            files = self._files or self._target.open(session)
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
        data = _Files(files=tuple((one.path, one.bytes, one.modified_ms) for one in choice.files))
        after = choice.after.model_dump(mode="json", exclude_defaults=True)
        return Slice(data=data.model_dump(mode="json"), after=after, last=choice.last)

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
        for info in files.files():
            if not self.bounded and not settled(info, now_ms=now_ms):
                continue
            name = (info.path or self._target.root).rpartition("/")[2]
            if name.endswith("._COPYING_"):  # `hdfs dfs -put` is still writing it
                continue
            if self._pattern is None or self._pattern.fullmatch(name):
                self._check_name(files, info)
                yield info

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
        wanted = _Files.model_validate(part.data).files
        with self._target.translating_errors():
            files = self._files or self._target.open(session)
            self._check_unchanged(files, wanted)
        if not wanted:
            return self.empty(session)
        # Spark skips files of 0 bytes; reading the header of an empty .gz file would fail.
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
        """No rows, with the columns of a file that is there: files and folders may add columns."""
        with self._target.translating_errors():
            files = self._files or self._target.open(session)
            example = next(self._matching_files(files), None)
        if example is None:
            return self._declared(session)
        return self._frame(session, files, [example.path]).limit(0)

    def _frame(self, session: SparkSession, files: FileSystem, names: Sequence[str]) -> DataFrame:
        try:
            return read(session, *self._paths(session, files, names))
        except AnalysisException as error:
            raise Refused(f"source {self.name}: {one_line(error)}") from error

    def _paths(
        self, session: SparkSession, files: FileSystem, names: Sequence[str]
    ) -> tuple[Sequence[str], ReadAs]:
        """The full paths of the files, and how they are read."""
        paths = [f"{files.root}/{name}" if name else files.root for name in names]
        how = replace(self._how, hadoop=self._target.settings(session))
        if how.base is not None:
            # A `path` that names a file stands for the folder it is in.
            root = files.root if names[0] else files.root.rpartition("/")[0]
            how = replace(how, base=_partition_base(root))
        return paths, how

    def _check_unchanged(self, files: FileSystem, wanted: Sequence[tuple[str, int, int]]) -> None:
        current = {info.path: info for info in files.files()}
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

    def _read_as(self, options: FileSourceOptions) -> ReadAs:
        form, table = options.format, options.schema
        if table is None and form in _NEED_SCHEMA:
            raise Refused(f"source {self.name}: {form} needs the option 'schema'")
        schema = spark_schema(table) if table else None
        self._check_options(form, schema, options.skip_lines)
        return ReadAs(
            format=form,
            schema=schema,
            base=self._target.root if options.parses_partitions else None,
            delimiter=options.delimiter or (SEPARATORS[0] if form == "text" else ","),
            skip_lines=options.skip_lines,
            encoding=options.encoding,
            times=TimeFormats(date=options.date_format, datetime=options.datetime_format),
            clock_columns=_clock_columns(table, options.time_format),
            columns=options.columns,
        )

    def _check_options(self, form: str, schema: spark.StructType | None, skip: int) -> None:
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


def choose_batch(
    listing: Iterable[FileInfo], position: FilesPosition | None, *, rows_max: int | None
) -> ArrivedFiles:
    """The next files of a batch."""
    left = sorted(
        (info for info in listing if position is None or info.path > position.name),
        key=lambda info: info.path,
    )
    files = _cut(left, rows_max)
    name = files[-1].path if files else (position.name if position else "")
    return ArrivedFiles(files, FilesPosition(name=name), last=len(files) == len(left))


def choose_arrived(
    listing: Iterable[FileInfo], position: FilesPosition | None, *, rows_max: int | None
) -> ArrivedFiles:
    """The next files of a stream.

    Raises `Refused` when a file was changed after it was read: its rows would come twice.
    """
    before = position or FilesPosition()
    read = {name: modified for modified, name in before.seen}
    new: list[FileInfo] = []
    below = 0
    for info in listing:
        if (info.modified_ms, info.path) <= before.low:
            below += 1
        elif info.path not in read:
            new.append(info)
        elif read[info.path] != info.modified_ms:
            raise Refused(
                f"{info.path} was changed after it was read; files must be moved in whole: "
                "give what was added a name of its own"
            )
    new.sort(key=lambda info: (info.modified_ms, info.path))
    files = _cut(new, rows_max)
    late = max(0, below - before.below)
    return ArrivedFiles(files, _position_after(before, files), last=False, late=late)


def settled(info: FileInfo, *, now_ms: int) -> bool:
    """Whether nobody has written to the file for SETTLE_MS. One from the future has to wait."""
    return info.modified_ms <= now_ms - SETTLE_MS


def _position_after(before: FilesPosition, files: Sequence[FileInfo]) -> FilesPosition:
    seen = sorted({*before.seen, *((info.modified_ms, info.path) for info in files)})
    if not seen:
        return before
    low = max(before.low, (seen[-1][0] - LATE_MAX_MS, ""))
    kept = _fitting(reversed([name for _, name in seen]), SEEN_BYTES_MAX, count_max=SEEN_MAX)
    if kept < len(seen):
        low = max(low, seen[-kept - 1])
    above = tuple(mark for mark in seen if mark > low)
    return FilesPosition(low=low, seen=above, below=before.below + len(seen) - len(above))


def _cut(files: Sequence[FileInfo], rows_max: int | None) -> Sequence[FileInfo]:
    """The first files, within the limits of a slice; at least one, as none can be read in part."""
    files = files[: _fitting((info.path for info in files), SLICE_BYTES_MAX)]
    if rows_max is None:
        return files
    total = 0
    for count, info in enumerate(files):
        total += info.bytes
        if count > 0 and total > rows_max * ROW_BYTES_GUESS:
            return files[:count]
    return files


def _fitting(names: Iterable[str], bytes_max: int, *, count_max: int | None = None) -> int:
    """How many of the first names fit into the limits; at least one."""
    total = 0
    count = 0
    for name in names:
        total += len(json.dumps(name)) + MARK_BYTES
        if count > 0 and (total > bytes_max or count == count_max):
            break
        count += 1
    return count


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
