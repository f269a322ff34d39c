"""From what is read of one table to its part of the report. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.inspection.report import (
    AGE_EDGES_MS,
    SIZE_EDGES_BYTES,
    Deletes,
    Inspected,
    PartitionNeed,
    Saving,
    SizeCount,
    Snapshots,
)
from headrace.model.tables.assess import Assessment, assess
from headrace.model.tables.bins import Bin
from headrace.model.tables.files import DeleteKind, Partition, TableFiles
from headrace.model.tables.health import scan_score
from headrace.model.tables.measure import FileSize, Measured, Tally, measure
from headrace.model.tables.plan import Gain, Plan, gain_of
from headrace.model.tables.predict import predict
from headrace.model.tables.settings import OptimizingSettings

PARTITIONS_PER_TABLE_MAX = 20  # most in need, that are kept of one table


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of a table."""

    table: str  # namespace.name
    metadata: Mapping[str, Any]  # as its metadata file says it
    files: TableFiles
    filtered: frozenset[str] | None = None  # paths that self-optimizing.filter lets through
    flaws: Sequence[str] = ()


def inspected(read: Read, *, now_ms: int) -> Inspected:
    """The table as it is, and as one pass of optimizing would leave it.

    It is seen for the first time: no clock of any partition runs, so what is due by time is due.
    """
    settings, flaws = OptimizingSettings.read(read.files.properties)
    whole = replace(settings, enabled=True)
    kept_out = _kept_out(read)
    found = assess(read.files, whole, {}, now_ms=now_ms, left_out=kept_out)
    measured = {each.partition: each.measured for each in found.evaluated}
    small = [m.fragments + m.undersized for m in measured.values()]
    return Inspected(
        table=read.table,
        format_version=int(read.metadata["format-version"]),
        target_bytes=settings.target_size_bytes,
        enabled=settings.enabled,
        files=found.files,
        small=sum(small, Tally()),
        sizes=sizes_of(read.files, settings),
        partitions=len(found.evaluated),
        partitions_due=len({each.partition for each in found.plan.bins}) if found.plan else 0,
        deletes=_deletes(read),
        snapshots=snapshots_of(read.metadata, now_ms=now_ms),
        scan_score=found.scan_score,
        amoro_score=found.amoro_score,
        score_after=_score_after(read.files, found, whole),
        type=found.plan.type.name if found.plan else None,
        why=why(list(measured.values())),
        saving=_saving(found.plan.gain, whole) if found.plan else Saving(),
        most_in_need=_needs(read, found.plan, measured, whole) if found.plan else (),
        flaws=[*map(str, flaws), *read.flaws],
    )


def sizes_of(files: TableFiles, settings: OptimizingSettings) -> Sequence[SizeCount]:
    counts: Counter[tuple[int, FileSize]] = Counter()
    for file in files.files:
        counts[bisect_left(SIZE_EDGES_BYTES, file.bytes), _size(file.bytes, settings)] += 1
    return [
        SizeCount(*(counts[bar, size] for size in FileSize))
        for bar in range(len(SIZE_EDGES_BYTES) + 1)
    ]


def snapshots_of(metadata: Mapping[str, Any], *, now_ms: int) -> Snapshots:
    at_ms = [int(one["timestamp-ms"]) for one in metadata.get("snapshots", ())]
    by_age = [0] * (len(AGE_EDGES_MS) + 1)
    for each in at_ms:
        by_age[bisect_left(AGE_EDGES_MS, now_ms - each)] += 1
    return Snapshots(len(at_ms), min(at_ms, default=None), max(at_ms, default=None), by_age)


def why(measured: Sequence[Measured]) -> str:
    """What is wrong with these partitions, in a few words; empty when nothing is."""
    parts = (
        ("fragments", sum(m.fragments.files for m in measured)),
        ("undersized files", sum(m.undersized.files for m in measured)),
        ("files with many rows deleted", sum(m.rewrite.files for m in measured)),
        ("files under several or equality deletes", sum(m.laden.files for m in measured)),
        ("delete files", sum(m.any_deletes for m in measured)),
    )
    return ", ".join(f"{count:,} {what}" for what, count in parts if count)


def _size(size_bytes: int, settings: OptimizingSettings) -> FileSize:
    if size_bytes <= settings.fragment_bytes:
        return FileSize.FRAGMENT
    return FileSize.UNDERSIZED if size_bytes <= settings.min_target_bytes else FileSize.REACHED


def _kept_out(read: Read) -> frozenset[str]:
    if read.filtered is None:
        return frozenset()
    return frozenset(file.path for file in read.files.files) - read.filtered


def _deletes(read: Read) -> Deletes:
    kinds = Counter(delete.kind for delete in read.files.deletes)
    return Deletes(
        position=kinds[DeleteKind.POSITION],
        equality=kinds[DeleteKind.EQUALITY],
        vectors=kinds[DeleteKind.VECTOR],
        bytes=sum(delete.bytes for delete in read.files.deletes),
        rows=sum(delete.rows for delete in read.files.deletes),
        dangling=_dangling(read),
    )


def _dangling(read: Read) -> int | None:
    """Delete files that the snapshot counts and no file is under: a scan never meets these."""
    if read.files.snapshot is None:
        return 0
    for snapshot in read.metadata.get("snapshots", ()):
        if snapshot["snapshot-id"] == read.files.snapshot:
            told = snapshot.get("summary", {}).get("total-delete-files")
            return None if told is None else max(0, int(told) - len(read.files.deletes))
    return None  # it was written to between the two looks


def _score_after(files: TableFiles, found: Assessment, settings: OptimizingSettings) -> int:
    if found.plan is None:
        return found.scan_score
    return scan_score(measure(predict(files, found.plan), settings).values(), settings)


def _saving(gain: Gain, settings: OptimizingSettings) -> Saving:
    rewritten = gain.bytes_read + gain.bytes_after
    return Saving(
        files_before=gain.files_before,
        files_after=gain.files_after,
        deletes_removed=gain.deletes_removed,
        bytes_before=gain.bytes_before,
        bytes_after=gain.bytes_after,
        bytes_rewritten=rewritten,
        spared_bytes=round(gain.benefit(settings.open_file_cost_bytes) * max(1, rewritten)),
    )


def _needs(
    read: Read, plan: Plan, measured: Mapping[Partition, Measured], settings: OptimizingSettings
) -> Sequence[PartitionNeed]:
    by_partition: defaultdict[Partition, list[Bin]] = defaultdict(list)
    for each in plan.bins:
        by_partition[each.partition].append(each)
    needs = [
        PartitionNeed(
            table=read.table,
            partition=str(partition),
            type=plan.done[partition].name,
            why=why([measured[partition]]),
            saving=_saving(_gain_of(bins, plan, read.files, settings), settings),
        )
        for partition, bins in by_partition.items()
    ]
    needs.sort(key=lambda need: -need.saving.spared_bytes)
    return needs[:PARTITIONS_PER_TABLE_MAX]


def _gain_of(
    bins: Sequence[Bin], plan: Plan, files: TableFiles, settings: OptimizingSettings
) -> Gain:
    deletes = frozenset(index for each in bins for index in each.deletes)
    return gain_of(bins, plan.removed & deletes, files, settings)
