"""Leaving a job: asked to cancel, or honestly not."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from math import ceil
from threading import Event, Timer

import httpx2
import pytest

from headrace.cli.exits import StopWanted, interrupts
from headrace.cli.jobs import run_steps
from headrace.cli.jobs import watch as watching
from headrace.cli.jobs.watch import LEAVE_FAILING_MAX_S, LEAVE_MAX_S, LEAVE_SILENCE_MAX_S, JobWatch
from headrace.client.client import Client
from headrace.client.views import JobView
from headrace.clock import SystemClock
from headrace.errors import CoordinatorUnavailable
from tests.cli.machine import Coordinators, error_body, job_view, pipeline_view
from tests.fakes import FakeClock

PROMISED_S = 20.0  # from a signal to the end of all processes, while a job fails
EXIT_MAX_S = 2.0  # of that, for the command to end after all it started has
RETRIED = {"kind": "PIPELINE", "number": 2, "most": 4, "epoch": 1}
FAILED = {"error": "the disk was full"}
SETTLING = {"kind": "SETTLE", "number": 1, "most": 20, "epoch": 1}


class Said:
    """A display that keeps what stays on it."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def doing(self, text: str) -> None: ...

    def job(self, view: JobView) -> None: ...


def leave(there: Coordinators, *, passing_s: float, save: bool = False) -> JobView | None:
    """Cancel or save the job, while `passing_s` seconds pass with each look."""
    clock = FakeClock()
    client = Client(["http://a:1"], transport=there.transport())
    watch = JobWatch(client, "j1", Said(), lambda: clock.advance(passing_s), clock=clock)
    with interrupts(lambda: None) as wanted:
        return watch.savepoint(wanted) if save else watch.cancel(wanted)


def test_when_nobody_answers_it_is_not_said_that_the_job_was_asked() -> None:
    with pytest.raises(CoordinatorUnavailable) as gone:
        leave(Coordinators(), passing_s=LEAVE_SILENCE_MAX_S + 1)

    assert str(gone.value) == (
        "no coordinator answered for 9 s; job j1 was NOT asked to cancel, and goes on. "
        "When one is back: `headrace job cancel j1`"
    )


def test_a_coordinator_that_went_after_it_was_asked_leaves_the_job_asked() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            raise httpx2.ConnectError("Connection refused", request=request)
        return httpx2.Response(200, json=job_view("CANCELING"))

    with pytest.raises(CoordinatorUnavailable, match="job j1 was asked to cancel"):
        leave(Coordinators(a=answer), passing_s=LEAVE_SILENCE_MAX_S + 1)


def test_a_savepoint_that_nobody_heard_of_is_told_so() -> None:
    with pytest.raises(CoordinatorUnavailable) as gone:
        leave(Coordinators(), passing_s=LEAVE_SILENCE_MAX_S + 1, save=True)

    assert str(gone.value) == (
        "no coordinator answered for 9 s; job j1 was NOT asked for a savepoint, and goes on. "
        "When one is back: `headrace job savepoint j1`"
    )


def test_a_job_that_takes_its_time_is_waited_for_within_a_limit() -> None:
    there = Coordinators(a=lambda _: httpx2.Response(200, json=job_view("CANCELING")))

    assert leave(there, passing_s=LEAVE_MAX_S / 2) is None


@pytest.mark.parametrize("status", ["FAILING", "CANCELING"])
def test_a_job_that_fails_is_not_waited_for_as_long(status: str) -> None:
    """Its target may be away for a quarter of an hour."""
    settling = {"kind": "SETTLE", "number": 2, "most": 20, "epoch": 1, "running": False}
    pipeline = pipeline_view(status, attempt={**settling, "error": "away"})
    body = job_view(status, pipelines=[pipeline])
    there = Coordinators(a=lambda _: httpx2.Response(200, json=body))

    assert leave(there, passing_s=LEAVE_FAILING_MAX_S / 2) is None
    assert there.asked.count("a GET /v1/jobs/j1") == 2


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(
    ("attempt", "waited_s"),
    [
        (None, LEAVE_MAX_S),
        ({**RETRIED, **FAILED}, LEAVE_FAILING_MAX_S),
        (SETTLING, LEAVE_FAILING_MAX_S),
        ({**SETTLING, **FAILED}, LEAVE_FAILING_MAX_S),
    ],
)
def test_a_job_fails_until_an_epoch_is_completed_again(
    attempt: dict[str, object] | None,
    waited_s: float,
    running: bool,  # noqa: FBT001
) -> None:
    """Also while its next attempt runs, and while it is settled for the first time."""
    shown = None if attempt is None else {**attempt, "running": running}
    pipeline = pipeline_view("RUNNING", attempt=shown)
    body = job_view("DOING_SAVEPOINT", pipelines=[pipeline])
    there = Coordinators(a=lambda _: httpx2.Response(200, json=body))

    assert leave(there, passing_s=LEAVE_FAILING_MAX_S, save=True) is None
    assert there.asked.count("a GET /v1/jobs/j1") == ceil(waited_s / LEAVE_FAILING_MAX_S)


