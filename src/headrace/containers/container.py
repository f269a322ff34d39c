"""How a process of ours is started and stopped somewhere. A container does not know what it runs.

A container is asked for little, so that a local process, a spark-submit or a pod can each be one:
start, stop, whether it still runs, and where a person finds its log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Running:
    pid: int


@dataclass(frozen=True, slots=True)
class Exited:
    code: int  # below zero: the number of the signal that ended it


Status = Running | Exited


class Container(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def log_location(self) -> str:
        """Where its output goes, as a path or URL for people."""
        ...

    def start(self) -> None: ...

    def status(self) -> Status | None:
        """None before it was started."""
        ...

    def stop(self, *, grace_s: float) -> None:
        """Ask it to end; after `grace_s` end it, and all it started, by force."""
        ...
