"""The Iceberg source: one snapshot in batch mode, what is appended in streaming mode.

A slice names snapshots, which never change, and the schema its columns come from. So it gives the
same rows again, or is refused because a snapshot was expired (E5).

`choose_batch` and `choose_stream` decide which rows come next. They are pure: a history and a
position give a choice. A position is the snapshot up to which everything is read; None in it stands
for a table that had no snapshot yet. A choice is one snapshot as a whole, or what was appended
after one snapshot up to another. It never begins or ends inside of a snapshot.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as spark

from headrace.connectors.columns import spark_schema
from headrace.connectors.connector import Setting, Source
from headrace.connectors.iceberg.descriptor import IcebergSourceOptions, Strategy
from headrace.connectors.iceberg.table_ref import table_ref
from headrace.errors import Refused
from headrace.lake.iceberg.catalogs import TableMissing, load_table
from headrace.lake.iceberg.snapshots import (
    APPEND,
    OVERWRITE,
    History,
    Snapshot,
    SnapshotGone,
    history_of,
    read_appended,
    read_nothing,
    read_snapshot,
)
from headrace.protocol.messages import Slice
from headrace.spark.errors import one_line
from headrace.spark.sql_guard import code_function_of_condition, runs_code


class SnapshotPosition(BaseModel):
    model_config = ConfigDict(frozen=True)

    snapshot: int | None  # everything up to it is read; None: nothing is read yet
    end: int | None = None  # in batch mode: the last snapshot to read


class Part(BaseModel):
    """What a slice holds. `schema_id` fixes the columns, however the table's columns change."""

    model_config = ConfigDict(frozen=True)

    schema_id: int
    whole: int | None = None  # a snapshot that is read with all its rows
    after: int | None = None  # or: the rows appended after this snapshot
    until: int | None = None  # up to this one; no rows when both are the same


@dataclass(frozen=True, slots=True)
class ChosenSnapshots:
    part: Part
    rows: int | None
    after: SnapshotPosition
    last: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch job reads: a snapshot, or what was appended in a range of snapshots."""

    snapshot: int | None = None
    at_ms: int | None = None
    start: int | None = None  # exclusive
    end: int | None = None  # inclusive

    @property
    def ranged(self) -> bool:
        return self.start is not None or self.end is not None


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a streaming job begins; each starting point is inclusive."""

    strategy: Strategy
    snapshot: int | None = None
    at_ms: int | None = None


