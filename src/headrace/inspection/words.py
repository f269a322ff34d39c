"""How the numbers of a report are called, in a terminal and on a page alike."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headrace.inspection.report import (
    AGE_EDGES_MS,
    DAY_MS,
    POOR_BELOW,
    SIZE_EDGES_BYTES,
    CatalogReport,
    Deletes,
    Inspected,
    Snapshots,
    Totals,
)
from headrace.model.measures import count, size, span

BINARY = 1024
NOTHING = "-"


def totals_of(report: CatalogReport) -> Sequence[tuple[str, str]]:
    """What the whole catalog adds up to: a name and a text each."""
    told = report.totals
    return [
        ("tables", _tables(report)),
        (
            "data files",
            f"{told.files.files:,} with {size(told.files.bytes)}, {told.files.rows:,} rows",
        ),
        ("small files", _small(told)),
        ("delete files", deletes(told.deletes)),
        ("snapshots", _kept(told, report.at_ms)),
        ("health", _health(told)),
    ]


def promise(report: CatalogReport) -> str:
    """What optimizing would save in all."""
    told = report.totals
    saving = told.saving
    if not told.tables_due:
        return "Nothing to gain: no table would be better for being rewritten."
    removed = (
        f", leave out {count(saving.deletes_removed, 'delete file')}"
        if saving.deletes_removed
        else ""
    )
    freed = (
        f" and make the tables {size(saving.bytes_saved)} smaller" if saving.bytes_saved > 0 else ""
    )
    return (
        f"Optimizing {count(told.tables_due, 'table')} would turn "
        f"{count(saving.files_before, 'data file')} into {saving.files_after:,}{removed}{freed}. "
        f"It reads and writes {size(saving.bytes_rewritten)} once; then every full scan is cheaper "
        f"by the like of {size(saving.spared_bytes)}, with opening a file counted as bytes."
    )


def deletes(told: Deletes) -> str:
    kinds = (("position", told.position), ("equality", told.equality), ("vectors", told.vectors))
    parts = ", ".join(f"{number:,} {name}" for name, number in kinds if number)
    dangling = f"; {told.dangling:,} dangling, applying to no file" if told.dangling else ""
    if not told.files:
        return f"none{dangling}"
    return f"{told.files:,} ({parts}) with {size(told.bytes)}, {told.rows:,} rows{dangling}"


def deletes_cell(told: Deletes) -> str:
    if not told.files and not told.dangling:
        return NOTHING
    return f"{told.files:,} + {told.dangling:,} dangling" if told.dangling else f"{told.files:,}"


def health_cell(table: Inspected) -> str:
    if table.score_after == table.scan_score:
        return str(table.scan_score)
    return f"{table.scan_score} → {table.score_after}"


def files_cell(table: Inspected) -> str:
    if table.type is None:
        return f"{table.files.files:,}"
    return f"{table.files.files:,} → {table.files.files - table.saving.files_saved:,}"


def optimizing_cell(table: Inspected) -> str:
    if table.type is None:
        return NOTHING
    return table.type if table.enabled else f"{table.type} (off)"


def benefit(of: float) -> str:
    return f"{of:,.1f}"


def small_share(table: Inspected) -> str:
    if not table.files.files:
        return NOTHING
    return f"{100 * table.small.files / table.files.files:.0f} %"


def age(at_ms: int | None, now_ms: int) -> str:
    return NOTHING if at_ms is None else span(now_ms - at_ms)


def size_ticks() -> Sequence[str]:
    """Under each bar of the size plot, where there is room: every other one."""
    named = [_edge(edge) for edge in SIZE_EDGES_BYTES]
    shown = [label if place % 2 == 0 else "" for place, label in enumerate(named)]
    return [*shown, "more"]


def size_labels() -> Sequence[str]:
    return [*(f"up to {_edge(edge)}iB" for edge in SIZE_EDGES_BYTES), "more"]


def mebibytes(size_bytes: int) -> str:
    """As the size plot counts."""
    return f"{size_bytes / BINARY**2:.4g} MiB"


def age_labels() -> Sequence[str]:
    ends = [f"{edge // DAY_MS} d" if edge >= DAY_MS else "1 h" for edge in AGE_EDGES_MS]
    return [
        f"up to {ends[0]}",
        *(f"{a} to {b}" for a, b in pairwise(ends)),
        "older",
    ]


def by_snapshots(tables: Sequence[Inspected]) -> Sequence[Inspected]:
    """Those first that keep most."""
    kept = [table for table in tables if table.snapshots.count]
    return sorted(kept, key=lambda table: (-table.snapshots.count, table.table))


def snapshots_cell(told: Snapshots) -> str:
    return f"{told.count:,}"


def _edge(size_bytes: int) -> str:
    number, unit = size_bytes // BINARY, 0
    while number >= BINARY:  # ends: it gets smaller each time
        number, unit = number // BINARY, unit + 1
    return f"{number} {('K', 'M', 'G')[unit]}"


def _tables(report: CatalogReport) -> str:
    kept_out = f", {report.filtered:,} kept out by the filter" if report.filtered else ""
    broken = f"; {len(report.unread):,} could not be read" if report.unread else ""
    return f"{report.totals.tables:,}{kept_out}{broken}"


def _small(told: Totals) -> str:
    return (
        f"{told.small.files:,}, which is {100 * told.small_share:.0f} % of all data files, "
        f"with {size(told.small.bytes)}"
    )


def _kept(told: Totals, now_ms: int) -> str:
    if told.oldest_ms is None:
        return "none"
    return f"{told.snapshots:,}, the oldest {span(now_ms - told.oldest_ms)} old"


def _health(told: Totals) -> str:
    if told.median_score is None:
        return NOTHING
    return f"median {told.median_score:g} of 100; {count(told.poor, 'table')} below {POOR_BELOW}"
