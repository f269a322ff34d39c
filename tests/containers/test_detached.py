"""A worker that a container started is one process, found again by whoever asks next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from headrace.containers import detached, launch_claims
from headrace.containers.container import Launch, Launched, LaunchState, LaunchStatus, Withdrawn
from headrace.containers.detached import DetachedWorkers
from headrace.errors import Refused, Unavailable
from tests.cli.machine import environment, is_gone, wait_until
from tests.containers.launches import (
    ROOT,
    TOKEN,
    ended_after,
    is_in,
    launch_of,
    stand_ins,
    started,
    wait_until_works,
)

# A coordinator, as far as a container sees one: starts, says so, and stays.
STARTER = """
import sys, threading
from pathlib import Path
from tests.containers.launches import launch_of, stand_ins
print(stand_ins(Path(sys.argv[1])).start(launch_of()).properties["pid"], flush=True)
threading.Event().wait(100)
"""


def starter(home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", STARTER, str(home)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_of_starters_that_race_one_process_is_left(tmp_path: Path) -> None:
    go, launch = tmp_path / "go", launch_of()
    containers = [stand_ins(tmp_path, STAND_IN_HOLD=str(go)) for _ in range(4)]
    found: list[Launched] = []

    def start(one: DetachedWorkers) -> None:
        found.append(one.start(launch))

    starting = [threading.Thread(target=start, args=(one,)) for one in containers]
    with ended_after(containers[0], launch):
        for thread in starting:
            thread.start()
        wait_until(lambda: len(started(containers[0], launch)) == 4, "all four have spawned")
        go.touch()
        for thread in starting:
            thread.join()

        pids = {int(one.properties["pid"]) for one in found}
        assert len(found) == 4
        assert len(pids) == 1
        losers = set(started(containers[0], launch)) - pids
        for pid in losers:
            wait_until(lambda pid=pid: is_gone(pid), f"process {pid} has given way")
        assert is_in(containers[0], launch, LaunchState.RUNNING)
        assert launch_claims.end(containers[0].folder(launch)) is None, (
            "a loser's end is not its own"
        )


def test_it_outlives_the_coordinator_that_started_it(tmp_path: Path) -> None:
    container, launch = stand_ins(tmp_path), launch_of()
    with ended_after(container, launch):
        with starter(tmp_path) as coordinator:
            assert coordinator.stdout is not None
            worker = int(coordinator.stdout.readline())
            os.killpg(coordinator.pid, signal.SIGKILL)  # and all that is still part of it
        pids = wait_until_works(container, launch)

        assert pids[0] == worker
        assert is_in(container, launch, LaunchState.RUNNING)
        found = container.start(launch).properties
        assert (int(found["pid"]), found["spark-application"]) == (worker, "app-1")
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: is_in(container, launch, LaunchState.ENDED), "its end is seen")
        assert container.status(launch).code is None, "nobody was there to see how"
        container.stop(launch, grace_s=30)
    wait_until(lambda: is_gone(pids[1]), "what it left behind is gone")


def test_how_it_was_killed_and_its_last_words_are_known(tmp_path: Path) -> None:
    container, launch = stand_ins(tmp_path), launch_of()
    with ended_after(container, launch):
        container.start(launch)
        worker, child = wait_until_works(container, launch)

        os.kill(worker, signal.SIGKILL)

        said = f"{worker} {child}\nworks"
        wait_until(lambda: container.status(launch).code is not None, "its end is recorded")
        assert container.status(launch) == LaunchStatus(LaunchState.ENDED, -9, said)
        assert stand_ins(tmp_path).status(launch).code == -9, "also after a restart"
        wait_until(lambda: is_gone(child), "what it left behind is gone")


@pytest.mark.parametrize(("kind", "grace_s", "code"), [("", 30.0, -15), ("deaf", 0.3, -9)])
def test_stopping_ends_it_and_all_it_started(
    tmp_path: Path, kind: str, grace_s: float, code: int
) -> None:
    container, launch = stand_ins(tmp_path, STAND_IN=kind), launch_of()
    container.start(launch)
    pids = wait_until_works(container, launch)

    # By another coordinator than the one that started it.
    stand_ins(tmp_path).stop(launch, grace_s=grace_s)

    assert all(is_gone(pid) for pid in pids)
    wait_until(lambda: container.status(launch).code == code, "its end is recorded")
    container.stop(launch, grace_s=grace_s)  # one that has ended is no error


def test_one_that_was_stopped_before_it_began_never_begins(tmp_path: Path) -> None:
    go, launch = tmp_path / "go", launch_of()
    container = stand_ins(tmp_path, STAND_IN_HOLD=str(go))
    problems: list[Exception] = []

    def start() -> None:
        try:
            container.start(launch)
        except Refused as error:
            problems.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    wait_until(lambda: len(started(container, launch)) == 1, "it was spawned")
    container.stop(launch, grace_s=0)
    go.touch()
    thread.join()

    assert "was stopped before its worker had begun" in str(problems[0])
    wait_until(lambda: is_gone(started(container, launch)[0]), "the late one has given way")
    assert container.status(launch).state is LaunchState.ENDED


def test_one_that_fails_before_it_begins_is_told_with_its_last_words(tmp_path: Path) -> None:
    container, launch = stand_ins(tmp_path, STAND_IN="fails"), launch_of()

    with pytest.raises(Refused, match=r"ended with code 1 .* no luck today; its log is"):
        container.start(launch)

    assert container.status(launch).state is LaunchState.UNKNOWN


def test_one_that_never_begins_is_given_up_and_can_not_begin_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "CLAIM_WAIT_MAX_S", 0.5)
    container, launch = stand_ins(tmp_path, STAND_IN="mute"), launch_of()

    with pytest.raises(Unavailable, match="had not begun after"):
        container.start(launch)

    for pid in started(container, launch):
        wait_until(lambda pid=pid: is_gone(pid), "it is gone")
    with pytest.raises(Withdrawn, match="never started again"):
        container.start(launch)


def test_logs_are_its_last_lines(tmp_path: Path) -> None:
    container, launch = stand_ins(tmp_path), launch_of()
    assert container.logs(launch, lines=5) == []
    log = container.folder(launch) / detached.LOG
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * 1_500_000 + b"\n" + b"".join(b"%d\n" % n for n in range(50)))

    assert container.logs(launch, lines=3) == ["47", "48", "49"]
    assert container.logs(launch, lines=0) == []


def test_what_it_is_told_and_what_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_STORE", "postgresql://u:password@h/d")
    monkeypatch.setenv("HEADRACE_SECRET_KEY", "the key of the store")
    monkeypatch.setenv("HEADRACE_SEAMS", "launch claimed=kill")
    container, launch = stand_ins(tmp_path), launch_of()
    with ended_after(container, launch):
        container.start(launch)
        worker = psutil.Process(wait_until_works(container, launch)[0])
        told, line = worker.environ(), worker.cmdline()

    assert told["HEADRACE_TOKEN"] == TOKEN
    assert not {"HEADRACE_STORE", "HEADRACE_SECRET_KEY", "HEADRACE_SEAMS"} & told.keys()
    assert TOKEN not in " ".join(line)
    assert line[line.index("--coordinator") + 1] == "http://a:7300,http://b:7300"


@pytest.mark.parametrize("resource", ["../r1", "", ".", "a/b", "a" * 64])
def test_a_resource_can_not_name_a_folder_elsewhere(tmp_path: Path, resource: str) -> None:
    container: DetachedWorkers = stand_ins(tmp_path)
    launch: Launch = launch_of(resource=resource)

    with pytest.raises(Refused, match="can not be used as a name"):
        container.start(launch)
