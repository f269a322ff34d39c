"""All of it on one machine: a coordinator and a worker as child processes, and a folder.

    <home>/store.db        the store
    <home>/warehouse/      the lake tables
    <home>/logs/           coordinator.log, worker.log, and worker.out: rows that a job shows

A child that is killed, or whose JVM is, is started again, a bounded number of times: the store
remembers all that matters, so only time is lost. Any other child that exits has said why on its
last line, and that line and its exit code become ours.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cli import exits
from headrace.cli.context import DEFAULT_GROUP
from headrace.cli.interrupts import Interrupts
from headrace.cli.serve import command
from headrace.client import Client
from headrace.clock import Clock, SystemClock
from headrace.config import child_environment
from headrace.containers.container import Exited, Running
from headrace.containers.local import LocalProcess
from headrace.errors import Refused, Unavailable

COORDINATOR_START_MAX_S = 60.0
WORKER_START_MAX_S = 600.0  # the first start fetches some 60 MB of jars
# The worker gives its tasks back first, and the first one that stops has Java write its archive.
STOP_GRACE_S = {"worker": 120.0, "coordinator": 15.0}
HEARTBEAT_TIMEOUT_S = 20.0  # no network between them, so less patience than usual
RESTARTS_MAX = 3  # of each child
POLL_S = 0.1
HOST = "127.0.0.1"
LOG_LINES_SHOWN = 5
LOGGER = " headrace."  # marks our own lines in a log that Spark writes to as well

Tell = Callable[[str], None]  # what is being waited for, in a few words


class Stopped(Exception):
    """A stop was wanted while something was waited for."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is to run on this machine."""

    home: Path
    slots: int = 2
    spark_master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict[str, str])
    port: int = 0  # 0: a free one


