"""A group whose workers a local container starts, with coordinators that come and go.

The workers are no children of the test, and outlive the coordinator that started them. All that a
launch started bears the launch's folder in its environment: so it is found, counted and ended.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import psutil
from sqlalchemy import Connection

from headrace.client.client import Client
from headrace.client.groups import GroupView
from headrace.containers.detached import MARK
from headrace.model.groups import LaunchStep
from headrace.store.core.engine import open_store, reading
from headrace.store.groups import resources
from headrace.store.groups.resources import GivenUp, Resource
from headrace.store.tasks import workers
from headrace.store.tasks.workers import Worker
from tests.crash.cluster import END_MAX_S, Cluster, Process, until

T = TypeVar("T")

GROUP = "team"
ELSEWHERE = "elsewhere"  # of a container that starts nothing
# Long enough for a living worker on a busy machine.
HEARTBEAT_TIMEOUT_S = 15
# A worker that boots for longer is started a second time. Without Spark it takes a second or two,
# and several times that on a busy machine.
GRACE_S = 15
BOOT_MAX_S = 300.0
RESTART_MAX_S = HEARTBEAT_TIMEOUT_S + GRACE_S + BOOT_MAX_S
LOOK_S = 0.1
TAKE_OVER_MAX_S = 240.0


def restarting(grace_s: float = GRACE_S) -> tuple[str, ...]:
    return ("--auto-restart", "--auto-restart-grace-period", str(grace_s))


class Groups:
    def __init__(self, made: Cluster, *, under: Sequence[str] = ("tests.crash.light",)) -> None:
        """`under`: what runs the coordinators, and with that their workers."""
        self.made, self.home, self._under = made, made.folder / "home", under
        made.environment["HEADRACE_HOME"] = str(self.home)
        self._store = open_store(made.store_url)
        self._asked = 0

    # Coordinators.

    def coordinator(self, name: str, *options: str, seams: str = "", port: int = 0) -> Process:
        timeout = ("--heartbeat-timeout", str(HEARTBEAT_TIMEOUT_S))
        return self.made.coordinator(
            name, *timeout, *options, seams=seams, port=port, under=self._under
        )

    def leader(self, name: str, *options: str, seams: str = "", port: int = 0) -> Process:
        started = self.coordinator(name, *options, seams=seams, port=port)
        return self.made.leader(started)

    def containers(self, name: str, text: str) -> tuple[str, str]:
        """The option that names a file of containers."""
        file = self.made.folder / name
        file.write_text(f"containers {{\n{text}\n}}\n")
        return "--containers", str(file)

    # What is asked of them.

    def ask(self, url: str, *names: str, group: str = GROUP, container: str = "local") -> None:
        """For a resource of one thread under each of these names."""
        with closing(Client([url])) as client:
            if group not in {each.name for each in client.groups()}:
                client.create_group(group, container=container)
            elif client.group(group).container != container:
                client.change_group(group, container=container)
            for name in names:
                client.scale_group(group, threads=1, key=name)

    def await_passes(self, url: str, number: int) -> None:
        """Until the leader has gone so often through all groups: with each pass it does what was
        asked for before it, so something is asked for, and is seen to be done."""
        for _ in range(number):
            self._asked += 1
            name = f"seen-{self._asked}"
            self.ask(url, name, group=ELSEWHERE, container="external")
            self.await_resource(name, lambda found: found.step is LaunchStep.STARTED)

    def view(self, url: str, group: str = GROUP) -> GroupView:
        with closing(Client([url])) as client:
            return client.group(group)

    # What stands in the store.

    def read(self, look: Callable[[Connection], T]) -> T:
        with reading(self._store) as conn:
            return look(conn)

    def find(self, name: str) -> Resource | None:
        return self.read(lambda conn: resources.get(conn, name))

    def resource(self, name: str) -> Resource:
        found = self.find(name)
        assert found is not None, f"no resource {name}"
        return found

    def worker_of(self, name: str) -> Worker | None:
        return self.read(lambda conn: workers.of_resource(conn, name))

    def given_up(self) -> Sequence[GivenUp]:
        return self.read(lambda conn: resources.given_up_of(conn, GROUP))

    def await_resource(
        self, name: str, done: Callable[[Resource], bool], *, limit_s: float = RESTART_MAX_S
    ) -> Resource:
        def look() -> Resource | None:
            found = self.find(name)
            return found if found is not None and done(found) else None

        try:
            return until(look, limit_s=limit_s, what=f"{name} as expected", every_s=LOOK_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: it is {self.find(name)}") from error

    def await_worker(self, name: str, *, launch: int = 1, limit_s: float = RESTART_MAX_S) -> Worker:
        """Until the worker of this launch has registered, and the start of it is recorded."""

        def look() -> Worker | None:
            found = self.worker_of(name)
            return found if found is not None and found.launch >= launch else None

        what = f"launch {launch} of {name} registers"
        worker = until(look, limit_s=limit_s, what=what, every_s=LOOK_S)
        assert worker.launch == launch
        self.await_resource(name, lambda found: found.step is LaunchStep.STARTED)
        return worker

    def assert_works(self, name: str, worker: Worker) -> None:
        """It is the only process of its resource, and what is recorded of that is the same."""
        self.await_processes(name, [worker.pid])
        found = self.resource(name)
        assert found.properties["pid"] == str(worker.pid)
        assert (found.launch, found.step) == (worker.launch, LaunchStep.STARTED)
        assert (found.attempts, found.orphaned_since_ms, found.error) == (0, None, None)
        there = self.worker_of(name)
        assert there is not None
        assert (there.id, there.pid) == (worker.id, worker.pid)

    # Processes.

    def processes(self, name: str) -> list[int]:
        """Workers of a resource that are alive, of whatever launch, by their command line."""
        return sorted(each.pid for each in self._launched() if name in each.cmdline())

    def await_processes(self, name: str, expected: list[int]) -> None:
        """A second one of the same launch ends itself as soon as it has seen who was first."""
        found: list[int] = []

        def look() -> bool:
            found[:] = self.processes(name)
            return found == expected

        try:
            until(look, limit_s=END_MAX_S, what=f"workers of {name} are {expected}")
        except AssertionError as error:
            raise AssertionError(f"{error}, and not {found}") from error

    def kill(self, worker: Worker) -> None:
        """At once, and all that it started."""
        os.killpg(worker.pid, signal.SIGKILL)

    def _launched(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # ended, or another's
                marked = process.environ().get(MARK, "").startswith(f"{self.home}{os.sep}")
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def end(self) -> None:
        """First whoever starts workers, then the workers."""
        self._store.dispose()
        for process in self.made.processes:
            process.kill()

        def gone() -> bool:
            left = self._launched()
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            return not left

        until(gone, limit_s=END_MAX_S, what="all that was launched has ended")


@contextmanager
def groups_of(made: Cluster, *, under: Sequence[str] | None = None) -> Generator[Groups]:
    """`under`: as Groups takes it; without Spark if not given."""
    stand = Groups(made) if under is None else Groups(made, under=under)
    try:
        yield stand
    finally:
        stand.end()


def stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def times(logs: Sequence[Path], words: str, about: str) -> int:
    """In how many lines it was said about something."""
    lines = (line for log in logs for line in log.read_text().splitlines())
    return sum(words in line and about in line for line in lines)
