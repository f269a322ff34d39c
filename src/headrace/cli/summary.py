"""What is left to say when a job has ended, and how lists of jobs and workers look."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import JsonValue
from rich import box
from rich.table import Table

from headrace.model.task import TaskKind
from headrace.model.text import shortened
from headrace.views import (
    AttemptView,
    CheckpointView,
    EndedView,
    JobView,
    PipelineView,
    RunView,
)

RIGHT = frozenset({"slots", "pid", "id", "took", "bytes", "run", "age"})
REASON_MAX = 80  # characters of an error in a list
_COLUMNS = (
    *("pipeline", "source", "rows in", "table", "rows out", "snapshot", "rows in table now"),
)
_NO_SOURCE, _NO_SINK = ("",) * 2, ("",) * 4


def table_of(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        right = column.startswith("rows") or column in RIGHT
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


def pipelines_table(view: JobView) -> Table:
    """A line for each source and each sink of each pipeline: what it read or has written, and
    where that is now."""
    table = table_of(*_COLUMNS)
    for pipeline in view.pipelines:
        named = f"{pipeline.number} {pipeline.status}"
        sides = itertools.zip_longest(_sources(pipeline), _sinks(pipeline))
        for number, (source, sink) in enumerate(sides):
            first = named if number == 0 else ""
            table.add_row(first, *(source or _NO_SOURCE), *(sink or _NO_SINK))
    return table


def _sources(pipeline: PipelineView) -> Sequence[tuple[str, str]]:
    """Name and rows of each; of all together, when its worker did not count them one by one."""
    counted = [(name, f"{rows:,}") for name, rows in pipeline.read.items()]
    return counted or [("-", f"{pipeline.rows_in:,}")]


def _sinks(pipeline: PipelineView) -> Sequence[tuple[str, str, str, str]]:
    """Where it wrote to, its own rows, snapshot and rows there now; one that is no table has only
    its name."""
    found: list[tuple[str, str, str, str]] = []
    for sink in {**pipeline.written, **pipeline.commits}:
        facts = pipeline.commits.get(sink)
        known = facts if isinstance(facts, dict) else {}
        where = _text(known.get("table", sink))
        rows = _text(pipeline.written.get(sink, known.get("rows")))
        found.append((where, rows, _text(known.get("snapshot")), _text(known.get("total_rows"))))
    return found or [("-", f"{pipeline.rows_out:,}", "-", "-")]


def _text(value: JsonValue) -> str:
    """A count with separators; an id as it is (a snapshot travels as text or as a number)."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and abs(value) < 10**15 else str(value)


def ending_line(view: JobView, *, rate: bool = True) -> str:
    """`rate`: not of a restored job, most of whose rows may be of an earlier day."""
    return f"job {view.id} ({view.name}) {view.status}{took(view, rate=rate)}"


def checkpoints_table(views: Sequence[CheckpointView]) -> Table:
    times = ("planned", "prepared", "completed")
    rows = ("rows in", "rows out")
    table = table_of("pipeline", "id", "kind", "status", *times, "took", "bytes", *rows)
    for view in views:
        at = (view.planned_at_ms, view.prepared_at_ms, view.completed_at_ms)
        lasted = f"{view.duration_ms / 1000:.3f} s" if view.duration_ms is not None else "-"
        counts = (f"{n:,}" if n is not None else "-" for n in (view.rows_in, view.rows_out))
        table.add_row(
            *(str(view.pipeline), str(view.id), view.kind, view.status),
            *(moment(ms) if ms is not None else "-" for ms in at),
            *(lasted, f"{view.size_bytes:,}"),
            *counts,
        )
    return table


def took(view: RunView, *, rate: bool = True) -> str:
    begin_ms = view.started_at_ms or view.created_at_ms
    if view.ended_at_ms is None:
        return ""
    seconds = (view.ended_at_ms - begin_ms) / 1000
    rows = sum(pipeline.rows_out for pipeline in view.pipelines)
    per_s = f", {rows / seconds:,.0f} rows/s" if rate and rows and seconds > 0 else ""
    return f" in {seconds:.1f} s{per_s}"


def reason(view: RunView) -> str:
    """Why a job failed, in one line: of a Java trace its last cause, or else its beginning."""
    texts = [view.error, *(pipeline.error for pipeline in view.pipelines)]
    text = next((text for text in texts if text and text.strip()), "no reason was given")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")
    return " ".join(itertools.takewhile(lambda line: not line.startswith("at "), lines))


def attempt_words(at: AttemptView, *, now_ms: int) -> str:
    """Which attempt it is, of how many, and when it begins."""
    what = f"settling epoch {at.epoch}, " if at.kind == TaskKind.SETTLE else ""
    words = f"{what}attempt {at.number} of {at.most}"
    if at.running:
        return words
    if at.next_at_ms is not None and at.next_at_ms > now_ms:
        return f"{words} in {span(at.next_at_ms - now_ms)}"
    return f"{words} waits for a worker"


def failure_words(at: AttemptView) -> str:
    """Why an attempt failed, and what follows."""
    next_one = f"attempt {at.number} of {at.most}"
    when = f" at {moment(at.next_at_ms)}" if at.next_at_ms is not None else ""
    if at.kind == TaskKind.SETTLE:
        return f"epoch {at.epoch} could not be settled, {next_one} follows{when}: {at.error}"
    if at.lost:
        return f"{at.error}; {next_one} from epoch {at.epoch}{when}"
    return f"attempt {at.number - 1} of {at.most} failed: {at.error}; {next_one} follows{when}"


def jobs_table(views: Sequence[JobView], *, now_ms: int) -> Table:
    table = table_of("job", "name", "status", "group", "age", "rows out", "waits for")
    for view in views:
        rows = sum(pipeline.rows_out for pipeline in view.pipelines)
        age = span(now_ms - view.created_at_ms)
        about = (view.id, view.name, view.status, view.group)
        table.add_row(*about, age, f"{rows:,}", view.waits_for or _next_attempt(view, now_ms))
    return table


def _next_attempt(view: JobView, now_ms: int) -> str:
    """What a job without a free hand waits for: the first pipeline's that does."""
    waiting = [p.attempt for p in view.pipelines if p.attempt is not None and not p.attempt.running]
    return attempt_words(waiting[0], now_ms=now_ms) if waiting else ""


def history_table(views: Sequence[EndedView]) -> Table:
    table = table_of(
        *("job", "run", "name", "status", "started", "took", "rows in", "rows out", "reason")
    )
    for view in views:
        began_ms = view.started_at_ms or view.created_at_ms
        rows = (
            sum(pipeline.rows_in for pipeline in view.pipelines),
            sum(pipeline.rows_out for pipeline in view.pipelines),
        )
        table.add_row(
            *(view.id, str(view.run), view.name, view.status, moment(began_ms)),
            span((view.ended_at_ms or began_ms) - began_ms),
            *(f"{count:,}" for count in rows),
            _short_reason(view),
        )
    return table


def _short_reason(view: EndedView) -> str:
    if not view.error:
        return ""
    return shortened(reason(view), REASON_MAX)


def moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span(lasted_ms: int) -> str:
    """A length of time in its two largest units. Clocks differ, and none is below zero."""
    seconds = max(lasted_ms, 0) / 1000
    minutes, hours, days = (int(seconds // unit) for unit in (60, 3600, 86_400))
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    if minutes:
        return f"{minutes} min {int(seconds) % 60} s"
    return f"{seconds:.1f} s"
