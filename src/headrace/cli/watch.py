"""Wait for a job: look at it again and again until it has ended, and tell what is seen.

A coordinator that is away is waited for, within a limit: the job goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Literal, Protocol

from headrace.cli.calls import CallLeft, leavable
from headrace.cli.interrupts import Interrupts
from headrace.client import Client, JobView
from headrace.clock import Clock
from headrace.errors import CoordinatorUnavailable, Unavailable
from headrace.model.job import JOB_ENDED, JobStatus
from headrace.model.task import TaskKind

POLL_S = 0.2
COORDINATOR_AWAY_MAX_S = 600.0
LEAVE_MAX_S = 60.0  # for a job to end that was asked to; a savepoint waits for its last epoch
LEAVE_FAILING_MAX_S = 5.0  # for one that fails: 20 s are promised until all processes are gone
LEAVE_CALL_MAX_S = 1.5  # for one address that hangs, if there is another to ask
LEAVE_SILENCE_MAX_S = 8.0  # a coordinator that was killed is back by then, if it comes back

Way = Literal["cancel", "savepoint"]  # to end a job: as its command is called


class Asked(Enum):
    """Whether the job was asked to end."""

    NO = "was NOT asked {wish}, and goes on"
    UNANSWERED = "was asked {wish}, and whether that arrived is not known"
    YES = "was asked {wish}"


WISHES: Mapping[Way, str] = {"cancel": "to cancel", "savepoint": "for a savepoint"}


class Display(Protocol):
    def note(self, text: str) -> None:
        """Say it once, and leave it standing."""
        ...

    def doing(self, text: str) -> None:
        """What is being waited for now."""
        ...

    def job(self, view: JobView) -> None: ...


def has_ended(view: JobView) -> bool:
    return view.status in JOB_ENDED


def is_failing(view: JobView) -> bool:
    """Whether something of it failed and no epoch with rows was completed since, or is being
    settled: its end may take long, also that of the attempt which runs now."""
    attempts = [p.attempt for p in view.pipelines if p.attempt is not None]
    failed = any(at.error or at.kind == TaskKind.SETTLE for at in attempts)
    return view.status == JobStatus.FAILING or failed


class Watch:
    """Looks at one job. `supervise` looks after the processes that this command started."""

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

    def until_ended(self, wanted: Interrupts) -> JobView:
        """The job as it ended. Raises Stopped as soon as a stop is wanted."""
        while True:  # ends with the job, a wish to stop, or COORDINATOR_AWAY_MAX_S of silence
            view = self._look(wanted=wanted)
            if view is not None and has_ended(view):
                return view
            self._supervise()
            wanted.check(POLL_S)

    def cancel(self, wanted: Interrupts) -> JobView | None:
        """Cancel it and wait for its end; None when it had not ended in time: one that fails is
        not waited for as long as others.

        CoordinatorUnavailable when nobody answers: he who waits was told to leave.
        """
        return self._leave(wanted, "cancel", self._client.cancel_job)

    def savepoint(self, wanted: Interrupts) -> JobView | None:
        """As `cancel`, with a savepoint. Refused: it can't have one, having not begun."""
        return self._leave(wanted, "savepoint", self._client.savepoint_job)

    def _leave(self, wanted: Interrupts, way: Way, ask: Callable[[str], JobView]) -> JobView | None:
        began_s = heard_s = self._clock.monotonic_s()
        asked, silent_s = Asked.NO, 0.0
        while (left_s := self._left_s(began_s, heard_s)) > 0:
            if asked is not Asked.YES:
                latest = self._ask(ask, limit_s=self._call_max_s(left_s))
                asked = asked if latest is Asked.NO else latest
            view = self._look(limit_s=self._call_max_s(self._left_s(began_s, heard_s)))
            if view is not None and has_ended(view):
                return view
            self._supervise()
            wanted.pause(POLL_S)
            now_s = self._clock.monotonic_s()
            heard_s, silent_s = (heard_s, now_s - heard_s) if view is None else (now_s, 0.0)
        if asked is Asked.YES and silent_s < LEAVE_SILENCE_MAX_S:
            return None
        raise self._nobody_answers(way, asked, silent_s)

    def _left_s(self, began_s: float, heard_s: float) -> float:
        """How long it is still waited for: for its end, and for any answer."""
        until_s = min(began_s + self._leave_max_s(), heard_s + LEAVE_SILENCE_MAX_S)
        return until_s - self._clock.monotonic_s()

    def _call_max_s(self, left_s: float) -> float:
        """Of two coordinators one may hang and the other answer: the next call begins with it."""
        return min(left_s, LEAVE_CALL_MAX_S) if self._client.has_several_addresses else left_s

    def _leave_max_s(self) -> float:
        failing = self.last is not None and is_failing(self.last)
        return LEAVE_FAILING_MAX_S if failing else LEAVE_MAX_S

    def _nobody_answers(self, way: Way, asked: Asked, silent_s: float) -> CoordinatorUnavailable:
        done = asked.value.format(wish=WISHES[way])
        why = f"no coordinator answered for {silent_s:.0f} s"
        if not silent_s:
            why = "a coordinator answers, but takes no wishes now"
        return CoordinatorUnavailable(
            f"{why}; job {self._job_id} {done}. "
            f"When one is back: `headrace job {way} {self._job_id}`"
        )

    def _ask(self, ask: Callable[[str], JobView], *, limit_s: float) -> Asked:
        try:
            leavable(lambda: ask(self._job_id), limit_s=limit_s)
        except CallLeft:
            return Asked.UNANSWERED
        except Unavailable:
            return Asked.NO
        return Asked.YES

    def _look(
        self, *, wanted: Interrupts | None = None, limit_s: float | None = None
    ) -> JobView | None:
        """None: nobody answers, or not within the limit. Stopped as soon as a stop is wanted."""
        try:
            view = leavable(lambda: self._client.job(self._job_id), wanted=wanted, limit_s=limit_s)
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
