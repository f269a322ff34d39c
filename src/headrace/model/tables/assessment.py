"""Assessment of a table: whether it is pending, with how much and why, and its health scores.

A table is pending only when a plan for it would gain something. Rules alone don't decide that: a
partition may have waited long enough and still hold nothing that a rewrite improves.

There are two scores, 0 to 100, for how well a table can be read. Amoro's is kept because its users
know it. It looks only at files that need work and takes the mean over partitions whatever their
size, so that a few small files in a large healthy partition score as badly as a broken table.
`scan_score` means something: it is the part of a full scan's cost that reads wanted rows. The rest
is opening files that could be one, and reading deletes and deleted rows.

`looks_healthy` (Amoro's pre-check) and `estimated_scores` need only the summary of a snapshot, with
nothing scanned: for tables that nobody optimizes. Totals know no partitions and no sizes of single
files, so a score made of them is an estimate: the table is taken for one partition whose files are
all of the average size.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.model.tables.evaluation import EvaluatedPartition, PartitionClock, evaluate
from headrace.model.tables.files import (
    DeleteIndex,
    FileTally,
    MeasuredPartition,
    Partition,
    TableFiles,
)
from headrace.model.tables.plan import TablePlan, plan
from headrace.model.tables.settings import OptimizingSettings
from headrace.model.tables.status import OptimizingType

SMALL_POINTS, EQUALITY_POINTS, POSITION_POINTS = 40, 40, 20
EQUALITY_RATIO_MAX, POSITION_RATIO_MAX = 0.1, 0.2  # of rows; beyond, all score the same
FILES_ENOUGH = 12  # a partition with fewer files weighs less


@dataclass(frozen=True, slots=True)
class PendingInput:
    """The files that wait to be rewritten: stored with the table through restarts (T2)."""

    snapshot: int | None
    type: OptimizingType
    partitions: Sequence[Partition]  # by spec and path
    data: FileTally
    position_deletes: FileTally
    equality_deletes: FileTally


@dataclass(frozen=True, slots=True)
class Assessment:
    """What an evaluation of a table results in."""

    evaluated: Sequence[EvaluatedPartition]  # every partition, with its rules
    plan: TablePlan | None  # all there is to do, regardless of a budget; None: no rewrite gains
    pending: PendingInput | None  # None together with the plan
    files: FileTally
    amoro_score: int
    scan_score: int


def assess(
    table: TableFiles,
    settings: OptimizingSettings,
    clocks: Mapping[Partition, PartitionClock],
    *,
    now_ms: int,
    left_out: Collection[str] = (),
) -> Assessment:
    """Evaluate every partition, plan without a budget, and score.

    `left_out` are paths of files that are not to be touched.
    """
    evaluated = evaluate(table, settings, clocks, now_ms=now_ms)
    whole = plan(table, evaluated, settings, left_out=left_out)
    measured = [each.measured for each in evaluated]
    return Assessment(
        evaluated=evaluated,
        plan=whole,
        pending=None if whole is None else pending_input(table, whole),
        files=sum((each.files for each in measured), FileTally()),
        amoro_score=amoro_score(measured, settings),
        scan_score=scan_score(measured, settings),
    )


def pending_input(table: TableFiles, whole: TablePlan) -> PendingInput:
    """The input of a plan that has everything in it."""
    deletes = DeleteIndex(table)
    applied = frozenset(index for each in whole.bins for index in each.deletes)
    return PendingInput(
        snapshot=table.snapshot,
        type=whole.type,
        partitions=sorted({each.partition for each in whole.bins}),
        data=FileTally.of([file for each in whole.bins for file in each.files]),
        position_deletes=deletes.tally(applied, by_position=True),
        equality_deletes=deletes.tally(applied, by_position=False),
    )


def amoro_score(partitions: Sequence[MeasuredPartition], settings: OptimizingSettings) -> int:
    """Amoro's health score of a table; 100 for a table without files."""
    if not partitions:
        return 100
    return math.ceil(sum(amoro_partition_score(p, settings) for p in partitions) / len(partitions))


