"""headrace run and up, with real processes, from the command to the last process gone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from headrace.cli.local import supervisor
from headrace.clock import SystemClock
from tests.cli import stand_in
from tests.cli.machine import JOB_FILE, WAIT_MAX_S, environment, is_gone, wait_until
from tools.tree import ROOT

pytestmark = pytest.mark.timeout(900)

CLOCK = SystemClock()
# What is promised, by a clock that a busy machine does not stop.
RUN_ENDS_MAX_S = 20.0
UP_ENDS_MAX_S = 30.0
UP_IDLE_ENDS_MAX_S = 15.0
WORKER_ENDS_MAX_S = 10.0
FAKE_JAVA = "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n"


class Commands:
    """Starts headrace in a folder of its own, and finds its processes by that folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / ".headrace"
        java = folder / "jdk" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(FAKE_JAVA)
        java.chmod(0o755)
        self._env = environment(
            JAVA_HOME=str(folder / "jdk"), PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        )
        self._started: list[Started] = []

    def job_file(self, rows: int) -> str:
        path = self.folder / f"job-{rows}.conf"
        path.write_text(JOB_FILE.replace("row.num = 3", f"row.num = {rows}"))
        return path.name

    def start(self, *arguments: str, **extra: str) -> Started:
        out, err = (self.folder / f"{kind}-{len(self._started)}" for kind in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.stand_in", *arguments],
                cwd=self.folder,
                env={**self._env, **extra},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        started = Started(process, out, err)
        self._started.append(started)
        return started

    def run(self, rows: int, *arguments: str, **extra: str) -> Started:
        return self.start("run", self.job_file(rows), *arguments, **extra)

    def children(self, role: str | None = None) -> list[int]:
        """Coordinators and workers of this folder that live."""
        roles = {role} if role else {"coordinator", "worker"}
        found: list[int] = []
        for process in psutil.process_iter(["pid", "cmdline"]):
            line: list[str] = process.info["cmdline"] or []
            if str(self.home) in " ".join(line) and roles & set(line):
                found.append(process.info["pid"])
        return [pid for pid in found if not is_gone(pid)]

    def close(self) -> None:
        for started in self._started:
            if started.process.poll() is None:
                started.process.kill()
            started.process.wait(WAIT_MAX_S)
        wait_until(lambda: not self.children(), "no process is left behind")


class Started:
    def __init__(self, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.process = process
        self._out, self._err = out, err

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def says(self, text: str) -> None:
        """Wait until it has said so."""

        def said() -> bool:
            return text in self.err + self.out or self.process.poll() is not None

        wait_until(said, f"{text!r} is said; so far: {self.err}")
        assert text in self.err + self.out

    def ends(self, code: int) -> Started:
        assert self.process.wait(WAIT_MAX_S * 2) == code, self.err
        assert "Traceback" not in self.err
        return self


@pytest.fixture
def commands(tmp_path: Path) -> Generator[Commands]:
    made = Commands(tmp_path)
    yield made
    made.close()


def test_a_job_runs_to_its_summary_and_nothing_is_left_running(commands: Commands) -> None:
    done = commands.run(stand_in.FINISHES).ends(0)

    for part in ("demo.events", "4711", "rows in table now", "14", "FINISHED in"):
        assert part in done.out
    assert "pipeline 1" in done.err
    assert "a row [that looks] like markup" in done.err, "what a Console sink shows is seen"
    assert commands.children() == []
    assert (commands.home / "store.db").exists()
    assert (commands.home / "logs" / "worker.log").exists()


def test_programs_read_the_whole_job(commands: Commands) -> None:
    job_file = commands.job_file(stand_in.FINISHES)
    options = ("--name", "nightly", "--group", "etl")
    done = commands.start("--output", "json", "run", job_file, *options).ends(0)

    view = json.loads(done.out)
    assert (view["name"], view["status"]) == ("nightly", "FINISHED")
    assert view["group"] == "default", "of which every worker is that is brought up here"
    assert "note: group 'etl' is for coordinators that stay" in done.err
    assert view["pipelines"][0]["rows_out"] == stand_in.FINISHES


def test_a_failed_job_leaves_with_1_and_its_reason(commands: Commands) -> None:
    done = commands.run(stand_in.FAILS).ends(1)

    assert "is FAILED: the made-up source is out of luck" in done.err.splitlines()[-1]
    assert commands.children() == []


def test_the_first_interrupt_cancels_the_job_and_stops_everything(commands: Commands) -> None:
    running = commands.run(stand_in.WAITS)
    running.says("running")
    running.process.send_signal(signal.SIGINT)
    running.ends(130)

    assert "CANCELED" in running.out
    assert commands.children() == []


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=[pytest.mark.crash, pytest.mark.matrix]), signal.SIGTERM],
)
def test_a_failing_job_is_left_within_20_s_and_what_is_left_of_it_is_said(
    commands: Commands, number: signal.Signals
) -> None:
    running = commands.run(stand_in.UNSETTLED)
    running.says("the job fails: the made-up target is full")
    running.says("epoch 1 could not be settled, attempt 2 of 20 follows at ")
    asked_s = CLOCK.monotonic_s()
    running.process.send_signal(number)
    running.ends(128 + number)

    assert CLOCK.monotonic_s() - asked_s < RUN_ENDS_MAX_S
    assert "it goes on with the next `headrace run` or `headrace up` here" in running.err
    assert "left of pipeline 1: epoch 1 is not settled: the made-up target is still" in running.err
    assert commands.children() == []


