"""The inspection report for a terminal, and the wording of its numbers for the HTML page, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from headrace.inspection.report import (
    AGE_EDGES_MS,
    DAY_MS,
    POOR_BELOW,
    SIZE_EDGES_BYTES,
    CatalogReport,
    CatalogTotals,
    DeleteCounts,
    InspectedTable,
    Snapshots,
)
from headrace.model.text import count, size, span, utc

BINARY = 1024
NOTHING = "-"
LISTED_MAX = 20  # flaws, and tables that could not be read; JSON has all
# Columns that are aligned to the right.
_RIGHT = frozenset(
    {"health", "Amoro's", "files", "small", "deletes", "saved", "rewritten", "benefit", "snapshots"}
    | {"oldest", "newest", "file sizes"}
)


def renderables(report: CatalogReport, *, most: int) -> Iterator[RenderableType]:
    """The parts of the report, from the whole to the single table, with `most` rows each."""
    heading = f"catalog {report.catalog} ({report.type}), inspected {utc(report.at_ms)}"
    yield Text(f"{plain(heading)} in {span(report.took_s * 1000)}", style="bold")
    facts = Table(box=None, pad_edge=False, show_header=False)
    for name, text in totals_of(report):
        facts.add_row(Text(f"  {name}", style="dim"), Text(plain(text)))
    yield facts
    yield Text()
    yield Text(promise(report), style="bold")
    due = [table for table in report.tables if table.type is not None]
    if due:
        yield _heading("Tables most in need", len(due), most)
        yield _tables(due[:most])
        needs = report.partitions_in_need
        yield _heading("Partitions most in need", len(needs), most)
        yield _partitions(report, most)
    kept = by_snapshots(report.tables)
    if kept:
        yield _heading("Most snapshots", len(kept), most)
        yield _snapshots(kept[:most], report.at_ms)
    yield from _flaws(report.tables)
    yield from _unread(report)


def plain(text: str) -> str:
    """The text without control characters: the name of a table must not control the terminal."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _tables(tables: Sequence[InspectedTable]) -> Table:
    grid = _table(
        *("table", "health", "Amoro's", "files", "small", "deletes", "saved", "rewritten"),
        *("benefit", "optimizing", "because of"),
    )
    for table in tables:
        _add(
            grid,
            *(table.table, health_cell(table), str(table.amoro_score)),
            *(files_cell(table), small_share(table)),
            deletes_cell(table.deletes),
            *(size(table.saving.bytes_saved), size(table.saving.bytes_rewritten)),
            *(benefit(table.saving.benefit), optimizing_cell(table), table.why),
        )
    return grid


def _partitions(report: CatalogReport, most: int) -> Table:
    grid = _table("table", "partition", "files", "rewritten", "benefit", "optimizing", "because of")
    for need in report.partitions_in_need[:most]:
        saving = need.saving
        _add(
            grid,
            *(need.table, need.partition),
            f"{saving.files_before:,} → {saving.files_after:,}",
            *(size(saving.bytes_rewritten), benefit(saving.benefit), need.type, need.why),
        )
    return grid


def _snapshots(tables: Sequence[InspectedTable], now_ms: int) -> Table:
    grid = _table("table", "snapshots", "oldest", "newest")
    for table in tables:
        snapshots = table.snapshots
        ages = (age(snapshots.oldest_ms, now_ms), age(snapshots.newest_ms, now_ms))
        _add(grid, table.table, snapshots_cell(snapshots), *ages)
    return grid


def _flaws(tables: Sequence[InspectedTable]) -> Iterator[RenderableType]:
    flaws = [(table.table, flaw) for table in tables for flaw in table.flaws]
    if not flaws:
        return
    yield _heading("Flaws in table properties", len(flaws), LISTED_MAX)
    for name, flaw in flaws[:LISTED_MAX]:
        yield Text(plain(f"  {name}: {flaw}"))


def _unread(report: CatalogReport) -> Iterator[RenderableType]:
    if not report.unread:
        return
    yield _heading("Could not be read", len(report.unread), LISTED_MAX)
    for each in report.unread[:LISTED_MAX]:
        yield Text(plain(f"  {each.name}: {each.error}"), style="red")
        yield Text(plain(f"    {each.fix}"))


def _heading(title: str, all_of_them: int, most: int) -> Text:
    more = f" ({most:,} of {count(all_of_them, 'row')})" if all_of_them > most else ""
    return Text(f"\n{title}{more}", style="bold")


def _table(*columns: str) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        side = "right" if column in _RIGHT else "left"
        grid.add_column(column, justify=side, overflow="fold")
    return grid


def _add(grid: Table, *cells: str) -> None:
    grid.add_row(*(Text(plain(cell)) for cell in cells))


def totals_of(report: CatalogReport) -> Sequence[tuple[str, str]]:
    """What the whole catalog adds up to: pairs of a name and a text."""
    totals = report.totals
    return [
        ("tables", _tables_phrase(report)),
        (
            "data files",
            f"{totals.files.files:,} with {size(totals.files.bytes)}, {totals.files.rows:,} rows",
        ),
        ("small files", _small(totals)),
        ("delete files", deletes(totals.deletes)),
        ("snapshots", _kept(totals, report.at_ms)),
        ("health", _health(totals)),
    ]


