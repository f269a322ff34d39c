"""Which rows of an Iceberg table come next. Pure: a history and a position give a choice.

A position is the snapshot up to which everything is read; None in it stands for a table that had
no snapshot yet. A choice is one snapshot as a whole, or what was appended behind one up to
another. It never begins or ends inside of a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from headrace.errors import Refused
from headrace.formats.iceberg.history import APPEND, OVERWRITE, History, Snapshot, SnapshotGone


class Strategy(StrEnum):
    LATEST = "FROM_LATEST_SNAPSHOT"
    EARLIEST = "FROM_EARLIEST_SNAPSHOT"
    SNAPSHOT = "FROM_SNAPSHOT_ID"
    TIMESTAMP = "FROM_SNAPSHOT_TIMESTAMP"
    TABLE = "TABLE_SCAN_THEN_INCREMENTAL"


class Position(BaseModel):
    model_config = ConfigDict(frozen=True)

    snapshot: int | None  # read up to here; None: to before the first one
    end: int | None = None  # of a batch: where it ends


class Part(BaseModel):
    """What a slice holds. `schema_id` fixes the columns, whatever becomes of the table's."""

    model_config = ConfigDict(frozen=True)

    schema_id: int
    whole: int | None = None  # a snapshot, with all its rows
    after: int | None = None  # or what was appended behind this one
    until: int | None = None  # up to this one; the same one twice: nothing


@dataclass(frozen=True, slots=True)
class Choice:
    part: Part
    rows: int | None
    after: Position
    last: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch job reads: a snapshot, or what was appended in a range."""

    snapshot: int | None = None
    at_ms: int | None = None
    start: int | None = None  # exclusive
    end: int | None = None  # inclusive

    @property
    def ranged(self) -> bool:
        return self.start is not None or self.end is not None


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a streaming job begins; each of them is inclusive."""

    strategy: Strategy
    snapshot: int | None = None
    at_ms: int | None = None


def choose_batch(
    history: History, position: Position | None, wanted: Batch, *, rows_max: int | None
) -> Choice | None:
    if history.current is None and position is None and wanted == Batch():
        return None  # a table without a snapshot has no rows
    if not wanted.ranged:
        return _one_snapshot(history, wanted) if position is None else None
    before = position or _range(history, wanted)
    if before.snapshot == before.end:
        return None
    assert before.end is not None
    choice = _appended(history, before, history.find(before.end), rows_max=rows_max)
    return Choice(choice.part, choice.rows, choice.after, last=choice.after.snapshot == before.end)


def choose_stream(
    history: History, position: Position | None, wanted: Stream, *, rows_max: int | None
) -> Choice | None:
    """None: nothing new."""
    if position is None:
        return _begin(history, wanted, rows_max=rows_max)
    current = history.current
    if current is None or current.id == position.snapshot:
        if current is None and position.snapshot is not None:
            raise SnapshotGone(f"{history.table} was made anew; submit the job anew")
        return None
    return _appended(history, position, current, rows_max=rows_max)


def _one_snapshot(history: History, wanted: Batch) -> Choice:
    if wanted.snapshot is not None:
        snapshot = history.find(wanted.snapshot)
    elif wanted.at_ms is not None:
        snapshot = history.as_of(wanted.at_ms)
    else:
        assert history.current is not None
        snapshot = history.current
    choice = _whole(history, snapshot)
    return Choice(choice.part, choice.rows, choice.after, last=True)


def _range(history: History, wanted: Batch) -> Position:
    end = history.find(wanted.end) if wanted.end is not None else history.current
    if end is None:
        raise Refused(f"{history.table} has no snapshot yet; leave 'start_snapshot_id' out")
    start = wanted.start
    if start is not None:
        history.between(start, end)  # refuses what is not all there
    else:
        start = _before(list(history.lineage(end))[-1])
    return Position(snapshot=start, end=end.id)


def _begin(history: History, wanted: Stream, *, rows_max: int | None) -> Choice | None:
    current = history.current
    if current is None:
        if wanted.strategy is Strategy.SNAPSHOT and wanted.snapshot is not None:
            history.find(wanted.snapshot)
        if wanted.strategy is Strategy.TIMESTAMP:
            return None
        # Recorded, so that of several snapshots that come at once none is missed.
        return _nothing(history, None)
    if wanted.strategy is Strategy.TABLE:
        return _whole(history, current)
    first = _first(history, current, wanted)
    if first is None:
        return None
    before = _before(first)
    if before == current.id:
        return _nothing(history, current.id)
    return _appended(history, Position(snapshot=before), current, rows_max=rows_max)


def _first(history: History, current: Snapshot, wanted: Stream) -> Snapshot | None:
    """The first snapshot to read."""
    lineage = list(history.lineage(current))
    match wanted.strategy:
        case Strategy.LATEST | Strategy.TABLE:
            return current
        case Strategy.EARLIEST:
            return lineage[-1]
        case Strategy.SNAPSHOT:
            assert wanted.snapshot is not None
            found = history.find(wanted.snapshot)
            if found not in lineage:
                raise SnapshotGone(
                    f"snapshot {found.id} of {history.table} is not before its current one, "
                    f"{current.id}; name one that is"
                )
            return found
        case Strategy.TIMESTAMP:
            assert wanted.at_ms is not None
            return _since(history, lineage, wanted.at_ms)


def _since(history: History, lineage: Sequence[Snapshot], at_ms: int) -> Snapshot | None:
    """The first snapshot at a time or later. None: there is none yet."""
    later = [snapshot for snapshot in lineage if snapshot.at_ms >= at_ms]
    if later and later[-1] is lineage[-1] and later[-1].parent is not None:
        raise SnapshotGone(
            f"the oldest snapshot that {history.table} keeps, {later[-1].id}, is younger than "
            f"{at_ms} ms, and others before it were expired; begin later, or with "
            f"{Strategy.EARLIEST} or {Strategy.TABLE}"
        )
    return later[-1] if later else None


def _before(first: Snapshot) -> int | None:
    """The position from which `first` is the next to read, or from which it is read already."""
    return first.parent if first.operation in {APPEND, OVERWRITE} else first.id


def _whole(history: History, snapshot: Snapshot) -> Choice:
    schema = history.schema if snapshot.schema is None else snapshot.schema
    part = Part(schema_id=schema, whole=snapshot.id)
    return Choice(part, snapshot.total_rows, Position(snapshot=snapshot.id))


def _nothing(history: History, snapshot: int | None) -> Choice:
    part = Part(schema_id=history.schema, after=snapshot, until=snapshot)
    return Choice(part, 0, Position(snapshot=snapshot))


def _appended(
    history: History, position: Position, until: Snapshot, *, rows_max: int | None
) -> Choice:
    steps = history.between(position.snapshot, until)
    if position.snapshot is None:  # all that the first one holds was appended by it
        first = _whole(history, steps[0])
        return Choice(first.part, first.rows, Position(snapshot=steps[0].id, end=position.end))
    taken = _cut(history, steps, rows_max)
    rows: int | None = 0
    for step in taken:
        rows = None if rows is None or step.added_rows is None else rows + step.added_rows
    end = taken[-1].id
    part = Part(schema_id=history.schema, after=position.snapshot, until=end)
    return Choice(part, rows, Position(snapshot=end, end=position.end))


def _cut(history: History, steps: Sequence[Snapshot], rows_max: int | None) -> Sequence[Snapshot]:
    """At least one with rows: none can be read in part. Up to one that is no append."""
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
