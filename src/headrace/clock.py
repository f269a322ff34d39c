"""The only place that reads the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Epoch milliseconds: for people and for rows. It may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never jump: for deadlines inside this process."""
        ...


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
