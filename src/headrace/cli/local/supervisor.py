"""A local machine: a coordinator and a worker as child processes of `headrace up` or `run`.

    <home>/store.db        the store; store.db.key beside it has the key of its secrets
    <home>/warehouse/      the lake tables
    <home>/logs/           coordinator.log, worker.log, and worker.out: rows that a job shows

A child that is killed, or whose JVM is, is started again, a bounded number of times: the store
remembers all that matters, so only time is lost. Any other child that exits has given its reason on
the last line of its log, and that line and its exit code become those of the command.

`keep_up` is `headrace up`: it starts the machine, says where it answers, supervises it, stops it.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import typer

from headrace.cli import exits
from headrace.cli.context import Context
from headrace.cli.exits import Interrupts, StopWanted, interruptible, interrupts
from headrace.cli.jobs.watch import display
from headrace.cli.local import up_file
from headrace.cli.serve import command
from headrace.client.client import Client
from headrace.clock import Clock, SystemClock
from headrace.config import COORDINATOR_ONLY, Settings, child_environment
from headrace.containers.child_process import UNHURRIED, LocalProcess
from headrace.containers.container import Exited, Running
from headrace.errors import BadSetting, Refused, Unavailable
from headrace.spark.installation import find_java, find_spark

COORDINATOR_START_MAX_S = 60.0
WORKER_START_MAX_S = 600.0  # the first start fetches some 60 MB of jars
# Without hurry: the first worker that stops has Java write the class-data archive.
WORKER_STOP_MAX_S = 120.0
COORDINATOR_STOP_MAX_S = 15.0
COORDINATOR_SHARE_S = 4.0  # of the time that both have when there is hurry
STOP_MAX_S = 28.0  # with running jobs; a worker that runs nothing is gone in a third of it
HEARTBEAT_TIMEOUT_S = 20.0  # no network in between, so shorter than the default
RESTARTS_MAX = 3  # of each child
POLL_S = 0.1
SUPERVISE_EVERY_S = 0.5
HOST = "127.0.0.1"
LOG_LINES_SHOWN = 5
LOGGER = " headrace."  # marks our own lines in a log to which Spark writes as well

ShowStep = Callable[[str], None]  # shows what is awaited, in a few words


@dataclass(frozen=True, slots=True)
class MachineShape:
    """What is to run on this machine."""

    home: Path
    slots: int = 2
    spark_master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict[str, str])
    port: int = 0  # 0: a free one
    allow_jars: Sequence[str] = ()  # patterns of jars that jobs may ask for


def keep_up(cli: Context, settings: Settings, shape: MachineShape) -> None:
    """Serve until a stop is wanted, or until a child gave up for good."""
    cli.log_to_stderr()

    def make_client(url: str) -> Client:
        return cli.client([url], settings)

    if running := up_file.find(shape.home, make_client):
        raise BadSetting(
            f"`headrace up` already runs for {shape.home}: {running.address}, pid {running.pid}; "
            "use it, stop it, or choose another folder with --home"
        )
    find_spark("`headrace up` starts a worker, and that needs Spark")
    find_java()
    machine = Machine(shape, make_client)
    with interrupts(machine.kill) as stop:
        try:
            _bring_up(cli, machine, stop)
            content = up_file.UpFile(address=machine.url, pid=os.getpid())
            with up_file.written(shape.home, content):
                _announce(cli, machine)
                while not stop.wait(SUPERVISE_EVERY_S):
                    for line in (*machine.new_output(), *machine.supervise()):
                        typer.echo(line, err=True)
        except StopWanted:
            typer.echo("stopped before it was up", err=True)
        finally:
            machine.stop(within_s=STOP_MAX_S)


def _bring_up(cli: Context, machine: Machine, stop: Interrupts) -> None:
    with display(cli.stderr(), SystemClock()) as shown:
        client = machine.start(stop, shown.doing)
        machine.wait_for_worker(client, stop, shown.doing)
        client.close()


def _announce(cli: Context, machine: Machine) -> None:
    if cli.output == "json":
        cli.show_json({"address": machine.url, "pid": os.getpid(), "children": machine.pids})
    else:
        typer.echo(f"headrace is up at {machine.url}; Ctrl-C stops it")


class Machine:
    """A coordinator and a worker that live as long as this process, and no longer."""

    def __init__(
        self,
        shape: MachineShape,
        make_client: Callable[[str], Client],
        clock: Clock | None = None,
    ) -> None:
        self._shape = shape
        self._make_client = make_client
        self._clock: Clock = clock or SystemClock()
        # Chosen here, so that both children can start at once, and restart with the same port.
        self._port = shape.port or _free_port()
        self._children: dict[str, LocalProcess] = {}
        self._restarts: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    @property
    def pids(self) -> Mapping[str, int]:
        """The process ids of the running children, by name."""
        statuses = {name: child.status() for name, child in self._children.items()}
        return {
            name: status.pid for name, status in statuses.items() if isinstance(status, Running)
        }

    def start(self, stop: Interrupts, show_step: ShowStep) -> Client:
        """Start both; return as soon as the coordinator answers."""
        self._shape.home.mkdir(parents=True, exist_ok=True)
        self._address_file.unlink(missing_ok=True)
        show_step("starting the coordinator and the worker")
        self._start("coordinator", self._coordinator_arguments())
        self._start("worker", self._worker_arguments())
        limit_s = COORDINATOR_START_MAX_S
        self._wait_until(self._address_file.exists, stop, limit_s=limit_s, name="coordinator")
        return self._make_client(self.url)

    def wait_for_worker(self, client: Client, stop: Interrupts, show_step: ShowStep) -> None:
        """Wait until the worker of this machine has registered."""

        def registered() -> bool:
            show_step(self._worker_step())
            try:
                workers = interruptible(client.workers, stop=stop)
            except Unavailable:  # the coordinator may be restarting; the wait has a limit
                return False
            return self.pids.get("worker") in {worker.pid for worker in workers}

        self._wait_until(registered, stop, limit_s=WORKER_START_MAX_S, name="worker")

    def new_output(self) -> list[str]:
        """What the worker printed since the last call: the rows of a Console sink."""
        return self._children["worker"].new_output() if "worker" in self._children else []

    def supervise(self) -> list[str]:
        """Start killed children again, and say so. Raises when a child gave up, with its reason."""
        restarts: list[str] = []
        for name, child in tuple(self._children.items()):
            status = child.status()
            if not isinstance(status, Exited):
                continue
            killed = status.code < 0 or status.code == exits.SPARK_DIED  # the process, or its JVM
            if not killed or self._restarts.get(name, 0) >= RESTARTS_MAX:
                raise _error_of_exit(child, status.code)
            self._restarts[name] = self._restarts.get(name, 0) + 1
            how = f"was ended by signal {-status.code}" if status.code < 0 else "lost its JVM"
            times = f"restart {self._restarts[name]} of {RESTARTS_MAX}"
            restarts.append(f"the {name} {how}, and is started again ({times})")
            child.start()
        return restarts

    def stop(self, *, within_s: float | None = None) -> None:
        """Stop the worker, then the coordinator, so that the worker can give back what it holds.

        `within_s`: what has not ended by then is killed, which costs time at the next start, but no
        rows. None: there is no hurry.
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

    def _worker_step(self) -> str:
        """The worker's last INFO line of our own logger: a fetch of jars takes a while."""
        lines = self._children["worker"].log_since_start()
        info_lines = [line for line in lines if LOGGER in line and " INFO " in line]
        latest = (
            info_lines[-1].partition(LOGGER)[2].partition(": ")[2].partition("  ")[0]
            if info_lines
            else ""
        )
        return f"starting Spark{f' · {latest}' if latest else ''}"

    def _start(self, name: str, arguments: list[str]) -> None:
        self._children[name] = LocalProcess(
            name,
            command(*arguments),
            log=self._logs / f"{name}.log",
            output=self._logs / f"{name}.out",
            # Containers of the coordinator keep their files below its home.
            environment=self._environment(name),
            clock=self._clock,
        )
        self._children[name].start()

    def _environment(self, name: str) -> Mapping[str, str]:
        environment = child_environment(PYTHONUNBUFFERED="1", HEADRACE_HOME=str(self._shape.home))
        if name == "worker":
            for variable in COORDINATOR_ONLY:
                environment.pop(variable, None)
        return environment

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
            *("worker", "--with-parent", "--coordinator", self.url),
            *("--slots", str(self._shape.slots), "--spark-master", self._shape.spark_master),
            *("--home", str(self._shape.home)),
            *(part for pair in conf for part in ("--conf", pair)),
            *(part for each in self._shape.allow_jars for part in ("--allow-jars", each)),
        ]

    def _wait_until(
        self, done: Callable[[], bool], stop: Interrupts, *, limit_s: float, name: str
    ) -> None:
        deadline_s = self._clock.monotonic_s() + limit_s
        while not done():
            stop.check(POLL_S)
            self.supervise()
            if self._clock.monotonic_s() > deadline_s:
                child = self._children[name]
                raise Unavailable(
                    f"the {name} was not ready after {limit_s:.0f} s; {_log_tail(child)}"
                )


def _free_port() -> int:
    """A port that is free now. If another program takes it first, the coordinator says so."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _error_of_exit(child: LocalProcess, code: int) -> Refused | Unavailable:
    """What the exit of a child means for the command that started it."""
    errors = [line for line in child.log_since_start() if line.startswith(exits.PREFIX)]
    if errors and code in {exits.REFUSED, exits.UNAVAILABLE, exits.SPARK_DIED}:
        text = errors[-1].removeprefix(exits.PREFIX)
        return Refused(text) if code == exits.REFUSED else Unavailable(text)
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return Unavailable(f"the {child.name} ended with {how}; {_log_tail(child)}")


def _log_tail(child: LocalProcess) -> str:
    lines = [line for line in child.log_since_start() if line.strip()][-LOG_LINES_SHOWN:]
    text = " | ".join(lines) if lines else "it wrote nothing"
    return f"its log {child.log_location} ends: {text}"
