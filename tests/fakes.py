"""Stand-ins for what tests must control: time, for one; and what made-up workers say."""

from __future__ import annotations

from typing import Any

from headrace.protocol.messages import Register


def registration(
    worker: str,
    group: str = "default",
    *,
    slots: int = 2,
    control_slots: int = 1,
    pid: int = 1,
    application: str = "app",
) -> Register:
    """How a worker that nobody started by a container introduces itself."""
    return Register(
        worker=worker,
        group=group,
        slots=slots,
        control_slots=control_slots,
        version="0",
        host="host",
        pid=pid,
        spark_application=application,
    )


class PlainRows:
    """A carrier of row kinds where frames are no frames of Spark's, and every row is inserted."""

    def check(self, frame: Any, columns: Any, *, title: str) -> None:
        assert not columns, title

    def keep(self, frame: Any, columns: Any) -> Any:
        raise AssertionError("no row has a kind")

    def fresh(self) -> Any:
        raise AssertionError("no row has a kind")

    def hide(self, frame: Any) -> Any:
        raise AssertionError("no row has a kind")

    def level(self, frame: Any, columns: Any, *, table: str) -> Any:
        raise AssertionError("no row has a kind")

    def carry(self, made: Any, columns: Any, *, title: str, table: str) -> Any:
        raise AssertionError("no row has a kind")


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
