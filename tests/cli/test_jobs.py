"""headrace job …, headrace workers: through the real commands, against fake coordinators."""

from __future__ import annotations

import json

import httpx2
import pytest
from typer.testing import CliRunner

from headrace.cli.context import Context
from headrace.cli.main import app
from headrace.errors import NotFound, Unauthorized
from tests.cli.machine import Answer, Coordinators, error_body, job_view

AT = ("--coordinator", "http://dead:1,http://a:1")
WORKER = {
    "id": "w1",
    "group": "default",
    "slots": 2,
    "host": "here",
    "pid": 42,
    "version": "0.1.0",
    "spark_application": "local-1",
    "registered_at_ms": 1_700_000_000_000,
    "seen_at_ms": 1_700_000_000_000,
    "executions": ["t1.1"],
    "resource": None,
    "launch": 0,
    "memory_mb": 2048,
    "drain_since_ms": None,
    "next": "works",
}


def invoke(answer: Answer, *arguments: str, output: str = "text") -> str:
    there = Coordinators(a=answer)
    context = Context(output="json" if output == "json" else "text", transport=there.transport())
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*arguments, *AT], obj=context)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def always(status: int, body: object) -> Answer:
    return lambda _: httpx2.Response(status, json=body)


def test_jobs_are_listed_for_people() -> None:
    shown = invoke(always(200, {"jobs": [job_view("PENDING", waits_for="2 slots")]}), "job", "list")

    for part in ("j1", "demo", "PENDING", "2 slots", "1,000,000"):
        assert part in shown


def test_jobs_are_listed_for_programs_with_all_a_coordinator_says() -> None:
    body = {"jobs": [job_view(added_by_a_newer_version=7)]}
    shown = json.loads(invoke(always(200, body), "job", "list", output="json"))

    assert shown == body["jobs"]


@pytest.mark.req("C7")
def test_when_nothing_runs_history_is_named() -> None:
    assert invoke(always(200, {"jobs": []}), "job", "list") == (
        "nothing runs; `headrace job history` shows what has ended\n"
    )


@pytest.mark.parametrize(
    "command", [("job", "list"), ("job", "show", "j1"), ("job", "cancel", "j1"), ("workers",)]
)
def test_programs_may_ask_after_the_command_too(command: tuple[str, ...]) -> None:
    body = job_view(jobs=[], workers=[])
    before = invoke(always(200, body), *command, output="json")

    assert json.loads(before) in (body, [])
    assert invoke(always(200, body), *command, "--output", "json") == before


def test_a_job_is_shown_with_its_table_and_snapshot() -> None:
    shown = invoke(
        always(200, job_view("FINISHED", ended_at_ms=1_700_000_003_000)), "job", "show", "j1"
    )

    for part in ("demo.events", "4711", "2,000,000", "job j1 (demo) FINISHED in 2.0 s"):
        assert part in shown


def test_a_failed_job_is_shown_with_its_reason() -> None:
    assert "reason: it broke" in invoke(
        always(200, job_view("FAILED", error="it broke")), "job", "show", "j1"
    )


def test_cancelling_posts_and_shows_the_job() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert (request.method, request.url.path) == ("POST", "/v1/jobs/j1/cancel")
        return httpx2.Response(200, json=job_view("CANCELING"))

    assert "CANCELING" in invoke(answer, "job", "cancel", "j1")


def test_workers_are_listed_for_people_and_programs() -> None:
    body = {"workers": [WORKER]}

    assert "t1.1" in invoke(always(200, body), "workers")
    assert json.loads(invoke(always(200, body), "workers", output="json")) == [WORKER]


def test_a_job_that_is_not_there_is_named() -> None:
    body = error_body("NotFound", "there is no job 'j9'")
    with pytest.raises(NotFound, match="there is no job 'j9'"):
        invoke(always(404, body), "job", "show", "j9")


def test_a_missing_token_is_asked_for() -> None:
    body = error_body("Unauthorized", str(Unauthorized()))
    with pytest.raises(Unauthorized, match="HEADRACE_TOKEN"):
        invoke(always(401, body), "workers")
