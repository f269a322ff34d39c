"""Ctrl-C, twice. The first is a wish that loops look at; the second ends everything at once.

A handler may only do what is safe at any instruction, so it writes a byte to a pipe, and those
who wait, wait on the pipe: an Event could be set while this very thread holds its lock.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT_OFFSET = 128  # a shell's way to say "ended by signal n"


class Stopped(Exception):
    """A stop was wanted while something was waited for."""


class Interrupts:
    def __init__(self, at_once: Callable[[], None]) -> None:
        self._at_once = at_once
        self._readable, self._writable = os.pipe()
        self._number: int | None = None

    @property
    def exit_code(self) -> int:
        return EXIT_OFFSET + (self._number or signal.SIGINT)

    def wait(self, seconds: float) -> bool:
        """Wait, and say whether a stop is wanted. Returns early when it is."""
        if self._number is None:
            select.select([self._readable], [], [], seconds)
        return self._number is not None

    def check(self, seconds: float) -> None:
        """Wait; Stopped as soon as a stop is wanted."""
        if self.wait(seconds):
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Wait between two looks while stopping: what was wanted is known by now."""
        select.select([], [], [], seconds)

    def receive(self, number: int, _frame: FrameType | None) -> None:
        if self._number is not None:
            self._at_once()
            os._exit(EXIT_OFFSET + number)
        self._number = number
        os.write(self._writable, b".")

    def close(self) -> None:
        os.close(self._readable)
        os.close(self._writable)


@contextmanager
def interrupts(at_once: Callable[[], None]) -> Generator[Interrupts]:
    """Take Ctrl-C and SIGTERM over; `at_once` must end all children without waiting."""
    taken = Interrupts(at_once)
    before = {number: signal.signal(number, taken.receive) for number in SIGNALS}
    try:
        yield taken
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        taken.close()
