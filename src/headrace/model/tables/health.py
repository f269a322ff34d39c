"""One number, 0 to 100, for how well a table can be read: Amoro's, and one that means something.

Amoro's number is kept because its users know it. It looks at files that need work only and takes
the mean over partitions whatever their size, so that a few small files in a large healthy partition
score as badly as a broken table. `scan_score` is the part of a full scan's cost that reads rows
somebody wants: the rest is opening files that could be one, and reading deletes and deleted rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from headrace.model.tables.measure import Measured
from headrace.model.tables.settings import OptimizingSettings

SMALL_POINTS, EQUALITY_POINTS, POSITION_POINTS = 40, 40, 20
EQUALITY_RATIO_MAX, POSITION_RATIO_MAX = 0.1, 0.2  # of rows: worse than this is not told apart
FILES_ENOUGH = 12  # fewer files than this weigh less


def amoro_score(partitions: Sequence[Measured], settings: OptimizingSettings) -> int:
    """Amoro's health score of a table; 100 for a table without files."""
    if not partitions:
        return 100
    return math.ceil(sum(amoro_partition_score(p, settings) for p in partitions) / len(partitions))


def amoro_partition_score(found: Measured, settings: OptimizingSettings) -> int:
    counted, enough = found.counted, settings.min_target_bytes
    if counted.files <= 1 or enough == 0:
        return SMALL_POINTS + EQUALITY_POINTS + POSITION_POINTS
    weight = min(counted.files, FILES_ENOUGH) / FILES_ENOUGH * min(counted.bytes, enough) / enough
    average = counted.bytes / counted.files
    return (
        _points(SMALL_POINTS, weight * (1 - min(average, enough) / enough))
        + _points(
            EQUALITY_POINTS,
            weight * _part(found.equality_deletes.rows, counted.rows, EQUALITY_RATIO_MAX),
        )
        + _points(
            POSITION_POINTS,
            weight * _part(found.position_deletes.rows, counted.rows, POSITION_RATIO_MAX),
        )
    )


def scan_score(partitions: Iterable[Measured], settings: OptimizingSettings) -> int:
    """How much of a full scan's cost reads wanted rows, in percent; 100 for an empty table."""
    useful = total = 0
    for found in partitions:
        wanted, all_of_it = _scan_bytes(found, settings)
        useful, total = useful + wanted, total + all_of_it
    return math.floor(100 * useful / total) if total else 100


def _scan_bytes(found: Measured, settings: OptimizingSettings) -> tuple[int, int]:
    """Bytes that a scan would read if this were one file after the other of the target size, and
    bytes it reads; opening a file counts as so many bytes."""
    fewest = max(1, -(-found.live_bytes // settings.target_size_bytes))
    opened = found.files.files + found.applied
    deletes = found.position_deletes.bytes + found.equality_deletes.bytes
    wanted = found.live_bytes + settings.open_file_cost_bytes * min(fewest, opened)
    return wanted, found.files.bytes + deletes + settings.open_file_cost_bytes * opened


def _part(rows: int, of: int, most: float) -> float:
    ratio = rows / of if of else 0.0
    return min(ratio, most) / most


def _points(points: int, penalty: float) -> int:
    return math.ceil(points - points * penalty)
