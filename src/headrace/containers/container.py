"""The container protocols, and what every kind of container shares: properties and command line.

`Container` runs one process of ours and does not know what it runs. It is asked for little, so that
a local process, a spark-submit or a pod can each be one: start, stop, whether it still runs, and
where a person finds its log.

`WorkerContainer` is a place where the coordinator starts workers. A *resource* is what was asked of
a container. Each start of it is a *launch*, with a number that grows. Starting is not a write to
the store, so nothing fences it. Instead, the intent is recorded first, `start` is idempotent by
launch, and a worker of an older launch is told to exit.

Properties have Amoro's names where it has them. Those of a container hold for all its launches;
those of a launch, which come from its group and its resource, win over them.

The command line of a worker is the same wherever it is started, and never holds a secret.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from headrace.errors import BadSetting, Refused, Unavailable
from headrace.model.text import nearest

EXPORT = "export."  # export.NAME: a variable of the worker's environment
SPARK_CONF = "spark-conf."  # spark-conf.NAME: a setting of Spark
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_RULE = "1 to 63 letters, digits, dots, dashes and underscores, the first a letter or digit"
_YES_NO = {"true": True, "false": False}
DRIVER_MEMORY = "spark.driver.memory"
# Settings to which a worker adds its own value, by separator. Both end up on the JVM's command
# line, whichever way they were given.
JOINED = {"spark.driver.extraClassPath": ":", "spark.driver.extraJavaOptions": " "}
HEAP_MIN_MB = 450  # Spark refuses to start with less: 1.5 times what it reserves for itself


@dataclass(frozen=True, slots=True)
class Running:
    pid: int


@dataclass(frozen=True, slots=True)
class Exited:
    code: int  # negative: the number of the signal that ended it


Status = Running | Exited


class Container(Protocol):
    """A process of ours that can be started and stopped somewhere."""

    @property
    def name(self) -> str: ...

    @property
    def log_location(self) -> str:
        """Where its output goes, as a path or URL for people."""
        ...

    def start(self) -> None: ...

    def status(self) -> Status | None:
        """None before the first start."""
        ...

    def stop(self, *, grace_s: float) -> None:
        """Ask the process to end; after `grace_s` kill it and everything it started."""
        ...


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a resource, and everything that its worker has to be told."""

    resource: str
    number: int
    group: str
    threads: int
    memory_mb: int
    coordinators: tuple[str, ...]  # their addresses, for the worker
    # Of the group, then of the resource: what this kind of container understands, such as
    # spark-conf.*, image, namespace. They include what `start` returned in `Launched`.
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Launched:
    """What a start learned, kept with the resource: a process id, an application, a name."""

    properties: Mapping[str, str]


class Elsewhere(Unavailable):
    """A launch runs, or ran, on another machine, where this coordinator can not end it.

    That machine may be gone or have another name by now, so waiting for the end may take for ever.
    A launch that a later one followed is refused when it registers, and ends.
    """


class Withdrawn(Refused):
    """A launch was withdrawn before its worker had begun: it can never be started again; a launch
    with another number can."""


class LaunchState(StrEnum):
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    UNKNOWN = "UNKNOWN"  # it can never be asked from here, or nothing is known of it


@dataclass(frozen=True, slots=True)
class LaunchStatus:
    state: LaunchState
    code: int | None = None  # of its end; negative: the number of the signal
    said: str = ""  # for people: the end of its log, or why it does not run though it should


@dataclass(frozen=True, slots=True)
class Supports:
    """The calls that a kind of container supports."""

    start: bool = True
    stop: bool = True
    restart: bool = True  # False: it restarts by itself, and we must not restart it (R6)
    status: bool = True
    logs: bool = True


