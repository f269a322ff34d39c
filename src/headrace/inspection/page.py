"""The report as one HTML page: no script, no network, light and dark as the reader's screen is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.inspection import pictures, words
from headrace.inspection.grids import Grid, grid
from headrace.inspection.markup import Markup, element, joined
from headrace.inspection.report import CatalogReport, Inspected
from headrace.model.measures import size, span
from headrace.model.text import utc

ROWS_MAX = 200  # of one list; a page of 100,000 rows is no page. JSON has all
_STYLE = Path(__file__).with_name("page.css")
# The style is the page's own; nothing else is ever fetched or run, whatever a table is called.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_ABOUT_SCORES = (
    "Health is the part of a full scan's cost that reads wanted rows, in percent: the rest is "
    "opening files that could be one, and reading deletes and deleted rows. The number after the "
    "arrow is what one pass of optimizing is predicted to leave. Amoro's is the score that Apache "
    "Amoro shows. Benefit is what each scan is spared for a byte that is read or written once."
)


def page(report: CatalogReport) -> str:
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
        element("p", words.promise(report), cls="promise"),
        _facts(words.totals_of(report)),
        _unread(report),
        element("div", *pictures.all_of(report), cls="plots") if report.tables else Markup(),
        _tables(report),
        _partitions(report),
        _snapshots(report),
        _flaws(report.tables),
        _properties(report),
    ]


def _subtitle(report: CatalogReport) -> str:
    kept = f", tables that match {report.filter}" if report.filter else ""
    return (
        f"Type {report.type}{kept}; inspected {utc(report.at_ms)} in {span(report.took_s * 1000)} "
        "by headrace inspect. Nothing was changed."
    )


def _facts(told: Sequence[tuple[str, str]]) -> Markup:
    return element(
        "dl", *(element("div", element("dt", name), element("dd", text)) for name, text in told)
    )


def _tables(report: CatalogReport) -> Markup:
    made = Grid(
        "Tables, most in need first",
        (
            *("table", "health", "Amoro's", "files", "bytes", "small", "deletes"),
            *("partitions due", "saved", "rewritten", "benefit", "optimizing", "what is there"),
        ),
        numbers=frozenset(range(1, 11)),
    )
    rows = [
        (
            *(table.table, words.health_cell(table), str(table.amoro_score)),
            *(words.files_cell(table), size(table.files.bytes), words.small_share(table)),
            *(
                words.deletes_cell(table.deletes),
                f"{table.partitions_due:,} / {table.partitions:,}",
            ),
            *(size(table.saving.bytes_saved), size(table.saving.bytes_rewritten)),
            *(words.benefit(table.saving.benefit), words.optimizing_cell(table), table.why),
        )
        for table in report.tables[:ROWS_MAX]
    ]
    return joined(
        element("h2", made.title),
        element("p", _ABOUT_SCORES, cls="soft"),
        grid(made, rows, of=len(report.tables)),
    )


def _partitions(report: CatalogReport) -> Markup:
    needs = report.partitions_in_need
    made = Grid(
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
            *(size(need.saving.bytes_rewritten), words.benefit(need.saving.benefit)),
            *(need.type, need.why),
        )
        for need in needs[:ROWS_MAX]
    ]
    return joined(element("h2", made.title), grid(made, rows, of=len(needs)))


def _snapshots(report: CatalogReport) -> Markup:
    kept = words.by_snapshots(report.tables)
    made = Grid(
        "Snapshots", ("table", "snapshots", "oldest", "newest"), numbers=frozenset(range(1, 4))
    )
    rows = [
        (
            *(table.table, words.snapshots_cell(table.snapshots)),
            words.age(table.snapshots.oldest_ms, report.at_ms),
            words.age(table.snapshots.newest_ms, report.at_ms),
        )
        for table in kept[:ROWS_MAX]
    ]
    return joined(element("h2", made.title), grid(made, rows, of=len(kept)))


def _flaws(tables: Sequence[Inspected]) -> Markup:
    rows = [(table.table, flaw) for table in tables for flaw in table.flaws]
    made = Grid("Flaws in table properties", ("table", "what is wrong, and how to mend it"))
    return joined(element("h2", made.title), grid(made, rows[:ROWS_MAX], of=len(rows)))


def _unread(report: CatalogReport) -> Markup:
    if not report.unread:
        return Markup()
    made = Grid("Could not be read", ("table", "error", "way out"), classes={1: "error"})
    rows = [(each.name, each.error, each.fix) for each in report.unread[:ROWS_MAX]]
    return joined(element("h2", made.title), grid(made, rows, of=len(report.unread)))


def _properties(report: CatalogReport) -> Markup:
    made = Grid("How the catalog was reached", ("property", "value"))
    rows = sorted(report.properties.items())
    return joined(element("h2", made.title), grid(made, rows, of=len(rows)))
