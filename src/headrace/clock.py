"""The clocks: the only module that reads the time.

Everything else is given a `Clock`, so that tests and the simulation decide what time it is.
"""

from __future__ import annotations

import time
from typing import Protocol

# Linux stops CLOCK_MONOTONIC while the machine is suspended; macOS does not, and has no BOOTTIME.
_WITH_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

JUMP_MIN_MS = 5_000  # tolerated between two clocks: NTP's small steps, other machines


class Clock(Protocol):
    """What may be asked of a clock."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, for people and for stored rows. The wall clock may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never jump, for deadlines inside this process."""
        ...

    def elapsed_s(self) -> float:
        """Like `monotonic_s`, but it also counts the time that the machine is suspended.

        It advances as the wall clock would if nobody ever set it.
        """
        ...


class SystemClock:
    """The clocks of the operating system."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def elapsed_s(self) -> float:
        return time.clock_gettime(_WITH_SLEEP)
