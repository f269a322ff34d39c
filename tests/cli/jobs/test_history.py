"""headrace job history, and job show from the end of a job until all of it is gone."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest

from headrace.cli.exits import interrupts
from headrace.cli.jobs.text import lines_about, moment, span
from headrace.cli.jobs.watch import JobWatch
from headrace.client.client import Client
from headrace.client.views import JobView
from headrace.errors import BadSetting
from tests.cli import stand_in
from tests.cli.jobs.test_jobs import always, invoke
from tests.cli.jobs.test_run import Commands, up
from tests.cli.jobs.test_watch import Said
from tests.cli.machine import Coordinators, job_view, pipeline_view, wait_until
from tests.fakes import FakeClock

pytestmark = pytest.mark.timeout(900)

ENDED_MS = 1_700_000_003_000
NOW_MS = ENDED_MS + 10_000
DUE = {"step": "STATE", "due_at_ms": ENDED_MS + 60_000, "failures": 0, "error": None}


def run_view(status: str = "FINISHED", **changed: object) -> dict[str, object]:
    view: dict[str, object] = {
        "id": "j1",
        "name": "demo",
        "status": status,
        "group": "default",
        "run": 1,
        "error": None,
        "created_at_ms": 1_700_000_000_000,
        "started_at_ms": 1_700_000_001_000,
        "ended_at_ms": ENDED_MS,
        "pipelines": [pipeline_view(status)],
        "incarnation": "i1",
    }
    return {**view, **changed}


def about(status: str = "FINISHED", **changed: object) -> list[str]:
    made = job_view(status, **{"ended_at_ms": ENDED_MS, **changed})
    return list(lines_about(JobView.model_validate(made), now_ms=NOW_MS))


def test_a_job_that_was_given_back_says_what_kind_of_worker_it_waits_for() -> None:
    pipeline = {**pipeline_view("SCHEDULED"), "error": "it has version 1 of a:b"}
    waits = about("RUNNING", ended_at_ms=None, pipelines=[pipeline])
    assert "pipeline 1: waits for a worker that can run it: it has version 1 of a:b" in waits
    runs = about("RUNNING", ended_at_ms=None, pipelines=[{**pipeline, "status": "RUNNING"}])
    assert not any("that can run it" in line for line in runs)


def test_history_is_listed_for_people_and_programs() -> None:
    broken = "boom\n\tat a.B.c(D.java:1)\nCaused by: the disk is full " + "x" * 200
    body = {"runs": [run_view("FAILED", run=2, error=broken), run_view()]}
    shown = invoke(always(200, body), "job", "history")

    failed, finished = shown.splitlines()[3:5]
    assert failed.split()[:4] == ["j1", "2", "demo", "FAILED"]
    assert "the disk is full xxx" in failed
    assert "x" * 80 not in shown, "a list is no place for a whole error"
    for part in ("FINISHED", moment(1_700_000_001_000), "2.0 s", "1,000,000"):
        assert part in finished
    assert json.loads(invoke(always(200, body), "job", "history", output="json")) == body["runs"]


def test_history_asks_for_what_is_wanted_and_names_the_lack_of_it() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert dict(request.url.params) == {
            "job": "j 1",
            "status": "FAILED",
            "name": "nightly",
            "most": "7",
        }
        return httpx2.Response(200, json={"runs": []})

    wanted = ("j 1", "--status", "FAILED", "--name", "nightly", "--limit", "7")
    assert invoke(answer, "job", "history", *wanted) == (
        "nothing of that kind has ended, or its history has expired\n"
    )


def test_an_ended_job_says_when_its_state_goes_and_until_when_it_is_known() -> None:
    assert about(cleanup=DUE, history_until_ms=ENDED_MS + 86_400_000)[1:] == [
        f"its state will be deleted at {moment(ENDED_MS + 60_000)} (in 50.0 s)",
        f"history keeps it until {moment(ENDED_MS + 86_400_000)}",
    ]


def test_a_job_whose_state_is_gone_says_so() -> None:
    left = {**DUE, "step": "TARGETS", "waits_for": "a worker in group 'default'"}
    assert about(cleaned=True, cleanup=left)[1:] == [
        "its state is deleted, and this is what history has of it",
        f"what it marked and staged at its sinks will be deleted at {moment(ENDED_MS + 60_000)} "
        "(in 50.0 s); waits for a worker in group 'default'",
    ]


def test_a_cleanup_that_failed_says_why_and_when_it_is_tried_again() -> None:
    failing = {**DUE, "failures": 3, "error": "the table is away"}
    assert about(cleanup=failing)[1:] == [
        f"its state could not be deleted, 3 times now, next try at {moment(ENDED_MS + 60_000)} "
        "(in 50.0 s): the table is away"
    ]


def test_a_restored_job_says_which_run_it_is_and_how_long_its_savepoint_lives() -> None:
    made = {"kind": "savepoint", "epoch": 7, "made_at_ms": ENDED_MS, "expires_at_ms": NOW_MS}
    lines = about("SAVEPOINT_DONE", run=2, savepoint=made)

    assert lines[1] == "run 2 of this job: it was restored"
    assert f"go on until {moment(NOW_MS)} with `headrace run JOB_FILE --restore j1`" in lines[2]


@pytest.mark.parametrize(
    ("lasted_ms", "said"),
    [
        (-5, "0.0 s"),
        (59_900, "59.9 s"),
        (61_000, "1 min 1 s"),
        (7_260_000, "2 h 1 min"),
        (200_000_000, "2 d 7 h"),
    ],
)
def test_a_length_of_time_is_told_in_two_units(lasted_ms: int, said: str) -> None:
    assert span(lasted_ms) == said


def test_a_savepoint_is_deleted() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert (request.method, request.url.path) == ("DELETE", "/v1/jobs/j1/savepoint")
        return httpx2.Response(200, json={"id": "j1"})

    assert invoke(answer, "job", "savepoint", "delete", "j1") == (
        "the savepoint of job j1 is deleted; it can't be restored any more\n"
    )
    for_programs = invoke(answer, "job", "savepoint", "delete", "j1", "--output", "json")
    assert json.loads(for_programs) == {"id": "j1"}


def test_a_job_that_is_called_delete_can_be_saved() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert (request.method, request.url.path) == ("POST", "/v1/jobs/delete/savepoint")
        return httpx2.Response(200, json=job_view("RUNNING", id="delete"))

    assert "job delete (demo) RUNNING" in invoke(answer, "job", "savepoint", "delete", "--no-wait")


def test_a_savepoint_of_two_jobs_at_once_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"takes JOB, or `delete JOB`, and not 'j1 j2'"):
        invoke(always(500, {}), "job", "savepoint", "j1", "j2")


@pytest.mark.req("C2")
def test_a_job_whose_state_went_before_it_was_looked_at_is_seen_to_its_end() -> None:
    views = iter([job_view("RUNNING"), job_view("FINISHED", ended_at_ms=ENDED_MS, cleaned=True)])
    there = Coordinators(a=lambda _: httpx2.Response(200, json=next(views)))
    client, clock = Client(["http://a:1"], transport=there.transport()), FakeClock()
    with interrupts(lambda: None) as wanted:
        seen = JobWatch(client, "j1", Said(), lambda: None, clock=clock).until_ended(wanted)

    assert (seen.status, seen.cleaned, seen.pipelines[0].rows_out) == ("FINISHED", True, 1_000_000)


@pytest.fixture
def commands(tmp_path: Path) -> Generator[Commands]:
    made = Commands(tmp_path)
    yield made
    made.close()


@pytest.mark.req("C7")
def test_what_has_ended_is_in_history_and_in_no_list_of_what_runs(commands: Commands) -> None:
    with up(commands):
        commands.run(stand_in.FINISHES).ends(0)
        commands.run(stand_in.FAILS).ends(1)

        listed = commands.start("job", "list").ends(0)
        assert listed.out == "nothing runs; `headrace job history` shows what has ended\n"
        assert json.loads(commands.start("job", "list", "--output", "json").ends(0).out) == []
        told = json.loads(commands.start("job", "history", "--output", "json").ends(0).out)
        assert [run["status"] for run in told] == ["FAILED", "FINISHED"]
        shown = commands.start("job", "show", told[1]["id"]).ends(0).out
        assert "its state will be deleted at " in shown
        assert "history keeps it until " in shown
        failed = commands.start("job", "history", "--status", "failed").ends(0).out
        assert "out of luck" in failed
        assert told[1]["id"] not in failed


@pytest.mark.req("C2")
def test_a_run_is_told_how_its_job_ended_although_its_state_goes_at_once(
    commands: Commands,
) -> None:
    address = commands.folder / "address"
    store = f"sqlite:///{commands.folder / 'store.db'}"
    at = ("--store", store, "--bind", "127.0.0.1:0", "--address-file", str(address))
    commands.start("coordinator", *at, "--state-cleanup-delay-ms", "0")
    wait_until(address.exists, "the coordinator answers")
    there = ("--coordinator", address.read_text())
    commands.start("worker", *there, "--home", str(commands.home))

    done = commands.run(stand_in.FINISHES, *there).ends(0)

    for part in ("demo.events", "4711", "FINISHED in"):
        assert part in done.out
    [run] = json.loads(commands.start("job", "history", "--output", "json", *there).ends(0).out)
    assert run["pipelines"][0]["rows_out"] == stand_in.FINISHES

    def shown(*more: str) -> str:
        return commands.start("job", "show", run["id"], *there, *more).ends(0).out

    wait_until(lambda: json.loads(shown("--output", "json"))["cleaned"], "its state is gone")
    assert "its state is deleted, and this is what history has of it" in shown()
    assert (
        "there is no checkpoint of job"
        in commands.start("job", "checkpoints", run["id"], *there).ends(2).err
    )
