"""The kind toy-docker: each launch is a container of Docker, found again by its name.

Docker gives a name once. So whoever creates the container of a launch second is told of a conflict,
and finds the first one. A launch that is stopped before it was created gets a container that is
never started: it holds the name, and a start that comes late finds it.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.config import child_environment
from headrace.containers.container import (
    EXPORT,
    SPARK_CONF,
    ContainerSetting,
    KnownProperties,
    Launch,
    Launched,
    LaunchState,
    LaunchStatus,
    Supports,
    Withdrawn,
    check_heap,
    launch_properties,
    local_master,
    with_memory,
    with_prefix,
    worker_arguments,
)
from headrace.errors import Refused, Unavailable
from headrace.model.text import holds_secret

KNOWN = KnownProperties(
    "toy-docker",
    ("image", "network", "master", "warehouse"),
    required=("image",),
    whole=("program",),
)
CALL_MAX_S = 60.0  # for an answer of Docker
STATUS_LOG_LINES = 5
RESOURCE, WITHDRAWN = "headrace.resource", "headrace.withdrawn"  # labels
SIGNALED = 128  # Docker adds it to the number of the signal that ended a container
NOTHING: Mapping[str, str] = {}
Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Found:
    """What Docker knows of a container."""

    status: str  # created, running, exited, …
    code: int
    labels: Mapping[str, str]


class DockerWorkers:
    """A `WorkerContainer` whose launches are containers of Docker."""

    supports = Supports()

    def __init__(self, setting: ContainerSetting) -> None:
        KNOWN.check(setting)
        self._setting = setting
        _check_secrets(setting)

    @property
    def name(self) -> str:
        return self._setting.name

    def check(self, group: str, properties: Mapping[str, str], *, memory_mb: int) -> None:
        merged = KNOWN.for_group(self._setting, group, properties)
        _check_secrets(merged)
        check_heap(merged, memory_mb)

    def start(self, launch: Launch) -> Launched:
        found = self._find(launch) or self._create(launch)
        if found.labels.get(RESOURCE) != launch.resource:
            problem = f"{_name(launch)} is a container of somebody else's; remove or rename it"
            raise Refused(f"{self._what('could not start', launch)}: {problem}")
        if WITHDRAWN in found.labels:
            raise Withdrawn(
                f"launch {launch.number} of resource {launch.resource!r} was stopped before it had "
                "begun, and is never started again; the next one has a new number"
            )
        if found.status == "created":  # by us, or by one who died before it could start it
            self._done("could not start", launch, "start", _name(launch))
        return Launched({"docker-container": _name(launch)})

    def stop(self, launch: Launch, *, grace_s: float) -> None:
        found = self._find(launch) or self._create(launch, f"{WITHDRAWN}=true")
        if found.status == "running":
            grace = str(math.ceil(grace_s))
            stop = ("stop", "--time", grace, _name(launch))
            self._done("could not stop", launch, *stop, most_s=grace_s + CALL_MAX_S)
        elif found.status == "created" and WITHDRAWN not in found.labels:
            # A start of it that is on its way finds nothing any more, or the mark.
            self._done("could not stop", launch, "rm", _name(launch))
            self._create(launch, f"{WITHDRAWN}=true")

    def status(self, launch: Launch) -> LaunchStatus:
        found = self._find(launch)
        if found is None or found.status == "created":
            withdrawn = found is not None and WITHDRAWN in found.labels
            state = LaunchState.ENDED if withdrawn else LaunchState.UNKNOWN
            return LaunchStatus(state, said=f"Docker has not started {_name(launch)}")
        if found.status == "running":
            return LaunchStatus(LaunchState.RUNNING)
        code = found.code if found.code <= SIGNALED else SIGNALED - found.code
        message = "\n".join(self.logs(launch, lines=STATUS_LOG_LINES))
        return LaunchStatus(LaunchState.ENDED, code=code, said=message)

    def logs(self, launch: Launch, *, lines: int) -> Sequence[str]:
        if lines == 0 or self._find(launch) is None:
            return []
        tail = ("logs", "--tail", str(lines), _name(launch))
        done = self._done("could not read the log of", launch, *tail)
        return (done.stdout + done.stderr).splitlines()[-lines:]

    def _create(self, launch: Launch, *labels: str) -> Found:
        """The container of the launch: this one, or one that was created meanwhile."""
        properties = launch_properties(self._setting, launch)
        _check_secrets(replace(self._setting, properties=properties))
        exported = with_prefix(properties, EXPORT)
        if self._setting.token:
            exported["HEADRACE_TOKEN"] = self._setting.token
        arguments = worker_arguments(
            launch,
            master=properties.get("master") or local_master(launch),
            conf=with_memory(with_prefix(properties, SPARK_CONF), launch.memory_mb),
            warehouse=properties.get("warehouse"),
        )
        labels = (f"{RESOURCE}={launch.resource}", *labels)
        done = self._docker(
            *("create", "--name", _name(launch), "--entrypoint", "headrace"),
            *("--network", properties.get("network", "host")),
            *(part for label in labels for part in ("--label", label)),
            # By name alone: Docker takes the values from its environment, and no command line.
            *(part for name in exported for part in ("--env", name)),
            *(properties["image"], *arguments),
            environment=exported,
        )
        found = self._find(launch)
        if found is None:
            raise Refused(f"{self._what('could not create', launch)}: {_complaint(done)}")
        return found

    def _find(self, launch: Launch) -> Found | None:
        named = f"name=^/?{re.escape(_name(launch))}$"
        listed = ("container", "ls", "--all", "--quiet", "--filter", named)
        ids = self._done("could not ask for", launch, *listed).stdout.split()
        if not ids:
            return None
        done = self._done("could not ask for", launch, "container", "inspect", *ids)
        (found,) = json.loads(done.stdout)
        state, labels = found["State"], found["Config"]["Labels"]
        return Found(state["Status"], state["ExitCode"], labels or {})

    def _done(self, verb: str, launch: Launch, *command: str, most_s: float = CALL_MAX_S) -> Done:
        """A command that Docker carried out. Raises Unavailable when it did not."""
        done = self._docker(*command, most_s=most_s)
        if done.returncode != 0:
            raise Unavailable(f"{self._what(verb, launch)}: {_complaint(done)}")
        return done

    def _docker(
        self, *command: str, environment: Mapping[str, str] = NOTHING, most_s: float = CALL_MAX_S
    ) -> Done:
        program = self._setting.properties.get("program", "docker")
        try:
            return subprocess.run(  # noqa: S603  no shell reads it
                [program, *command],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=most_s,
                env=child_environment(**environment),
                check=False,
            )
        except OSError as error:
            problem = f"{program} can not be run: {error.strerror}"
            raise self._setting.wrong(f"{problem}; install Docker, or set 'program'") from error
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{program} {command[0]} took more than {most_s:.0f} s") from error

    def _what(self, verb: str, launch: Launch) -> str:
        return f"container {self.name!r} {verb} resource {launch.resource!r}"


def _name(launch: Launch) -> str:
    return f"headrace-{launch.resource}-{launch.number}"


def _complaint(done: Done) -> str:
    lines = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
    return f"Docker says: {lines[-1]}"


def _check_secrets(setting: ContainerSetting) -> None:
    """Refuse secrets among Spark's settings: these are arguments, which everybody can read."""
    for name, value in with_prefix(setting.properties, SPARK_CONF).items():
        if holds_secret(name, value):
            raise setting.wrong(
                f"property {SPARK_CONF}{name} holds a secret, and would stand on a command line; "
                "give it by export.NAME, or in a file of the image"
            )