def amoro_partition_score(partition: MeasuredPartition, settings: OptimizingSettings) -> int:
    """Amoro's health score of one partition."""
    counted, enough = partition.counted, settings.min_target_bytes
    if counted.files <= 1 or enough == 0:
        return SMALL_POINTS + EQUALITY_POINTS + POSITION_POINTS
    weight = min(counted.files, FILES_ENOUGH) / FILES_ENOUGH * min(counted.bytes, enough) / enough
    average = counted.bytes / counted.files
    return (
        _points(SMALL_POINTS, weight * (1 - min(average, enough) / enough))
        + _points(
            EQUALITY_POINTS,
            weight * _part(partition.equality_deletes.rows, counted.rows, EQUALITY_RATIO_MAX),
        )
        + _points(
            POSITION_POINTS,
            weight * _part(partition.position_deletes.rows, counted.rows, POSITION_RATIO_MAX),
        )
    )


def scan_score(partitions: Iterable[MeasuredPartition], settings: OptimizingSettings) -> int:
    """How much of a full scan's cost reads wanted rows, in percent; 100 for an empty table."""
    useful = total = 0
    for partition in partitions:
        wanted, all_of_it = _scan_bytes(partition, settings)
        useful, total = useful + wanted, total + all_of_it
    return math.floor(100 * useful / total) if total else 100


def _scan_bytes(partition: MeasuredPartition, settings: OptimizingSettings) -> tuple[int, int]:
    """Bytes that a scan of the partition would ideally read, and bytes that it does read.

    Ideal is that the live rows lie in files of the target size. Opening a file counts as
    `open_file_cost_bytes`.
    """
    fewest = max(1, -(-partition.live_bytes // settings.target_size_bytes))
    opened = partition.files.files + partition.applied
    deletes = partition.position_deletes.bytes + partition.equality_deletes.bytes
    wanted = partition.live_bytes + settings.open_file_cost_bytes * min(fewest, opened)
    return wanted, partition.files.bytes + deletes + settings.open_file_cost_bytes * opened


def _part(rows: int, of: int, most: float) -> float:
    ratio = rows / of if of else 0.0
    return min(ratio, most) / most


def _points(points: int, penalty: float) -> int:
    return math.ceil(points - points * penalty)


@dataclass(frozen=True, slots=True)
class SnapshotTotals:
    """What the summary of one snapshot adds up."""

    files: int
    bytes: int
    rows: int
    delete_files: int
    position_deletes: int  # rows
    equality_deletes: int  # rows

    @property
    def equality_delete_files(self) -> int:
        """How many of the delete files hold equality deletes.

        A summary does not say; where there are both kinds, they are split by their rows.
        """
        if not self.equality_deletes or not self.delete_files:
            return 0
        if not self.position_deletes:
            return self.delete_files
        part = self.equality_deletes / (self.equality_deletes + self.position_deletes)
        return min(self.delete_files - 1, max(1, round(self.delete_files * part)))

    @property
    def position_delete_files(self) -> int:
        return self.delete_files - self.equality_delete_files


def looks_healthy(totals: SnapshotTotals | None, settings: OptimizingSettings) -> bool:
    """Amoro's pre-check: no data, or no deletes and files of sufficient size on average.

    `totals` is None for a table without a snapshot, or whose writer left no totals in its summary;
    such a table is not healthy.
    """
    if totals is None:
        return False
    if totals.files == 0:
        return True
    return totals.delete_files == 0 and totals.bytes / totals.files > settings.min_target_bytes


def estimated_scores(totals: SnapshotTotals, settings: OptimizingSettings) -> tuple[int, int]:
    """(`scan_score`, `amoro_score`), as far as totals allow."""
    if totals.files == 0:
        return 100, 100
    live = max(0, totals.rows - totals.position_deletes) / totals.rows if totals.rows else 1.0
    every = FileTally(totals.files, totals.bytes, totals.rows)
    small = totals.bytes / totals.files <= settings.min_target_bytes
    table = MeasuredPartition(
        files=every,
        fragments=FileTally(),
        rewrite=FileTally(),
        undersized=every if small else FileTally(),
        laden=every if totals.delete_files and not small else FileTally(),
        combine=0,
        smallest=(),
        position_deletes=FileTally(totals.position_delete_files, 0, totals.position_deletes),
        equality_deletes=FileTally(totals.equality_delete_files, 0, totals.equality_deletes),
        any_deletes=totals.delete_files,
        applied=totals.delete_files,
        live_bytes=int(totals.bytes * live),
        size_error=0.0,
    )
    return scan_score([table], settings), amoro_score([table], settings)
