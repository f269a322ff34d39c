"""Leaving a job: asked to cancel, or honestly not."""

from __future__ import annotations

from math import ceil

import httpx2
import pytest

from headrace.cli.interrupts import interrupts
from headrace.cli.watch import (
    LEAVE_FAILING_MAX_S,
    LEAVE_MAX_S,
    LEAVE_SILENCE_MAX_S,
    Watch,
)
from headrace.client import Client, JobView
from headrace.errors import CoordinatorUnavailable
from tests.cli.machine import Coordinators, job_view, pipeline_view
from tests.fakes import FakeClock


class Silent:
    """A display that nobody looks at."""

    def note(self, text: str) -> None: ...

    def doing(self, text: str) -> None: ...

    def job(self, view: JobView) -> None: ...


def leave(there: Coordinators, *, passing_s: float, save: bool = False) -> JobView | None:
    """Cancel or save the job, while `passing_s` seconds pass with each look."""
    clock = FakeClock()
    client = Client(["http://a:1"], transport=there.transport())
    watch = Watch(client, "j1", Silent(), lambda: clock.advance(passing_s), clock=clock)
    with interrupts(lambda: None) as wanted:
        return watch.savepoint(wanted) if save else watch.cancel(wanted)


def test_when_nobody_answers_it_is_not_said_that_the_job_was_asked() -> None:
    with pytest.raises(CoordinatorUnavailable) as gone:
        leave(Coordinators(), passing_s=LEAVE_SILENCE_MAX_S + 1)

    assert str(gone.value) == (
        "no coordinator answered for 8 s; job j1 was NOT asked to cancel, and goes on. "
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
        "no coordinator answered for 8 s; job j1 was NOT asked for a savepoint, and goes on. "
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


@pytest.mark.parametrize(
    ("kind", "running", "waited_s"),
    [
        ("PIPELINE", True, LEAVE_MAX_S),
        ("PIPELINE", False, LEAVE_FAILING_MAX_S),
        ("SETTLE", True, LEAVE_FAILING_MAX_S),
    ],
)
def test_a_second_attempt_that_runs_is_given_time_for_its_savepoint(
    kind: str,
    running: bool,  # noqa: FBT001
    waited_s: float,
) -> None:
    second = {"kind": kind, "number": 2, "most": 20, "epoch": 1, "running": running}
    pipeline = pipeline_view("RUNNING", attempt={**second, "error": "the disk was full"})
    body = job_view("DOING_SAVEPOINT", pipelines=[pipeline])
    there = Coordinators(a=lambda _: httpx2.Response(200, json=body))

    assert leave(there, passing_s=LEAVE_FAILING_MAX_S, save=True) is None
    assert there.asked.count("a GET /v1/jobs/j1") == ceil(waited_s / LEAVE_FAILING_MAX_S)


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
