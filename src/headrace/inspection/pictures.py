"""The four plots of the page, each with its title, what it says, and its numbers as a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from headrace.inspection import words
from headrace.inspection.grids import Grid, grid
from headrace.inspection.markup import Markup, element
from headrace.inspection.plots import Mark, Series, bars, columns
from headrace.inspection.report import SIZE_EDGES_BYTES, CatalogReport, Inspected

TABLES_MAX = 12  # compared by their files
SCORES = 10  # bars of the health plot


def all_of(report: CatalogReport) -> Sequence[Markup]:
    return [_sizes(report), _files(report.tables), _health(report.tables), _snapshots(report)]


def _sizes(report: CatalogReport) -> Markup:
    counted = report.totals.sizes
    series = (
        Series("fragments", "orange", [each.fragments for each in counted]),
        Series("undersized", "yellow", [each.undersized for each in counted]),
        Series("of full size", "blue", [each.reached for each in counted]),
    )
    target, others = _target(report.tables)
    title = "Data files by size"
    picture = columns(
        title,
        words.size_labels(),
        series,
        ticks=words.size_ticks(),
        axis="size up to, in KiB, MiB, GiB; each column twice the one before",
        stacked=True,
        mark=Mark(_place(target), f"target {words.mebibytes(target)}"),
    )
    text = (
        "What counts as small is measured by each table's own target size"
        f"{f'; {others} have another than the one shown' if others else ''}."
    )
    return _figure(title, picture, text, words.size_labels(), series)


def _files(tables: Sequence[Inspected]) -> Markup:
    due = [table for table in tables if table.type is not None]
    first = sorted(due, key=lambda table: -table.saving.files_saved)[:TABLES_MAX]
    title = "Data files by table, now and after optimizing"
    labels = [table.table for table in first]
    series = (
        Series("now", "orange", [table.files.files for table in first]),
        Series("after", "blue", [t.files.files - t.saving.files_saved for t in first]),
    )
    text = f"The {len(first)} tables that would lose most files." if first else "Nothing to gain."
    return _figure(title, bars(title, labels, series), text, labels, series)


def _health(tables: Sequence[Inspected]) -> Markup:
    title = "Tables by health, now and after optimizing"
    labels = [f"{10 * n} to {10 * n + 9 if n < SCORES - 1 else 100}" for n in range(SCORES)]
    series = (
        Series("now", "orange", _scores([table.scan_score for table in tables])),
        Series("after", "blue", _scores([table.score_after for table in tables])),
    )
    picture = columns(title, labels, series, axis="health, 100 is best", stacked=False)
    return _figure(title, picture, "Health as the table below tells it.", labels, series)


def _snapshots(report: CatalogReport) -> Markup:
    title = "Snapshots by age"
    labels = words.age_labels()
    series = (Series("snapshots", "green", report.totals.by_age),)
    picture = columns(title, labels, series, axis="age of the snapshot", stacked=False)
    text = "Every snapshot keeps the files it names; old ones are expired to free storage."
    return _figure(title, picture, text, labels, series)


def _figure(
    title: str, picture: Markup, text: str, labels: Sequence[str], series: Sequence[Series]
) -> Markup:
    made = Grid(
        f"{title}, as numbers",
        ("", *(each.name for each in series)),
        numbers=frozenset(range(1, len(series) + 1)),
    )
    rows = [
        (label, *(f"{each.values[place]:,}" for each in series))
        for place, label in enumerate(labels)
    ]
    numbers = element("details", element("summary", "As numbers"), grid(made, rows, of=len(rows)))
    caption = element("figcaption", text)
    return element("figure", element("h3", title), picture, caption, numbers)


def _target(tables: Sequence[Inspected]) -> tuple[int, int]:
    """The target of most tables, and how many have another one."""
    (target, number), *_ = Counter(table.target_bytes for table in tables).most_common()
    return target, len(tables) - number


def _place(size_bytes: int) -> float:
    """Where a size lies among the columns, in columns from the left."""
    place = math.log2(size_bytes / SIZE_EDGES_BYTES[0]) + 1
    return min(max(place, 0.0), float(len(SIZE_EDGES_BYTES) + 1))


def _scores(scores: Sequence[int]) -> Sequence[int]:
    counted = Counter(min(score // 10, SCORES - 1) for score in scores)
    return [counted[place] for place in range(SCORES)]
