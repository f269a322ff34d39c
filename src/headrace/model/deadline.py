"""How long a commit may take: measured from a moment at which its job was known to go on.

Marks at a target are deleted some time after the end of a job. A committer that was paused and
wakes then would find its token unspent. So a commit is refused too long after the moment at which
its execution last asked the leader, and was told to go on: that moment lies before the job's end.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.clock import Clock


@dataclass(frozen=True, slots=True)
class Moment:
    """On both clocks: the monotonic one stands still while a machine is suspended, and the wall
    clock may be put back."""

    monotonic_s: float
    wall_ms: int


def now(clock: Clock) -> Moment:
    return Moment(clock.monotonic_s(), clock.wall_ms())


@dataclass(frozen=True, slots=True)
class Deadline:
    clock: Clock
    since: Moment
    limit_s: float

    @property
    def passed(self) -> bool:
        """By either clock."""
        at = now(self.clock)
        return (
            at.monotonic_s - self.since.monotonic_s > self.limit_s
            or at.wall_ms - self.since.wall_ms > self.limit_s * 1000
        )

    def __str__(self) -> str:
        return f"{self.limit_s:.0f} s"