@pytest.mark.parametrize(
    ("rows", "seen"), [(stand_in.WAITS, "running"), (stand_in.UNSETTLED, "the job fails")]
)
def test_a_run_whose_coordinator_is_paused_is_left_within_20_s(
    commands: Commands, rows: int, seen: str
) -> None:
    """It takes every question and answers none, also the one that is under way."""
    running = commands.run(rows)
    running.says(seen)
    (coordinator,) = commands.children("coordinator")
    os.kill(coordinator, signal.SIGSTOP)
    asked_s = CLOCK.monotonic_s()
    running.process.send_signal(signal.SIGTERM)
    running.ends(75)

    assert CLOCK.monotonic_s() - asked_s < RUN_ENDS_MAX_S
    assert re.search("no coordinator answered for [5-9] s; job .* was asked to cancel", running.err)
    assert commands.children() == []


def test_a_failed_attempt_is_told_while_the_job_goes_on(commands: Commands) -> None:
    done = commands.run(stand_in.RETRIED).ends(0)

    told = "pipeline 1: attempt 1 of 4 failed: the made-up target is away; attempt 2 of 4 follows"
    assert done.err.count(told) == 1
    assert "pipeline 1 · attempt 2 of 4 in " in done.err
    assert done.err.index("attempt 2 of 4 in ") > done.err.index(told), "the reason comes first"
    assert "FINISHED" in done.out


def test_the_second_interrupt_leaves_at_once(commands: Commands) -> None:
    running = commands.run(stand_in.DEAF)
    running.says("running")
    running.process.send_signal(signal.SIGINT)
    running.says("Ctrl-C again")
    running.process.send_signal(signal.SIGINT)
    running.ends(130)

    wait_until(lambda: not commands.children(), "its children are gone")


def test_a_killed_run_leaves_no_process_and_its_job_goes_on_with_the_next(
    commands: Commands,
) -> None:
    killed = commands.run(stand_in.WAITS)
    killed.says("running")
    assert len(commands.children()) == 2
    killed.process.kill()
    wait_until(lambda: not commands.children(), "the children end by themselves")

    (commands.home / "go").touch()
    following = commands.run(stand_in.FINISHES).ends(0)
    assert "of an earlier run goes on as well" in following.err


@pytest.mark.req("L2", "L3")
@pytest.mark.parametrize("role", ["coordinator", "worker"])
def test_a_child_that_is_killed_is_started_again_and_the_job_ends_well(
    commands: Commands, role: str
) -> None:
    running = commands.run(stand_in.WAITS)
    running.says("running")
    (killed,) = commands.children(role)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: commands.children(role) not in ([], [killed]), "another one runs")
    (commands.home / "go").touch()

    assert "FINISHED" in running.ends(0).out
    assert f"the {role} was ended by signal 9, and is started again" in running.err
    if role == "worker":
        assert "; attempt 2 of 10 from epoch 1" in running.err, "the lost worker is told"


def test_a_worker_whose_jvm_was_killed_is_started_again_and_the_job_ends_well(
    commands: Commands,
) -> None:
    running = commands.run(stand_in.WAITS)
    running.says("running")
    before = commands.children("worker")
    (commands.home / stand_in.JVM_KILLED).touch()
    wait_until(lambda: commands.children("worker") not in ([], before), "another one runs")
    (commands.home / "go").touch()

    assert "FINISHED" in running.ends(0).out


def test_a_worker_whose_jvm_dies_again_and_again_is_given_up(commands: Commands) -> None:
    standing = commands.start("up", "--port", "0")
    standing.says("headrace is up at")
    for _ in range(supervisor.RESTARTS_MAX + 1):
        before = commands.children("worker")
        (commands.home / stand_in.JVM_KILLED).touch()
        wait_until(lambda: commands.children("worker") != before, "it has noticed")  # noqa: B023
        wait_until(
            lambda: bool(commands.children("worker")) or standing.process.poll() is not None,
            "another one runs, or nothing does",
        )
    standing.ends(75)

    assert standing.err.splitlines()[-1].startswith("headrace: Spark's JVM has died;")


