"""Real coordinators and workers, started, signalled and seen to end by a test.

Each process leads a process group and a session of its own, so that a signal reaches all of it:
Python, JVM and Spark's Python daemons, which are in a group of theirs. Nothing here sleeps and
hopes: `until` waits for a state, with a limit.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import psutil

from tests.stores import KEY

T = TypeVar("T")

START_MAX_S = 240.0
POLL_S = 0.02
END_MAX_S = 120.0
QUICK_JVM = "-XX:TieredStopAtLevel=1"  # one that lives for seconds is not worth optimizing


def until(look: Callable[[], T | None], *, limit_s: float, what: str, every_s: float = POLL_S) -> T:
    """Look again and again until something is there; fail with `what` after the limit."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        if found := look():
            return found
        time.sleep(every_s)
    raise AssertionError(f"not within {limit_s} s: {what}")


@dataclass
class Process:
    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    url: str = ""

    @property
    def pid(self) -> int:
        return self.popen.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it to the whole group, and to what left the group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        for pid in _alive_in({self.pid}):
            with suppress(ProcessLookupError):
                if os.getpgid(pid) != self.pid:
                    os.kill(pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.popen.wait(END_MAX_S)

    def wait_killed(self, *, limit_s: float) -> None:
        assert self.popen.wait(limit_s) == -signal.SIGKILL

    def left(self) -> list[int]:
        """Of all that it started: what is alive."""
        return _alive_in({self.pid})

    def stopped(self) -> bool:
        return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED

    def said(self, words: str) -> bool:
        return words in self.log.read_text()

    def health(self) -> dict[str, Any] | None:
        try:
            return httpx2.get(f"{self.url}/health", timeout=10.0, trust_env=False).json()
        except httpx2.TransportError:
            return None

    def leads(self) -> bool:
        health = self.health()
        return health is not None and bool(health["leading"])


@dataclass
class Cluster:
    folder: Path
    store_url: str
    processes: list[Process] = field(default_factory=list[Process])
    # Of all that is started from now on; nothing of ours is taken over from the test's own.
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def coordinator(
        self,
        name: str,
        *options: str,
        seams: str = "",
        port: int = 0,
        wait: bool = True,
        under: Sequence[str] = (),
    ) -> Process:
        address = self.folder / f"{name}.address"
        process = self._start(
            name,
            "coordinator",
            *("--store", self.store_url),
            *("--bind", f"127.0.0.1:{port}"),
            *("--address-file", str(address)),
            *options,
            seams=seams,
            under=under,
        )
        if wait:
            self.await_address(process)
        return process

    def await_address(self, process: Process) -> None:
        address = self.folder / f"{process.name}.address"
        until(
            lambda: address.exists() or process.popen.poll() is not None,
            limit_s=START_MAX_S,
            what=f"{process.name} serves",
        )
        assert process.popen.poll() is None, process.log.read_text()
        process.url = address.read_text()
        until(process.health, limit_s=START_MAX_S, what=f"{process.name} answers")

    def worker(
        self,
        name: str,
        *urls: str,
        seams: str = "",
        slots: int | None = 1,
        spark_master: str | None = "local[2]",
        under: Sequence[str] = (),
    ) -> Process:
        """`slots` and `spark_master`: None for the default of the command."""
        return self._start(
            name,
            "worker",
            *("--coordinator", ",".join(urls)),
            *(("--slots", str(slots)) if slots is not None else ()),
            *(("--spark-master", spark_master) if spark_master is not None else ()),
            *("--home", str(self.folder / "home")),
            seams=seams,
            under=under,
        )

    def _start(self, name: str, *command: str, seams: str, under: Sequence[str]) -> Process:
        """`under`: another module than the command line's own, and its arguments."""
        log = self.folder / f"{name}.log"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", *(under or ["headrace"]), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **kept,
                    "HEADRACE_SEAMS": seams,
                    "HEADRACE_SECRET_KEY": KEY.text,
                    "JAVA_TOOL_OPTIONS": QUICK_JVM,
                    **self.environment,
                },
                start_new_session=True,
            )
        process = Process(name, popen, log)
        self.processes.append(process)
        return process

    def leader(self, *among: Process, limit_s: float = START_MAX_S) -> Process:
        return until(
            lambda: next((p for p in among if p.leads()), None), limit_s=limit_s, what="a leader"
        )

    def end(self) -> None:
        """Kill what is left, and see that no session of ours has a process any more."""
        for process in self.processes:
            process.signal(signal.SIGKILL)
        for process in self.processes:
            process.popen.wait(END_MAX_S)
        ours = {process.pid for process in self.processes}
        until(lambda: not _alive_in(ours), limit_s=END_MAX_S, what="all our processes ended")


def _alive_in(sessions: set[int]) -> list[int]:
    found: list[int] = []
    for pid in psutil.pids():
        try:
            if os.getsid(pid) in sessions and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


@contextmanager
def cluster(folder: Path, store_url: str) -> Generator[Cluster]:
    made = Cluster(folder, store_url)
    try:
        yield made
    finally:
        made.end()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