class WorkerContainer(Protocol):
    """A place where the coordinator starts workers. The calls are made by launch."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""
        ...

    @property
    def supports(self) -> Supports: ...

    def check(self, group: str, properties: Mapping[str, str], *, memory_mb: int) -> None:
        """Check the properties of a group. `memory_mb` 0 leaves the memory to the container.

        Raises BadSetting, with the group, the property and what was expected.
        """
        ...

    def start(self, launch: Launch) -> Launched:
        """Start a worker. Idempotent by launch: a second call finds the worker that was started.

        Raises HeadraceError with the way out when it can't be started; Unavailable when it may
        come up all the same, Withdrawn when only a launch with another number can be started.
        """
        ...

    def stop(self, launch: Launch, *, grace_s: float) -> None:
        """End the worker, by force after `grace_s`. A launch that has ended, or never was, is no
        error.

        Raises Elsewhere when it runs on another machine, where it can not be ended from here;
        otherwise Unavailable when it may still run, and another call may help.
        """
        ...

    def status(self, launch: Launch) -> LaunchStatus:
        """The state of the launch. One on another machine is UNKNOWN, with that as the reason.

        Raises Unavailable when the state could not be read: that tells nothing of the launch.
        """
        ...

    def logs(self, launch: Launch, *, lines: int) -> Sequence[str]:
        """The last lines of its log."""
        ...


@dataclass(frozen=True, slots=True)
class ContainerSetting:
    """The configuration of a container, from which its kind makes a `WorkerContainer`."""

    name: str
    properties: Mapping[str, str]
    place: str  # file and line of the configuration, for messages
    home: Path  # of the coordinator; what a container keeps on disk is below it
    token: str | None = field(default=None, repr=False)  # that workers have to present

    def wrong(self, problem: str) -> BadSetting:
        return BadSetting(f"{self.place}: container {self.name!r}: {problem}")


@dataclass(frozen=True, slots=True)
class KnownProperties:
    """The properties that a kind of container understands."""

    kind: str
    names: tuple[str, ...]
    prefixes: tuple[str, ...] = (EXPORT, SPARK_CONF)
    required: tuple[str, ...] = ()
    # Properties of the container as a whole, which no group or launch can override.
    whole: tuple[str, ...] = ()

    def check(self, setting: ContainerSetting) -> None:
        self._check_names(setting, (*self.names, *self.whole))
        for name in self.required:
            if not setting.properties.get(name):
                raise setting.wrong(f"property {name!r} is missing; set it")

    def for_group(
        self, setting: ContainerSetting, group: str, properties: Mapping[str, str]
    ) -> ContainerSetting:
        """The setting of the container for launches of the group. Raises BadSetting for a property
        that a group can't have."""
        of_group = replace(setting, properties=properties, place=f"group {group!r}")
        for name in self.whole:
            if name in properties:
                raise of_group.wrong(
                    f"property {name!r} holds for a container of the kind {self.kind} as a whole, "
                    f"and not for one group; set it where the container is configured, at "
                    f"{setting.place}, or have a second container there"
                )
        self._check_names(of_group, self.names)
        merged = replace(of_group, properties={**setting.properties, **properties})
        self.check(merged)
        return merged

    def _check_names(self, setting: ContainerSetting, names: tuple[str, ...]) -> None:
        for name in setting.properties:
            if name not in names and not name.startswith(self.prefixes):
                every = [*names, *(f"{prefix}NAME" for prefix in self.prefixes)]
                near = nearest(name, every)
                meant = f"did you mean {near!r}? The" if near is not None else "the"
                known = ", ".join(every)
                raise setting.wrong(
                    f"unknown property {name!r}; {meant} kind {self.kind} knows {known}"
                )


def launch_properties(setting: ContainerSetting, launch: Launch) -> Mapping[str, str]:
    """The properties of the container, overridden by those of the launch."""
    return {**setting.properties, **launch.properties}


def with_prefix(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The properties whose names begin with the prefix, with the prefix removed."""
    return {
        name.removeprefix(prefix): value
        for name, value in properties.items()
        if name.startswith(prefix) and name != prefix
    }


def flag(setting: ContainerSetting, name: str, *, default: bool) -> bool:
    text = setting.properties.get(name)
    if text is None:
        return default
    if text.lower() not in _YES_NO:
        raise setting.wrong(f"property {name!r} is {text!r}; expected true or false")
    return _YES_NO[text.lower()]


def positive_number(
    setting: ContainerSetting,
    properties: Mapping[str, str],
    name: str,
    *,
    default: float,
    most: float,
) -> float:
    """A number above 0 and at most `most`."""
    text = properties.get(name)
    if text is None:
        return default
    problem = f"property {name!r} is {text!r}; expected a number above 0, at most {most:g}"
    try:
        value = float(text)
    except ValueError as error:
        raise setting.wrong(problem) from error
    if not 0 < value <= most:
        raise setting.wrong(problem)
    return value


def check_name(kind: str, name: str) -> None:
    """Raise BadSetting for a name that can't be part of a path."""
    if NAME.fullmatch(name) is None:
        raise BadSetting(f"{kind} {name!r} can not be used as a name; expected {NAME_RULE}")


def worker_arguments(
    launch: Launch,
    *,
    master: str,
    conf: Mapping[str, str],
    home: str | None = None,
    warehouse: str | None = None,
    folder: Path | None = None,
    token_file: str | None = None,
) -> Sequence[str]:
    """The arguments after `headrace`. `folder`: where a local worker claims its launch."""
    optional = {
        "--home": home,
        "--warehouse": warehouse,
        "--launch-dir": None if folder is None else str(folder),
        "--token-file": token_file,
    }
    return [
        *("worker", "--coordinator", ",".join(launch.coordinators)),
        *("--group", launch.group, "--slots", str(launch.threads)),
        *("--resource-id", launch.resource, "--launch", str(launch.number)),
        *("--spark-master", master),
        *(part for name, value in optional.items() if value for part in (name, value)),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
    ]


def with_memory(conf: Mapping[str, str], memory_mb: int) -> Mapping[str, str]:
    """Add the heap of the worker's JVM, unless a setting names it already."""
    if memory_mb <= 0 or DRIVER_MEMORY in conf:
        return conf
    return {DRIVER_MEMORY: f"{memory_mb}m", **conf}


def check_heap(setting: ContainerSetting, memory_mb: int, *, share: float = 1.0) -> None:
    """Check that Spark starts with this memory, of which `share` is the heap. 0 MB passes."""
    if memory_mb <= 0 or f"{SPARK_CONF}{DRIVER_MEMORY}" in setting.properties:
        return
    if memory_mb * share < HEAP_MIN_MB:
        least = math.ceil(HEAP_MIN_MB / share)
        raise setting.wrong(
            f"memory is {memory_mb} MB, and Spark does not start with a heap below {HEAP_MIN_MB} "
            f"MB; expected at least {least}, or 0 to leave it to the container"
        )


def local_master(launch: Launch) -> str:
    """A local master with one core for each thread: the machine may have other workers."""
    return f"local[{launch.threads}]"


def this_program() -> Sequence[str]:
    """The command `headrace`, run by the same Python as this process."""
    return [sys.executable, "-m", "headrace"]
