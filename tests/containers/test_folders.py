"""What launches leave on disk goes in time, and never under a process that lives."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from headrace.clock import SystemClock
from headrace.containers import launch_claims
from headrace.containers.container import ContainerSetting, LaunchState
from headrace.containers.detached import (
    KEEP_FOLDERS_DAYS,
    LOG,
    RESOURCES_SWEPT_MAX,
    SECRETS,
    DetachedWorkers,
    Folders,
)
from headrace.containers.launch_claims import LaunchClaim, start_of
from headrace.containers.local import local_workers
from headrace.errors import Refused
from tests.cli.machine import is_gone, wait_until
from tests.containers.launches import (
    PATHS,
    STAND_IN,
    ended_after,
    is_in,
    launch_of,
    stand_ins,
    started,
    wait_until_works,
)

DAY_S = 86_400
OLD_DAYS = KEEP_FOLDERS_DAYS + 1


def secretive(home: Path, **environment: str) -> DetachedWorkers:
    """Workers that are told a secret."""
    made = {f"export.{name}": value for name, value in environment.items()} | {
        "export.PYTHONPATH": PATHS,
        "spark-conf.spark.hadoop.fs.s3a.secret.key": "hunter2",
    }
    return local_workers(ContainerSetting("local", made, "f:1", home), program=STAND_IN)


def left(
    root: Path, resource: str, number: int = 1, *, alive: bool = False, host: str = ""
) -> Path:
    """The folder of a launch, as it lies there."""
    folder = root / resource / str(number)
    folder.mkdir(parents=True)
    begun = start_of(os.getpid()) if alive else "long ago"
    assert begun is not None
    mine = LaunchClaim(pid=os.getpid(), started=begun, session=1, host=host or os.uname().nodename)
    (folder / launch_claims.CLAIM).write_text(mine.model_dump_json())
    (folder / LOG).write_text("said\n")
    (folder / SECRETS).write_text("s=1\n")
    return folder


def aged(folder: Path, *, days: float = OLD_DAYS) -> Path:
    """As if nothing had been written there since."""
    at_s = SystemClock().wall_ms() / 1000 - days * DAY_S
    for path in (*folder.iterdir(), folder, folder.parent):
        os.utime(path, (at_s, at_s))
    return folder


def watchers() -> set[threading.Thread]:
    """Those that wait for the ends of processes."""
    return {each for each in threading.enumerate() if each.name.endswith("(_wait_for_end)")}


def test_secrets_are_there_while_it_runs_and_gone_when_it_was_stopped(tmp_path: Path) -> None:
    container, launch = secretive(tmp_path), launch_of()
    secrets = container.folder(launch) / SECRETS
    with ended_after(container, launch):
        container.start(launch)
        wait_until_works(container, launch)
        assert is_in(container, launch, LaunchState.RUNNING)
        assert secrets.exists()

        secretive(tmp_path).stop(launch, grace_s=30)

        assert not secrets.exists()
        assert container.logs(launch, lines=1) == ["works"], "its log stays"


def test_secrets_go_when_its_end_is_seen_by_whoever_started_it(tmp_path: Path) -> None:
    container, launch = secretive(tmp_path), launch_of()
    with ended_after(container, launch):
        container.start(launch)
        pid, secrets = wait_until_works(container, launch)[0], container.folder(launch) / SECRETS
        assert secrets.exists(), "or nothing would show below"

        os.kill(pid, signal.SIGKILL)

        wait_until(lambda: not secrets.exists(), "its secrets are gone")


def test_secrets_go_when_another_coordinator_finds_that_it_has_ended(tmp_path: Path) -> None:
    container = stand_ins(tmp_path)
    folder = left(tmp_path / "containers" / "local", "r1")

    assert container.status(launch_of()).state is LaunchState.ENDED

    assert not (folder / SECRETS).exists()


def test_secrets_of_one_that_was_stopped_before_it_began_go(tmp_path: Path) -> None:
    container, launch = secretive(tmp_path, STAND_IN="fails"), launch_of()
    with pytest.raises(Refused, match="no luck today"):
        container.start(launch)

    container.stop(launch, grace_s=0)

    assert not (container.folder(launch) / SECRETS).exists()


def test_one_that_came_second_takes_no_secrets_from_the_first(tmp_path: Path) -> None:
    go, launch = tmp_path / "go", launch_of()
    containers = [secretive(tmp_path, STAND_IN_HOLD=str(go)) for _ in range(2)]
    starting = [threading.Thread(target=each.start, args=(launch,)) for each in containers]
    before = watchers()
    with ended_after(containers[0], launch):
        for thread in starting:
            thread.start()
        wait_until(lambda: len(started(containers[0], launch)) == 2, "both have spawned")
        go.touch()
        for thread in starting:
            thread.join()
        claim = launch_claims.read(containers[0].folder(launch))
        assert claim is not None
        [loser] = set(started(containers[0], launch)) - {claim.pid}
        wait_until(lambda: is_gone(loser), "the second has given way")
        wait_until(lambda: len(watchers() - before) == 1, "its end was seen")

        assert (containers[0].folder(launch) / SECRETS).exists()


def test_launches_long_past_are_forgotten_and_running_ones_are_not(tmp_path: Path) -> None:
    container = stand_ins(tmp_path)
    alive, ended, newest = launch_of(1), launch_of(2), launch_of(12)
    with ended_after(container, alive, newest):
        container.start(alive)
        container.stop(ended, grace_s=0)
        assert container.folder(ended).exists()

        container.start(newest)

        assert not container.folder(ended).exists()
        assert is_in(container, alive, LaunchState.RUNNING)


def test_an_old_folder_that_can_not_be_understood_stops_no_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    container, newest = stand_ins(tmp_path), launch_of(12)
    broken = container.folder(launch_of(1))
    broken.mkdir(parents=True)
    (broken / launch_claims.CLAIM).write_text("{")
    with ended_after(container, newest):
        container.start(newest)

    assert broken.exists()
    assert "an old folder of launches can not be removed" in caplog.text


def test_a_resource_that_nobody_wrote_to_for_days_is_forgotten(tmp_path: Path) -> None:
    folders = Folders(tmp_path, SystemClock())
    gone = [aged(left(tmp_path, "gone", 1)), aged(left(tmp_path, "gone", 2))]
    kept = [
        aged(left(tmp_path, "recent"), days=KEEP_FOLDERS_DAYS - 1),
        aged(left(tmp_path, "alive", alive=True)),
        aged(left(tmp_path, "lives on", 1, alive=True)),
        aged(left(tmp_path, "mine")),
    ]
    aged(left(tmp_path, "lives on", 2))  # which changed nothing for the first
    writes = aged(left(tmp_path, "writes"))
    os.utime(writes / LOG)
    unclaimed = aged(left(tmp_path, "unclaimed"))
    (unclaimed / launch_claims.CLAIM).unlink()
    aged(unclaimed)

    folders.forget_old("mine", 2)

    assert not any(folder.parent.exists() for folder in (*gone, unclaimed))
    assert all((folder / SECRETS).exists() for folder in (*kept, writes))


def test_any_start_of_a_container_sweeps_its_home(tmp_path: Path) -> None:
    container, launch = stand_ins(tmp_path), launch_of()
    gone = aged(left(tmp_path / "containers" / "local", "gone"))
    others = aged(left(tmp_path / "containers" / "other", "gone"))
    with ended_after(container, launch):
        container.start(launch)

    assert not gone.exists()
    assert others.exists(), "that is another container's"


def test_one_start_sweeps_a_few_and_the_next_the_others(tmp_path: Path) -> None:
    folders = Folders(tmp_path, SystemClock())
    for number in range(RESOURCES_SWEPT_MAX + 5):
        aged(left(tmp_path, f"r{number}"))

    folders.forget_old("new", 1)
    assert len(list(tmp_path.iterdir())) == 5

    folders.forget_old("new", 1)
    assert not list(tmp_path.iterdir())


def test_the_last_launch_of_another_host_stays_without_its_secrets(tmp_path: Path) -> None:
    folders = Folders(tmp_path, SystemClock())
    followed = aged(left(tmp_path, "r", 1, host="elsewhere"))
    last = aged(left(tmp_path, "r", 2, host="elsewhere"))
    aged(followed)
    young = left(tmp_path, "young", 1, host="elsewhere")

    folders.forget_old("new", 1)

    assert not followed.exists(), "it was refused when it registered, and has ended"
    assert (last / LOG).exists(), "it may run"
    assert not (last / SECRETS).exists()
    assert (young / SECRETS).exists()


def test_of_another_host_what_was_followed_long_ago_stays_while_it_is_written_to(
    tmp_path: Path,
) -> None:
    folders = Folders(tmp_path, SystemClock())
    silent = aged(left(tmp_path, "r", 1, host="elsewhere"))
    writes = left(tmp_path, "r", 2, host="elsewhere")

    folders.forget_old("r", 20)

    assert not silent.exists()
    assert writes.exists()
