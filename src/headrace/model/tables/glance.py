"""What a snapshot's summary alone says of a table, nothing scanned: Amoro's pre-check, and figures
for a table that nobody optimizes.

Totals know no partitions and no sizes of single files, so a score made of them is an estimate: the
table is taken for one partition whose files are all of the average size.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.tables.health import amoro_score, scan_score
from headrace.model.tables.measure import Measured, Tally
from headrace.model.tables.settings import OptimizingSettings


@dataclass(frozen=True, slots=True)
class Totals:
    """Of one snapshot."""

    files: int
    bytes: int
    rows: int
    delete_files: int
    position_deletes: int  # rows
    equality_deletes: int  # rows

    @property
    def equality_delete_files(self) -> int:
        """Of the delete files. Where there are both kinds, in proportion to their rows."""
        if not self.equality_deletes or not self.delete_files:
            return 0
        if not self.position_deletes:
            return self.delete_files
        part = self.equality_deletes / (self.equality_deletes + self.position_deletes)
        return min(self.delete_files - 1, max(1, round(self.delete_files * part)))

    @property
    def position_delete_files(self) -> int:
        return self.delete_files - self.equality_delete_files


def looks_healthy(totals: Totals | None, settings: OptimizingSettings) -> bool:
    """Amoro's pre-check: no data, or no deletes and files that on average have reached their size.

    None: a table without a snapshot, or whose writer told no totals (which is not healthy).
    """
    if totals is None:
        return False
    if totals.files == 0:
        return True
    return totals.delete_files == 0 and totals.bytes / totals.files > settings.min_target_bytes


def estimated_scores(totals: Totals, settings: OptimizingSettings) -> tuple[int, int]:
    """(`scan_score`, `amoro_score`), as far as totals tell."""
    if totals.files == 0:
        return 100, 100
    live = max(0, totals.rows - totals.position_deletes) / totals.rows if totals.rows else 1.0
    every = Tally(totals.files, totals.bytes, totals.rows)
    small = totals.bytes / totals.files <= settings.min_target_bytes
    table = Measured(
        files=every,
        fragments=Tally(),
        rewrite=Tally(),
        undersized=every if small else Tally(),
        laden=every if totals.delete_files and not small else Tally(),
        combine=0,
        smallest=(),
        position_deletes=Tally(totals.position_delete_files, 0, totals.position_deletes),
        equality_deletes=Tally(totals.equality_delete_files, 0, totals.equality_deletes),
        any_deletes=totals.delete_files,
        applied=totals.delete_files,
        live_bytes=int(totals.bytes * live),
        size_error=0.0,
    )
    return scan_score([table], settings), amoro_score([table], settings)
