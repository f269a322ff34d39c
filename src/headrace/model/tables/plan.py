"""Plans: the bins that an optimizing process rewrites, as many as its budget has room for.

A bin stands in a plan only when it gains: fewer files, fewer deletes to apply, or (in a full) rows
put into the declared order. So the same files are not rewritten for ever, which is what users of
Amoro report most. Partitions that waited longest come first, and one of them may be split over
several processes; only those whose last bin is in the plan are done with it and advance their
clock.

`predict` gives the table as a plan is expected to leave it: for a dry run, and to prove that a plan
is final. What equality deletes take away can't be known from metadata, so they shrink nothing
there; the real files may be smaller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, assert_never

from headrace.model.tables.bins import Bin, Packer
from headrace.model.tables.evaluation import EvaluatedPartition, PartitionClock
from headrace.model.tables.files import (
    Classifier,
    DataFile,
    DeleteIndex,
    FileClass,
    FileSize,
    Partition,
    TableFiles,
)
from headrace.model.tables.settings import OptimizingSettings
from headrace.model.tables.status import OptimizingType

K = TypeVar("K")  # a partition, or its name
BUDGET_PER_THREAD_BYTES = 512 * 1024 * 1024  # Amoro's max-input-file-size-per-thread


@dataclass(frozen=True, slots=True)
class Gain:
    """What a rewrite is predicted to change, and how much it reads for that. A wire format, too."""

    files_before: int
    files_after: int
    deletes_removed: int  # delete files that no data file needs afterwards
    bytes_before: int  # data and removed deletes
    bytes_after: int
    bytes_read: int
    # Bytes that every scan is spared for each byte that the rewrite reads or writes. Opening a
    # file, or applying a delete to it, counts as `open_file_cost_bytes`.
    benefit: float


@dataclass(frozen=True, slots=True)
class ProcessBudget:
    """How much one process may rewrite. None: no limit.

    The first bin is taken even when it exceeds the budget, so that a plan always makes progress.
    """

    bytes: int | None = None  # read, data and deletes; as in Amoro, a budget counts input
    bins: int | None = None
    files: int | None = None


BOUNDLESS = ProcessBudget()


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What one process rewrites, and what is left for others."""

    type: OptimizingType
    bins: Sequence[Bin]
    gain: Gain
    removed: frozenset[int]  # deletes that no file needs once all bins are replaced
    reserved: frozenset[int]  # deletes of these bins that other files still need
    done: Mapping[Partition, OptimizingType]  # partitions whose last bin is in the plan
    left: Sequence[Partition]  # partitions with bins that wait for another process, in order
    left_out: Sequence[DataFile]  # due, but excluded because they failed too often


def plan(
    table: TableFiles,
    evaluated: Sequence[EvaluatedPartition],
    settings: OptimizingSettings,
    *,
    room: ProcessBudget = BOUNDLESS,
    left_out: Collection[str] = (),
) -> TablePlan | None:
    """The plan for the partitions that need optimizing; None when no rewrite gains anything.

    `left_out` are paths that are not to be touched. `removed` is worked out from the files of
    `table` alone: a scan under a filter must bring every file that its deletes apply to, or
    `removed` must not be used.
    """
    due = {each.partition: each for each in evaluated if each.type is not None}
    excluded = [f for f in table.files if f.path in left_out and f.partition in due]
    by_partition = _gaining_bins(table, due, settings, left_out)
    order = sorted((due[partition] for partition in by_partition), key=_longest_waiting)
    bins, left = _within(room, [by_partition[e.partition] for e in order])
    if not bins:
        return None
    taken = {each.partition for each in bins}
    removed = _removed(table, bins)
    return TablePlan(
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
        left_out=excluded,
    )


def advanced_clocks(
    clocks: Mapping[K, PartitionClock], done: Mapping[K, OptimizingType], *, at_ms: int
) -> dict[K, PartitionClock]:
    """The clocks after the commit of a plan that was the last one for the partitions in `done`."""
    after = dict(clocks)
    for partition, kind in done.items():
        clock = after.get(partition, PartitionClock(seen_ms=at_ms))
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
    """The gain of rewriting these bins; `removed` are the deletes that go with them."""
    dropped = sum(table.deletes[index].bytes for index in removed)
    bytes_before = sum(each.bytes for each in bins) + dropped
    bytes_after = sum(each.live_bytes for each in bins)
    bytes_read = sum(each.read_bytes for each in bins)
    files_before = sum(len(each.files) for each in bins)
    files_after = sum(each.outputs for each in bins)
    opened = files_before - files_after + sum(each.applied for each in bins)
    spared = opened * settings.open_file_cost_bytes + bytes_before - bytes_after
    return Gain(
        files_before=files_before,
        files_after=files_after,
        deletes_removed=len(removed),
        bytes_before=bytes_before,
        bytes_after=bytes_after,
        bytes_read=bytes_read,
        benefit=spared / max(1, bytes_read + bytes_after),
    )


