"""The inspection report: one value with every number that is shown, and how it is made. Pure.

Nothing here says how the numbers are shown. `inspect_table` turns what was read of a table into its
part of the report; the table's files are gone by then, so that a table of a million files is a few
hundred bytes of report. `as_json` is the report for programs: every value, with those that are
computed from others beside them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from headrace.model.tables.assessment import Assessment, assess, scan_score
from headrace.model.tables.bins import Bin
from headrace.model.tables.files import (
    DeleteKind,
    FileSize,
    FileTally,
    MeasuredPartition,
    Partition,
    TableFiles,
    measure,
)
from headrace.model.tables.plan import Gain, TablePlan, gain_of, predict
from headrace.model.tables.settings import OptimizingSettings

KIB, GIB = 1024, 1024**3
# Upper ends of the bars of the size plot, in bytes: each is twice the one before. One more bar has
# all larger files.
SIZE_EDGES_BYTES: Sequence[int] = tuple(16 * KIB * 2**power for power in range(17))
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
AGE_EDGES_MS: Sequence[int] = (HOUR_MS, *(DAY_MS * days for days in (1, 7, 30, 90, 365)))
PARTITIONS_PER_TABLE_MAX = 20  # of one table in the report, those most in need
POOR_BELOW = 50  # a table with a lower score counts as in poor health


@dataclass(frozen=True, slots=True)
class SizeCount:
    """Files in one bar of the size plot, classified by the settings of their own tables."""

    fragments: int = 0
    undersized: int = 0
    reached: int = 0

    def __add__(self, other: SizeCount) -> SizeCount:
        return SizeCount(
            self.fragments + other.fragments,
            self.undersized + other.undersized,
            self.reached + other.reached,
        )


@dataclass(frozen=True, slots=True)
class DeleteCounts:
    """Delete files; a deletion vector counts as one."""

    position: int = 0
    equality: int = 0
    vectors: int = 0
    bytes: int = 0
    rows: int = 0
    dangling: int | None = 0  # in the table's metadata, but apply to no file. None: unknown

    @property
    def files(self) -> int:
        """Delete files that apply to a data file."""
        return self.position + self.equality + self.vectors

    def __add__(self, other: DeleteCounts) -> DeleteCounts:
        return DeleteCounts(
            self.position + other.position,
            self.equality + other.equality,
            self.vectors + other.vectors,
            self.bytes + other.bytes,
            self.rows + other.rows,
            (self.dangling or 0) + (other.dangling or 0),
        )


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The snapshots that a table keeps."""

    count: int
    oldest_ms: int | None
    newest_ms: int | None
    by_age: Sequence[int]  # between the edges of AGE_EDGES_MS, youngest first; then all older ones


@dataclass(frozen=True, slots=True)
class Saving:
    """What one pass of optimizing is predicted to change."""

    files_before: int = 0
    files_after: int = 0
    deletes_removed: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    bytes_rewritten: int = 0  # read and written
    spared_bytes: int = 0  # that every full scan gets cheaper by, counting opened files as bytes

    @property
    def files_saved(self) -> int:
        return self.files_before - self.files_after

    @property
    def bytes_saved(self) -> int:
        return self.bytes_before - self.bytes_after

    @property
    def benefit(self) -> float:
        """Bytes that every scan is spared for each byte that is read or written once."""
        return self.spared_bytes / max(1, self.bytes_rewritten)

    def __add__(self, other: Saving) -> Saving:
        return Saving(
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.deletes_removed + other.deletes_removed,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
            self.bytes_rewritten + other.bytes_rewritten,
            self.spared_bytes + other.spared_bytes,
        )


@dataclass(frozen=True, slots=True)
class PartitionNeed:
    """A partition that is due, and what optimizing it would save."""

    table: str
    partition: str
    type: str
    why: str
    saving: Saving


@dataclass(frozen=True, slots=True)
class InspectedTable:
    """One table of the report."""

    table: str  # namespace.name
    format_version: int
    target_bytes: int
    enabled: bool  # self-optimizing.enabled; savings are computed either way
    files: FileTally
    small: FileTally  # fragments and undersized files
    sizes: Sequence[SizeCount]
    partitions: int
    partitions_due: int
    deletes: DeleteCounts
    snapshots: Snapshots
    scan_score: int
    amoro_score: int
    score_after: int  # the scan score as optimizing is predicted to leave it
    type: str | None  # of the optimizing that is due; None: no rewrite gains
    why: str
    saving: Saving
    most_in_need: Sequence[PartitionNeed]
    flaws: Sequence[str]


