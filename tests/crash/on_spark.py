"""A coordinator whose workers a container starts on a Spark standalone cluster: what a test asks
of each of them, and how all of it ends.

The drivers are no children of the test, and outlive the coordinator that started them. They are
found by the launch's folder in their environment, and ended when nobody is left who could start
another one. The executors are children of the node, and go with it.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil

from headrace.client.client import Client
from headrace.client.groups import GroupView, ResourceView
from headrace.client.views import WorkerView
from headrace.containers import child_process
from headrace.containers.detached import MARK
from tests.crash.cluster import END_MAX_S, QUICK_JVM, Cluster, Process, free_port, until
from tests.crash.jobs import metadata_of
from tests.spark.standalone import Cluster as Standalone
from tests.spark.standalone import standalone

GROUP = "default"
CONTAINER = "cluster"
HEARTBEAT_TIMEOUT_S = 15.0
# A driver that boots for longer than the grace period is started once more. A patient leader gives
# it what a busy machine needs; under a hasty one Python only has to claim the launch.
PATIENT_S, HASTY_S = 600.0, 15.0
LAUNCHED = "launched, before it is recorded"
WORKS_MAX_S = 600.0
LOOK_S = 0.2

CONTAINERS = """
containers {{
  {container} {{
    type = spark
    properties {{
      master = "{master}"
      spark-conf.spark.driver.host = "127.0.0.1"
      spark-conf.spark.executor.memory = 512m
      spark-conf.spark.executor.extraJavaOptions = "{java_options}"
    }}
  }}
}}
"""
_FIELD = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')
# What an executor says of each task, and of each task that wrote to a lake table.
_FINISHED = re.compile(r"Executor: Finished task ")
_WROTE = re.compile(r"DataWritingSparkTask: Committed partition ")


@dataclass(frozen=True, slots=True)
class Driver:
    """A worker that registered: the process, its application, and which launch it is."""

    worker: str
    pid: int
    application: str
    launch: int
    resource: str

    def family(self) -> list[int]:
        """The worker itself, and all that it started on this machine: its JVM."""
        return [self.pid, *child_process.session_members(self.pid)]

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)


class OnSpark:
    coordinator: Process

    def __init__(self, made: Cluster, spark: Standalone) -> None:
        self.made, self.spark, self.home = made, spark, made.folder / "home"
        self.warehouse = self.home / "warehouse"
        self.url, self._port = "", free_port()

    def start(self) -> None:
        """The coordinator, and a floor of one thread for its group."""
        self.home.mkdir()
        file = CONTAINERS.format(
            container=CONTAINER, master=self.spark.master, java_options=QUICK_JVM
        )
        (self.home / "containers.conf").write_text(file)
        self.made.environment["HEADRACE_HOME"] = str(self.home)
        self._lead("first", grace_s=PATIENT_S)
        self.url = self.coordinator.url
        with self.client() as client:
            client.change_group(GROUP, container=CONTAINER, min_parallelism=1, memory_mb=512)

    def start_again(self) -> None:
        """Have the driver that died started again soon, by a leader that dies before it has
        recorded this. Under the next one it may boot for as long as it takes."""
        self.coordinator.kill()
        self._lead("hasty", grace_s=HASTY_S, seams=f"{LAUNCHED}=kill")
        self.coordinator.wait_killed(limit_s=WORKS_MAX_S)
        self._lead("next", grace_s=PATIENT_S)

    def _lead(self, name: str, *, grace_s: float, seams: str = "") -> None:
        self.coordinator = self.made.coordinator(
            name,
            *("--heartbeat-timeout", str(HEARTBEAT_TIMEOUT_S)),
            *("--auto-restart", "--auto-restart-grace-period", str(grace_s)),
            *("--refresh-tables-interval", "2", "--refresh-catalogs-interval", "2"),
            seams=seams,
            port=self._port,
        )
        self.made.leader(self.coordinator)

    def client(self) -> closing[Client]:
        return closing(Client([self.url]))

    # What the coordinator knows.

    def group(self) -> GroupView:
        with self.client() as client:
            return client.group(GROUP)

    def resource(self) -> ResourceView:
        [resource] = self.group().resources
        return resource

    def await_driver(self, launch: int) -> Driver:
        """Until the worker of this launch has registered."""

        def registered() -> WorkerView | None:
            here = [each for each in self.group().workers if each.launch >= launch]
            return here[0] if here else None

        what = f"launch {launch} registers"
        worker = until(registered, limit_s=WORKS_MAX_S, what=what, every_s=LOOK_S)
        assert worker.resource is not None
        return Driver(
            worker.id, worker.pid, worker.spark_application, worker.launch, worker.resource
        )

    def launches(self) -> list[int]:
        return sorted(int(folder.name) for folder in _launches(self.home))

    # What the master and the node know.

    def applications(self, state: str) -> list[str]:
        """`active` or `completed`: of all that ever registered with the master."""
        return [each["id"] for each in self.spark.state()[f"{state}apps"]]

    def tasks_finished(self, application: str) -> int:
        """Spark tasks that executors of the application have finished, by their own words."""
        return len(_FINISHED.findall(self._said_by_executors(application)))

    def files_written(self, application: str) -> int:
        """Of lake tables, by its executors: each such task here has rows for one file."""
        return len(_WROTE.findall(self._said_by_executors(application)))

    def _said_by_executors(self, application: str) -> str:
        logs = (self.made.folder / "work" / application).glob("*/stderr")
        return "\n".join(log.read_text() for log in logs)

    def executors(self, application: str) -> list[int]:
        """Processes of executors, which have their application on the command line."""
        found = psutil.process_iter(["cmdline"])
        return [each.pid for each in found if application in (each.info["cmdline"] or [])]

    def end_application(self, application: str) -> None:
        """As somebody does on the master's page: by the form that it shows for the only one."""
        with httpx2.Client(base_url=self.spark.web, trust_env=False) as browser:
            form = dict(_FIELD.findall(browser.get("/").text))
            assert form["id"] == application
            assert browser.post("/app/kill/", data=form).is_redirect

    # What stands in the tables.

    def snapshots(self, table: str) -> Sequence[dict[str, Any]]:
        return json.loads(metadata_of(self.warehouse, table).read_text())["snapshots"]

    # How it ends.

    def end(self) -> None:
        """First whoever starts drivers, then the drivers."""
        for process in self.made.processes:
            process.kill()

        def gone() -> bool:
            left = _launched_below(self.home)
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            return not left

        until(gone, limit_s=END_MAX_S, what="all that was launched has ended")


def _launches(home: Path) -> list[Path]:
    """Folders of all that were ever begun."""
    return [path for path in home.glob(f"containers/{CONTAINER}/*/*") if path.is_dir()]


def _launched_below(home: Path) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # ended, or somebody else's
            marked = process.environ().get(MARK, "").startswith(f"{home}{os.sep}")
            if marked and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@contextmanager
def on_spark(made: Cluster) -> Generator[OnSpark]:
    """Started, and gone afterwards with all that was started for it."""
    with standalone(made.folder) as spark:
        started = OnSpark(made, spark)
        try:
            started.start()
            yield started
        finally:
            started.end()
