"""A child process on this machine in a session of its own, the members of a session, and log tails.

The session makes "everything that the process started" a set that can be listed and ended: a
worker's JVM is in its process group, but Spark's Python daemons make groups of their own, and only
the session holds them all. A terminal's Ctrl-C does not reach the session either: whoever started
the process decides how it ends.

The standard input of a `LocalProcess` is a pipe that this process holds open. When this process
dies, however it dies, the pipe closes, and a child started with `--with-parent` ends itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil

from headrace.clock import Clock, SystemClock
from headrace.containers.container import Exited, Running, Status

POLL_S = 0.05  # between two looks whether a process has ended
KILL_WAIT_S = 5.0  # for the kernel to remove a killed process
SWEEPS_MAX = 5  # a process may be born between listing a session and killing it
LOG_TAIL_BYTES_MAX = 1_000_000
# As SIGTERM, from a parent in no hurry: Java may finish writing its class-data archive.
UNHURRIED = signal.SIGUSR1
LOG_BYTES_MAX = 10_000_000  # a larger log is rotated when the process starts
READ_BYTES_MAX = 65_536


class LocalProcess:
    """A `Container` that runs a child process of this process."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str],
        output: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`output` is a file for the standard output, which by default goes to the log as well."""
        self.name = name
        self._argv = list(argv)
        self._log = log
        self._environment = dict(environment)
        self._clock: Clock = clock or SystemClock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._output = output
        self._output_read = 0
        self._never = threading.Event()

    @property
    def log_location(self) -> str:
        return str(self._log)

    def start(self) -> None:
        assert self._process is None or self._process.returncode is not None, "it runs already"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        if self._log.exists() and self._log.stat().st_size > LOG_BYTES_MAX:
            self._log.replace(self._log.with_suffix(self._log.suffix + ".1"))
        with self._log.open("ab") as log, _opened(self._output) as output:
            self._log_start, self._output_read = log.tell(), 0
            self._process = subprocess.Popen(  # noqa: S603 - argv is ours, and no shell reads it
                self._argv,
                stdin=subprocess.PIPE,
                stdout=output or log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def status(self) -> Status | None:
        if self._process is None:
            return None
        if self._process.returncode is None and self._has_exited():
            self._kill_and_reap(self._process)
        code = self._process.returncode
        return Running(self._process.pid) if code is None else Exited(code)

    def stop(self, *, grace_s: float, number: signal.Signals = signal.SIGTERM) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        if not self._has_exited():
            process.send_signal(number)
            self._wait_for_exit(grace_s)
        self._kill_and_reap(process)

    def kill(self) -> None:
        """Kill the process and its group without waiting. Safe in a signal handler."""
        if self._process is not None and self._process.returncode is None:
            signal_group(self._process.pid, signal.SIGKILL)

    def log_since_start(self) -> list[str]:
        """The last lines that it logged since this start."""
        if not self._log.exists():
            return []
        with self._log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - READ_BYTES_MAX))
            return log.read().decode(errors="replace").splitlines()

    def new_output(self) -> list[str]:
        """The complete lines of its standard output that came since the last call."""
        if self._output is None or not self._output.exists():
            return []
        with self._output.open("rb") as output:
            output.seek(self._output_read)
            whole, newline, _ = output.read(READ_BYTES_MAX).rpartition(b"\n")
        self._output_read += len(whole + newline)
        return whole.decode(errors="replace").splitlines()

    def _has_exited(self) -> bool:
        """Whether it has ended. It is not reaped, so that its session id can not be reused yet."""
        assert self._process is not None
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _wait_for_exit(self, limit_s: float) -> bool:
        deadline_s = self._clock.monotonic_s() + limit_s
        while not self._has_exited():
            if self._clock.monotonic_s() >= deadline_s:
                return False
            self._never.wait(POLL_S)
        return True

    def _kill_and_reap(self, process: subprocess.Popen[bytes]) -> None:
        """Kill everything that is left of its session, then reap the process."""
        signal_group(process.pid, signal.SIGKILL)
        self._wait_for_exit(KILL_WAIT_S)
        for _ in range(SWEEPS_MAX):
            left = session_members(process.pid)
            if not left:
                break
            for pid in left:
                signal_process(pid, signal.SIGKILL)
            self._never.wait(POLL_S)
        process.wait(KILL_WAIT_S)
        if process.stdin is not None:
            process.stdin.close()


@contextmanager
def _opened(path: Path | None) -> Generator[IO[bytes] | None]:
    if path is None:
        yield None
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        yield stream


def session_members(session: int) -> list[int]:
    """The pids of a session, without its leader, whose pid is the id of the session."""
    return [pid for pid in psutil.pids() if pid != session and session_of(pid) == session]


def session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):  # it has ended, or belongs to another user
        return None


def signal_group(leader: int, number: signal.Signals) -> None:
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):  # all have ended (macOS raises the second)
        return


def signal_process(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def last_lines(path: Path, lines: int) -> Sequence[str]:
    """At most `lines` of the end of a file, from its last `LOG_TAIL_BYTES_MAX` bytes; none without
    the file."""
    try:
        with path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(0, end - LOG_TAIL_BYTES_MAX))
            text = log.read(LOG_TAIL_BYTES_MAX).decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:] if lines > 0 else []
