"""What a person sees while a job runs: bars in a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from headrace.cli.watch import Display
from headrace.clock import Clock
from headrace.model.job import PipelineStatus
from headrace.views import JobView, PipelineView

PLAIN_EVERY_S = 5.0
DESCRIPTION_MAX = 100  # characters


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
            return cls(pipeline.rows_out, None, epoch, pipeline.status.lower())
        return cls(at.rows or pipeline.rows_out, at.rows_expected, max(at.epoch, epoch), at.step)


def _last_with_rows(pipeline: PipelineView) -> int:
    """Its last complete epoch, without the completed point: that is an id with no rows to it."""
    finished = pipeline.status == PipelineStatus.FINISHED
    return pipeline.epoch - 1 if finished else pipeline.epoch


class Rate:
    """Rows per second of each pipeline, since it was first seen; a restored one has some then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: dict[int, tuple[float, int]] = {}

    def of(self, pipeline: PipelineView, rows: int) -> int:
        now_s = self._clock.monotonic_s()
        if pipeline.execution is None and not rows:
            return 0
        began_s, before = self._began.setdefault(pipeline.number, (now_s, rows))
        return max(0, round((rows - before) / (now_s - began_s))) if now_s > began_s else 0


def facts_of(seen: Seen, per_s: int) -> str:
    rows = f"{seen.rows:,}"
    of = f" of {seen.expected:,}" if seen.expected is not None else ""
    return f"{rows}{of} rows · {per_s:,} rows/s · epoch {seen.epoch}"


def _bar_text(view: JobView, pipeline: PipelineView, seen: Seen) -> str:
    doing = f"waits for {view.waits_for}" if view.waits_for else seen.step
    return f"pipeline {pipeline.number} · {doing}"


class Bars:
    """A bar for each pipeline, in a terminal."""

    def __init__(self, progress: Progress, clock: Clock) -> None:
        self._progress = progress
        self._rate = Rate(clock)
        self._doing: TaskID | None = None
        self._bars: dict[int, TaskID] = {}

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, soft_wrap=True)

    def doing(self, text: str) -> None:
        shown = text[:DESCRIPTION_MAX]
        if self._doing is None:
            self._doing = self._progress.add_task(shown, total=None, facts="")
        self._progress.update(self._doing, description=shown)

    def job(self, view: JobView) -> None:
        if self._doing is not None:
            self._progress.remove_task(self._doing)
            self._doing = None
        for pipeline in view.pipelines:
            seen = Seen.of(pipeline)
            facts = facts_of(seen, self._rate.of(pipeline, seen.rows))
            if pipeline.number not in self._bars:
                bar = self._progress.add_task("", total=None, facts=facts)
                self._bars[pipeline.number] = bar
            self._progress.update(
                self._bars[pipeline.number],
                description=_bar_text(view, pipeline, seen)[:DESCRIPTION_MAX],
                total=seen.expected,
                completed=seen.rows,
                facts=facts,
            )


class Lines:
    """A line when something changes, and every few seconds, where there is no terminal."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._rate = Rate(clock)
        self._began_s = clock.monotonic_s()
        self._told: dict[int, tuple[str, float]] = {}
        self._doing = ""

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def doing(self, text: str) -> None:
        if text != self._doing:
            self._doing = text
            self._print(text)

    def job(self, view: JobView) -> None:
        now_s = self._clock.monotonic_s()
        for pipeline in view.pipelines:
            seen = Seen.of(pipeline)
            facts = facts_of(seen, self._rate.of(pipeline, seen.rows))
            waits = f" (waits for {view.waits_for})" if view.waits_for else ""
            doing = seen.step + waits  # so that the end of a wait is told, too
            told, told_s = self._told.get(pipeline.number, ("", 0.0))
            if doing != told or now_s - told_s >= PLAIN_EVERY_S:
                self._told[pipeline.number] = (doing, now_s)
                self._print(f"pipeline {pipeline.number} · {doing} · {facts}")

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