class Machine:
    """A coordinator and a worker that live as long as this process, and no longer."""

    def __init__(
        self,
        shape: Shape,
        make_client: Callable[[str], Client],
        clock: Clock | None = None,
    ) -> None:
        self._shape = shape
        self._make_client = make_client
        self._clock: Clock = clock or SystemClock()
        # Known from the start, so that both can start at once, and the same at every start.
        self._port = shape.port or _free_port()
        self._children: dict[str, LocalProcess] = {}
        self._restarts: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    @property
    def pids(self) -> Mapping[str, int]:
        """Of the children that run, by name."""
        found = {name: child.status() for name, child in self._children.items()}
        return {name: status.pid for name, status in found.items() if isinstance(status, Running)}

    def start(self, wanted: Interrupts, tell: Tell) -> Client:
        """Start both; return as soon as the coordinator answers."""
        self._shape.home.mkdir(parents=True, exist_ok=True)
        self._address_file.unlink(missing_ok=True)
        tell("starting the coordinator and the worker")
        self._start("coordinator", self._coordinator_arguments())
        self._start("worker", self._worker_arguments())
        limit_s = COORDINATOR_START_MAX_S
        self._wait_until(self._address_file.exists, wanted, limit_s=limit_s, name="coordinator")
        return self._make_client(self.url)

    def wait_for_worker(self, client: Client, wanted: Interrupts, tell: Tell) -> None:
        """Wait until the worker of this machine has registered."""

        def registered() -> bool:
            tell(self._what_the_worker_does())
            try:
                known = client.workers()
            except Unavailable:  # the coordinator may just be starting again; the wait has a limit
                return False
            return self.pids.get("worker") in {worker.pid for worker in known}

        self._wait_until(registered, wanted, limit_s=WORKER_START_MAX_S, name="worker")

    def new_output(self) -> list[str]:
        """What the worker printed since the last call: the rows of a Console sink."""
        return self._children["worker"].new_output() if "worker" in self._children else []

    def supervise(self) -> None:
        """Start a child again that was killed; pass on the reason of one that gave up."""
        for name, child in tuple(self._children.items()):
            status = child.status()
            if not isinstance(status, Exited):
                continue
            killed = status.code < 0 or status.code == exits.SPARK_DIED  # it, or its JVM
            if not killed or self._restarts.get(name, 0) >= RESTARTS_MAX:
                raise _meaning(child, status.code)
            self._restarts[name] = self._restarts.get(name, 0) + 1
            child.start()

    def stop(self) -> None:
        """End the worker, then the coordinator, so that the worker can give back what it holds."""
        for name, grace_s in STOP_GRACE_S.items():
            if name in self._children:
                self._children[name].stop(grace_s=grace_s)
        self._address_file.unlink(missing_ok=True)

    def kill(self) -> None:
        for child in self._children.values():
            child.kill()

    @property
    def _logs(self) -> Path:
        return self._shape.home / "logs"

    @property
    def _address_file(self) -> Path:
        return self._shape.home / "coordinator.address"

    def _what_the_worker_does(self) -> str:
        """Its last words that are ours and no warning: a fetch of jars takes a while."""
        lines = self._children["worker"].log_since_start()
        said = [line for line in lines if LOGGER in line and " INFO " in line]
        latest = said[-1].partition(LOGGER)[2].partition(": ")[2].partition("  ")[0] if said else ""
        return f"starting Spark{f' · {latest}' if latest else ''}"

    def _start(self, name: str, arguments: list[str]) -> None:
        self._children[name] = LocalProcess(
            name,
            command(*arguments),
            log=self._logs / f"{name}.log",
            output=self._logs / f"{name}.out",
            # Containers of the coordinator keep what is theirs below its home.
            environment=child_environment(
                PYTHONUNBUFFERED="1", HEADRACE_HOME=str(self._shape.home)
            ),
            clock=self._clock,
        )
        self._children[name].start()

    def _coordinator_arguments(self) -> list[str]:
        store = f"sqlite:///{self._shape.home / 'store.db'}"
        return [
            *("coordinator", "--with-parent", "--store", store),
            *("--bind", f"{HOST}:{self._port}", "--address-file", str(self._address_file)),
            *("--heartbeat-timeout", str(HEARTBEAT_TIMEOUT_S)),
        ]

    def _worker_arguments(self) -> list[str]:
        conf = [f"{name}={value}" for name, value in self._shape.conf.items()]
        return [
            *("worker", "--with-parent", "--coordinator", self.url, "--group", DEFAULT_GROUP),
            *("--slots", str(self._shape.slots), "--spark-master", self._shape.spark_master),
            *("--home", str(self._shape.home)),
            *(part for pair in conf for part in ("--conf", pair)),
        ]

    def _wait_until(
        self, done: Callable[[], bool], wanted: Interrupts, *, limit_s: float, name: str
    ) -> None:
        deadline_s = self._clock.monotonic_s() + limit_s
        while not done():
            if wanted.wait(POLL_S):
                raise Stopped
            self.supervise()
            if self._clock.monotonic_s() > deadline_s:
                child = self._children[name]
                raise Unavailable(
                    f"the {name} was not ready after {limit_s:.0f} s; {_last_words(child)}"
                )


def _free_port() -> int:
    """A port that is free now. Somebody may take it first; the coordinator then says so."""
    with socket.socket() as asked:
        asked.bind((HOST, 0))
        return int(asked.getsockname()[1])


def _meaning(child: LocalProcess, code: int) -> Refused | Unavailable:
    """What the exit of a child means for the command that started it."""
    said = [line for line in child.log_since_start() if line.startswith(exits.PREFIX)]
    if said and code in {exits.REFUSED, exits.UNAVAILABLE, exits.SPARK_DIED}:
        text = said[-1].removeprefix(exits.PREFIX)
        return Refused(text) if code == exits.REFUSED else Unavailable(text)
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return Unavailable(f"the {child.name} ended with {how}; {_last_words(child)}")


def _last_words(child: LocalProcess) -> str:
    lines = [line for line in child.log_since_start() if line.strip()][-LOG_LINES_SHOWN:]
    said = " | ".join(lines) if lines else "it wrote nothing"
    return f"its log {child.log_location} ends: {said}"
