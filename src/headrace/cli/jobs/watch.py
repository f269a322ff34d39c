"""Wait for a job: poll it until it has ended, and show its progress meanwhile.

A coordinator that does not answer is waited for, within a limit: the job goes on without it.
Progress is shown as bars in a terminal, and as a line now and then elsewhere. `headrace run` waits
so, and so does `headrace job savepoint`, until the job that was asked for one has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from headrace.cli.context import Context
from headrace.cli.exits import CallTimedOut, Interrupts, StopWanted, interruptible, interrupts
from headrace.cli.jobs.text import attempt_text, failure_text, given_back_text, reason
from headrace.client.client import Client
from headrace.client.views import JobView, PipelineView
from headrace.clock import Clock, SystemClock
from headrace.errors import CoordinatorUnavailable, Unavailable
from headrace.model.jobs.status import JOB_ENDED, PIPELINE_ENDING, JobStatus, PipelineStatus
from headrace.model.task import TaskKind
from headrace.model.text import shortened

POLL_S = 0.2
COORDINATOR_AWAY_MAX_S = 600.0
LEAVE_MAX_S = 60.0  # for a job to end that was asked to; a savepoint awaits its last epoch
LEAVE_FAILING_MAX_S = 5.0  # for a job that fails: all processes must be gone within 20 s
LEAVE_CALL_MAX_S = 1.5  # for an address that hangs, if there is another one
LEAVE_SILENCE_MAX_S = 8.0  # a coordinator that was killed is back by then, if ever

PLAIN_EVERY_S = 5.0
DESCRIPTION_MAX = 100  # characters
BAR_REASON_MAX = 60  # characters; the full text is above the bar
LINE_REASON_MAX = 160  # characters; the full text was shown once
ENDING = PIPELINE_ENDING | {PipelineStatus.FAILED, PipelineStatus.CANCELED}

EndCommand = Literal["cancel", "savepoint"]  # that ends a job
WISHES: Mapping[EndCommand, str] = {"cancel": "to cancel", "savepoint": "for a savepoint"}


class EndWish(Enum):
    """Whether the wish that the job end has reached a coordinator."""

    NO = "was NOT asked {wish}, and goes on"
    UNANSWERED = "was asked {wish}, and whether that arrived is not known"
    YES = "was asked {wish}"


class Display(Protocol):
    def note(self, text: str) -> None:
        """Print it once, and leave it on the screen."""
        ...

    def doing(self, text: str) -> None:
        """What is awaited now."""
        ...

    def job(self, view: JobView) -> None: ...


class JobWatch:
    """Polls one job. `supervise` looks after the processes that this command started."""

    def __init__(
        self,
        client: Client,
        job_id: str,
        display: Display,
        supervise: Callable[[], None],
        *,
        clock: Clock,
    ) -> None:
        self._client = client
        self._job_id = job_id
        self._display = display
        self._supervise = supervise
        self._clock = clock
        self._away_since_s: float | None = None
        self.last: JobView | None = None  # the job as it was last seen

    def until_ended(self, stop: Interrupts) -> JobView:
        """The job as it ended. Raises StopWanted as soon as a stop is wanted."""
        while True:  # ends with the job, a wish to stop, or COORDINATOR_AWAY_MAX_S of silence
            view = self._poll(stop=stop)
            if view is not None and has_ended(view):
                return view
            self._supervise()
            stop.check(POLL_S)

    def cancel(self, stop: Interrupts) -> JobView | None:
        """Cancel it and wait for its end; None when it had not ended in time. A job that fails is
        given less time than others.

        Raises CoordinatorUnavailable when no coordinator answers: somebody wants to leave.
        """
        return self._end_job(stop, "cancel", self._client.cancel_job)

    def savepoint(self, stop: Interrupts) -> JobView | None:
        """As `cancel`, with a savepoint. Raises Refused when it can't have one, because it has not
        begun."""
        return self._end_job(stop, "savepoint", self._client.savepoint_job)

    def _end_job(
        self, stop: Interrupts, command: EndCommand, send: Callable[[str], JobView]
    ) -> JobView | None:
        began_s = answered_s = self._clock.monotonic_s()
        wish, silent_s = EndWish.NO, 0.0
        while (left_s := self._left_s(began_s, answered_s)) > 0:
            if wish is not EndWish.YES:
                latest = self._send_wish(send, limit_s=self._call_max_s(left_s))
                wish = wish if latest is EndWish.NO else latest
            view = self._poll(limit_s=self._call_max_s(self._left_s(began_s, answered_s)))
            if view is not None and has_ended(view):
                return view
            self._supervise()
            stop.pause(POLL_S)
            now_s = self._clock.monotonic_s()
            answered_s, silent_s = (
                (answered_s, now_s - answered_s) if view is None else (now_s, 0.0)
            )
        if wish is EndWish.YES and silent_s < LEAVE_SILENCE_MAX_S:
            return None
        raise self._nobody_answers(command, wish, silent_s)

    def _left_s(self, began_s: float, answered_s: float) -> float:
        """How much time is left: for the job to end, and for any answer at all."""
        until_s = min(began_s + self._leave_max_s(), answered_s + LEAVE_SILENCE_MAX_S)
        return until_s - self._clock.monotonic_s()

    def _call_max_s(self, left_s: float) -> float:
        """Of two coordinators one may hang: a short call leaves time for the other, with which the
        next call begins."""
        return min(left_s, LEAVE_CALL_MAX_S) if self._client.has_several_addresses else left_s

    def _leave_max_s(self) -> float:
        failing = self.last is not None and is_failing(self.last)
        return LEAVE_FAILING_MAX_S if failing else LEAVE_MAX_S

    def _nobody_answers(
        self, command: EndCommand, wish: EndWish, silent_s: float
    ) -> CoordinatorUnavailable:
        done = wish.value.format(wish=WISHES[command])
        why = f"no coordinator answered for {silent_s:.0f} s"
        if not silent_s:
            why = "a coordinator answers, but takes no wishes now"
        return CoordinatorUnavailable(
            f"{why}; job {self._job_id} {done}. "
            f"When one is back: `headrace job {command} {self._job_id}`"
        )

    def _send_wish(self, send: Callable[[str], JobView], *, limit_s: float) -> EndWish:
        try:
            interruptible(lambda: send(self._job_id), limit_s=limit_s)
        except CallTimedOut:
            return EndWish.UNANSWERED
        except Unavailable:
            return EndWish.NO
        return EndWish.YES

    def _poll(
        self, *, stop: Interrupts | None = None, limit_s: float | None = None
    ) -> JobView | None:
        """None: no coordinator answers, or not within the limit. Raises StopWanted as soon as a
        stop is wanted."""
        try:
            view = interruptible(lambda: self._client.job(self._job_id), stop=stop, limit_s=limit_s)
        except Unavailable as error:
            self._note_absence(error)
            return None
        if self._away_since_s is not None:
            self._away_since_s = None
            self._display.note("the coordinator is back")
        self.last = view
        self._display.job(view)
        return view

    def _note_absence(self, error: Unavailable) -> None:
        now_s = self._clock.monotonic_s()
        if self._away_since_s is None:
            self._away_since_s = now_s
            self._display.note("no coordinator answers; the job goes on, waiting for one")
        if now_s - self._away_since_s > COORDINATOR_AWAY_MAX_S:
            raise error


def has_ended(view: JobView) -> bool:
    return view.status in JOB_ENDED


def is_failing(view: JobView) -> bool:
    """Whether its end may take long: it fails, or an epoch is being settled, or an attempt failed
    and no epoch with rows was completed since."""
    attempts = [p.attempt for p in view.pipelines if p.attempt is not None]
    failed = any(attempt.error or attempt.kind == TaskKind.SETTLE for attempt in attempts)
    return view.status == JobStatus.FAILING or failed


def wait_for_savepoint(cli: Context, client: Client, job: JobView) -> JobView:
    """The job as it ended. An interrupt only ends the wait: the savepoint is made all the same."""
    if has_ended(job):
        return job
    clock = SystemClock()
    with interrupts(lambda: None) as stop, display(cli.stderr(), clock) as shown:
        try:
            watch = JobWatch(client, job.id, shown, lambda: None, clock=clock)
            return watch.until_ended(stop)
        except StopWanted:
            shown.note(f"the savepoint goes on; see it with `headrace job show {job.id}`")
            raise typer.Exit(stop.exit_code) from None


@contextmanager
def display(console: Console, clock: Clock) -> Generator[Display]:
    if not console.is_terminal:
        yield ProgressLines(console, clock)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[facts]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield ProgressBars(progress, clock)


class ProgressBars:
    """A bar for each pipeline, in a terminal."""

    def __init__(self, progress: Progress, clock: Clock) -> None:
        self._progress, self._clock = progress, clock
        self._tally, self._failures = RowTally(clock), FailureLines()
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
        for text in self._failures.new_lines(view):
            self.note(text)
        for pipeline in view.pipelines:
            progress = self._tally.observe(pipeline)
            doing = doing_of(view, pipeline, progress, now_ms=self._clock.wall_ms())
            facts = facts_of(progress, self._tally.per_s(pipeline, progress.rows))
            if pipeline.number not in self._bars:
                bar = self._progress.add_task("", total=None, facts=facts)
                self._bars[pipeline.number] = bar
            self._progress.update(
                self._bars[pipeline.number],
                description=shortened(f"pipeline {pipeline.number} · {doing}", DESCRIPTION_MAX),
                total=progress.expected,
                completed=progress.rows,
                facts=reason_of(pipeline, BAR_REASON_MAX) or facts,
            )


class ProgressLines:
    """A line when something changes, and every few seconds, where there is no terminal."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console, self._clock = console, clock
        self._tally, self._failures = RowTally(clock), FailureLines()
        self._began_s = clock.monotonic_s()
        self._shown: dict[int, tuple[tuple[object, ...], float]] = {}
        self._doing = ""

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def doing(self, text: str) -> None:
        if text != self._doing:
            self._doing = text
            self._print(text)

    def job(self, view: JobView) -> None:
        now_s = self._clock.monotonic_s()
        news = self._failures.new_lines(view)
        for text in news:
            self._print(text)
        for pipeline in view.pipelines:
            progress, attempt = self._tally.observe(pipeline), pipeline.attempt
            # With this the end of a wait counts as a change, and the time that is left does not.
            state = (
                progress.step,
                view.waits_for,
                attempt and (attempt.kind, attempt.number, attempt.running),
            )
            shown_state, shown_s = self._shown.get(pipeline.number, ((), 0.0))
            if state == shown_state and now_s - shown_s < PLAIN_EVERY_S:
                continue
            self._shown[pipeline.number] = (state, now_s)
            doing = doing_of(view, pipeline, progress, now_ms=self._clock.wall_ms())
            facts = facts_of(progress, self._tally.per_s(pipeline, progress.rows))
            why = "" if news else reason_of(pipeline, LINE_REASON_MAX)  # it was shown just now
            because = f" · {why}" if why else ""
            self._print(f"pipeline {pipeline.number} · {doing} · {facts}{because}")

    def _print(self, text: str) -> None:
        elapsed_s = self._clock.monotonic_s() - self._began_s
        self._console.print(f"{elapsed_s:6.1f} s  {text}", markup=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """How far a pipeline got, in numbers."""

    rows: int
    expected: int | None
    epoch: int
    step: str

    @classmethod
    def of(cls, pipeline: PipelineView) -> PipelineProgress:
        """From what its execution reports, or else from what is committed."""
        progress, epoch = pipeline.progress, _last_with_rows(pipeline)
        if progress is None:
            return cls(_rows_committed(pipeline), None, epoch, pipeline.status.lower())
        # The last report of an ended execution is not what happens now.
        step = pipeline.status.lower() if pipeline.status in ENDING else progress.step
        rows = progress.rows or _rows_committed(pipeline)
        return cls(rows, progress.rows_expected, max(progress.epoch, epoch), step)


def _rows_committed(pipeline: PipelineView) -> int:
    """Rows of the sink that has most, as its execution counts them."""
    return max(pipeline.written.values(), default=pipeline.rows_out)


def _last_with_rows(pipeline: PipelineView) -> int:
    """Its last completed epoch, not counting the completed point, which is an id without rows."""
    finished = pipeline.status == PipelineStatus.FINISHED
    return pipeline.epoch - 1 if finished else pipeline.epoch


class RowTally:
    """Rows and rows per second of each pipeline, as they are shown.

    Rows never run backwards: what a failed attempt had staged is staged again, and the shown count
    waits for it. Nor are there ever more rows than expected.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shown: dict[int, int] = {}
        self._began: dict[int, tuple[float, int]] = {}  # a restored job has rows at the start

    def observe(self, pipeline: PipelineView) -> PipelineProgress:
        progress = PipelineProgress.of(pipeline)
        rows = progress.rows if progress.expected is None else min(progress.rows, progress.expected)
        rows = self._shown[pipeline.number] = max(rows, self._shown.get(pipeline.number, 0))
        expected = None if progress.expected is None else max(progress.expected, rows)
        return replace(progress, rows=rows, expected=expected)

    def per_s(self, pipeline: PipelineView, rows: int) -> int:
        now_s = self._clock.monotonic_s()
        if pipeline.execution is None and not rows:
            return 0
        began_s, before = self._began.setdefault(pipeline.number, (now_s, rows))
        return max(0, round((rows - before) / (now_s - began_s))) if now_s > began_s else 0


class FailureLines:
    """What deserves one line of its own: a failed attempt, a lost worker, a failing job."""

    def __init__(self) -> None:
        self._reported: set[tuple[object, ...]] = set()

    def new_lines(self, view: JobView) -> list[str]:
        lines: list[str] = []
        if view.status == JobStatus.FAILING and self._is_new("failing"):
            lines.append(f"the job fails: {reason(view)}")
        found = ((each.number, self._new_text(each)) for each in view.pipelines)
        return [*lines, *(f"pipeline {number}: {text}" for number, text in found if text)]

    def _new_text(self, pipeline: PipelineView) -> str | None:
        """Why its last attempt failed, or was given back, unless that was said before."""
        attempt, given_back = pipeline.attempt, given_back_text(pipeline)
        if given_back is not None:
            return given_back if self._is_new(pipeline.number, given_back) else None
        if attempt is None or not attempt.error:
            return None
        failure = (
            attempt.number if attempt.failed_at_ms is None else attempt.failed_at_ms
        )  # None: from an older coordinator
        new = self._is_new(pipeline.number, attempt.kind, failure)
        return failure_text(attempt) if new else None

    def _is_new(self, *what: object) -> bool:
        new = what not in self._reported
        self._reported.add(what)
        return new


def facts_of(progress: PipelineProgress, per_s: int) -> str:
    rows = f"{progress.rows:,}"
    of_expected = f" of {progress.expected:,}" if progress.expected is not None else ""
    return f"{rows}{of_expected} rows · {per_s:,} rows/s · epoch {progress.epoch}"


def doing_of(
    view: JobView, pipeline: PipelineView, progress: PipelineProgress, *, now_ms: int
) -> str:
    """Its step, its attempt, and when that begins."""
    waits = f" (waits for {view.waits_for})" if view.waits_for else ""
    if (attempt := pipeline.attempt) is None:
        return progress.step + waits
    step = f"{progress.step}, " if attempt.running or pipeline.status in PIPELINE_ENDING else ""
    return f"{step}{attempt_text(attempt, now_ms=now_ms)}{waits}"


def reason_of(pipeline: PipelineView, most: int) -> str:
    """Why it waits for its next attempt, in short; empty while an attempt runs."""
    attempt = pipeline.attempt
    return (
        shortened(attempt.error, most)
        if attempt is not None and not attempt.running and attempt.error
        else ""
    )