@dataclass(frozen=True, slots=True)
class Unread:
    """A table, or a whole namespace, that could not be read."""

    name: str
    error: str
    fix: str


@dataclass(frozen=True, slots=True)
class CatalogTotals:
    """The sums over all tables that could be read."""

    tables: int
    files: FileTally
    small: FileTally
    sizes: Sequence[SizeCount]
    deletes: DeleteCounts
    snapshots: int
    oldest_ms: int | None
    by_age: Sequence[int]
    tables_due: int
    saving: Saving
    median_score: float | None
    poor: int  # tables with a score below POOR_BELOW

    @property
    def small_share(self) -> float:
        return self.small.files / self.files.files if self.files.files else 0.0


@dataclass(frozen=True, slots=True)
class CatalogReport:
    """The whole report."""

    catalog: str
    type: str
    properties: Mapping[str, str]  # secrets redacted
    at_ms: int
    took_s: float
    filter: str | None
    filtered: int  # tables that the filter kept out
    tables: Sequence[InspectedTable]  # those first for which optimizing saves most
    unread: Sequence[Unread]

    @property
    def totals(self) -> CatalogTotals:
        oldest = [t.snapshots.oldest_ms for t in self.tables if t.snapshots.oldest_ms is not None]
        scores = [table.scan_score for table in self.tables]
        return CatalogTotals(
            tables=len(self.tables),
            files=sum((table.files for table in self.tables), FileTally()),
            small=sum((table.small for table in self.tables), FileTally()),
            sizes=_summed_sizes(self.tables),
            deletes=sum((table.deletes for table in self.tables), DeleteCounts()),
            snapshots=sum(table.snapshots.count for table in self.tables),
            oldest_ms=min(oldest, default=None),
            by_age=_summed_ages(self.tables),
            tables_due=sum(table.type is not None for table in self.tables),
            saving=sum((table.saving for table in self.tables), Saving()),
            median_score=median(scores) if scores else None,
            poor=sum(score < POOR_BELOW for score in scores),
        )

    @property
    def partitions_in_need(self) -> Sequence[PartitionNeed]:
        """Partitions of all tables, those first for which optimizing saves most."""
        needs = [need for table in self.tables for need in table.most_in_need]
        return sorted(needs, key=lambda need: -need.saving.spared_bytes)


@dataclass(frozen=True, slots=True)
class TableReading:
    """What was read of a table."""

    table: str  # namespace.name
    metadata: Mapping[str, Any]  # the content of its metadata file
    files: TableFiles
    filtered: frozenset[str] | None = None  # paths that self-optimizing.filter lets through
    flaws: Sequence[str] = ()


def inspect_table(reading: TableReading, *, now_ms: int) -> InspectedTable:
    """The table as it is, and as one pass of optimizing would leave it.

    The table is seen for the first time, and no partition has a clock. So whatever is due by time
    is due now.
    """
    settings, flaws = OptimizingSettings.read(reading.files.properties)
    whole = replace(settings, enabled=True)
    kept_out = _kept_out(reading)
    assessment = assess(reading.files, whole, {}, now_ms=now_ms, left_out=kept_out)
    measured = {each.partition: each.measured for each in assessment.evaluated}
    small = [m.fragments + m.undersized for m in measured.values()]
    return InspectedTable(
        table=reading.table,
        format_version=int(reading.metadata["format-version"]),
        target_bytes=settings.target_size_bytes,
        enabled=settings.enabled,
        files=assessment.files,
        small=sum(small, FileTally()),
        sizes=sizes_of(reading.files, settings),
        partitions=len(assessment.evaluated),
        partitions_due=len({each.partition for each in assessment.plan.bins})
        if assessment.plan
        else 0,
        deletes=_deletes(reading),
        snapshots=snapshots_of(reading.metadata, now_ms=now_ms),
        scan_score=assessment.scan_score,
        amoro_score=assessment.amoro_score,
        score_after=_score_after(reading.files, assessment, whole),
        type=assessment.plan.type.name if assessment.plan else None,
        why=why(list(measured.values())),
        saving=_saving(assessment.plan.gain) if assessment.plan else Saving(),
        most_in_need=_needs(reading, assessment.plan, measured, whole) if assessment.plan else (),
        flaws=[*map(str, flaws), *reading.flaws],
    )