def _gaining_bins(
    table: TableFiles,
    due: Mapping[Partition, EvaluatedPartition],
    settings: OptimizingSettings,
    left_out: Collection[str],
) -> Mapping[Partition, Sequence[Bin]]:
    deletes = DeleteIndex(table)
    classes = Classifier(deletes, settings)
    candidates: dict[Partition, list[DataFile]] = {}
    untouched = _listed_twice(table.files).union(left_out)
    for file in table.files:
        evaluated = due.get(file.partition)
        if evaluated is None or evaluated.type is None or file.path in untouched:
            continue
        if _wanted(file, classes.of(file), evaluated.type, settings):
            candidates.setdefault(file.partition, []).append(file)
    packer = Packer(deletes, settings)
    return {
        partition: bins
        for partition, files in candidates.items()
        if (bins := [b for b in packer.pack(files) if _gains(b, due[partition].type)])
    }


def _listed_twice(files: Sequence[DataFile]) -> set[str]:
    """Paths that the table lists more than once: these files must not be rewritten.

    A writer may have added one file twice, and its rows count twice. Replacing it would remove
    both entries, and add as many as there are bins that hold it.
    """
    seen: set[str] = set()
    return {file.path for file in files if file.path in seen or seen.add(file.path)}


def _wanted(
    file: DataFile, file_class: FileClass, kind: OptimizingType, settings: OptimizingSettings
) -> bool:
    """Whether optimizing of this type takes the file.

    Generations keep a byte from being rewritten over and over: a minor leaves alone what is larger
    than a fragment, a major what has reached its size.
    """
    if file_class.size is FileSize.FRAGMENT or file_class.rewrite or file_class.laden:
        return True
    match kind:
        case OptimizingType.MINOR:
            return False
        case OptimizingType.MAJOR:
            return file_class.size is FileSize.UNDERSIZED
        case OptimizingType.FULL:
            small = file_class.size is FileSize.UNDERSIZED
            return settings.full_rewrite_all_files or small or bool(file.deletes)
    assert_never(kind)


def _gains(each: Bin, kind: OptimizingType | None) -> bool:
    """Fewer deletes, fewer files, or (in a full) rows that get sorted."""
    if each.deletes:
        return True
    if len(each.files) > 1 and each.outputs < len(each.files):
        return True
    return kind is OptimizingType.FULL and each.orders


def _longest_waiting(each: EvaluatedPartition) -> tuple[int, int, Partition]:
    """Sort key: never optimized first, then the longest wait, then the highest cost."""
    since = -1 if each.waiting_since_ms is None else each.waiting_since_ms
    return since, -each.cost, each.partition


def _within(
    room: ProcessBudget, by_partition: Sequence[Sequence[Bin]]
) -> tuple[Sequence[Bin], Sequence[Partition]]:
    """The bins that fit into the budget, and the partitions of those that don't.

    After the first bin that does not fit, all others wait as well: a small bin must not overtake
    those that waited longer. The bin that uses up the bytes is taken whole.
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
    """Deletes of these bins that apply to no other file."""
    rewritten = {file.path for each in bins for file in each.files}
    needed = {i for file in table.files if file.path not in rewritten for i in file.deletes}
    return frozenset(index for each in bins for index in each.deletes) - needed


def predict(table: TableFiles, plan: TablePlan) -> TableFiles:
    """The files after the plan's commit. The new snapshot has no id yet, so it keeps the old."""
    deletes = DeleteIndex(table)
    rewritten = {file.path for each in plan.bins for file in each.files}
    kept = [index for index in range(len(table.deletes)) if index not in plan.removed]
    place = {index: number for number, index in enumerate(kept)}
    files = [
        replace(file, deletes=tuple(place[index] for index in file.deletes))
        for file in table.files
        if file.path not in rewritten
    ]
    for number, each in enumerate(plan.bins):
        files += _outputs(each, deletes, f"predicted-{table.sequence + 1}-{number}")
    return replace(
        table,
        sequence=table.sequence + 1,
        files=files,
        deletes=[table.deletes[index] for index in kept],
    )


def _outputs(each: Bin, deletes: DeleteIndex, name: str) -> Iterator[DataFile]:
    rows = sum(map(deletes.live_rows, each.files))
    for number in range(each.outputs):
        yield DataFile(
            path=f"{name}-{number}",
            bytes=_part(each.live_bytes, each.outputs, number),
            rows=_part(rows, each.outputs, number),
            partition=each.partition,
            sorted=True,
        )


def _part(total: int, parts: int, number: int) -> int:
    return total // parts + (number < total % parts)
