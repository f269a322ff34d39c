"""Where workers are started by us: what every kind of place for them can be asked.

A *resource* is what was asked of a container. Each start of it is a *launch*, with a number that
grows. Starting is not a write of the store, so nothing fences it: the intent is recorded before, a
start said twice for one launch starts once, and a worker of an older launch is told to exit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from headrace.errors import Refused, Unavailable


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a resource, and all that the worker has to be told."""

    resource: str
    number: int
    group: str
    threads: int
    memory_mb: int
    coordinators: tuple[str, ...]  # where the worker finds us
    # Of the group, then of the resource: what this kind of container understands, such as
    # spark-conf.*, image, namespace. What a start found out about itself comes back among them.
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Launched:
    """What a start found out, kept with the resource: a process id, an application, a name."""

    properties: Mapping[str, str]


class Elsewhere(Unavailable):
    """A launch runs on another machine, where nobody here can end it.

    Or it did: that machine may be gone, or have another name by now. Whoever waits for its end may
    wait for ever; a launch that a later one followed is refused when it registers, and ends.
    """


class Withdrawn(Refused):
    """A launch was taken back before its worker had begun: this number is never started any more,
    and another one can be."""


class LaunchState(StrEnum):
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    UNKNOWN = "UNKNOWN"  # nobody here can ever be asked, or nobody knows of it


@dataclass(frozen=True, slots=True)
class LaunchStatus:
    state: LaunchState
    code: int | None = None  # of an end; below zero: the number of the signal
    said: str = ""  # for people: its last words, or why it does not run though it should


@dataclass(frozen=True, slots=True)
class Supports:
    """What a kind of container can do when it is asked."""

    start: bool = True
    stop: bool = True
    restart: bool = True  # False: it heals itself, and must not be started again by us (R6)
    status: bool = True
    logs: bool = True


class WorkerContainer(Protocol):
    @property
    def name(self) -> str:
        """As it is configured."""
        ...

    @property
    def supports(self) -> Supports: ...

    def check(self, group: str, properties: Mapping[str, str], *, memory_mb: int) -> None:
        """That launches of the group can be told these. `memory_mb` 0: as the container has it.

        Raises BadSetting, with the group, the property and what was expected.
        """
        ...

    def start(self, launch: Launch) -> Launched:
        """Start a worker. Said again for the same launch, it finds the one that was started.

        Raises HeadraceError with the way out when it can't be started; Unavailable when it may
        come up all the same, Withdrawn when only another number can be started.
        """
        ...

    def stop(self, launch: Launch, *, grace_s: float) -> None:
        """End it, politely at first. One that has ended, or never was, is no error.

        Raises Elsewhere when it runs on another machine, where nobody here can end it; otherwise
        Unavailable when it may still run, and asking again may help.
        """
        ...

    def status(self, launch: Launch) -> LaunchStatus:
        """How it does. One that runs on another machine is UNKNOWN, and that is said.

        Raises Unavailable when nobody could be asked just now: that tells nothing of the launch.
        """
        ...

    def logs(self, launch: Launch, *, lines: int) -> Sequence[str]:
        """The last lines that it wrote."""
        ...
