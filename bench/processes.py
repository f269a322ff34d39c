"""Real processes for a bench: started, waited for, measured and seen to end.

Each one leads a process group of its own, so that its JVM ends with it; only groups that were
started here are ever signalled, by the pid of their leader.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx2
import psutil

from bench.stores import KEYS

T = TypeVar("T")

START_MAX_S = 120.0  # a worker's first start may fetch jars
POLL_S = 0.02
STOP_MAX_S = 120.0  # the first JVM writes its class-data archive when it stops
KILL_MAX_S = 10.0
HEALTH_TIMEOUT_S = 5.0
LOG_CHARACTERS_SHOWN = 2_000


class NotMeasured(Exception):
    """A bench could not be carried out; the message says what was missing."""


def until(look: Callable[[], T | None], *, limit_s: float, what: str, poll_s: float = POLL_S) -> T:
    """Look again and again until something is there. Raises NotMeasured after the limit."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        if found := look():
            return found
        time.sleep(poll_s)
    raise NotMeasured(f"not within {limit_s:.0f} s: {what}")


@dataclass(frozen=True, slots=True)
class Child:
    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raises NotMeasured, with the end of its log, when it has ended."""
        code = self.popen.poll()
        if code is not None:
            said = self.log.read_text(errors="replace")[-LOG_CHARACTERS_SHOWN:]
            raise NotMeasured(f"{self.name} ended with {code}: {said}")

    def cpu_s(self) -> float:
        """User and system time of the process and all that it started."""
        root = psutil.Process(self.popen.pid)
        own = root.cpu_times()
        total = own.user + own.system + own.children_user + own.children_system
        for child in root.children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it ended since, and counts as its parent's
                times = child.cpu_times()
                total += times.user + times.system
        return total

    def rss_mb(self) -> float:
        return psutil.Process(self.popen.pid).memory_info().rss / 1e6

    def kill(self) -> None:
        """SIGKILL to its whole group; it is dead when this returns."""
        os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(KILL_MAX_S)

    def end(self) -> None:
        """Ask it to stop, then insist; nothing of its group is left."""
        if self.popen.poll() is None:
            self.popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(STOP_MAX_S)
        with suppress(ProcessLookupError):  # the usual case: all of it ended by itself
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(KILL_MAX_S)
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@contextmanager
def child(
    name: str,
    command: Sequence[str],
    *,
    folder: Path,
    piped: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Generator[Child]:
    """Run a command of Python's for the length of the block. `piped`: talk to it by its stdio."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else output,
            stderr=output,
            env={**kept, **(environment or {})},
            start_new_session=True,
        )
    started = Child(name, popen, log)
    try:
        yield started
    finally:
        started.end()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(frozen=True, slots=True)
class Coordinator:
    child: Child
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def leads(self) -> bool:
        with suppress(httpx2.TransportError):  # not serving yet: asked again, within a limit
            got = httpx2.get(f"{self.url}/health", timeout=HEALTH_TIMEOUT_S, trust_env=False)
            return bool(got.json()["leading"])
        return False


@contextmanager
def coordinator(
    store_url: str, *, folder: Path, name: str = "coordinator", port: int = 0
) -> Generator[Coordinator]:
    """A coordinator that serves; whether it leads depends on who else is there. Port 0: any."""
    address = folder / f"{name}.address"
    address.unlink(missing_ok=True)
    command = ["-m", "headrace", "coordinator", "--store", store_url]
    command += ["--bind", f"127.0.0.1:{port}", "--address-file", str(address)]
    keyed = {"HEADRACE_SECRET_KEY": KEYS.keys[0].text}
    with child(name, command, folder=folder, environment=keyed) as started:

        def serves() -> bool:
            started.check()
            return address.exists()

        until(serves, limit_s=START_MAX_S, what=f"{name} serves")
        yield Coordinator(started, address.read_text().strip())


@contextmanager
def leading(store_url: str, *, folder: Path) -> Generator[Coordinator]:
    """A coordinator that leads."""
    with coordinator(store_url, folder=folder) as started:
        until(started.leads, limit_s=START_MAX_S, what="the coordinator leads")
        yield started
