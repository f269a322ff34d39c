"""The only place that reads the time."""

from __future__ import annotations

import time
from typing import Protocol

# Linux stops CLOCK_MONOTONIC while the machine is suspended, macOS does not.
_WITH_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Epoch milliseconds: for people and for rows. It may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never jump: for deadlines inside this process."""
        ...

    def elapsed_s(self) -> float:
        """As `monotonic_s`, and it goes on while the machine sleeps: what the wall clock would
        show if nobody ever set it."""
        ...


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def elapsed_s(self) -> float:
        return time.clock_gettime(_WITH_SLEEP)
