"""How catalogs, tables, processes, plans and findings are shown, in tables and in lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from headrace.cli.jobs.text import moment, span, table_of
from headrace.client.tables import (
    CatalogView,
    DryPlanView,
    ExplanationView,
    FindingView,
    PendingView,
    ProcessView,
    TableView,
)
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.text import count, partition, short_worker, size

REASON_MAX = 80  # characters of an error in a list
STYLES = {"ok": "green", "holds": "yellow", "blocks": "bold red"}
RIGHT = frozenset({"health", "files", "size", "tables", "number"})
LABEL_WIDTH = 12  # characters
PARTITIONS_SHOWN = 10
FILES_SHOWN = 3


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
    return _step_after(view, now_ms)


def _step_after(view: TableView, now_ms: int) -> str:
    match view.status:
        case TableStatus.IDLE:
            away = view.due_at_ms - now_ms
            return f"looked at in {span(away)}" if away > 0 else "looked at now"
        case TableStatus.PENDING:
            return "planned in its turn"
        case TableStatus.PLANNING:
            return "rewritten"
        case (
            TableStatus.MINOR_OPTIMIZING
            | TableStatus.MAJOR_OPTIMIZING
            | TableStatus.FULL_OPTIMIZING
        ):
            return "committed"
        case TableStatus.COMMITTING:
            return "done"
        case _:  # a status of a newer coordinator
            return ""


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
    """A row for each finding: whether it stands in the way, what it is about, what was found."""
    table = Table.grid(padding=(0, 2))
    for overflow in ("fold", "fold", "fold"):
        table.add_column(overflow=overflow)
    for finding in view.findings:
        verdict = Text(finding.verdict, style=STYLES.get(finding.verdict, ""))
        table.add_row(verdict, Text(finding.about), Text(_finding_text(finding)))
        if finding.way_out:
            table.add_row("", "", Text(f"→ {finding.way_out}"))
    return table


def _finding_text(finding: FindingView) -> str:
    if finding.measured is None or finding.about != "rule":
        return finding.said
    held = f"measured {finding.measured}, threshold {finding.threshold}"
    return f"{finding.said} ({held}{f', {finding.property}' if finding.property else ''})"


def _short(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= REASON_MAX else f"{line[: REASON_MAX - 1]}…"


def about_catalog(view: CatalogView, *, now_ms: int) -> Sequence[str]:
    removing = ", being removed" if view.removing else ""
    lines = [f"{view.name}: {view.type} catalog, {count(view.tables, 'table')}{removing}"]
    lines.append(_line("group", view.group))
    lines += _pairs("property", view.properties)
    lines += _pairs("default", view.defaults)
    if view.table_filter:
        lines.append(_line("filter", view.table_filter))
    lines.append(_line("looked into", looked_into(view, now_ms=now_ms)))
    if view.error:
        lines.append(_line("error", view.error))
    return lines


def about_refresh(view: CatalogView, *, now_ms: int) -> Sequence[str]:
    """What follows from the wish to look into a catalog now, and where that can be seen."""
    state = "is looked into now" if view.changed else "was about to be looked into anyway"
    if view.looking:
        state = "is being looked into already"
    elif view.waits_for:
        state = f"{state}, once there is {view.waits_for}"
    known = f"{count(view.tables, 'table')} known so far"
    before = looked_into(view, now_ms=now_ms).partition(",")[0]
    return [
        f"catalog {view.name} {state}; {known}, last looked into {before}",
        f"`headrace catalog show {view.name}` shows when it is done, "
        f"`headrace table list --catalog {view.name}` the tables",
    ]


def looked_into(view: CatalogView, *, now_ms: int) -> str:
    last = "not yet"
    if view.discovered_at_ms is not None:
        last = f"{span(now_ms - view.discovered_at_ms)} ago"
    failed = f", {count(view.failures, 'try', 'tries')} failed since" if view.failures else ""
    return f"{last}{failed}, next {_when(view.due_at_ms, now_ms)}"


def about_table(view: TableView, *, now_ms: int) -> Sequence[str]:
    lines = [f"{view.identifier}: {view.status} for {span(now_ms - view.status_since_ms)}"]
    lines += [_line(label, text) for label, text in _facts(view, now_ms) if text]
    lines += [_line("flaw", flaw) for flaw in view.flaws]
    for blocker in view.blockers:
        until = moment(blocker.expires_at_ms)
        lines.append(_line("blocked by", f"{blocker.name} until {until}: {blocker.reason}"))
    lines.append(f"`headrace table explain {view.identifier}` says why, and what happens next")
    return lines


def _facts(view: TableView, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "group", view.group
    yield "quota", _quota(view)
    yield "switched off", _switched_off(view)
    yield "files", _files(view)
    yield "health", f"{view.health} of 100" if view.health is not None else ""
    yield "pending", pending_text(view.pending) if view.pending else ""
    yield "asked for", f"{view.wanted_type}, now" if view.wanted_type else ""
    yield "process", _process(view)
    yield "looked at", _looked_at(view, now_ms)
    if view.optimized_at_ms is not None:
        yield "optimized", f"{span(now_ms - view.optimized_at_ms)} ago"
    if view.failures:
        again = _when(view.not_before_ms, now_ms)
        yield "failed", f"{count(view.failures, 'time')} in a row, tried again {again}"
    yield "error", view.error or ""
    if view.left_out:
        named = ", ".join(view.left_out[:FILES_SHOWN])
        more = len(view.left_out) - FILES_SHOWN
        yield "left out", f"{named}{f' and {more} more' if more > 0 else ''}"


def _quota(view: TableView) -> str:
    of = {"catalog": f" {view.catalog}", "group": f" {view.group}"}.get(view.quota_set_by or "", "")
    set_by = f", as its {view.quota_set_by}{of} says" if of else ""
    share = f"{view.quota:.0%} of" if view.quota <= 1 else f"{int(view.quota)} of"
    return f"{share} the slots of its group{set_by}"


def _switched_off(view: TableView) -> str:
    if view.paused:
        return f"paused; `headrace table resume {view.identifier}` lets it be optimized again"
    return "" if view.enabled else "self-optimizing.enabled is false"


def _files(view: TableView) -> str:
    if view.files is None or view.bytes is None:
        return ""
    return (
        f"{count(view.files, 'file')} of {size(view.bytes)}, {count(view.rows or 0, 'row')}, "
        f"{count(view.partitions or 0, 'partition')}"
    )


def _looked_at(view: TableView, now_ms: int) -> str:
    last = "not yet"
    if view.evaluated_at_ms is not None:
        last = f"{span(now_ms - view.evaluated_at_ms)} ago"
    return f"{last}, next {_when(view.due_at_ms, now_ms)}"


def _process(view: TableView) -> str:
    if view.process is not None:
        return activity_line(view).partition(": ")[2]
    so_far = count(view.processes, "process", "processes")
    return f"none runs, {so_far} so far" if view.processes else "none so far"


def pending_text(pending: PendingView) -> str:
    deletes = f", {count(pending.deletes, 'delete file')}" if pending.deletes else ""
    return (
        f"{pending.type}: {pending.files:,} → {count(pending.files_after, 'file')}, "
        f"{size(pending.bytes)} → {size(pending.bytes_after)}, in "
        f"{count(pending.partitions, 'partition')}{deletes}"
    )


def activity_line(view: TableView) -> str:
    """How far what was asked for is, in one line."""
    process = view.process
    if process is None:
        waits = {TableStatus.PLANNING: "a worker chooses the files"}.get(
            TableStatus(view.status), f"{view.status}, waits for its turn"
        )
        return f"{view.identifier}: {waits}"
    number = f"{view.identifier}: process {process.number} ({process.type})"
    if process.settling:
        return f"{number} is settling: the table is asked whether its commit is in it"
    where = f" on {', '.join(map(short_worker, process.workers))}" if process.workers else ""
    if view.status == TableStatus.COMMITTING:
        return f"{number} commits{where}"
    canceling = ", being canceled" if process.canceling else ""
    return f"{number}, {process.tasks_done} of {process.tasks} tasks done{where}{canceling}"


def about_process(view: ProcessView) -> str:
    """How a process ended."""
    took = span((view.ended_at_ms or view.created_at_ms) - view.created_at_ms)
    headline = f"{view.table}: process {view.number} ({view.type}) ended {view.status} after {took}"
    if view.status == ProcessStatus.SUCCESS:
        gained = f", {files_text(view)} files, {bytes_text(view)}"
        more = count(view.partitions_left, "partition")
        left = f"; {more} left for a further process" if view.partitions_left else ""
        return headline + gained + left
    return f"{headline}: {view.error or 'nobody said why'}"


def files_text(view: ProcessView) -> str:
    counts = (view.files_before, view.files_after, view.files_planned)
    return _change(view, *(None if n is None else f"{n:,}" for n in counts))


def bytes_text(view: ProcessView) -> str:
    counts = (view.bytes_before, view.bytes_after, view.bytes_planned)
    return _change(view, *(None if n is None else size(n) for n in counts))


def _change(view: ProcessView, before: str | None, after: str | None, planned: str | None) -> str:
    """What became of it; for a running process, what is expected."""
    if before is None:
        return "-"
    if after is not None:
        return f"{before} → {after}"
    running = view.status == ProcessStatus.RUNNING and planned is not None
    return f"{before} → about {planned}" if running else before


def about_plan(view: DryPlanView) -> Sequence[str]:
    if view.type is None:
        reason = view.reason or "no rewrite would gain anything"
        return [f"{view.table}: nothing to do: {reason}", *_left_out(view)]
    removed = f" and {count(view.deletes_removed, 'delete file')}" if view.deletes_removed else ""
    lines = [
        f"{view.table}: a {view.type} process would rewrite "
        f"{count(view.files_before, 'file')}{removed} into {count(view.files_after, 'file')}, "
        f"{size(view.bytes_before)} → {size(view.bytes_after)}, in {count(view.tasks, 'task')}",
        _line("reads", size(view.bytes_read)),
    ]
    shown = list(view.partitions.items())[:PARTITIONS_SHOWN]
    lines += [_line("partition", f"{partition(name)}: {count(n, 'file')}") for name, n in shown]
    if (more := len(view.partitions) - PARTITIONS_SHOWN) > 0:
        lines.append(_line("", f"and {count(more, 'partition')} more"))
    if view.partitions_left:
        left = count(view.partitions_left, "partition")
        lines.append(_line("later", f"{left} more would be left for a further process"))
    return [*lines, *_left_out(view), "nothing was changed"]


def _left_out(view: DryPlanView) -> Iterator[str]:
    if view.left_out:
        named = ", ".join(view.left_out[:FILES_SHOWN])
        yield _line(
            "left out", f"{count(len(view.left_out), 'file')} that failed too often: {named}"
        )


def _pairs(label: str, pairs: Mapping[str, str]) -> list[str]:
    return [_line(label, f"{name} = {value}") for name, value in sorted(pairs.items())]


def _line(label: str, text: str) -> str:
    return f"  {label:<{LABEL_WIDTH}}  {text}"


def _when(at_ms: int, now_ms: int) -> str:
    return "now" if at_ms <= now_ms else f"in {span(at_ms - now_ms)}"
