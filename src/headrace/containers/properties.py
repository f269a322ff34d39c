"""What a container is configured with, and what of it every kind understands.

Properties have Amoro's names where it has them. Those of a container hold for all its launches;
those of a launch, which come from its group and its resource, win over them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.containers.launching import Launch, WorkerContainer
from headrace.errors import BadSetting
from headrace.jobfile.suggest import nearest

EXPORT = "export."  # export.NAME: a variable of the worker's environment
SPARK_CONF = "spark-conf."  # spark-conf.NAME: a setting of Spark
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_RULE = "1 to 63 letters, digits, dots, dashes and underscores, the first a letter or digit"
_YES_NO = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ContainerSetting:
    """A container as it is configured. Whoever adds a kind makes a container of it."""

    name: str
    properties: Mapping[str, str]
    place: str  # where it stands, for messages
    home: Path  # of the coordinator; what a container keeps on disk is below it
    token: str | None = field(default=None, repr=False)  # what workers have to show

    def wrong(self, problem: str) -> BadSetting:
        return BadSetting(f"{self.place}: container {self.name!r}: {problem}")


Kind = Callable[[ContainerSetting], WorkerContainer]


@dataclass(frozen=True, slots=True)
class Known:
    """The properties that a kind of container understands."""

    kind: str
    names: tuple[str, ...]
    prefixes: tuple[str, ...] = (EXPORT, SPARK_CONF)
    required: tuple[str, ...] = ()
    # Of the container as a whole: no launch can be told another value.
    whole: tuple[str, ...] = ()

    def check(self, setting: ContainerSetting) -> None:
        self._check_names(setting, (*self.names, *self.whole))
        for name in self.required:
            if not setting.properties.get(name):
                raise setting.wrong(f"property {name!r} is missing; set it")

    def for_group(
        self, setting: ContainerSetting, group: str, properties: Mapping[str, str]
    ) -> ContainerSetting:
        """The container as launches of the group meet it. Raises BadSetting for a property that
        they can't be told."""
        asked = replace(setting, properties=properties, place=f"group {group!r}")
        for name in self.whole:
            if name in properties:
                raise asked.wrong(
                    f"property {name!r} holds for a container of the kind {self.kind} as a whole, "
                    f"and not for one group; set it where the container is configured, at "
                    f"{setting.place}, or have a second container there"
                )
        self._check_names(asked, self.names)
        met = replace(asked, properties={**setting.properties, **properties})
        self.check(met)
        return met

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


def of_launch(setting: ContainerSetting, launch: Launch) -> Mapping[str, str]:
    return {**setting.properties, **launch.properties}


def with_prefix(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Those that begin so, without it."""
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


def number(
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
    """Raises BadSetting for a name that can't be part of a path."""
    if NAME.fullmatch(name) is None:
        raise BadSetting(f"{kind} {name!r} can not be used as a name; expected {NAME_RULE}")
