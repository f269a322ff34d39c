"""How a command ends: exit codes of errors, Ctrl-C and SIGTERM, and calls that can be abandoned.

An error becomes one line on standard error, that of a job a line for each of its problems, and an
exit code that says its kind:

0    done
1    the job failed, was canceled, or was stopped with a savepoint before it was done; or what a
     command about a table waited for failed; `inspect`: some table could not be read; `import`:
     some job file would not run
2    refused: the request is wrong, repeating it will not help
70   a bug of ours; the line says where its traceback lies
71   the JVM of a worker has died; the worker may be started again
72   the launch that a worker was started for was replaced or released; nothing is to be done
75   something outside is down, repeating it later may help
130  interrupted: Ctrl-C, or SIGINT
143  ended by SIGTERM; a coordinator or worker that stopped cleanly on it exits 0

The first Ctrl-C is a wish to stop, which loops check; the second ends everything at once. A signal
handler may only do what is safe at any instruction, so it writes a byte to a pipe, and those who
wait, wait on the pipe: an Event could be set while this very thread holds its lock.

A coordinator that hangs must not hold anybody who wants to leave. A call tries several addresses
several times, and a socket restarts its timeout with every step; so a call is made in a thread of
its own, which can be abandoned. The process does not wait for that thread.

A child ends with the process that started it, however that ended. The parent holds the other end of
the child's standard input and never writes to it. When the parent is gone, also by SIGKILL, the
kernel closes that end and a read returns. The child then stops as on SIGTERM; what has not stopped
after a while is killed with its process group (a worker's JVM is in it).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Generator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from math import inf
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from headrace.clock import SystemClock
from headrace.errors import (
    BadJob,
    CoordinatorUnavailable,
    HeadraceError,
    JobFailed,
    LaunchOver,
    Refused,
    SparkDied,
    Unavailable,
)

if TYPE_CHECKING:
    from pydantic import ValidationError

JOB_FAILED = 1
SOME_FAILED = 1  # of a command that reads many things, and lists those that failed
REFUSED = 2
BUG = 70
SPARK_DIED = 71
LAUNCH_OVER = 72
UNAVAILABLE = 75
INTERRUPTED = 130

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_OFFSET = 128  # a shell's exit code for "ended by signal n"
STOP_CHECK_S = 0.05  # how soon a wish to stop is noticed

STOP_GRACE_S = 30.0  # a worker with running tasks takes up to 20 s
READ_BYTES = 1024
STDIN = 0

PREFIX = "headrace: "  # of the line, by which a parent finds it in a child's log


def exit_code(error: HeadraceError) -> int:
    match error:
        case JobFailed():
            return JOB_FAILED
        case LaunchOver():
            return LAUNCH_OVER
        case Refused():
            return REFUSED
        case SparkDied():
            return SPARK_DIED
        case Unavailable():
            return UNAVAILABLE
        case _:
            return BUG


def exit_with_error(error: Exception, *, debug: bool) -> NoReturn:
    """Print the error, in one line unless it has several reasons, and exit with the code of its
    kind."""
    from pydantic import (
        ValidationError,
    )  # slow to import, and not needed by a command that succeeds

    if isinstance(error, HeadraceError) and (code := exit_code(error)) != BUG:
        for text in str(error).split("\n") if isinstance(error, BadJob) else [str(error)]:
            _print_line(text)
    elif isinstance(error, ValidationError) and error.title == "Settings":
        code = REFUSED
        _print_line(_settings_line(error))
    else:
        code = BUG
        _print_line(_bug_line(error))
    if debug:
        traceback.print_exception(error)
    sys.exit(code)


def _print_line(text: str) -> None:
    sys.stderr.write(PREFIX + " ".join(text.split()) + "\n")


def _settings_line(error: ValidationError) -> str:
    return "; ".join(
        f"environment variable HEADRACE_{'_'.join(map(str, problem['loc'])).upper()} "
        f"can not be used: {problem['msg']}"
        for problem in error.errors(include_url=False)
    )


def _bug_line(error: Exception) -> str:
    with tempfile.NamedTemporaryFile(
        "w", prefix="headrace-bug-", suffix=".log", delete=False
    ) as report:
        traceback.print_exception(error, file=report)
    summary = traceback.format_exception_only(error)[-1].strip()
    return (
        f"this is a bug in headrace: {summary}; please report it with {report.name}, "
        "or run again with --debug to see it here"
    )


T = TypeVar("T")


class StopWanted(Exception):
    """A stop was wanted while something was awaited."""


class CallTimedOut(CoordinatorUnavailable):
    """No answer came in time. Whoever was asked may still act on the call."""


class Interrupts:
    """The wish to stop, as received by signal. `kill_children` is called by the second one."""

    def __init__(self, kill_children: Callable[[], None]) -> None:
        self._kill_children = kill_children
        self._readable, self._writable = os.pipe()
        self._number: int | None = None

    @property
    def exit_code(self) -> int:
        return EXIT_OFFSET + (self._number or signal.SIGINT)

    def wait(self, seconds: float) -> bool:
        """Wait, and say whether a stop is wanted. Returns as soon as it is."""
        if self._number is None:
            select.select([self._readable], [], [], seconds)
        return self._number is not None

    def check(self, seconds: float) -> None:
        """Wait. Raises StopWanted as soon as a stop is wanted."""
        if self.wait(seconds):
            raise StopWanted

    def pause(self, seconds: float) -> None:
        """Wait between two polls while stopping: that a stop is wanted is known by then."""
        select.select([], [], [], seconds)

    def receive(self, number: int, _frame: FrameType | None) -> None:
        if self._number is not None:
            self._kill_children()
            os._exit(EXIT_OFFSET + number)
        self._number = number
        os.write(self._writable, b".")

    def close(self) -> None:
        os.close(self._readable)
        os.close(self._writable)


@contextmanager
def interrupts(kill_children: Callable[[], None]) -> Generator[Interrupts]:
    """Take over Ctrl-C and SIGTERM; `kill_children` must end all children without waiting."""
    received = Interrupts(kill_children)
    previous = {number: signal.signal(number, received.receive) for number in SIGNALS}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        received.close()


def interruptible(
    call: Callable[[], T], *, stop: Interrupts | None = None, limit_s: float | None = None
) -> T:
    """What the call returns or raises. StopWanted as soon as `stop` says so, CallTimedOut after
    `limit_s`; if either holds already, the call is not made at all."""
    clock = SystemClock()
    until_s = inf if limit_s is None else clock.monotonic_s() + limit_s
    future: Future[T] | None = None
    while future is None or not future.done():
        if stop is not None and stop.wait(0):
            raise StopWanted
        if (left_s := until_s - clock.monotonic_s()) <= 0:
            raise CallTimedOut(f"no coordinator answered within {limit_s:.1f} s")
        future = future or _start_call(call)
        wait([future], timeout=min(STOP_CHECK_S, left_s))
    return future.result()


def _start_call(call: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits for it
            future.set_exception(error)

    Thread(target=run, name="coordinator call", daemon=True).start()
    return future


def end_with_parent(*, grace_s: float = STOP_GRACE_S) -> None:
    """Watch, in a thread, for the end of the process that started this one."""
    thread = threading.Thread(
        target=watch_parent,
        name="parent watch",
        daemon=True,
        kwargs={"descriptor": STDIN, "grace_s": grace_s, "send": _send},
    )
    thread.start()


def watch_parent(
    *, descriptor: int, grace_s: float, send: Callable[[signal.Signals], None]
) -> None:
    """Wait for end of file, then send SIGTERM, and SIGKILL after `grace_s`."""
    while os.read(descriptor, READ_BYTES):  # no other limit: it ends with the parent
        pass
    send(signal.SIGTERM)
    threading.Event().wait(grace_s)
    send(signal.SIGKILL)


def _send(number: signal.Signals) -> None:
    """SIGTERM is for this process to act on; SIGKILL goes to its whole process group, if it leads
    one."""
    if number is signal.SIGKILL and os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), number)
    else:
        os.kill(os.getpid(), number)
