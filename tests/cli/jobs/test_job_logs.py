"""headrace job logs: for people, for programs, and for those who follow."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import httpx2
import pytest
from typer.testing import CliRunner, Result

from headrace.cli.context import Context
from headrace.cli.jobs import commands
from headrace.cli.main import app
from headrace.errors import CoordinatorUnavailable, LogsGone
from tests.cli.machine import Answer, Coordinators, error_body

AT = ("--coordinator", "http://a:1")
GONE = "job 'j1' ended FAILED at 2026-01-31T10:20:30Z, and its log lines have expired"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "POLL_S", 0.01)


def line(number: int, text: str = "said", **changed: object) -> dict[str, object]:
    made = {"at_ms": 1_700_000_000_000 + number, "level": "INFO", "source": "coordinator"}
    return {**made, "number": number, "text": text, **changed}


def answer(
    *lines: dict[str, object], status: str = "RUNNING", cursor: str = "c"
) -> httpx2.Response:
    ended = status == "FAILED"
    body = {"job": "j1", "status": status, "ended": ended, "lines": list(lines), "cursor": cursor}
    return httpx2.Response(200, json=body)


class Said:
    """Answers one after the other; the last one again and again."""

    def __init__(self, *answers: httpx2.Response | Callable[[], httpx2.Response]) -> None:
        self._answers = list(answers)
        self.queries: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == "/v1/jobs/j1/logs"
        self.queries.append(request.url.query.decode())
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return found() if callable(found) else found


def invoke(said: Answer, *arguments: str, output: str = "text") -> Result:
    transport = Coordinators(a=said).transport()
    context = Context(output="json" if output == "json" else "text", transport=transport)
    command = ["job", "logs", "j1", *arguments, *AT]
    return CliRunner().invoke(app, command, obj=context)


def test_lines_are_shown_with_time_level_and_who_said_them() -> None:
    worker = "0123456789abcdef" * 2
    said = Said(
        answer(
            line(1, "job moved from RUNNING to FAILING: no disk", level="ERROR"),
            line(2, "attempt 1 failed", source="coordinator/4711"),
            line(3, "task taken \x1b[31mred", source=worker),
        )
    )

    shown = invoke(said).stdout.splitlines()

    assert [row[19:] for row in shown] == [
        ".001 ERROR   coordinator      job moved from RUNNING to FAILING: no disk",
        ".002 INFO    coordinator      attempt 1 failed",
        ".003 INFO    worker 01234567  task taken ?[31mred",
    ]
    assert said.queries == ["tail=1000"]


def test_programs_get_an_object_a_line() -> None:
    said = Said(answer(line(1), line(2, added_by_a_newer_version=7)))

    shown = invoke(said, "--tail", "2", output="json").stdout.splitlines()

    assert [json.loads(row) for row in shown] == [line(1), line(2, added_by_a_newer_version=7)]
    assert said.queries == ["tail=2"]


def test_a_job_of_which_nothing_was_said_is_told_apart_from_the_lines() -> None:
    done = invoke(Said(answer()))

    assert (done.stdout, done.stderr) == (
        "",
        "no log lines of job j1 are kept: none yet, or no more\n",
    )


def test_who_follows_sees_what_comes_until_the_job_has_ended() -> None:
    said = Said(
        answer(line(1, "one"), cursor="c1"),
        answer(cursor="c1"),
        httpx2.Response(503, json=error_body("Unavailable", "the store is away")),
        answer(line(2, "two"), status="FAILED", cursor="c2"),
        answer(line(3, "three, late"), status="FAILED", cursor="c3"),
        answer(status="FAILED", cursor="c3"),
    )

    done = invoke(said, "--follow")

    assert done.exit_code == 0
    assert [row.split("  ")[-1] for row in done.stdout.splitlines()] == [
        "one",
        "two",
        "three, late",
    ]
    assert said.queries[0] == "tail=1000"
    assert [query for query in said.queries[1:] if query != "after=c3"] == [
        *["after=c1"] * 3,
        "after=c2",
    ]


def test_who_follows_a_job_that_is_cleaned_up_is_told_so() -> None:
    gone = httpx2.Response(404, json=error_body(LogsGone.__name__, GONE))

    done = invoke(Said(answer(line(1, "one")), gone), "-f")

    assert done.exit_code == 0
    assert done.stdout.endswith("one\n")
    assert done.stderr == f"{GONE}\n"


def test_who_asks_for_a_job_that_is_cleaned_up_is_refused() -> None:
    gone = httpx2.Response(404, json=error_body(LogsGone.__name__, GONE))

    done = invoke(Said(gone))

    assert isinstance(done.exception, LogsGone)
    assert str(done.exception) == GONE


def test_nobody_is_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "COORDINATOR_AWAY_MAX_S", 0.0)
    away = httpx2.Response(503, json=error_body("Unavailable", "the store is away"))

    done = invoke(Said(answer(line(1)), away), "--follow")

    assert isinstance(done.exception, CoordinatorUnavailable)
    assert done.stderr == "no coordinator answers; waiting for one\n"


def test_an_interrupt_ends_following_politely() -> None:
    def interrupted() -> httpx2.Response:
        signal.raise_signal(signal.SIGINT)
        return answer(line(2, "two"))

    done = invoke(Said(answer(line(1, "one")), interrupted), "--follow")

    assert done.exit_code == 130
    assert [row.split("  ")[-1] for row in done.stdout.splitlines()] == ["one", "two"]