def promise(report: CatalogReport) -> str:
    """What optimizing would save in all, as a sentence."""
    totals = report.totals
    saving = totals.saving
    if not totals.tables_due:
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
        f"Optimizing {count(totals.tables_due, 'table')} would turn "
        f"{count(saving.files_before, 'data file')} into {saving.files_after:,}{removed}{freed}. "
        f"It reads and writes {size(saving.bytes_rewritten)} once; then every full scan is cheaper "
        f"by the like of {size(saving.spared_bytes)}, with opening a file counted as bytes."
    )


def deletes(counts: DeleteCounts) -> str:
    kinds = (
        ("position", counts.position),
        ("equality", counts.equality),
        ("vectors", counts.vectors),
    )
    parts = ", ".join(f"{number:,} {name}" for name, number in kinds if number)
    dangling = f"; {counts.dangling:,} dangling, applying to no file" if counts.dangling else ""
    if not counts.files:
        return f"none{dangling}"
    return f"{counts.files:,} ({parts}) with {size(counts.bytes)}, {counts.rows:,} rows{dangling}"


def deletes_cell(counts: DeleteCounts) -> str:
    if not counts.files and not counts.dangling:
        return NOTHING
    return (
        f"{counts.files:,} + {counts.dangling:,} dangling"
        if counts.dangling
        else f"{counts.files:,}"
    )


def health_cell(table: InspectedTable) -> str:
    if table.score_after == table.scan_score:
        return str(table.scan_score)
    return f"{table.scan_score} → {table.score_after}"


def files_cell(table: InspectedTable) -> str:
    if table.type is None:
        return f"{table.files.files:,}"
    return f"{table.files.files:,} → {table.files.files - table.saving.files_saved:,}"


def optimizing_cell(table: InspectedTable) -> str:
    if table.type is None:
        return NOTHING
    return table.type if table.enabled else f"{table.type} (off)"


def benefit(of: float) -> str:
    return f"{of:,.1f}"


def small_share(table: InspectedTable) -> str:
    if not table.files.files:
        return NOTHING
    return f"{100 * table.small.files / table.files.files:.0f} %"


def age(at_ms: int | None, now_ms: int) -> str:
    return NOTHING if at_ms is None else span(now_ms - at_ms)


def size_ticks() -> Sequence[str]:
    """Labels under the bars of the size plot; there is room for every other one."""
    named = [_edge(edge) for edge in SIZE_EDGES_BYTES]
    shown = [label if place % 2 == 0 else "" for place, label in enumerate(named)]
    return [*shown, "more"]


def size_labels() -> Sequence[str]:
    return [*(f"up to {_edge(edge)}iB" for edge in SIZE_EDGES_BYTES), "more"]


def mebibytes(size_bytes: int) -> str:
    """In the units of the size plot."""
    return f"{size_bytes / BINARY**2:.4g} MiB"


def age_labels() -> Sequence[str]:
    ends = [f"{edge // DAY_MS} d" if edge >= DAY_MS else "1 h" for edge in AGE_EDGES_MS]
    return [
        f"up to {ends[0]}",
        *(f"{a} to {b}" for a, b in pairwise(ends)),
        "older",
    ]


def by_snapshots(tables: Sequence[InspectedTable]) -> Sequence[InspectedTable]:
    """The tables that keep snapshots, those with the most first."""
    kept = [table for table in tables if table.snapshots.count]
    return sorted(kept, key=lambda table: (-table.snapshots.count, table.table))


def snapshots_cell(snapshots: Snapshots) -> str:
    return f"{snapshots.count:,}"


def _edge(size_bytes: int) -> str:
    number, unit = size_bytes // BINARY, 0
    while number >= BINARY:  # ends: it gets smaller each time
        number, unit = number // BINARY, unit + 1
    return f"{number} {('K', 'M', 'G')[unit]}"


def _tables_phrase(report: CatalogReport) -> str:
    kept_out = f", {report.filtered:,} kept out by the filter" if report.filtered else ""
    broken = f"; {len(report.unread):,} could not be read" if report.unread else ""
    return f"{report.totals.tables:,}{kept_out}{broken}"


def _small(totals: CatalogTotals) -> str:
    return (
        f"{totals.small.files:,}, which is {100 * totals.small_share:.0f} % of all data files, "
        f"with {size(totals.small.bytes)}"
    )


def _kept(totals: CatalogTotals, now_ms: int) -> str:
    if totals.oldest_ms is None:
        return "none"
    return f"{totals.snapshots:,}, the oldest {span(now_ms - totals.oldest_ms)} old"


def _health(totals: CatalogTotals) -> str:
    if totals.median_score is None:
        return NOTHING
    return (
        f"median {totals.median_score:g} of 100; {count(totals.poor, 'table')} below {POOR_BELOW}"
    )
