"""How lists of catalogs, tables, processes and findings look."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from headrace.cli.summary import moment, span, table_of
from headrace.cli.table_text import bytes_text, files_text, looked_into
from headrace.model.measures import size
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.views_tables import (
    CatalogView,
    ExplanationView,
    FindingView,
    ProcessView,
    TableView,
)

REASON_MAX = 80  # characters of an error in a list
STYLES = {"ok": "green", "holds": "yellow", "blocks": "bold red"}
RIGHT = frozenset({"health", "files", "size", "tables", "number"})


def _table(*columns: str) -> Table:
    table = table_of(*columns)
    for column in table.columns:
        if str(column.header) in RIGHT:
            column.justify = "right"
    return table


def catalogs_table(views: Sequence[CatalogView], *, now_ms: int) -> Table:
    table = _table("catalog", "type", "group", "tables", "looked into", "error")
    for view in views:
        kind = f"{view.type}, being removed" if view.removing else view.type
        looked = looked_into(view, now_ms=now_ms)
        cells = (view.name, kind, view.group, f"{view.tables:,}", looked, _short(view.error))
        table.add_row(*map(Text, cells))
    return table


def tables_table(views: Sequence[TableView], *, now_ms: int) -> Table:
    table = _table("table", "status", "since", "health", "files", "size", "pending", "next")
    for view in views:
        table.add_row(
            *(Text(view.identifier), view.status, span(now_ms - view.status_since_ms)),
            str(view.health) if view.health is not None else "-",
            f"{view.files:,}" if view.files is not None else "-",
            size(view.bytes) if view.bytes is not None else "-",
            _pending(view),
            Text(_next(view, now_ms)),
        )
    return table


def _pending(view: TableView) -> str:
    pending = view.pending
    if pending is None:
        return f"{view.wanted_type} asked for" if view.wanted_type else ""
    return f"{pending.type} {pending.files:,} → {pending.files_after:,} files"


def _next(view: TableView, now_ms: int) -> str:
    """What happens to it next, and when."""
    if view.paused:
        return "nothing: paused"
    if not view.enabled:
        return "nothing: switched off"
    if view.failures and view.not_before_ms > now_ms:
        return f"tried again in {span(view.not_before_ms - now_ms)}: {_short(view.error)}"
    match view.status:
        case TableStatus.IDLE:
            away = view.due_at_ms - now_ms
            return f"looked at in {span(away)}" if away > 0 else "looked at now"
        case TableStatus.PENDING:
            return "planned in its turn"
        case TableStatus.PLANNING:
            return "rewritten"
        case TableStatus.COMMITTING:
            return "done"
        case _:
            return "committed"


def processes_table(views: Sequence[ProcessView], *, now_ms: int) -> Table:
    columns = ("number", "type", "status", "files", "size", "began", "took", "reason")
    table = _table(*columns)
    for view in views:
        status = "settling" if view.settling else view.status
        table.add_row(
            *(str(view.number), view.type, status, files_text(view), bytes_text(view)),
            moment(view.created_at_ms),
            span((view.ended_at_ms or now_ms) - view.created_at_ms),
            Text(_reason(view)),
        )
    return table


def _reason(view: ProcessView) -> str:
    if view.status == ProcessStatus.RUNNING:
        done = f"{view.tasks_done} of {view.tasks} tasks done"
        return f"{done}, being canceled" if view.canceling else done
    if view.conflicts:
        return f"{view.conflicts} bins were changed by others, and left"
    return _short(view.error)


def findings_table(view: ExplanationView) -> Table:
    """One line each: whether it stands in the way, what it is about, what was found."""
    table = Table.grid(padding=(0, 2))
    for overflow in ("fold", "fold", "fold"):
        table.add_column(overflow=overflow)
    for finding in view.findings:
        verdict = Text(finding.verdict, style=STYLES.get(finding.verdict, ""))
        table.add_row(verdict, Text(finding.about), Text(_found(finding)))
        if finding.way_out:
            table.add_row("", "", Text(f"→ {finding.way_out}"))
    return table


def _found(finding: FindingView) -> str:
    if finding.measured is None or finding.about != "rule":
        return finding.said
    held = f"measured {finding.measured}, threshold {finding.threshold}"
    return f"{finding.said} ({held}{f', {finding.property}' if finding.property else ''})"


def _short(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= REASON_MAX else f"{line[: REASON_MAX - 1]}…"
