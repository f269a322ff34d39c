"""How jobs are shown: tables of jobs, pipelines and checkpoints, and the lines about a single job.

This is what `headrace run` prints when a job has ended, including where its rows are now and the
commands that show them; and what `headrace job show` says: how the job stands, and how long what is
kept of it.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from pydantic import JsonValue
from rich import box
from rich.table import Table

from headrace.client.views import (
    AttemptView,
    CheckpointView,
    CleanupView,
    EndedView,
    JobView,
    PipelineView,
    RunView,
    SavepointView,
)
from headrace.model.jobs.epoch import CleanupStep
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import TaskKind
from headrace.model.text import shortened

ROWS_SHOWN = 10  # by a command that shows a table
REASON_MAX = 80  # characters of an error in a list
RIGHT = frozenset({"slots", "pid", "id", "took", "bytes", "run", "age"})
HOW_TO_RESTORE_A_STORE = "how-to/back-up-and-restore-the-store"  # a page of the documentation
DELETED_BY_STEP: Mapping[str, str] = {
    CleanupStep.STATE: "its state",
    CleanupStep.TARGETS: "what it marked and staged at its sinks",
}

_COLUMNS = (
    *("pipeline", "source", "rows in", "table", "rows out", "snapshot", "rows in table now"),
)
_NO_SOURCE, _NO_SINK = ("",) * 2, ("",) * 4

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # any other name needs backticks in Spark
_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_SPARK_JARS = frozenset({"org.apache.iceberg", "org.xerial"})  # groups: Iceberg, its catalog's SQL


def table_of(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        right = column.startswith("rows") or column in RIGHT
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


def pipelines_table(view: JobView) -> Table:
    """A row for each source and sink of each pipeline: what it read or wrote, and where that is."""
    table = table_of(*_COLUMNS)
    for pipeline in view.pipelines:
        named = f"{pipeline.number} {pipeline.status}"
        sides = itertools.zip_longest(_sources(pipeline), _sinks(pipeline))
        for number, (source, sink) in enumerate(sides):
            first = named if number == 0 else ""
            table.add_row(first, *(source or _NO_SOURCE), *(sink or _NO_SINK))
    return table


def _sources(pipeline: PipelineView) -> Sequence[tuple[str, str]]:
    """Name and rows of each source; of all together when its worker did not count each."""
    counted = [(name, f"{rows:,}") for name, rows in pipeline.read.items()]
    return counted or [("-", f"{pipeline.rows_in:,}")]


def _sinks(pipeline: PipelineView) -> Sequence[tuple[str, str, str, str]]:
    """Where each sink wrote to, its own rows, the snapshot and the rows there now; a sink that is
    no table has only its name."""
    cells: list[tuple[str, str, str, str]] = []
    for sink in {**pipeline.written, **pipeline.commits}:
        facts = pipeline.commits.get(sink)
        commit = facts if isinstance(facts, dict) else {}
        where = _text(commit.get("table", sink))
        rows = _text(pipeline.written.get(sink, commit.get("rows")))
        cells.append((where, rows, _text(commit.get("snapshot")), _text(commit.get("total_rows"))))
    return cells or [("-", f"{pipeline.rows_out:,}", "-", "-")]


def _text(value: JsonValue) -> str:
    """A count with separators; an id as it is (a snapshot is sent as text or as a number)."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and abs(value) < 10**15 else str(value)


def checkpoints_table(views: Sequence[CheckpointView]) -> Table:
    time_columns = ("planned", "prepared", "completed")
    row_columns = ("rows in", "rows out")
    table = table_of(
        "pipeline", "id", "kind", "status", *time_columns, "took", "bytes", *row_columns
    )
    for view in views:
        times_ms = (view.planned_at_ms, view.prepared_at_ms, view.completed_at_ms)
        lasted = f"{view.duration_ms / 1000:.3f} s" if view.duration_ms is not None else "-"
        counts = (f"{n:,}" if n is not None else "-" for n in (view.rows_in, view.rows_out))
        table.add_row(
            *(str(view.pipeline), str(view.id), view.kind, view.status),
            *(moment(ms) if ms is not None else "-" for ms in times_ms),
            *(lasted, f"{view.size_bytes:,}"),
            *counts,
        )
    return table


