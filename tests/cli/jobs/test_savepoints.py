"""headrace job savepoint, job checkpoints, run --restore: the words, and whole processes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner, Result

from headrace.cli.context import Context
from headrace.cli.jobs.text import moment
from headrace.cli.main import app
from headrace.errors import BadSetting, JobFailed, Refused
from tests.cli import stand_in
from tests.cli.jobs.test_jobs import always, invoke
from tests.cli.jobs.test_run import Commands, Started, up
from tests.cli.machine import JOB_FILE, Answer, Coordinators, error_body, job_view, pipeline_view

pytestmark = pytest.mark.timeout(900)

SAVED = {
    "kind": "savepoint",
    "epoch": 7,
    "sources": ["FakeSource-1", "FakeSource-2"],
    "ready": [],
    "written": {"Console-1": 1000, "Console-2": 500},
    "made_at_ms": 1_700_000_003_000,
    "expires_at_ms": None,
    "refused": None,
}
CHECKPOINT = {
    "pipeline": 1,
    "id": 41,
    "kind": "save mode",
    "status": "COMPLETED",
    "planned_at_ms": 1_700_000_000_000,
    "prepared_at_ms": None,
    "completed_at_ms": 1_700_000_001_250,
    "duration_ms": 1250,
    "size_bytes": 12345,
    "rows_in": None,
    "rows_out": 987654,
}


def in_turn(*views: dict[str, object]) -> Answer:
    """Each answer a step further."""
    left = list(views)
    return lambda _: httpx2.Response(200, json=left.pop(0))


def test_a_savepoint_is_waited_for_and_told() -> None:
    asked: list[str] = []
    done = job_view("SAVEPOINT_DONE", savepoint=SAVED, ended_at_ms=1_700_000_003_000)
    views = iter([job_view("RUNNING"), job_view("DOING_SAVEPOINT"), done])

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(f"{request.method} {request.url.path}")
        return httpx2.Response(200, json=next(views))

    shown = invoke(answer, "job", "savepoint", "j1")

    assert asked == ["POST /v1/jobs/j1/savepoint", "GET /v1/jobs/j1", "GET /v1/jobs/j1"]
    assert "job j1 (demo) SAVEPOINT_DONE in 2.0 s" in shown
    assert (
        "saved: epoch 7, 2 positions, 1,500 rows written; go on with "
        "`headrace run JOB_FILE --restore j1`"
    ) in shown


def test_a_savepoint_is_only_asked_for() -> None:
    shown = invoke(in_turn(job_view("RUNNING")), "job", "savepoint", "j1", "--no-wait")

    assert "RUNNING" in shown


def test_a_savepoint_for_programs_is_the_whole_job() -> None:
    done = job_view("SAVEPOINT_DONE", savepoint=SAVED)
    shown = json.loads(invoke(always(200, done), "job", "savepoint", "j1", output="json"))

    assert (shown["status"], shown["savepoint"]) == ("SAVEPOINT_DONE", SAVED)


def test_a_job_that_finished_first_is_a_good_end() -> None:
    assert "FINISHED" in invoke(always(200, job_view("FINISHED")), "job", "savepoint", "j1")


@pytest.mark.parametrize(
    ("status", "said"),
    [("FAILED", "job j1 is FAILED: it broke"), ("CANCELED", "is CANCELED: somebody canceled it")],
)
def test_a_job_that_ended_otherwise_is_told(status: str, said: str) -> None:
    ended = job_view(status, error="it broke")
    with pytest.raises(JobFailed, match=said):
        invoke(in_turn(job_view("RUNNING"), ended), "job", "savepoint", "j1")


def test_a_refused_savepoint_is_told() -> None:
    with pytest.raises(Refused, match="nothing to save"):
        invoke(always(422, error_body("Refused", "nothing to save")), "job", "savepoint", "j1")


def test_an_interrupt_leaves_the_wait_and_not_the_savepoint() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        if request.method == "GET":
            os.kill(os.getpid(), signal.SIGINT)
        return httpx2.Response(200, json=job_view("DOING_SAVEPOINT"))

    with pytest.raises(SystemExit) as left:
        invoke(answer, "job", "savepoint", "j1")

    assert left.value.code == 130
    assert asked == ["POST", "GET"], "nothing was taken back"


def run_against(
    answer: Answer, tmp_path: Path, *more: str, mode: str = "BATCH", restore: bool = True
) -> Result:
    """`headrace run --restore`, at a coordinator that is there."""
    file = tmp_path / "job.conf"
    file.write_text(JOB_FILE.replace("BATCH", mode))
    context = Context(transport=Coordinators(a=answer).transport())
    restored = ["--restore", "j1"] if restore else []
    arguments = ["run", str(file), *restored, "--coordinator", "http://a:1", *more]
    return CliRunner().invoke(app, arguments, obj=context)


def test_a_restore_says_what_is_new_in_the_file(tmp_path: Path) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            body = json.loads(request.content)
            assert (body["restore"], "group" in body) == ("j1", False)
            return httpx2.Response(201, json=job_view("CREATED", notes=["source 'b' is new"]))
        return httpx2.Response(200, json=job_view("FINISHED", ended_at_ms=1_700_000_003_000))

    done = run_against(answer, tmp_path)

    assert done.exit_code == 0
    assert "note: source 'b' is new" in done.stderr
    assert done.stdout.endswith("job j1 (demo) FINISHED in 2.0 s\n"), "no rate of another day"


def test_a_job_may_be_given_an_id_and_keeps_it_when_it_is_restored(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            asked.append(json.loads(request.content)["job_id"])
        return httpx2.Response(200, json=job_view("FINISHED", ended_at_ms=1_700_000_003_000))

    assert run_against(answer, tmp_path, "--job-id", "nightly", restore=False).exit_code == 0
    assert asked == ["nightly"]

    both = run_against(answer, tmp_path, "--job-id", "nightly")
    assert isinstance(both.exception, BadSetting)
    assert len(asked) == 1, "nothing was sent"


def test_a_savepoint_is_a_good_end_of_a_job_that_has_no_other(tmp_path: Path) -> None:
    saved = always(200, job_view("SAVEPOINT_DONE", savepoint=SAVED))

    assert run_against(saved, tmp_path, mode="STREAMING").exit_code == 0
    batch = run_against(saved, tmp_path)
    assert isinstance(batch.exception, JobFailed)
    assert str(batch.exception) == (
        "job j1 is SAVEPOINT_DONE: somebody stopped it with a savepoint"
    )


def test_checkpoints_are_listed_for_people_and_programs() -> None:
    body = {"checkpoints": [CHECKPOINT]}
    shown = invoke(always(200, body), "job", "checkpoints", "j1")

    for part in ("41", "save mode", "COMPLETED", "1.250 s", "12,345", "987,654"):
        assert part in shown
    for_programs = invoke(always(200, body), "job", "checkpoints", "j1", output="json")
    assert json.loads(for_programs) == [CHECKPOINT]
    assert invoke(always(200, {"checkpoints": []}), "job", "checkpoints", "j1") == (
        "no checkpoints yet\n"
    )


def test_a_pipeline_that_is_not_repeatable_is_labelled() -> None:
    odd = pipeline_view(repeatable=False, not_repeatable="Jdbc-1: what it reads may change")
    shown = invoke(always(200, job_view(pipelines=[odd])), "job", "show", "j1")

    assert "pipeline 1 is not repeatable: Jdbc-1: what it reads may change" in shown


def test_a_failed_job_is_shown_with_its_last_checkpoint() -> None:
    kept = {**SAVED, "kind": "checkpoint", "sources": ["FakeSource-1"]}
    shown = invoke(always(200, job_view("FAILED", savepoint=kept)), "job", "show", "j1")

    assert "its last checkpoint is kept: epoch 7, 1 position, 1,500 rows written" in shown
    assert "`headrace run JOB_FILE --restore j1`" in shown


@pytest.mark.req("E7")
def test_a_restore_that_would_be_refused_is_not_advised() -> None:
    older = "the store is older than its targets"
    kept = {**SAVED, "kind": "checkpoint", "expires_at_ms": 1_700_000_000_000, "refused": older}
    shown = invoke(always(200, job_view("FAILED", savepoint=kept)), "job", "show", "j1")

    assert (
        f"its last checkpoint is kept until {moment(1_700_000_000_000)}: epoch 7, 2 positions, "
        "1,500 rows written; a restore is refused as long as the store is older than its targets, "
        "see how-to/back-up-and-restore-the-store"
    ) in shown
    assert "--restore" not in shown


@pytest.fixture
def commands(tmp_path: Path) -> Generator[Commands]:
    made = Commands(tmp_path)
    yield made
    made.close()


def streaming(commands: Commands, rows: int = stand_in.ENDLESS) -> str:
    name = commands.job_file(rows)
    path = commands.folder / name
    path.write_text(path.read_text().replace("BATCH", "STREAMING"))
    return name


def job_of(started: Started) -> str:
    started.says("runs until it is stopped")
    found = re.search(r"job (\w+) runs until it is stopped", started.err)
    assert found is not None
    return found[1]


def saved_epoch(done: Started) -> int:
    found = re.search(r"saved: epoch (\d+), 1 position, ([\d,]+) rows written", done.out)
    assert found is not None, done.out
    epoch, rows = (int(text.replace(",", "")) for text in found.groups())
    assert rows % stand_in.ENDLESS == 0
    return epoch


@pytest.mark.req("K7")
def test_a_streaming_job_runs_until_it_is_interrupted_and_goes_on_with_restore(
    commands: Commands,
) -> None:
    file = streaming(commands)
    running = commands.start("run", file)
    job = job_of(running)
    running.says("· running ·")
    running.process.send_signal(signal.SIGINT)
    running.ends(130)
    assert "stopping the job with a savepoint" in running.err
    assert "SAVEPOINT_DONE" in running.out
    first = saved_epoch(running)

    again = commands.start("run", file, "--restore", job)
    assert job_of(again) == job
    again.says("· running ·")
    again.process.send_signal(signal.SIGINT)
    again.ends(130)
    assert saved_epoch(again) > first
    assert commands.children() == []


def test_a_job_that_is_up_is_saved_listed_and_restored(commands: Commands) -> None:
    file = streaming(commands)
    with up(commands):
        job = commands.start("run", file, "--detach").ends(0).out.split()[1]
        refused = commands.start("run", file, "--restore", job).ends(2)
        assert "only a job that has ended can be restored" in refused.err
        _until_it_has_checkpoints(commands, job)
        epoch = saved_epoch(commands.start("job", "savepoint", job).ends(0))

        listed = json.loads(
            commands.start("--output", "json", "job", "checkpoints", job).ends(0).out
        )
        assert (listed[0]["id"], listed[0]["kind"]) == (epoch, "savepoint")
        assert {checkpoint["kind"] for checkpoint in listed[1:]} == {"checkpoint"}
        assert (
            commands.start("run", file, "--detach", "--restore", job).ends(0).out.split()[1] == job
        )
        _until_it_has_checkpoints(commands, job, above=epoch)
        commands.start("job", "cancel", job).ends(0)


def _until_it_has_checkpoints(commands: Commands, job: str, above: int = 0) -> None:
    for _ in range(50):
        shown = commands.start("--output", "json", "job", "show", job).ends(0)
        view = json.loads(shown.out)
        if view["status"] == "RUNNING" and view["pipelines"][0]["epoch"] > above:
            return
    raise AssertionError(f"job {job} has no checkpoint above {above}")


def test_a_restore_of_nothing_is_refused_and_nothing_is_left_running(commands: Commands) -> None:
    refused = commands.start("run", commands.job_file(7), "--restore", "nobody").ends(2)

    assert refused.err.splitlines()[-1] == (
        "headrace: there is no job 'nobody'; `headrace job list` shows what runs, "
        "`headrace job history` what has ended"
    )
    assert commands.children() == []
