"""Stand-ins for what tests must control: time, for one."""

from __future__ import annotations


class FakeClock:
    """A clock that moves only when told to. Its wall and its monotonic time are unrelated."""

    def __init__(self, *, wall_ms: int = 1_700_000_000_000, monotonic_s: float = 1_000.0) -> None:
        self._wall_ms, self._monotonic_s = wall_ms, monotonic_s
        self._slept_s = 0.0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def elapsed_s(self) -> float:
        return self._monotonic_s + self._slept_s

    def advance(self, seconds: float) -> None:
        """Let time pass, as both clocks see it."""
        self._wall_ms += round(seconds * 1000)
        self._monotonic_s += seconds

    def sleep(self, seconds: float) -> None:
        """Suspend the machine: nobody counts it but the wall clock and what includes sleep."""
        self._wall_ms += round(seconds * 1000)
        self._slept_s += seconds

    def set_wall(self, wall_ms: int) -> None:
        """Let the wall clock jump, as an administrator or NTP does."""
        self._wall_ms = wall_ms