def as_json(report: CatalogReport) -> dict[str, Any]:
    """The report for programs."""
    body = asdict(report)
    totals = report.totals
    body["totals"] = {
        **asdict(totals),
        "small_share": round(totals.small_share, 4),
        "saving": _saving_json(totals.saving),
    }
    body["tables"] = [_table_json(table) for table in report.tables]
    return body


def _table_json(table: InspectedTable) -> dict[str, Any]:
    needs = [{**asdict(need), "saving": _saving_json(need.saving)} for need in table.most_in_need]
    return {**asdict(table), "saving": _saving_json(table.saving), "most_in_need": needs}


def _saving_json(saving: Saving) -> dict[str, Any]:
    worked_out = {
        "files_saved": saving.files_saved,
        "bytes_saved": saving.bytes_saved,
        "benefit": round(saving.benefit, 4),
    }
    return {**asdict(saving), **worked_out}


def _summed_sizes(tables: Sequence[InspectedTable]) -> Sequence[SizeCount]:
    summed = [SizeCount()] * (len(SIZE_EDGES_BYTES) + 1)
    for table in tables:
        summed = [one + other for one, other in zip(summed, table.sizes, strict=True)]
    return summed


def _summed_ages(tables: Sequence[InspectedTable]) -> Sequence[int]:
    summed = [0] * (len(AGE_EDGES_MS) + 1)
    for table in tables:
        summed = [one + other for one, other in zip(summed, table.snapshots.by_age, strict=True)]
    return summed


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


def why(measured: Sequence[MeasuredPartition]) -> str:
    """What is wrong with these partitions, in a few words; empty when nothing is wrong."""
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


def _kept_out(reading: TableReading) -> frozenset[str]:
    if reading.filtered is None:
        return frozenset()
    return frozenset(file.path for file in reading.files.files) - reading.filtered


def _deletes(reading: TableReading) -> DeleteCounts:
    kinds = Counter(delete.kind for delete in reading.files.deletes)
    return DeleteCounts(
        position=kinds[DeleteKind.POSITION],
        equality=kinds[DeleteKind.EQUALITY],
        vectors=kinds[DeleteKind.VECTOR],
        bytes=sum(delete.bytes for delete in reading.files.deletes),
        rows=sum(delete.rows for delete in reading.files.deletes),
        dangling=_dangling(reading),
    )


def _dangling(reading: TableReading) -> int | None:
    """Delete files that the snapshot counts, but that apply to no file: a scan never reads them."""
    if reading.files.snapshot is None:
        return 0
    for snapshot in reading.metadata.get("snapshots", ()):
        if snapshot["snapshot-id"] == reading.files.snapshot:
            total = snapshot.get("summary", {}).get("total-delete-files")
            return None if total is None else max(0, int(total) - len(reading.files.deletes))
    return None  # the table was written to between reading its metadata and its files


def _score_after(files: TableFiles, assessment: Assessment, settings: OptimizingSettings) -> int:
    if assessment.plan is None:
        return assessment.scan_score
    return scan_score(measure(predict(files, assessment.plan), settings).values(), settings)


def _saving(gain: Gain) -> Saving:
    rewritten = gain.bytes_read + gain.bytes_after
    return Saving(
        files_before=gain.files_before,
        files_after=gain.files_after,
        deletes_removed=gain.deletes_removed,
        bytes_before=gain.bytes_before,
        bytes_after=gain.bytes_after,
        bytes_rewritten=rewritten,
        spared_bytes=round(gain.benefit * max(1, rewritten)),
    )


def _needs(
    reading: TableReading,
    plan: TablePlan,
    measured: Mapping[Partition, MeasuredPartition],
    settings: OptimizingSettings,
) -> Sequence[PartitionNeed]:
    by_partition: defaultdict[Partition, list[Bin]] = defaultdict(list)
    for each in plan.bins:
        by_partition[each.partition].append(each)
    needs = [
        PartitionNeed(
            table=reading.table,
            partition=str(partition),
            type=plan.done[partition].name,
            why=why([measured[partition]]),
            saving=_saving(_gain_of(bins, plan, reading.files, settings)),
        )
        for partition, bins in by_partition.items()
    ]
    needs.sort(key=lambda need: -need.saving.spared_bytes)
    return needs[:PARTITIONS_PER_TABLE_MAX]


def _gain_of(
    bins: Sequence[Bin], plan: TablePlan, files: TableFiles, settings: OptimizingSettings
) -> Gain:
    deletes = frozenset(index for each in bins for index in each.deletes)
    return gain_of(bins, plan.removed & deletes, files, settings)
