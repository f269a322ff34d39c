"""headrace job …, headrace workers: through the real commands, against fake coordinators."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from headrace.cli.context import Context
from headrace.cli.jobs.run_steps import Order, submit
from headrace.cli.jobs.text import moment
from headrace.cli.main import app
from headrace.client.client import Client
from headrace.errors import BadSetting, NotFound, Refused, Unauthorized
from headrace.jobfile.reader import read_job
from tests.cli.machine import Answer, Coordinators, error_body, job_view, pipeline_view

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
    "protocol": 5,
    "plugins": [
        {"role": "source", "name": "FakeSource", "version": "0.1.0", "digest": "a"},
        {"role": "sink", "name": "Kafka", "version": "2.3", "digest": "b"},
    ],
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


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            {"running": False, "next_at_ms": 4_000_000_000_000},
            "pipeline 1: attempt 2 of 4 in {left} (at {at}), from epoch 7; "
            "the last one failed: the disk is full",
        ),
        (
            {"running": True},
            "pipeline 1: runs, attempt 2 of 4, from epoch 7; the last one failed: the disk is full",
        ),
        (
            {"running": False, "lost": True, "error": "worker w1 is gone"},
            "pipeline 1: worker w1 is gone; attempt 2 of 4 waits for a worker, from epoch 7",
        ),
        (
            {"running": True, "kind": "SETTLE"},
            "pipeline 1: settling epoch 7, attempt 2 of 4; the last one failed: the disk is full",
        ),
    ],
)
def test_a_job_that_is_tried_again_is_shown_with_attempt_time_and_reason(
    changed: dict[str, object], expected: str
) -> None:
    made = {"kind": "PIPELINE", "number": 2, "most": 4, "epoch": 7, "error": "the disk is full"}
    body = job_view(pipelines=[pipeline_view(attempt={**made, **changed})])
    shown = invoke(always(200, body), "job", "show", "j1")

    before, _, after = expected.partition("{left} (at {at})")
    at = f" (at {moment(4_000_000_000_000)})" if after else ""
    [line] = [line for line in shown.splitlines() if line.startswith("pipeline 1: ")]
    assert line.startswith(before)
    assert line.endswith(at + after)
    listed = invoke(always(200, {"jobs": [body]}), "job", "list")
    assert ("attempt 2 of 4" in " ".join(listed.split())) is not changed["running"]


def test_cancelling_posts_and_shows_the_job() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert (request.method, request.url.path) == ("POST", "/v1/jobs/j1/cancel")
        return httpx2.Response(200, json=job_view("CANCELING"))

    assert "CANCELING" in invoke(answer, "job", "cancel", "j1")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("RUNNING", "job j1 (demo) is asked to end, and is RUNNING until it has"),
        ("FINISHED", "job j1 (demo) has ended already: it is FINISHED"),
    ],
)
def test_cancelling_says_what_was_asked_and_not_that_it_is_done(status: str, said: str) -> None:
    assert invoke(always(200, job_view(status)), "job", "cancel", "j1").startswith(said)


FIRST, SECOND = "6a80745f3f144badb162a0ab6eeb1a4a", "6a81ffff3f144badb162a0ab6eeb1a4a"


def ids(*known: str) -> Answer:
    """Knows these ids, and shows whatever job is asked for."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        path, prefix = request.url.path, request.url.params.get("prefix", "")
        if path == "/v1/ids":
            assert request.url.params["kind"] in {"job", "worker", "resource"}
            return httpx2.Response(200, json={"ids": [i for i in known if i.startswith(prefix)]})
        return httpx2.Response(200, json=job_view(id=path.split("/")[3]))

    return answer


@pytest.mark.parametrize(
    "typed", ["6a80", "6a80745f", FIRST], ids=["four digits", "eight digits", "all digits"]
)
def test_a_job_may_be_named_by_how_its_id_begins(typed: str) -> None:
    shown = invoke(ids(FIRST, SECOND), "job", "show", typed, output="json")
    assert json.loads(shown)["id"] == FIRST


def test_a_beginning_of_several_ids_is_refused_with_all_of_them() -> None:
    with pytest.raises(BadSetting) as refused:
        invoke(ids(FIRST, f"{FIRST[:8]}0", SECOND), "job", "cancel", FIRST[:6])
    assert f"more than one job begins with '6a8074': {FIRST}, " in str(refused.value)
    assert SECOND not in str(refused.value)


def test_an_id_that_somebody_chose_wins_over_ids_that_begin_with_it() -> None:
    chosen = "6a80"
    shown = invoke(ids(chosen, FIRST), "job", "show", chosen, output="json")
    assert json.loads(shown)["id"] == chosen


