"""The inspection report as one HTML page, with four plots.

No script and no network; light or dark as the reader's screen is. Each plot has its title, a
caption, and its numbers as a table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from headrace.html import Grid, Markup, element, grid, joined
from headrace.html.plots import PlotMark, Series, bars, columns
from headrace.inspection import text as wording
from headrace.inspection.report import SIZE_EDGES_BYTES, CatalogReport, InspectedTable
from headrace.model.text import size, span, utc

TABLES_MAX = 12  # in the plot of files by table
SCORES = 10  # bars of the health plot
ROWS_MAX = 200  # of one list, so that a browser can show it; JSON has all
_STYLE = Path(__file__).with_name("page.css")
# Only the inline style is allowed: nothing is ever fetched or run, whatever a table is called.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_ABOUT_SCORES = (
    "Health is the part of a full scan's cost that reads wanted rows, in percent: the rest is "
    "opening files that could be one, and reading deletes and deleted rows. The number after the "
    "arrow is what one pass of optimizing is predicted to leave. Amoro's is the score that Apache "
    "Amoro shows. Benefit is what each scan is spared for a byte that is read or written once."
)


def page(report: CatalogReport) -> str:
    """The whole page, complete in itself."""
    title = f"Catalog {report.catalog}"
    head = joined(
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        element("title", f"{title}: health"),
        element("style", Markup(_STYLE.read_text(encoding="utf-8"))),
    )
    body = element("main", *_parts(report, title))
    html = element("html", element("head", head), element("body", body), attributes={"lang": "en"})
    return f"<!doctype html>\n{html}\n"


def _parts(report: CatalogReport, title: str) -> Sequence[Markup]:
    return [
        element("h1", title),
        element("p", _subtitle(report), cls="soft"),
        element("p", wording.promise(report), cls="promise"),
        _facts(wording.totals_of(report)),
        _unread(report),
        element("div", *figures(report), cls="plots") if report.tables else Markup(),
        _tables(report),
        _partitions(report),
        _snapshots(report),
        _flaws(report.tables),
        _properties(report),
    ]


def figures(report: CatalogReport) -> Sequence[Markup]:
    """The four plots, each with its caption and its numbers."""
    return [
        _sizes(report),
        _files(report.tables),
        _health(report.tables),
        _snapshots_figure(report),
    ]


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
        wording.size_labels(),
        series,
        ticks=wording.size_ticks(),
        axis="size up to, in KiB, MiB, GiB; each column twice the one before",
        stacked=True,
        mark=PlotMark(_place(target), f"target {wording.mebibytes(target)}"),
    )
    text = (
        "What counts as small is measured by each table's own target size"
        f"{f'; {others} have another than the one shown' if others else ''}."
    )
    return _figure(title, picture, text, wording.size_labels(), series)


def _files(tables: Sequence[InspectedTable]) -> Markup:
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


def _health(tables: Sequence[InspectedTable]) -> Markup:
    title = "Tables by health, now and after optimizing"
    labels = [f"{10 * n} to {10 * n + 9 if n < SCORES - 1 else 100}" for n in range(SCORES)]
    series = (
        Series("now", "orange", _scores([table.scan_score for table in tables])),
        Series("after", "blue", _scores([table.score_after for table in tables])),
    )
    picture = columns(title, labels, series, axis="health, 100 is best", stacked=False)
    return _figure(title, picture, "Health as the table below tells it.", labels, series)


def _snapshots_figure(report: CatalogReport) -> Markup:
    title = "Snapshots by age"
    labels = wording.age_labels()
    series = (Series("snapshots", "green", report.totals.by_age),)
    picture = columns(title, labels, series, axis="age of the snapshot", stacked=False)
    text = "Every snapshot keeps the files it names; old ones are expired to free storage."
    return _figure(title, picture, text, labels, series)


def _figure(
    title: str, picture: Markup, text: str, labels: Sequence[str], series: Sequence[Series]
) -> Markup:
    layout = Grid(
        f"{title}, as numbers",
        ("", *(each.name for each in series)),
        numbers=frozenset(range(1, len(series) + 1)),
    )
    rows = [
        (label, *(f"{each.values[place]:,}" for each in series))
        for place, label in enumerate(labels)
    ]
    numbers = element("details", element("summary", "As numbers"), grid(layout, rows, of=len(rows)))
    caption = element("figcaption", text)
    return element("figure", element("h3", title), picture, caption, numbers)


def _target(tables: Sequence[InspectedTable]) -> tuple[int, int]:
    """The target size of most tables, and how many tables have another one."""
    (target, number), *_ = Counter(table.target_bytes for table in tables).most_common()
    return target, len(tables) - number


def _place(size_bytes: int) -> float:
    """Where a size lies among the columns of the size plot, in columns from the left."""
    place = math.log2(size_bytes / SIZE_EDGES_BYTES[0]) + 1
    return min(max(place, 0.0), float(len(SIZE_EDGES_BYTES) + 1))


def _scores(scores: Sequence[int]) -> Sequence[int]:
    counted = Counter(min(score // 10, SCORES - 1) for score in scores)
    return [counted[place] for place in range(SCORES)]


def _subtitle(report: CatalogReport) -> str:
    kept = f", tables that match {report.filter}" if report.filter else ""
    return (
        f"Type {report.type}{kept}; inspected {utc(report.at_ms)} in {span(report.took_s * 1000)} "
        "by headrace inspect. Nothing was changed."
    )


def _facts(facts: Sequence[tuple[str, str]]) -> Markup:
    return element(
        "dl", *(element("div", element("dt", name), element("dd", text)) for name, text in facts)
    )


def _tables(report: CatalogReport) -> Markup:
    layout = Grid(
        "Tables, most in need first",
        (
            *("table", "health", "Amoro's", "files", "bytes", "small", "deletes"),
            *("partitions due", "saved", "rewritten", "benefit", "optimizing", "what is there"),
        ),
        numbers=frozenset(range(1, 11)),
    )
    rows = [
        (
            *(table.table, wording.health_cell(table), str(table.amoro_score)),
            *(wording.files_cell(table), size(table.files.bytes), wording.small_share(table)),
            *(
                wording.deletes_cell(table.deletes),
                f"{table.partitions_due:,} / {table.partitions:,}",
            ),
            *(size(table.saving.bytes_saved), size(table.saving.bytes_rewritten)),
            *(wording.benefit(table.saving.benefit), wording.optimizing_cell(table), table.why),
        )
        for table in report.tables[:ROWS_MAX]
    ]
    return joined(
        element("h2", layout.title),
        element("p", _ABOUT_SCORES, cls="soft"),
        grid(layout, rows, of=len(report.tables)),
    )


def _partitions(report: CatalogReport) -> Markup:
    needs = report.partitions_in_need
    layout = Grid(
        "Partitions most in need",
        (
            *("table", "partition", "files", "deletes gone", "rewritten", "benefit"),
            *("optimizing", "what is there"),
        ),
        numbers=frozenset(range(2, 6)),
    )
    rows = [
        (
            *(need.table, need.partition),
            f"{need.saving.files_before:,} → {need.saving.files_after:,}",
            f"{need.saving.deletes_removed:,}",
            *(size(need.saving.bytes_rewritten), wording.benefit(need.saving.benefit)),
            *(need.type, need.why),
        )
        for need in needs[:ROWS_MAX]
    ]
    return joined(element("h2", layout.title), grid(layout, rows, of=len(needs)))


def _snapshots(report: CatalogReport) -> Markup:
    kept = wording.by_snapshots(report.tables)
    layout = Grid(
        "Snapshots", ("table", "snapshots", "oldest", "newest"), numbers=frozenset(range(1, 4))
    )
    rows = [
        (
            *(table.table, wording.snapshots_cell(table.snapshots)),
            wording.age(table.snapshots.oldest_ms, report.at_ms),
            wording.age(table.snapshots.newest_ms, report.at_ms),
        )
        for table in kept[:ROWS_MAX]
    ]
    return joined(element("h2", layout.title), grid(layout, rows, of=len(kept)))


def _flaws(tables: Sequence[InspectedTable]) -> Markup:
    rows = [(table.table, flaw) for table in tables for flaw in table.flaws]
    layout = Grid("Flaws in table properties", ("table", "what is wrong, and how to mend it"))
    return joined(element("h2", layout.title), grid(layout, rows[:ROWS_MAX], of=len(rows)))


def _unread(report: CatalogReport) -> Markup:
    if not report.unread:
        return Markup()
    layout = Grid("Could not be read", ("table", "error", "way out"), classes={1: "error"})
    rows = [(each.name, each.error, each.fix) for each in report.unread[:ROWS_MAX]]
    return joined(element("h2", layout.title), grid(layout, rows, of=len(report.unread)))


def _properties(report: CatalogReport) -> Markup:
    layout = Grid("How the catalog was reached", ("property", "value"))
    rows = sorted(report.properties.items())
    return joined(element("h2", layout.title), grid(layout, rows, of=len(rows)))
