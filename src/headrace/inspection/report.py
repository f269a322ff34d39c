"""What an inspection found, as one value: every number that is shown stands here, and nothing of
how it is shown.

A table's files are gone by then: a table of a million files is a few hundred bytes of report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from headrace.model.tables.measure import Tally

KIB, GIB = 1024, 1024**3
# Upper ends of the bars of the size plot, in bytes: each twice the one before; the last bar is
# of all that is larger.
SIZE_EDGES_BYTES: Sequence[int] = tuple(16 * KIB * 2**power for power in range(17))
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
AGE_EDGES_MS: Sequence[int] = (HOUR_MS, *(DAY_MS * days for days in (1, 7, 30, 90, 365)))
POOR_BELOW = 50  # a score under which a table is counted as in poor health


@dataclass(frozen=True, slots=True)
class SizeCount:
    """Files of one bar of the size plot, by what their own table thinks of their size."""

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
class Deletes:
    """Delete files; a deletion vector counts as one."""

    position: int = 0
    equality: int = 0
    vectors: int = 0
    bytes: int = 0
    rows: int = 0
    dangling: int | None = (
        0  # in the table's metadata, and apply to no file. None: it can't be told
    )

    @property
    def files(self) -> int:
        """Those that apply to something."""
        return self.position + self.equality + self.vectors

    def __add__(self, other: Deletes) -> Deletes:
        return Deletes(
            self.position + other.position,
            self.equality + other.equality,
            self.vectors + other.vectors,
            self.bytes + other.bytes,
            self.rows + other.rows,
            (self.dangling or 0) + (other.dangling or 0),
        )


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Those that a table keeps."""

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
    spared_bytes: int = 0  # by which every full scan gets cheaper, an opened file as so many bytes

    @property
    def files_saved(self) -> int:
        return self.files_before - self.files_after

    @property
    def bytes_saved(self) -> int:
        return self.bytes_before - self.bytes_after

    @property
    def benefit(self) -> float:
        """Bytes that each scan is spared for a byte that is read or written once."""
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
    table: str
    partition: str
    type: str
    why: str
    saving: Saving


@dataclass(frozen=True, slots=True)
class Inspected:
    """One table."""

    table: str  # namespace.name
    format_version: int
    target_bytes: int
    enabled: bool  # self-optimizing.enabled; what would be saved is told all the same
    files: Tally
    small: Tally  # fragments and undersized ones
    sizes: Sequence[SizeCount]
    partitions: int
    partitions_due: int
    deletes: Deletes
    snapshots: Snapshots
    scan_score: int
    amoro_score: int
    score_after: int  # the scan score as optimizing is predicted to leave it
    type: str | None  # of the optimizing that is due; None: there is nothing to gain
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
class Totals:
    """All tables together that could be read."""

    tables: int
    files: Tally
    small: Tally
    sizes: Sequence[SizeCount]
    deletes: Deletes
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
    catalog: str
    type: str
    properties: Mapping[str, str]  # secrets redacted
    at_ms: int
    took_s: float
    filter: str | None
    filtered: int  # tables that the filter kept out
    tables: Sequence[Inspected]  # those first that optimizing saves most at
    unread: Sequence[Unread]

    @property
    def totals(self) -> Totals:
        oldest = [t.snapshots.oldest_ms for t in self.tables if t.snapshots.oldest_ms is not None]
        scores = [table.scan_score for table in self.tables]
        return Totals(
            tables=len(self.tables),
            files=sum((table.files for table in self.tables), Tally()),
            small=sum((table.small for table in self.tables), Tally()),
            sizes=_summed_sizes(self.tables),
            deletes=sum((table.deletes for table in self.tables), Deletes()),
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
        """Of all tables, those first that optimizing saves most at."""
        found = [need for table in self.tables for need in table.most_in_need]
        return sorted(found, key=lambda need: -need.saving.spared_bytes)


def _summed_sizes(tables: Sequence[Inspected]) -> Sequence[SizeCount]:
    summed = [SizeCount()] * (len(SIZE_EDGES_BYTES) + 1)
    for table in tables:
        summed = [one + other for one, other in zip(summed, table.sizes, strict=True)]
    return summed


def _summed_ages(tables: Sequence[Inspected]) -> Sequence[int]:
    summed = [0] * (len(AGE_EDGES_MS) + 1)
    for table in tables:
        summed = [one + other for one, other in zip(summed, table.snapshots.by_age, strict=True)]
    return summed