@pytest.mark.parametrize("typed", ["6a8", "nightly", "6A80", "9999"])
def test_what_is_no_beginning_of_an_id_is_asked_for_as_it_stands(typed: str) -> None:
    shown = invoke(ids(FIRST), "job", "show", typed, output="json")
    assert json.loads(shown)["id"] == typed


def some(*known: str) -> Answer:
    """As `ids`, and knows no other job."""
    begun = ids(*known)

    def answer(request: httpx2.Request) -> httpx2.Response:
        named = request.url.path.split("/")[3:]
        if named and named[0] not in known:
            return httpx2.Response(404, json=error_body("NotFound", f"there is no job {named}"))
        return begun(request)

    return answer


@pytest.mark.parametrize("typed", [FIRST[:4].upper(), FIRST.upper()], ids=["a part", "all"])
def test_an_id_may_be_typed_in_large_letters(typed: str) -> None:
    shown = invoke(some(FIRST, SECOND), "job", "show", typed, output="json")
    assert json.loads(shown)["id"] == FIRST


def test_an_id_that_somebody_chose_in_large_letters_wins() -> None:
    chosen = FIRST[:4].upper()
    shown = invoke(some(chosen, FIRST), "job", "show", chosen, output="json")
    assert json.loads(shown)["id"] == chosen


@pytest.mark.parametrize("command", ["show", "cancel", "savepoint", "logs", "checkpoints"])
def test_help_says_how_much_of_an_id_is_enough(command: str) -> None:
    answer = CliRunner().invoke(app, ["job", command, "--help"], terminal_width=200)
    assert "at least 4 characters" in " ".join(answer.output.split())


@pytest.mark.parametrize("kind", ["job", "worker", "resource or worker"])
def test_too_little_of_an_id_is_told_how_much_is_enough(kind: str) -> None:
    enough = "commands take the beginning of an id, at least 4 characters of it"
    assert str(NotFound(kind, "b34", way_out="look")).endswith(f"'b34'; look; {enough}")
    assert enough not in str(NotFound(kind, "b34e"))
    assert enough not in str(NotFound("table", "b34"))


def test_a_coordinator_that_knows_no_beginnings_is_asked_for_the_id_as_it_stands() -> None:
    def older(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/ids":
            return httpx2.Response(404, json=error_body("NotFound", "there is no path"))
        return httpx2.Response(200, json=job_view(id="6a80"))

    assert json.loads(invoke(older, "job", "show", "6a80", output="json"))["id"] == "6a80"


def test_each_source_and_each_sink_has_a_line_with_its_own_rows() -> None:
    pipeline = pipeline_view(
        "FINISHED",
        read={"FakeSource-1": 1_000, "Jdbc-2": 24},
        written={"Iceberg-1": 1_024, "LocalFile-2": 512},
        commits={"Iceberg-1": {"table": "demo.events"}, "LocalFile-2": {"folder": "file:/x"}},
    )
    body = job_view("FINISHED", pipelines=[pipeline])

    lines = [line.split() for line in invoke(always(200, body), "job", "show", "j1").splitlines()]

    assert ["1", "FINISHED", "FakeSource-1", "1,000", "demo.events", "1,024", "-", "-"] in lines
    assert ["Jdbc-2", "24", "LocalFile-2", "512", "-", "-"] in lines


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


@pytest.mark.parametrize(
    ("typed", "in_file", "restore", "group"),
    [
        (None, None, None, "default"),
        (None, "large", None, "large"),
        ("small", "large", None, "small"),
        (None, None, "job", None),
        (None, "large", "job", "large"),
    ],
)
def test_the_group_of_a_job_is_the_one_that_was_typed_or_that_its_file_names(
    typed: str | None, in_file: str | None, restore: str | None, group: str | None
) -> None:
    env = f"env {{ group = {in_file} }}\n" if in_file else ""
    plugins = "source { FakeSource { schema { fields { id = int } } } }\nsink { Console { } }"
    spec = read_job("job.conf", text=env + plugins)
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content))
        return httpx2.Response(422, json={"error": {"kind": "Refused", "message": "no"}})

    client = Client(["http://one"], transport=httpx2.MockTransport(answer))
    with pytest.raises(Refused):
        submit(client, Order(spec, restore, group=typed), print)

    (body,) = (each for each in bodies if "spec" in each)
    assert body.get("group") == group
    assert "group" not in body["spec"], "an older coordinator does not know it there"