def jobs_table(views: Sequence[JobView], *, now_ms: int) -> Table:
    table = table_of("job", "name", "status", "group", "age", "rows out", "waits for")
    for view in views:
        rows = sum(pipeline.rows_out for pipeline in view.pipelines)
        age = span(now_ms - view.created_at_ms)
        about = (view.id, view.name, view.status, view.group)
        table.add_row(*about, age, f"{rows:,}", view.waits_for or _next_attempt(view, now_ms))
    return table


def _next_attempt(view: JobView, now_ms: int) -> str:
    """What a job waits for that lacks no worker: the attempt of the first pipeline that waits."""
    waiting = [p.attempt for p in view.pipelines if p.attempt is not None and not p.attempt.running]
    return attempt_text(waiting[0], now_ms=now_ms) if waiting else ""


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


def lines_about(view: JobView, *, now_ms: int) -> Sequence[str]:
    """What `headrace job show` says below the table."""
    return [*_how_it_stands(view, now_ms=now_ms), *_what_is_kept(view, now_ms=now_ms)]


def _how_it_stands(view: JobView, *, now_ms: int) -> Iterator[str]:
    yield ending_line(view, rate=view.run == 1)
    if view.run > 1:
        yield f"run {view.run} of this job: it was restored"
    for pipeline in view.pipelines:
        if pipeline.repeatable is False:
            yield f"pipeline {pipeline.number} is not repeatable: {pipeline.not_repeatable}"
    if view.waits_for:
        yield f"waits for {view.waits_for}"
    if view.error:
        yield f"reason: {view.error}"
    for pipeline in view.pipelines:
        if line := _next_line(pipeline, now_ms=now_ms):
            yield f"pipeline {pipeline.number}: {line}"


def _next_line(pipeline: PipelineView, *, now_ms: int) -> str | None:
    """Its next attempt, or why it waits for one; None when nothing went wrong."""
    if pipeline.attempt is not None:
        return _attempt_line(pipeline.attempt, now_ms=now_ms)
    return given_back_text(pipeline)


def _attempt_line(attempt: AttemptView, *, now_ms: int) -> str:
    """Which attempt runs or comes next, from which epoch, and why there is one."""
    begins = f" (at {moment(attempt.next_at_ms)})" if attempt.next_at_ms is not None else ""
    runs = "runs, " if attempt.running and attempt.kind != TaskKind.SETTLE else ""
    where = "" if attempt.kind == TaskKind.SETTLE else f", from epoch {attempt.epoch}"
    why = f"; the last one failed: {attempt.error}" if attempt.error and not attempt.lost else ""
    gone = f"{attempt.error}; " if attempt.lost else ""
    return f"{gone}{runs}{attempt_text(attempt, now_ms=now_ms)}{begins}{where}{why}"


def attempt_text(attempt: AttemptView, *, now_ms: int) -> str:
    """Which attempt it is, of how many, and when it begins."""
    settling = f"settling epoch {attempt.epoch}, " if attempt.kind == TaskKind.SETTLE else ""
    text = f"{settling}attempt {attempt.number} of {attempt.most}"
    if attempt.running:
        return text
    if attempt.next_at_ms is not None and attempt.next_at_ms > now_ms:
        return f"{text} in {span(attempt.next_at_ms - now_ms)}"
    return f"{text} waits for a worker"


def given_back_text(pipeline: PipelineView) -> str | None:
    """Why the worker that had it could not run it, while it waits for one that can; else None."""
    waits = pipeline.status == PipelineStatus.SCHEDULED and pipeline.attempt is None
    if not waits or not pipeline.error:
        return None
    return f"waits for a worker that can run it: {pipeline.error}"


def failure_text(at: AttemptView) -> str:
    """Why an attempt failed, and what follows."""
    next_try = f"attempt {at.number} of {at.most}"
    when = f" at {moment(at.next_at_ms)}" if at.next_at_ms is not None else ""
    if at.kind == TaskKind.SETTLE:
        return f"epoch {at.epoch} could not be settled, {next_try} follows{when}: {at.error}"
    if at.lost:
        return f"{at.error}; {next_try} from epoch {at.epoch}{when}"
    return f"attempt {at.number - 1} of {at.most} failed: {at.error}; {next_try} follows{when}"


def _what_is_kept(view: JobView, *, now_ms: int) -> Iterator[str]:
    if view.savepoint:
        yield savepoint_line(view, view.savepoint)
    if view.cleaned:
        yield "its state is deleted, and this is what history has of it"
    if view.cleanup:
        yield _cleanup_line(view.cleanup, now_ms=now_ms)
    if view.history_until_ms is not None:
        yield f"history keeps it until {moment(view.history_until_ms)}"