def test_a_worker_that_refuses_to_start_is_quoted(commands: Commands) -> None:
    done = commands.run(stand_in.FINISHES, **{stand_in.REFUSING: "1"}).ends(2)

    assert done.err.splitlines()[-1] == "headrace: the made-up Java is too old"
    assert commands.children() == []


@contextmanager
def up(
    commands: Commands, *arguments: str, number: signal.Signals = signal.SIGTERM
) -> Generator[Started]:
    standing = commands.start("up", "--port", "0", *arguments)
    standing.says("headrace is up at http://127.0.0.1:")
    yield standing
    standing.process.send_signal(number)
    standing.ends(0)


@pytest.mark.crash
@pytest.mark.matrix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_up_stops_within_its_limits_and_its_job_goes_on_at_the_next(
    commands: Commands, number: signal.Signals
) -> None:
    with up(commands, number=number):
        job = commands.run(stand_in.WAITS, "--detach").ends(0).out.split()[1]

        def status() -> str:
            shown = commands.start("--output", "json", "job", "show", job).ends(0)
            return str(json.loads(shown.out)["status"])

        wait_until(lambda: status() == "RUNNING", "the job runs")
        asked_s = CLOCK.monotonic_s()
    assert CLOCK.monotonic_s() - asked_s < UP_ENDS_MAX_S
    assert commands.children() == []

    (commands.home / "go").touch()
    with up(commands, number=number):
        wait_until(lambda: status() == "FINISHED", "the job has gone on, and has ended")
        asked_s = CLOCK.monotonic_s()
    assert CLOCK.monotonic_s() - asked_s < UP_IDLE_ENDS_MAX_S


def test_a_worker_whose_coordinator_is_paused_ends_within_10_s_of_a_signal(
    commands: Commands,
) -> None:
    """It neither answers nor refuses: without a signal the worker waits for it."""
    standing = commands.start("up", "--port", "0")
    standing.says("headrace is up at http://127.0.0.1:")
    (coordinator,), (worker,) = commands.children("coordinator"), commands.children("worker")
    os.kill(coordinator, signal.SIGSTOP)
    try:
        asked_s = CLOCK.monotonic_s()
        os.kill(worker, signal.SIGTERM)
        wait_until(lambda: is_gone(worker), "it has ended", limit_s=WORKER_ENDS_MAX_S)
        assert CLOCK.monotonic_s() - asked_s < WORKER_ENDS_MAX_S
    finally:
        os.kill(coordinator, signal.SIGCONT)


def test_what_is_up_is_used_by_run_and_taken_down_by_a_signal(commands: Commands) -> None:
    with up(commands) as standing:
        address = json.loads((commands.home / "up.json").read_text())["address"]
        before = commands.children()
        done = commands.run(stand_in.FINISHES).ends(0)
        assert "FINISHED" in done.out
        assert commands.children() == before, "the run started nothing"
        assert address in commands.start("up", "--port", "0").ends(2).err
        assert standing.process.poll() is None
        refused = commands.run(stand_in.FINISHES, "--conf", "spark.x=1").ends(2)
        assert "--conf is for a worker that `headrace run` starts" in refused.err

    assert commands.children() == []
    assert not (commands.home / "up.json").exists()


def test_a_job_left_to_what_is_up_can_be_seen_and_canceled(commands: Commands) -> None:
    with up(commands):
        submitted = commands.run(stand_in.WAITS, "--detach").ends(0).out
        job = submitted.split()[1]

        def status() -> str:
            shown = commands.start("--output", "json", "job", "show", job).ends(0)
            return str(json.loads(shown.out)["status"])

        wait_until(lambda: status() == "RUNNING", "the job runs")
        commands.start("job", "cancel", job).ends(0)
        wait_until(lambda: status() == "CANCELED", "the job is canceled")
        assert job in commands.start("job", "history").ends(0).out
        assert "default" in commands.start("workers").ends(0).out


def test_a_leftover_of_a_killed_up_is_told_by_the_doctor_and_ignored_by_run(
    commands: Commands,
) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    commands.home.mkdir()
    content = {"address": "http://127.0.0.1:1", "pid": int(gone.stdout)}
    (commands.home / "up.json").write_text(json.dumps(content))

    assert "does not answer; delete" in commands.start("doctor").ends(0).out
    commands.run(stand_in.FINISHES).ends(0)
