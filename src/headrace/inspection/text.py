"""The report for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from headrace.inspection import words
from headrace.inspection.report import CatalogReport, Inspected
from headrace.model.measures import count, size, span
from headrace.model.text import utc

LISTED_MAX = 20  # flaws, and tables that could not be read, in the text; JSON has all
_RIGHT = frozenset(
    {"health", "Amoro's", "files", "small", "deletes", "saved", "rewritten", "benefit", "snapshots"}
    | {"oldest", "newest", "file sizes"}
)


def shown(report: CatalogReport, *, most: int) -> Iterator[RenderableType]:
    """The parts of the report, from the whole to the single table; `most` rows of each."""
    heading = f"catalog {report.catalog} ({report.type}), inspected {utc(report.at_ms)}"
    yield Text(f"{plain(heading)} in {span(report.took_s * 1000)}", style="bold")
    facts = Table(box=None, pad_edge=False, show_header=False)
    for name, told in words.totals_of(report):
        facts.add_row(Text(f"  {name}", style="dim"), Text(plain(told)))
    yield facts
    yield Text()
    yield Text(words.promise(report), style="bold")
    due = [table for table in report.tables if table.type is not None]
    if due:
        yield _heading("Tables most in need", len(due), most)
        yield _tables(due[:most])
        needs = report.partitions_in_need
        yield _heading("Partitions most in need", len(needs), most)
        yield _partitions(report, most)
    kept = words.by_snapshots(report.tables)
    if kept:
        yield _heading("Most snapshots", len(kept), most)
        yield _snapshots(kept[:most], report.at_ms)
    yield from _flaws(report.tables)
    yield from _unread(report)


def plain(text: str) -> str:
    """A name of a stranger's table can't move the cursor or colour the screen."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _tables(tables: Sequence[Inspected]) -> Table:
    made = _table(
        *("table", "health", "Amoro's", "files", "small", "deletes", "saved", "rewritten"),
        *("benefit", "optimizing", "because of"),
    )
    for table in tables:
        _add(
            made,
            *(table.table, words.health_cell(table), str(table.amoro_score)),
            *(words.files_cell(table), words.small_share(table)),
            words.deletes_cell(table.deletes),
            *(size(table.saving.bytes_saved), size(table.saving.bytes_rewritten)),
            *(words.benefit(table.saving.benefit), words.optimizing_cell(table), table.why),
        )
    return made


def _partitions(report: CatalogReport, most: int) -> Table:
    made = _table("table", "partition", "files", "rewritten", "benefit", "optimizing", "because of")
    for need in report.partitions_in_need[:most]:
        saving = need.saving
        _add(
            made,
            *(need.table, need.partition),
            f"{saving.files_before:,} → {saving.files_after:,}",
            *(size(saving.bytes_rewritten), words.benefit(saving.benefit), need.type, need.why),
        )
    return made


def _snapshots(tables: Sequence[Inspected], now_ms: int) -> Table:
    made = _table("table", "snapshots", "oldest", "newest")
    for table in tables:
        told = table.snapshots
        ages = (words.age(told.oldest_ms, now_ms), words.age(told.newest_ms, now_ms))
        _add(made, table.table, words.snapshots_cell(told), *ages)
    return made


def _flaws(tables: Sequence[Inspected]) -> Iterator[RenderableType]:
    found = [(table.table, flaw) for table in tables for flaw in table.flaws]
    if not found:
        return
    yield _heading("Flaws in table properties", len(found), LISTED_MAX)
    for name, flaw in found[:LISTED_MAX]:
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
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        side = "right" if column in _RIGHT else "left"
        made.add_column(column, justify=side, overflow="fold")
    return made


def _add(made: Table, *cells: str) -> None:
    made.add_row(*(Text(plain(cell)) for cell in cells))
