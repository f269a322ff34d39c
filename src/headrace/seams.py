"""Seams: named crash points at which a test stops, kills or fails this process. Free when unused.

A seam stands on both sides of every durable step: each store write, stage, prepare, sink
commit and acknowledgement. `arm` gives a seam an action; a process that a test has started is
armed from its environment by `arm_from`, e.g. `HEADRACE_SEAMS="epoch running=kill"`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

Action = Callable[[], None]

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_armed: dict[str, Action] = {}


def seam(name: str) -> None:
    """Pass a crash point: run the action that it is armed with, if any."""
    if _armed and name in _armed:
        _armed[name]()


def arm(name: str, action: Action) -> None:
    _armed[name] = action


def armed() -> frozenset[str]:
    return frozenset(_armed)


def disarm_all() -> None:
    _armed.clear()


def arm_from(text: str) -> None:
    """Arm from `name=action[@nth]` entries separated by `;`. Actions: kill, stop.

    `@nth` counts the passes through the seam in this process, from 1; 1 when left out.
    Raises ValueError for an entry that can't be read.
    """
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        name, _, action = entry.partition("=")
        verb, _, nth = (part.strip() for part in action.partition("@"))
        if not name.strip() or verb not in _SIGNALS or not (nth or "1").isdecimal():
            raise ValueError(f"{entry!r} is not of the form NAME=kill, NAME=stop or NAME=kill@3")
        arm(name.strip(), _nth_time(int(nth or 1), _signal_self(_SIGNALS[verb])))


def _signal_self(number: signal.Signals) -> Action:
    # To this very thread: a signal sent to the process may be delivered to another thread while
    # this one runs on past the seam.
    return lambda: signal.pthread_kill(threading.get_ident(), number)


def _nth_time(nth: int, action: Action) -> Action:
    passes = 0

    def count() -> None:
        nonlocal passes
        passes += 1
        if passes == nth:
            action()

    return count