def _cleanup_line(cleanup: CleanupView, *, now_ms: int) -> str:
    what = DELETED_BY_STEP.get(cleanup.step, cleanup.step)
    when = f"at {moment(cleanup.due_at_ms)}"
    if cleanup.due_at_ms > now_ms:
        when += f" (in {span(cleanup.due_at_ms - now_ms)})"
    waits = f"; waits for {cleanup.waits_for}" if cleanup.waits_for else ""
    if cleanup.secrets:
        waits += f"; until then the store keeps {', '.join(cleanup.secrets)}, encrypted"
    if not cleanup.failures:
        return f"{what} will be deleted {when}{waits}"
    times = f"{cleanup.failures} time{'' if cleanup.failures == 1 else 's'}"
    return (
        f"{what} could not be deleted, {times} now, next try {when}{waits}: "
        f"{cleanup.error or 'no reason was given'}"
    )


def savepoint_line(view: JobView, made: SavepointView) -> str:
    """What was saved, until when, and how to go on from it."""
    kept = "saved" if made.kind == "savepoint" else f"its last {made.kind} is kept"
    positions = f"{len(made.sources)} position{'' if len(made.sources) == 1 else 's'}"
    rows = f"{sum(made.written.values()):,} rows written"
    until = f" until {moment(made.expires_at_ms)}" if made.expires_at_ms is not None else ""
    if made.refused:
        return (
            f"{kept}{until}: epoch {made.epoch}, {positions}, {rows}; a restore is refused as long "
            f"as {made.refused}, see {HOW_TO_RESTORE_A_STORE}"
        )
    return (
        f"{kept}: epoch {made.epoch}, {positions}, {rows}; go on{until} with "
        f"`headrace run JOB_FILE --restore {view.id}`"
    )


def ending_line(view: JobView, *, rate: bool = True) -> str:
    """`rate`: rows per second; not for a restored job, most of whose rows may be from an earlier
    day."""
    return f"job {view.id} ({view.name}) {view.status}{took(view, rate=rate)}"


def took(view: RunView, *, rate: bool = True) -> str:
    begin_ms = view.started_at_ms or view.created_at_ms
    if view.ended_at_ms is None:
        return ""
    seconds = (view.ended_at_ms - begin_ms) / 1000
    rows = sum(pipeline.rows_out for pipeline in view.pipelines)
    per_s = f", {rows / seconds:,.0f} rows/s" if rate and rows and seconds > 0 else ""
    return f" in {seconds:.1f} s{per_s}"


def reason(view: RunView) -> str:
    """Why a job failed, in one line: the last cause of a Java trace, or else the beginning."""
    texts = [view.error, *(pipeline.error for pipeline in view.pipelines)]
    text = next((text for text in texts if text and text.strip()), "no reason was given")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")
    return " ".join(itertools.takewhile(lambda line: not line.startswith("at "), lines))


def unfinished_lines(view: JobView, *, goes_on: str) -> Sequence[str]:
    """What is left of a job that was asked to end, and has not ended in time."""
    lines = [f"job {view.id} is {view.status}, and asked to end: {goes_on}"]
    if view.status == JobStatus.FAILING:
        lines.append(f"it fails because of this: {reason(view)}")
    for pipeline in view.pipelines:
        attempt = pipeline.attempt
        if attempt is not None and attempt.kind == TaskKind.SETTLE:
            why = f": {attempt.error}" if attempt.error else ""
            lines.append(
                f"left of pipeline {pipeline.number}: epoch {attempt.epoch} is not settled{why}"
            )
        elif attempt is not None and attempt.error:
            lines.append(
                f"left of pipeline {pipeline.number}: its last attempt failed: {attempt.error}"
            )
    return lines


def what_remains(view: JobView) -> str | None:
    """What a run that ends now leaves to others; None: nothing that matters."""
    cleanup = view.cleanup
    if cleanup is None or not (cleanup.unsettled or cleanup.secrets):
        return None
    later = "the next run, or any coordinator on this store"
    parts: list[str] = []
    if cleanup.unsettled:
        numbers = ", ".join(map(str, cleanup.unsettled))
        parts.append(
            f"what pipeline {numbers} staged is not settled at its sinks: {later}, does it"
        )
    if cleanup.secrets:
        targets = cleanup.step == CleanupStep.TARGETS and not cleanup.failures
        when = f", from {moment(cleanup.due_at_ms)} on" if targets else ""
        parts.append(
            f"the store keeps {', '.join(cleanup.secrets)}, encrypted, with which {later}, cleans "
            f"its sinks{when}; see `headrace job show {view.id}`"
        )
    if cleanup.error:
        parts.append(f"the last try failed: {cleanup.error}")
    return "; ".join(parts)


