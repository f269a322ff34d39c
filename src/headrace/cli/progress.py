"""What a person sees while a job runs: bars in a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from headrace.cli.summary import attempt_words, failure_words, reason
from headrace.cli.watch import Display
from headrace.clock import Clock
from headrace.model.job import PIPELINE_ENDING, JobStatus, PipelineStatus
from headrace.model.text import shortened
from headrace.views import JobView, PipelineView

PLAIN_EVERY_S = 5.0
DESCRIPTION_MAX = 100  # characters
BAR_REASON_MAX = 60  # characters; all of it stands above the bar
LINE_REASON_MAX = 160  # characters; all of it was said once
ENDING = PIPELINE_ENDING | {PipelineStatus.FAILED, PipelineStatus.CANCELED}


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a pipeline got, in numbers."""

    rows: int
    expected: int | None
    epoch: int
    step: str

    @classmethod
    def of(cls, pipeline: PipelineView) -> Seen:
        """From what its execution says of itself, or else from what is committed."""
        at, epoch = pipeline.progress, _last_with_rows(pipeline)
        if at is None:
            return cls(_rows_committed(pipeline), None, epoch, pipeline.status.lower())
        # What an execution that has ended said last is not what is done now.
        step = pipeline.status.lower() if pipeline.status in ENDING else at.step
        rows = at.rows or _rows_committed(pipeline)
        return cls(rows, at.rows_expected, max(at.epoch, epoch), step)


def _rows_committed(pipeline: PipelineView) -> int:
    """At the fullest sink, as its execution counts them."""
    return max(pipeline.written.values(), default=pipeline.rows_out)


def _last_with_rows(pipeline: PipelineView) -> int:
    """Its last complete epoch, without the completed point: that is an id with no rows to it."""
    finished = pipeline.status == PipelineStatus.FINISHED
    return pipeline.epoch - 1 if finished else pipeline.epoch


