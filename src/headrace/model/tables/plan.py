"""What a process rewrites: bins of the partitions that need it, as many as the budget has room for.

A bin stands in a plan only when it gains: fewer files, fewer deletes to apply, or (in a full) rows
put into the declared order. So the same files are not rewritten for ever, which is what users of
the peer report most. Partitions that waited longest come first, and one of them may be split over
several processes; only those whose last bin is in the plan are done with it and move their clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

from headrace.model.tables.bins import Bin, Packer
from headrace.model.tables.evaluate import Clock, Evaluated
from headrace.model.tables.files import DataFile, Partition, TableFiles
from headrace.model.tables.measure import Classifier, DeleteIndex, FileClass, FileSize
from headrace.model.tables.settings import OptimizingSettings
from headrace.model.tables.status import OptimizingType

K = TypeVar("K")  # a partition, or its name
BUDGET_PER_THREAD_BYTES = 512 * 1024 * 1024  # Amoro's max-input-file-size-per-thread


@dataclass(frozen=True, slots=True)
class Gain:
    """What a rewrite is predicted to change, and what it takes."""

    files_before: int
    files_after: int
    applied: int  # pairs of a file and a delete that are no more
    deletes_removed: int  # delete files that nothing needs afterwards
    bytes_before: int  # data and removed deletes
    bytes_after: int
    bytes_read: int
    cost: int

    @property
    def files_saved(self) -> int:
        return self.files_before - self.files_after

    @property
    def bytes_saved(self) -> int:
        return self.bytes_before - self.bytes_after

    def benefit(self, open_file_cost_bytes: int) -> float:
        """Bytes that a scan is spared for each byte read and written once; opening a file, or
        bringing a delete to it, counted as so many."""
        opened = open_file_cost_bytes * (self.files_saved + self.applied)
        return (opened + self.bytes_saved) / max(1, self.bytes_read + self.bytes_after)


@dataclass(frozen=True, slots=True)
class Room:
    """How much one process may take. A bin that exceeds it is taken when it is the first one, so
    that a plan never comes to nothing for want of room. None: any number."""

    bytes: int | None = None  # read, data and deletes: Amoro's budget counts input as well
    bins: int | None = None
    files: int | None = None


BOUNDLESS = Room()


@dataclass(frozen=True, slots=True)
class Plan:
    type: OptimizingType
    bins: Sequence[Bin]
    gain: Gain
    removed: frozenset[int]  # deletes that no file needs once every bin is replaced
    reserved: frozenset[int]  # deletes of these bins that files left out still need
    done: Mapping[Partition, OptimizingType]  # planned to their last bin
    left: Sequence[Partition]  # with bins that wait for another process, in their order
    left_out: Sequence[DataFile]  # that failed too often, and would have been rewritten


def plan(
    table: TableFiles,
    evaluated: Sequence[Evaluated],
    settings: OptimizingSettings,
    *,
    room: Room = BOUNDLESS,
    left_out: Collection[str] = (),
) -> Plan | None:
    """The plan for the partitions that need optimizing; None when no rewrite gains anything.

    `left_out` are paths not to be touched. Deletes are judged by the files of `table` alone: a scan
    under a filter must bring every file that its deletes apply to, or `removed` is not to be used.
    """
    due = {each.partition: each for each in evaluated if each.type is not None}
    shunned = [f for f in table.files if f.path in left_out and f.partition in due]
    by_partition = _gaining_bins(table, due, settings, left_out)
    order = sorted((due[partition] for partition in by_partition), key=_longest_waiting)
    bins, left = _within(room, [by_partition[e.partition] for e in order])
    if not bins:
        return None
    taken = {each.partition for each in bins}
    removed = _removed(table, bins)
    return Plan(
        type=max(due[partition].type or OptimizingType.MINOR for partition in taken),
        bins=bins,
        gain=gain_of(bins, removed, table, settings),
        removed=removed,
        reserved=frozenset(i for each in bins for i in each.deletes) - removed,
        done={
            each.partition: each.type
            for each in due.values()
            if each.type is not None and each.partition not in left
        },
        left=left,
        left_out=shunned,
    )


def moved(
    clocks: Mapping[K, Clock], done: Mapping[K, OptimizingType], *, at_ms: int
) -> dict[K, Clock]:
    """The clocks once a plan is committed that was the last for the partitions in `done`."""
    after = dict(clocks)
    for partition, kind in done.items():
        clock = after.get(partition, Clock(seen_ms=at_ms))
        match kind:
            case OptimizingType.MINOR:
                after[partition] = replace(clock, minor_ms=at_ms)
            case OptimizingType.MAJOR:
                after[partition] = replace(clock, major_ms=at_ms)
            case OptimizingType.FULL:
                after[partition] = replace(clock, full_ms=at_ms)
            case _:
                assert_never(kind)
    return after


def gain_of(
    bins: Sequence[Bin],
    removed: Collection[int],
    table: TableFiles,
    settings: OptimizingSettings,
) -> Gain:
    dropped = sum(table.deletes[index].bytes for index in removed)
    return Gain(
        files_before=sum(len(each.files) for each in bins),
        files_after=sum(each.outputs for each in bins),
        applied=sum(each.applied for each in bins),
        deletes_removed=len(removed),
        bytes_before=sum(each.bytes for each in bins) + dropped,
        bytes_after=sum(each.live_bytes for each in bins),
        bytes_read=sum(each.read_bytes for each in bins),
        cost=sum(each.cost(settings) for each in bins),
    )


def _gaining_bins(
    table: TableFiles,
    due: Mapping[Partition, Evaluated],
    settings: OptimizingSettings,
    left_out: Collection[str],
) -> Mapping[Partition, Sequence[Bin]]:
    deletes = DeleteIndex(table)
    classes = Classifier(deletes, settings)
    candidates: dict[Partition, list[DataFile]] = {}
    untouched = _listed_twice(table.files).union(left_out)
    for file in table.files:
        found = due.get(file.partition)
        if found is None or found.type is None or file.path in untouched:
            continue
        if _wanted(file, classes.of(file), found.type, settings):
            candidates.setdefault(file.partition, []).append(file)
    packer = Packer(deletes, settings)
    return {
        partition: bins
        for partition, files in candidates.items()
        if (bins := [b for b in packer.pack(files) if _gains(b, due[partition].type)])
    }


def _listed_twice(files: Sequence[DataFile]) -> set[str]:
    """A writer may have added one file two times, and its rows count twice. Replacing it would
    take both away, and give back as many as there are bins that hold it."""
    seen: set[str] = set()
    return {file.path for file in files if file.path in seen or seen.add(file.path)}


def _wanted(
    file: DataFile, found: FileClass, kind: OptimizingType, settings: OptimizingSettings
) -> bool:
    """Generations keep a byte from being rewritten over and over: a minor leaves alone what has
    outgrown the fragments, a major what has reached its size."""
    if found.size is FileSize.FRAGMENT or found.rewrite or found.laden:
        return True
    match kind:
        case OptimizingType.MINOR:
            return False
        case OptimizingType.MAJOR:
            return found.size is FileSize.UNDERSIZED
        case OptimizingType.FULL:
            small = found.size is FileSize.UNDERSIZED
            return settings.full_rewrite_all_files or small or bool(file.deletes)
    assert_never(kind)


def _gains(each: Bin, kind: OptimizingType | None) -> bool:
    if each.deletes:
        return True
    if len(each.files) > 1 and each.outputs < len(each.files):
        return True
    return kind is OptimizingType.FULL and each.orders


def _longest_waiting(each: Evaluated) -> tuple[int, int, Partition]:
    """Never done first, then the longest wait, then the most to do."""
    since = -1 if each.waiting_since_ms is None else each.waiting_since_ms
    return since, -each.cost, each.partition


def _within(
    room: Room, by_partition: Sequence[Sequence[Bin]]
) -> tuple[Sequence[Bin], Sequence[Partition]]:
    """The bins there is room for, and the partitions of those there is not.

    What comes after the first one without room waits as well: a small bin must not pass those
    that waited longer. The bin that uses up the bytes is taken whole.
    """
    taken: list[Bin] = []
    left: dict[Partition, None] = {}
    read = files = 0
    for each in (each for bins in by_partition for each in bins):
        files += len(each.files)
        full = _reached(room.bytes, read) or _reached(room.bins, len(taken))
        if left or (taken and (full or _reached(room.files, files - 1))):
            left[each.partition] = None
            continue
        taken.append(each)
        read += each.read_bytes
    return taken, list(left)


def _reached(most: int | None, count: int) -> bool:
    return most is not None and count >= most


def _removed(table: TableFiles, bins: Sequence[Bin]) -> frozenset[int]:
    rewritten = {file.path for each in bins for file in each.files}
    needed = {i for file in table.files if file.path not in rewritten for i in file.deletes}
    return frozenset(index for each in bins for index in each.deletes) - needed