def outputs_of(view: RunView) -> Sequence[Mapping[str, str]]:
    """For each sink that wrote somewhere: its name, the place, and how to read it."""
    outputs: list[Mapping[str, str]] = []
    for pipeline in view.pipelines:
        for sink, facts in pipeline.commits.items():
            if isinstance(facts, dict) and (place := _place(facts)):
                outputs.append({"sink": sink, **place})
    return outputs


def output_lines(outputs: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Outputs for people: the place, and below it one command a line."""
    for output in outputs:
        named = output.get("table", output["sink"])
        yield f"{named} is in {output['location']}"
        for tool, name in (("pyiceberg", "PyIceberg"), ("spark", "Spark")):
            if tool in output:
                yield f"  {name}: {output[tool]}"
        if "catalog" in output:
            yield f"  Both need the settings of your catalog {output['catalog']!r}."


def _place(facts: Mapping[str, Any]) -> Mapping[str, str]:
    match facts:
        case {"table": str(table), "location": str(location)}:
            warehouse = facts.get("warehouse")
            own = warehouse if isinstance(warehouse, str) else None
            tools = {"pyiceberg": _by_pyiceberg(table, own), "spark": _by_spark(table, own)}
            # The commands are complete for the embedded catalog only: no other settings are known.
            needed = {} if own is not None else {"catalog": table.partition(".")[0]}
            return {"table": table, "location": location, **tools, **needed}
        case {"table": str(table), "database": str(database)}:
            return {"table": table, "location": database}
        case {"folder": str(folder)}:
            return {"location": folder}
        case _:
            return {}


def _by_pyiceberg(table: str, warehouse: str | None) -> str:
    """Complete for the embedded catalog; the settings of another one are the user's."""
    catalog, _, name = table.partition(".")
    how = ""
    if warehouse is not None:
        uri = f"sqlite:///{quote(_warehouse_folder(warehouse))}/catalog.db"
        how = f', type="sql", uri={_python_literal(uri)}'
    program = (
        "from pyiceberg.catalog import load_catalog; "
        f"print(load_catalog({_python_literal(catalog)}{how}).load_table({_python_literal(name)})"
        f".scan(limit={ROWS_SHOWN}).to_arrow())"
    )
    return f"python -c {shlex.quote(program)}"


def _by_spark(table: str, warehouse: str | None) -> str:
    parts = [part if _PLAIN_NAME.fullmatch(part) else f"`{part}`" for part in table.split(".")]
    query = f"SELECT * FROM {'.'.join(parts)} LIMIT {ROWS_SHOWN}"  # noqa: S608  only shown
    command = ["spark-sql"]
    if warehouse is not None:
        catalog = f"spark.sql.catalog.{table.partition('.')[0]}"
        settings = {
            catalog: _SPARK_CATALOG,
            f"{catalog}.type": "jdbc",
            f"{catalog}.uri": f"jdbc:sqlite:{_warehouse_folder(warehouse)}/catalog.db",
            f"{catalog}.warehouse": warehouse,
        }
        command += ["--packages", ",".join(_packages())]
        command += [
            word for key, value in settings.items() for word in ("--conf", f"{key}={value}")
        ]
    return shlex.join([*command, "-e", query])


def _packages() -> Sequence[str]:
    from headrace.spark.installation import JARS

    return [jar.coordinate for jar in JARS if jar.group in _SPARK_JARS]


def _warehouse_folder(warehouse: str) -> str:
    """Not a URL, though it begins like one: `#`, `?` and `%20` stand for themselves."""
    return warehouse.removeprefix("file:")


def _python_literal(value: str) -> str:
    """The text as a literal in a Python program."""
    return json.dumps(value, ensure_ascii=False)


def moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span(lasted_ms: int) -> str:
    """A duration in its two largest units. Clocks differ, so a negative one counts as zero."""
    seconds = max(lasted_ms, 0) / 1000
    minutes, hours, days = (int(seconds // unit) for unit in (60, 3600, 86_400))
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    if minutes:
        return f"{minutes} min {int(seconds) % 60} s"
    return f"{seconds:.1f} s"
