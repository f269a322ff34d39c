"""The kind external: workers that the user starts, with the command that is shown to them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from headrace.containers.container import (
    SPARK_CONF,
    ContainerSetting,
    KnownProperties,
    Launch,
    Launched,
    LaunchState,
    LaunchStatus,
    Supports,
    check_heap,
    launch_properties,
    local_master,
    with_memory,
    with_prefix,
    worker_arguments,
)
from headrace.errors import Refused
from headrace.model.text import holds_secret

COMMAND = "command"
TOKEN_FILE = "headrace.token"  # noqa: S105 - a file's name
KNOWN = KnownProperties("external", ("master", "warehouse", "token-file"), prefixes=(SPARK_CONF,))


class External:
    """A `WorkerContainer` that starts nothing: the user runs the command it shows."""

    supports = Supports(start=False, stop=False, restart=False, status=False, logs=False)

    def __init__(self, setting: ContainerSetting) -> None:
        KNOWN.check(setting)
        self._setting = setting

    @property
    def name(self) -> str:
        return self._setting.name

    def check(self, group: str, properties: Mapping[str, str], *, memory_mb: int) -> None:
        check_heap(KNOWN.for_group(self._setting, group, properties), memory_mb)

    def start(self, launch: Launch) -> Launched:
        """Start nothing, and return the command that the user has to run."""
        return Launched({COMMAND: self.command(launch)})

    def stop(self, launch: Launch, *, grace_s: float) -> None:  # noqa: ARG002
        raise self._not_ours(launch, "be stopped", "end its process where you started it")

    def status(self, launch: Launch) -> LaunchStatus:  # noqa: ARG002
        return LaunchStatus(LaunchState.UNKNOWN, said="it was not started by us")

    def logs(self, launch: Launch, *, lines: int) -> Sequence[str]:  # noqa: ARG002
        raise self._not_ours(launch, "be asked for its log", "it is where you started it")

    def command(self, launch: Launch) -> str:
        """The worker's command, for a shell. Settings with secrets are left to the user's files."""
        properties = launch_properties(self._setting, launch)
        conf = with_prefix(properties, SPARK_CONF)
        arguments = worker_arguments(
            launch,
            master=properties.get("master") or local_master(launch),
            conf=with_memory(
                {name: value for name, value in conf.items() if not holds_secret(name, value)},
                launch.memory_mb,
            ),
            warehouse=properties.get("warehouse"),
            token_file=(properties.get("token-file") or TOKEN_FILE)
            if self._setting.token
            else None,
        )
        return shlex.join(["headrace", *arguments])

    def _not_ours(self, launch: Launch, what: str, way_out: str) -> Refused:
        return Refused(
            f"resource {launch.resource!r} can not {what} by us: container {self.name!r} is of "
            f"the kind external; {way_out}"
        )
