"""The kind of examples/container-toy, installed, keeps the contract of containers."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headrace.config import Settings
from headrace.containers.configured import configured
from headrace.containers.container import ContainerSetting, Launch, WorkerContainer
from headrace.containers.kinds import installed_kinds
from headrace.errors import BadSetting, Unavailable
from tests.cli.machine import is_gone, wait_until
from tests.containers.launches import TOKEN, launch_of
from tests.contracts.container import (
    AwayContract,
    ContainerHarness,
    EndContract,
    LifeContract,
    WithdrawalContract,
)
from tests.example_packages import install

# A program, and no module: it goes by its arguments.
DOCKER = Path(__file__).with_name("docker_stand_in.py")


class DockerHarness(ContainerHarness):
    """The toy of examples/, as it is installed, and a stand-in for Docker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = folder / "docker"
        self._script(f'exec {sys.executable} -I -S {DOCKER} {folder} "$@"')

    def container(self) -> WorkerContainer:
        properties = {"image": "headrace:1", "program": str(self._program)}
        made = ContainerSetting("docker", properties, "containers.conf:3", self._folder, TOKEN)
        return installed_kinds().make("toy-docker", made)

    def readable(self, launch: Launch) -> str:
        return " ".join(self._found(launch)["command"])

    def running(self, launch: Launch) -> Sequence[object]:
        return [pid for pid in self._pids(launch) if not is_gone(pid)]

    def begun(self, launch: Launch) -> int:
        return len(self._pids(launch)) // 2

    def start_and_die(self, launch: Launch) -> None:
        """Between its two commands."""
        started = self._program.read_text()
        self._script('[ "$1" = start ] && exit 1', started)
        with pytest.raises(Unavailable, match="could not start"):
            self.container().start(launch)
        self._script(started)

    def end_worker(self, launch: Launch) -> None:
        os.kill(self._pids(launch)[0], signal.SIGKILL)

    def go_away(self) -> None:
        self._script("echo Cannot connect to the Docker daemon >&2; exit 1")

    def close(self) -> None:
        for notes in self._folder.glob("*.notes"):
            pids = [int(pid) for pid in notes.read_text().split()]
            for pid in pids[::2]:
                if not is_gone(pid):
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda pids=pids: all(map(is_gone, pids)), "nothing is left")

    def _script(self, *lines: str) -> None:
        self._program.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
        self._program.chmod(0o755)

    def _found(self, launch: Launch) -> dict[str, list[str]]:
        path = self._folder / f"headrace-{launch.resource}-{launch.number}.json"
        return json.loads(path.read_text())

    def _pids(self, launch: Launch) -> list[int]:
        notes = self._folder / f"headrace-{launch.resource}-{launch.number}.notes"
        return [int(pid) for pid in notes.read_text().split()] if notes.exists() else []


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(["container-toy"], tmp_path_factory.mktemp("site"))


@pytest.fixture
def installed(toy: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [str(toy), *sys.path])
    importlib.invalidate_caches()
    yield
    for name in [name for name in sys.modules if name.startswith("headrace_container_toy")]:
        del sys.modules[name]


class TestToyDocker(LifeContract, WithdrawalContract, EndContract, AwayContract):
    @pytest.fixture
    def harness(self, installed: None, tmp_path: Path) -> Iterator[ContainerHarness]:
        made = DockerHarness(tmp_path)
        yield made
        made.close()


def test_it_is_one_line_of_the_configuration(installed: None, tmp_path: Path) -> None:
    (tmp_path / "containers.conf").write_text(
        "containers { docks { type = toy-docker, properties { image = i, program = /none } } }"
    )

    found = configured(Settings(home=tmp_path), token=None).get("docks")

    assert (found.name, found.supports.restart) == ("docks", True)
    with pytest.raises(BadSetting, match=r"/none can not be run: No such file .* install Docker"):
        found.start(launch_of())


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"imagee": "x"}, "unknown property 'imagee'; did you mean 'image'"),
        ({"program": "x"}, "kind toy-docker as a whole"),
        ({"spark-conf.spark.hadoop.fs.s3a.secret.key": "x"}, "would stand on a command line"),
    ],
)
def test_what_a_group_can_not_have_is_refused(
    installed: None, tmp_path: Path, properties: dict[str, str], problem: str
) -> None:
    with pytest.raises(BadSetting, match=problem):
        DockerHarness(tmp_path).container().check("g1", properties, memory_mb=0)