class IcebergSource(Source):
    takes_conditions = True

    def __init__(self, name: str, options: IcebergSourceOptions, setting: Setting) -> None:
        self.name = name
        self.bounded = not setting.streaming
        self._title, self._options = f"source {name}", options
        self.table_ref = table_ref(self._title, options.table, warehouse=setting.warehouse)
        if flaw := options.flaw(streaming=setting.streaming):
            raise Refused(f"{self._title}: {flaw}")
        self._batch = Batch(
            snapshot=options.snapshot,
            at_ms=options.at_ms,
            start=options.start_snapshot,
            end=options.end_snapshot,
        )
        self._stream = Stream(
            options.strategy, snapshot=options.start_snapshot, at_ms=options.start_ms
        )
        self._columns = spark_schema(options.schema) if options.schema else None

    def plan(
        self, session: SparkSession, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        """The next slice. None at the end, or while streaming, when nothing was appended yet."""
        before = SnapshotPosition.model_validate(position) if position is not None else None
        with self._translating_errors():
            history = history_of(session, load_table(session, self.table_ref))
            choice = self._choose(history, before, rows_max)
        if choice is None:
            return None
        return Slice(
            data=choice.part.model_dump(mode="json", exclude_none=True),
            after=choice.after.model_dump(mode="json", exclude_defaults=True),
            rows=choice.rows if not self._options.where else None,
            last=choice.last,
        )

    def _choose(
        self, history: History, before: SnapshotPosition | None, rows_max: int | None
    ) -> ChosenSnapshots | None:
        if self.bounded:
            return choose_batch(history, before, self._batch, rows_max=rows_max)
        return choose_stream(history, before, self._stream, rows_max=rows_max)

    def read(self, session: SparkSession, part: Slice) -> DataFrame:
        wanted = Part.model_validate(part.data)
        with self._translating_errors():
            table = load_table(session, self.table_ref)
            return self._narrowed(_read(session, table, wanted))

    def empty(self, session: SparkSession) -> DataFrame:
        with self._translating_errors():
            table = load_table(session, self.table_ref)
            history = history_of(session, table)
            wanted = self._batch.snapshot if self.bounded else None
            fixed = history.snapshots.get(wanted) if wanted is not None else None
            schema = fixed.schema if fixed is not None else None
            return self._narrowed(read_nothing(session, table, schema=schema))

    def _filtered(self, frame: DataFrame, where: str) -> DataFrame:
        """Apply a condition that runs no code: it may only query, as in the Sql transform."""
        if (function := code_function_of_condition(frame.sparkSession, where)) is not None:
            raise Refused(f"where_clause: function {function} runs Java code; leave it out")
        filtered = frame.filter(where)
        if (reason := runs_code(filtered)) is not None:
            raise Refused(f"where_clause: {reason}")
        return filtered

    def _narrowed(self, frame: DataFrame) -> DataFrame:
        """The rows and columns that `where_clause` and `schema` leave."""
        if self._options.where:
            frame = self._filtered(frame, self._options.where)
        if self._columns is None:
            return frame
        return frame.select(*(self._schema_column(frame, field) for field in self._columns.fields))

    def _schema_column(self, frame: DataFrame, field: spark.StructField) -> Any:
        exact = self._options.case_sensitive
        for column in frame.schema.fields:
            if field.name == column.name or (
                not exact and field.name.lower() == column.name.lower()
            ):
                value = f.col("`" + column.name.replace("`", "``") + "`")
                return value.cast(field.dataType).alias(field.name)
        named = ", ".join(frame.columns)
        raise Refused(
            f"{self.table_ref} has no column {field.name}, which 'schema' names; it has {named}"
        )

    @contextmanager
    def _translating_errors(self) -> Generator[None]:
        """Raise the table's errors as `Refused`, with the plugin's name in them."""
        try:
            yield
        except TableMissing as error:
            raise Refused(
                f"{self._title}: there is no table {error.ref}; create it, or mend 'table'"
            ) from error
        except AnalysisException as error:
            raise Refused(f"{self._title}: {self.table_ref}: {one_line(error)}") from error
        except Refused as refused:
            raise Refused(f"{self._title}: {refused}") from refused


def _read(session: SparkSession, table: Any, wanted: Part) -> DataFrame:
    history = history_of(session, table)
    if wanted.whole is not None:
        return read_snapshot(session, table, history.find(wanted.whole).id)
    if wanted.until is None or wanted.after is None or wanted.until == wanted.after:
        return read_nothing(session, table, schema=wanted.schema_id)
    # Refuses a gap: Spark would step over snapshots that are missing, and lose their rows.
    history.between(wanted.after, history.find(wanted.until))
    return read_appended(
        session, table, after=wanted.after, until=wanted.until, schema=wanted.schema_id
    )


def choose_batch(
    history: History, position: SnapshotPosition | None, wanted: Batch, *, rows_max: int | None
) -> ChosenSnapshots | None:
    """What a batch job reads next; None at its end."""
    if history.current is None and position is None and wanted == Batch():
        return None  # a table without a snapshot has no rows
    if not wanted.ranged:
        return _one_snapshot(history, wanted) if position is None else None
    before = position or _batch_range(history, wanted)
    if before.snapshot == before.end:
        return None
    assert before.end is not None
    choice = _appended(history, before, history.find(before.end), rows_max=rows_max)
    return ChosenSnapshots(
        choice.part, choice.rows, choice.after, last=choice.after.snapshot == before.end
    )


def choose_stream(
    history: History, position: SnapshotPosition | None, wanted: Stream, *, rows_max: int | None
) -> ChosenSnapshots | None:
    """What a streaming job reads next; None when nothing is new."""
    if position is None:
        return _begin(history, wanted, rows_max=rows_max)
    current = history.current
    if current is None or current.id == position.snapshot:
        if current is None and position.snapshot is not None:
            raise SnapshotGone(f"{history.table} was made anew; submit the job anew")
        return None
    return _appended(history, position, current, rows_max=rows_max)


def _one_snapshot(history: History, wanted: Batch) -> ChosenSnapshots:
    if wanted.snapshot is not None:
        snapshot = history.find(wanted.snapshot)
    elif wanted.at_ms is not None:
        snapshot = history.as_of(wanted.at_ms)
    else:
        assert history.current is not None
        snapshot = history.current
    choice = _whole(history, snapshot)
    return ChosenSnapshots(choice.part, choice.rows, choice.after, last=True)


def _batch_range(history: History, wanted: Batch) -> SnapshotPosition:
    end = history.find(wanted.end) if wanted.end is not None else history.current
    if end is None:
        raise Refused(f"{history.table} has no snapshot yet; leave 'start_snapshot_id' out")
    start = wanted.start
    if start is not None:
        history.between(start, end)  # refuses a range with a gap
    else:
        start = _position_before(list(history.lineage(end))[-1])
    return SnapshotPosition(snapshot=start, end=end.id)


def _begin(history: History, wanted: Stream, *, rows_max: int | None) -> ChosenSnapshots | None:
    current = history.current
    if current is None:
        if wanted.strategy is Strategy.SNAPSHOT and wanted.snapshot is not None:
            history.find(wanted.snapshot)
        if wanted.strategy is Strategy.TIMESTAMP:
            return None
        # An empty slice records the position: if several snapshots come at once, none is missed.
        return _no_rows(history, None)
    if wanted.strategy is Strategy.TABLE:
        return _whole(history, current)
    first = _first_snapshot(history, current, wanted)
    if first is None:
        return None
    before = _position_before(first)
    if before == current.id:
        return _no_rows(history, current.id)
    return _appended(history, SnapshotPosition(snapshot=before), current, rows_max=rows_max)


def _first_snapshot(history: History, current: Snapshot, wanted: Stream) -> Snapshot | None:
    """The first snapshot to read."""
    lineage = list(history.lineage(current))
    match wanted.strategy:
        case Strategy.LATEST | Strategy.TABLE:
            return current
        case Strategy.EARLIEST:
            return lineage[-1]
        case Strategy.SNAPSHOT:
            assert wanted.snapshot is not None
            snapshot = history.find(wanted.snapshot)
            if snapshot not in lineage:
                raise SnapshotGone(
                    f"snapshot {snapshot.id} of {history.table} is not before its current one, "
                    f"{current.id}; name one that is"
                )
            return snapshot
        case Strategy.TIMESTAMP:
            assert wanted.at_ms is not None
            return _since(history, lineage, wanted.at_ms)


def _since(history: History, lineage: Sequence[Snapshot], at_ms: int) -> Snapshot | None:
    """The first snapshot at `at_ms` or later; None when there is none yet."""
    later = [snapshot for snapshot in lineage if snapshot.at_ms >= at_ms]
    if later and later[-1] is lineage[-1] and later[-1].parent is not None:
        raise SnapshotGone(
            f"the oldest snapshot that {history.table} keeps, {later[-1].id}, is younger than "
            f"{at_ms} ms, and others before it were expired; begin later, or with "
            f"{Strategy.EARLIEST} or {Strategy.TABLE}"
        )
    return later[-1] if later else None


def _position_before(first: Snapshot) -> int | None:
    """The position before `first`, so that it is read next; its own when it adds no rows."""
    return first.parent if first.operation in {APPEND, OVERWRITE} else first.id


def _whole(history: History, snapshot: Snapshot) -> ChosenSnapshots:
    schema = history.schema if snapshot.schema is None else snapshot.schema
    part = Part(schema_id=schema, whole=snapshot.id)
    return ChosenSnapshots(part, snapshot.total_rows, SnapshotPosition(snapshot=snapshot.id))


def _no_rows(history: History, snapshot: int | None) -> ChosenSnapshots:
    part = Part(schema_id=history.schema, after=snapshot, until=snapshot)
    return ChosenSnapshots(part, 0, SnapshotPosition(snapshot=snapshot))


def _appended(
    history: History, position: SnapshotPosition, until: Snapshot, *, rows_max: int | None
) -> ChosenSnapshots:
    steps = history.between(position.snapshot, until)
    if position.snapshot is None:  # the first snapshot appended all that it holds
        first = _whole(history, steps[0])
        return ChosenSnapshots(
            first.part, first.rows, SnapshotPosition(snapshot=steps[0].id, end=position.end)
        )
    taken = _cut(history, steps, rows_max)
    rows: int | None = 0
    for step in taken:
        rows = None if rows is None or step.added_rows is None else rows + step.added_rows
    end = taken[-1].id
    part = Part(schema_id=history.schema, after=position.snapshot, until=end)
    return ChosenSnapshots(part, rows, SnapshotPosition(snapshot=end, end=position.end))


def _cut(history: History, steps: Sequence[Snapshot], rows_max: int | None) -> Sequence[Snapshot]:
    """The first steps, within `rows_max` and up to one that is no append.

    At least one step with rows is taken, since none can be read in part.
    """
    taken = 0
    for count, step in enumerate(steps):
        rows = step.added_rows or 0
        if rows_max is not None and taken > 0 and taken + rows > rows_max:
            return steps[:count]
        taken += rows
        if step.operation != APPEND and not step.changes_nothing:
            if count > 0:
                return steps[:count]
            raise Refused(
                f"snapshot {step.id} of {history.table} is of the operation {step.operation!r}, "
                "which takes rows away or puts others in their place, and only appends can be "
                "read one after another; submit the job anew with stream_scan_strategy = "
                f"{Strategy.TABLE}, or begin behind it"
            )
    return steps
