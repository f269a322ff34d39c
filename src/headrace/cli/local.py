"""All of it on one machine: a coordinator and a worker as child processes, and a folder.

    <home>/store.db        the store; store.db.key beside it has the key of its secrets
    <home>/warehouse/      the lake tables
    <home>/logs/           coordinator.log, worker.log, and worker.out: rows that a job shows

A child that is killed, or whose JVM is, is started again, a bounded number of times: the store
remembers all that matters, so only time is lost. Any other child that exits has said why on its
last line, and that line and its exit code become ours.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.cli import exits
from headrace.cli.calls import leavable
from headrace.cli.context import DEFAULT_GROUP
from headrace.cli.interrupts import Interrupts
from headrace.cli.serve import command
from headrace.client import Client
from headrace.clock import Clock, SystemClock
from headrace.config import OF_COORDINATORS, child_environment
from headrace.containers.container import Exited, Running
from headrace.containers.local import UNHURRIED, LocalProcess
from headrace.errors import Refused, Unavailable

COORDINATOR_START_MAX_S = 60.0
WORKER_START_MAX_S = 600.0  # the first start fetches some 60 MB of jars
# While nobody waits: the first worker that stops has Java write its archive.
WORKER_STOP_MAX_S = 120.0
COORDINATOR_STOP_MAX_S = 15.0
COORDINATOR_SHARE_S = 4.0  # of the time that both have when somebody waits
HEARTBEAT_TIMEOUT_S = 20.0  # no network between them, so less patience than usual
RESTARTS_MAX = 3  # of each child
POLL_S = 0.1
HOST = "127.0.0.1"
LOG_LINES_SHOWN = 5
LOGGER = " headrace."  # marks our own lines in a log that Spark writes to as well

Tell = Callable[[str], None]  # what is being waited for, in a few words


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
                known = leavable(client.workers, wanted=wanted)
            except Unavailable:  # the coordinator may just be starting again; the wait has a limit
                return False
            return self.pids.get("worker") in {worker.pid for worker in known}

        self._wait_until(registered, wanted, limit_s=WORKER_START_MAX_S, name="worker")

    def new_output(self) -> list[str]:
        """What the worker printed since the last call: the rows of a Console sink."""
        return self._children["worker"].new_output() if "worker" in self._children else []

    def supervise(self) -> list[str]:
        """Start a child again that was killed, and say so; pass on why one gave up."""
        news: list[str] = []
        for name, child in tuple(self._children.items()):
            status = child.status()
            if not isinstance(status, Exited):
                continue
            killed = status.code < 0 or status.code == exits.SPARK_DIED  # it, or its JVM
            if not killed or self._restarts.get(name, 0) >= RESTARTS_MAX:
                raise _meaning(child, status.code)
            self._restarts[name] = self._restarts.get(name, 0) + 1
            how = f"was ended by signal {-status.code}" if status.code < 0 else "lost its JVM"
            times = f"restart {self._restarts[name]} of {RESTARTS_MAX}"
            news.append(f"the {name} {how}, and is started again ({times})")
            child.start()
        return news

    def stop(self, *, within_s: float | None = None) -> None:
        """End the worker, then the coordinator, so that the worker can give back what it holds.

        `within_s`: what has not ended by then is killed, which costs time at the next start and
        no rows. None: nobody waits.
        """
        hurried = within_s is not None
        worker_s = within_s - COORDINATOR_SHARE_S if within_s is not None else WORKER_STOP_MAX_S
        deadline_s = self._clock.monotonic_s() + (within_s or 0)
        if (worker := self._children.get("worker")) is not None:
            worker.stop(grace_s=worker_s, number=signal.SIGTERM if hurried else UNHURRIED)
        if (coordinator := self._children.get("coordinator")) is not None:
            left_s = max(COORDINATOR_SHARE_S, deadline_s - self._clock.monotonic_s())
            coordinator.stop(grace_s=left_s if hurried else COORDINATOR_STOP_MAX_S)
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
            environment=self._environment(name),
            clock=self._clock,
        )
        self._children[name].start()

    def _environment(self, name: str) -> Mapping[str, str]:
        found = child_environment(PYTHONUNBUFFERED="1", HEADRACE_HOME=str(self._shape.home))
        if name == "worker":
            for variable in OF_COORDINATORS:
                found.pop(variable, None)
        return found

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
            wanted.check(POLL_S)
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
