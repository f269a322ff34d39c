"""What tests of containers share: a setting, a launch, and processes that are no Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from headrace.containers.container import ContainerSetting, Launch, LaunchState
from headrace.containers.detached import DetachedWorkers
from headrace.containers.local import local_workers
from tests.cli.machine import wait_until

STAND_IN = (sys.executable, "-m", "tests.containers.stand_in")
TOKEN = "a-secret-nobody-may-see"
ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join((str(ROOT), str(ROOT / "src")))  # of a copy of the tree, its own


def setting(home: Path, name: str = "local") -> ContainerSetting:
    return ContainerSetting(name, {}, "containers.conf:3", home, TOKEN)


def launch_of(number: int = 1, *, resource: str = "r1", **properties: str) -> Launch:
    return Launch(
        resource=resource,
        number=number,
        group="g1",
        threads=3,
        memory_mb=512,
        coordinators=("http://a:7300", "http://b:7300"),
        properties=properties,
    )


def stand_ins(home: Path, **environment: str) -> DetachedWorkers:
    exported = {f"export.{name}": value for name, value in environment.items()}
    exported["export.PYTHONPATH"] = PATHS
    made = ContainerSetting("local", exported, "containers.conf:3", home, TOKEN)
    return local_workers(made, program=STAND_IN)


@contextmanager
def ended_after(container: DetachedWorkers, *launches: Launch) -> Generator[None]:
    """Whatever a test found: none of its processes is left."""
    try:
        yield
    finally:
        for launch in launches:
            container.stop(launch, grace_s=0)


def wait_until_works(container: DetachedWorkers, launch: Launch) -> tuple[int, int]:
    """The process of the launch, and one that it started."""
    wait_until(lambda: "works" in container.logs(launch, lines=1), "the worker works")
    worker, child = container.logs(launch, lines=2)[0].split()
    return int(worker), int(child)


def is_in(container: DetachedWorkers, launch: Launch, state: LaunchState) -> bool:
    return container.status(launch).state is state


def started(container: DetachedWorkers, launch: Launch) -> list[int]:
    """Every process that was ever started for the resource."""
    path = container.folder(launch).parent / "started"
    return [int(line) for line in path.read_text().split()] if path.exists() else []
