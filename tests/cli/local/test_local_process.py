"""A child process ends with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.containers.child_process import LOG_BYTES_MAX, LocalProcess
from headrace.containers.container import Exited, Running
from tests.cli.machine import environment, is_gone, wait_until

# Starts a grandchild in a process group of its own, as Spark's Python daemons are.
WITH_GRANDCHILD = """
import os, signal, subprocess, sys
{before}
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
print(os.getpid(), child.pid, flush=True)
sys.stdin.read()
{after}
"""
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def given(tmp_path: Path, code: str) -> LocalProcess:
    return LocalProcess(
        "child",
        [sys.executable, "-c", code],
        log=tmp_path / "logs" / "child.log",
        environment=environment(),
    )


def pids_said_by(process: LocalProcess) -> list[int]:
    wait_until(lambda: bool(process.log_since_start()), "the child says its pids")
    return [int(word) for word in process.log_since_start()[0].split()]


@pytest.mark.parametrize(("before", "grace_s"), [("", 30.0), (DEAF, 0.3)], ids=["polite", "deaf"])
def test_stopping_ends_a_child_and_all_it_started(
    tmp_path: Path, before: str, grace_s: float
) -> None:
    process = given(tmp_path, WITH_GRANDCHILD.format(before=before, after="signal.pause()"))
    process.start()
    pids = pids_said_by(process)
    assert isinstance(process.status(), Running)

    process.stop(grace_s=grace_s)

    assert process.status() == Exited(-9 if before else -15)
    for pid in pids:
        wait_until(lambda pid=pid: is_gone(pid), f"process {pid} is gone")


def test_what_a_killed_child_left_behind_is_ended_when_its_death_is_seen(tmp_path: Path) -> None:
    process = given(tmp_path, WITH_GRANDCHILD.format(before="", after=""))
    process.start()
    child, grandchild = pids_said_by(process)
    os.kill(child, signal.SIGKILL)

    wait_until(lambda: process.status() == Exited(-9), "its exit is seen")
    wait_until(lambda: is_gone(grandchild), "the grandchild is gone")


def test_its_log_of_this_start_is_read_without_that_of_the_one_before(tmp_path: Path) -> None:
    process = given(tmp_path, "import os; print('I am', os.getpid())")
    process.start()
    wait_until(lambda: process.status() == Exited(0), "the first ends")
    first = process.log_since_start()
    process.start()
    wait_until(lambda: process.status() == Exited(0), "the second ends")

    assert len(process.log_since_start()) == 1
    assert process.log_since_start() != first
    assert Path(process.log_location).read_text().splitlines() == [
        *first,
        *process.log_since_start(),
    ]


def test_a_log_that_grew_large_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "child.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * (LOG_BYTES_MAX + 1))
    process = given(tmp_path, "print('new')")
    process.start()
    wait_until(lambda: process.status() == Exited(0), "it ends")

    assert log.read_text() == "new\n"
    assert (tmp_path / "logs" / "child.log.1").stat().st_size == LOG_BYTES_MAX + 1


PARENT = """
import sys, signal
from pathlib import Path
from headrace.config import child_environment
from headrace.containers.child_process import LocalProcess
code = '''
from headrace.cli.exits import end_with_parent
end_with_parent(grace_s={grace_s})
import os, signal
{deaf}
print(os.getpid(), flush=True)
signal.pause()
signal.pause()
'''
process = LocalProcess("child", [sys.executable, "-c", code],
                       log=Path(sys.argv[1]), environment=child_environment())
process.start()
signal.pause()
"""


@pytest.mark.parametrize(
    "deaf", ["", "signal.signal(signal.SIGTERM, lambda *_: None)"], ids=["polite", "deaf"]
)
def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path, deaf: str) -> None:
    log = tmp_path / "child.log"
    code = PARENT.format(deaf=deaf, grace_s=0.3)
    with subprocess.Popen([sys.executable, "-c", code, str(log)]) as parent:
        wait_until(lambda: log.exists() and log.read_text().endswith("\n"), "the child runs")
        child = int(log.read_text())
        assert not is_gone(child)
        parent.kill()
    wait_until(lambda: is_gone(child), "the child is gone")