class Tally:
    """Rows and rows per second of each pipeline, as they are shown.

    Rows never run backwards: what an attempt that failed had staged is staged again, and the
    screen waits for it. Nor are there ever more of them than are expected.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown: dict[int, int] = {}
        self._began: dict[int, tuple[float, int]] = {}  # a restored one has some rows then

    def seen(self, pipeline: PipelineView) -> Seen:
        now = Seen.of(pipeline)
        rows = now.rows if now.expected is None else min(now.rows, now.expected)
        rows = self._shown[pipeline.number] = max(rows, self._shown.get(pipeline.number, 0))
        expected = None if now.expected is None else max(now.expected, rows)
        return replace(now, rows=rows, expected=expected)

    def per_s(self, pipeline: PipelineView, rows: int) -> int:
        now_s = self._clock.monotonic_s()
        if pipeline.execution is None and not rows:
            return 0
        began_s, before = self._began.setdefault(pipeline.number, (now_s, rows))
        return max(0, round((rows - before) / (now_s - began_s))) if now_s > began_s else 0


class Story:
    """What is worth a line of its own, once: a failed attempt, a lost worker, a failing job."""

    def __init__(self) -> None:
        self._told: set[tuple[object, ...]] = set()

    def news(self, view: JobView) -> list[str]:
        found: list[str] = []
        if view.status == JobStatus.FAILING and self._is_new("failing"):
            found.append(f"the job fails: {reason(view)}")
        for pipeline in view.pipelines:
            at = pipeline.attempt
            if at is None or not at.error:
                continue
            which = at.number if at.failed_at_ms is None else at.failed_at_ms  # None: an older one
            if self._is_new(pipeline.number, at.kind, which):
                found.append(f"pipeline {pipeline.number}: {failure_words(at)}")
        return found

    def _is_new(self, *what: object) -> bool:
        new = what not in self._told
        self._told.add(what)
        return new


def facts_of(seen: Seen, per_s: int) -> str:
    rows = f"{seen.rows:,}"
    of = f" of {seen.expected:,}" if seen.expected is not None else ""
    return f"{rows}{of} rows · {per_s:,} rows/s · epoch {seen.epoch}"


def doing_of(view: JobView, pipeline: PipelineView, seen: Seen, *, now_ms: int) -> str:
    """Its step, its attempt and when that begins."""
    waits = f" (waits for {view.waits_for})" if view.waits_for else ""
    if (at := pipeline.attempt) is None:
        return seen.step + waits
    step = f"{seen.step}, " if at.running or seen.step in {"failing", "canceling"} else ""
    return f"{step}{attempt_words(at, now_ms=now_ms)}{waits}"


def reason_of(pipeline: PipelineView, most: int) -> str:
    """Why it waits for its next attempt, in short; empty while one is under way."""
    at = pipeline.attempt
    return shortened(at.error, most) if at is not None and not at.running and at.error else ""


class Bars:
    """A bar for each pipeline, in a terminal."""

    def __init__(self, progress: Progress, clock: Clock) -> None:
        self._progress, self._clock = progress, clock
        self._tally, self._story = Tally(clock), Story()
        self._doing: TaskID | None = None
        self._bars: dict[int, TaskID] = {}

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, soft_wrap=True)

    def doing(self, text: str) -> None:
        shown = shortened(text, DESCRIPTION_MAX)
        if self._doing is None:
            self._doing = self._progress.add_task(shown, total=None, facts="")
        self._progress.update(self._doing, description=shown)

    def job(self, view: JobView) -> None:
        if self._doing is not None:
            self._progress.remove_task(self._doing)
            self._doing = None
        for text in self._story.news(view):
            self.note(text)
        for pipeline in view.pipelines:
            seen = self._tally.seen(pipeline)
            doing = doing_of(view, pipeline, seen, now_ms=self._clock.wall_ms())
            facts = facts_of(seen, self._tally.per_s(pipeline, seen.rows))
            if pipeline.number not in self._bars:
                bar = self._progress.add_task("", total=None, facts=facts)
                self._bars[pipeline.number] = bar
            self._progress.update(
                self._bars[pipeline.number],
                description=shortened(f"pipeline {pipeline.number} · {doing}", DESCRIPTION_MAX),
                total=seen.expected,
                completed=seen.rows,
                facts=reason_of(pipeline, BAR_REASON_MAX) or facts,
            )


class Lines:
    """A line when something changes, and every few seconds, where there is no terminal."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console, self._clock = console, clock
        self._tally, self._story = Tally(clock), Story()
        self._began_s = clock.monotonic_s()
        self._told: dict[int, tuple[tuple[object, ...], float]] = {}
        self._doing = ""

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def doing(self, text: str) -> None:
        if text != self._doing:
            self._doing = text
            self._print(text)

    def job(self, view: JobView) -> None:
        now_s = self._clock.monotonic_s()
        news = self._story.news(view)
        for text in news:
            self._print(text)
        for pipeline in view.pipelines:
            seen, at = self._tally.seen(pipeline), pipeline.attempt
            # So that the end of a wait is told, too; and how long it still lasts is not news.
            state = (seen.step, view.waits_for, at and (at.kind, at.number, at.running))
            told, told_s = self._told.get(pipeline.number, ((), 0.0))
            if state == told and now_s - told_s < PLAIN_EVERY_S:
                continue
            self._told[pipeline.number] = (state, now_s)
            doing = doing_of(view, pipeline, seen, now_ms=self._clock.wall_ms())
            facts = facts_of(seen, self._tally.per_s(pipeline, seen.rows))
            why = "" if news else reason_of(pipeline, LINE_REASON_MAX)  # it was said just now
            because = f" · {why}" if why else ""
            self._print(f"pipeline {pipeline.number} · {doing} · {facts}{because}")

    def _print(self, text: str) -> None:
        elapsed_s = self._clock.monotonic_s() - self._began_s
        self._console.print(f"{elapsed_s:6.1f} s  {text}", markup=False, soft_wrap=True)


@contextmanager
def display(console: Console, clock: Clock) -> Generator[Display]:
    if not console.is_terminal:
        yield Lines(console, clock)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[facts]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bars(progress, clock)