def test_all_steps_of_leaving_a_failing_job_fit_into_what_is_promised() -> None:
    steps_s = (LEAVE_FAILING_MAX_S, run_steps.EARLIER_MAX_S, run_steps.SETTLE_HURRY_MAX_S)

    assert sum(steps_s) + run_steps.STOP_MAX_S + EXIT_MAX_S <= PROMISED_S
    assert LEAVE_SILENCE_MAX_S + run_steps.STOP_MAX_S + EXIT_MAX_S <= PROMISED_S


def test_a_savepoint_is_waited_for_as_the_end_of_the_job() -> None:
    there = Coordinators(a=lambda _: httpx2.Response(200, json=job_view("SAVEPOINT_DONE")))

    view = leave(there, passing_s=1, save=True)

    assert view is not None
    assert there.asked == ["a POST /v1/jobs/j1/savepoint", "a GET /v1/jobs/j1"]


def test_the_end_of_the_job_is_the_end_of_the_wait() -> None:
    there = Coordinators(a=lambda _: httpx2.Response(200, json=job_view("CANCELED")))

    view = leave(there, passing_s=1)

    assert view is not None
    assert there.asked == ["a POST /v1/jobs/j1/cancel", "a GET /v1/jobs/j1"]


class Hanging:
    """A coordinator that takes every question, and answers none until it is let go."""

    def __init__(self) -> None:
        self.let_go = Event()
        there = Coordinators(
            a=self._answer, b=lambda _: httpx2.Response(200, json=job_view("CANCELED"))
        )
        self.transport = there.transport()
        self.client = Client(["http://a:1"], transport=self.transport)
        self.watch = JobWatch(self.client, "j1", Said(), lambda: None, clock=SystemClock())

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.let_go.wait()
        raise httpx2.ReadTimeout("late", request=request)


@pytest.fixture
def hanging() -> Generator[Hanging]:
    made = Hanging()
    yield made
    made.let_go.set()


def test_a_call_under_way_is_left_as_soon_as_a_stop_is_wanted(hanging: Hanging) -> None:
    with interrupts(lambda: None) as wanted:
        Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(StopWanted):
            hanging.watch.until_ended(wanted)


def test_a_coordinator_that_hangs_is_left_after_the_silence_that_is_told(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LEAVE_SILENCE_MAX_S", 1.0)

    with interrupts(lambda: None) as wanted, pytest.raises(CoordinatorUnavailable) as gone:
        hanging.watch.cancel(wanted)

    assert str(gone.value) == (
        "no coordinator answered for 1 s; job j1 was asked to cancel, and whether that arrived is "
        "not known. When one is back: `headrace job cancel j1`"
    )


@pytest.mark.req("L3")
def test_a_coordinator_that_hangs_keeps_no_wish_from_one_that_answers(hanging: Hanging) -> None:
    client = Client(["http://a:1", "http://b:1"], transport=hanging.transport)
    watch = JobWatch(client, "j1", Said(), lambda: None, clock=SystemClock())

    with interrupts(lambda: None) as wanted:
        ended = watch.cancel(wanted)

    assert ended is not None
    assert ended.status == "CANCELED"


@pytest.mark.parametrize("stopping", [True, False])
def test_a_coordinator_that_hangs_holds_up_no_settling(
    hanging: Hanging,
    stopping: bool,  # noqa: FBT001
) -> None:
    said = Said()
    view = JobView.model_validate(job_view("FAILED"))
    with interrupts(lambda: None) as wanted:
        if stopping:
            wanted.receive(signal.SIGTERM, None)
        run_steps.settle(hanging.client, view, wanted, said, SystemClock(), limit_s=0.5)

    assert said.notes == [
        "its targets could not be settled now: no coordinator answered within 0.5 s"
    ]


def test_a_wish_that_no_coordinator_takes_is_not_called_silence() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, json=job_view("FAILING"))
        return httpx2.Response(503, json=error_body("StoreUnavailable", "the store is away"))

    with pytest.raises(CoordinatorUnavailable, match="takes no wishes now; job j1 was NOT asked"):
        leave(Coordinators(a=answer), passing_s=LEAVE_FAILING_MAX_S + 1)
