"""The kinds of containers that are installed here, found by entry points.

A package offers a kind under the group `headrace.containers`: the entry point's name is the kind,
and it points to a callable that makes a `WorkerContainer` of a `ContainerSetting`. Headrace's own
come through the same door. A kind is loaded when the first container of it is made, so that what
nobody configured costs nothing and can break nothing.

When two packages declare one kind, neither is used: which one a configuration means must not depend
on the order of a path.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from headrace.containers.container import ContainerSetting, WorkerContainer
from headrace.errors import HeadraceError
from headrace.plugins.catalog import NOTHING_INSTALLED
from headrace.plugins.entry_points import distinct, package_of, reason_of, title_of, version_of

GROUP = "headrace.containers"
CALLS = ("name", "supports", "check", "start", "stop", "status", "logs")  # of a `WorkerContainer`


class ContainerKinds:
    """The kinds that these entry points offer, by name."""

    def __init__(self, points: Iterable[EntryPoint]) -> None:
        self._points: dict[str, list[EntryPoint]] = {}
        for point in distinct(points):
            self._points.setdefault(point.name, []).append(point)

    @property
    def names(self) -> list[str]:
        return sorted(self._points)

    def make(self, kind: str, setting: ContainerSetting) -> WorkerContainer:
        """The container of a setting. Raises BadSetting, with the package, when its kind is missing
        or can't be used."""
        points = self._points.get(kind, [])
        if not points:
            raise setting.wrong(f"its kind {kind!r} is missing. {NOTHING_INSTALLED}")
        if len(points) > 1:
            packages = " and ".join(_title(each) for each in points)
            raise setting.wrong(
                f"its kind {kind!r} is declared by {len(points)} packages, {packages}; uninstall "
                "all of them but one, and restart"
            )
        (point,) = points
        loaded = _loaded(point, setting)
        try:
            made = loaded(setting)
        except HeadraceError:
            raise
        except Exception as error:
            raise _unusable(point, setting, reason_of(error)) from error
        lacking = [name for name in CALLS if not hasattr(made, name)]
        if lacking:
            problem = f"it made a {type(made).__name__} without {', '.join(lacking)}"
            raise _unusable(point, setting, problem)
        return made


def installed_kinds() -> ContainerKinds:
    return ContainerKinds(entry_points(group=GROUP))


def _loaded(point: EntryPoint, setting: ContainerSetting) -> Any:
    try:
        loaded = point.load()
    except KeyboardInterrupt:
        raise  # a person's wish to end, and nothing of the package's
    except BaseException as error:
        raise _unusable(point, setting, reason_of(error)) from error
    if not callable(loaded):
        raise _unusable(point, setting, "it is no callable that takes a ContainerSetting")
    return loaded


def _unusable(point: EntryPoint, setting: ContainerSetting, problem: str) -> HeadraceError:
    return setting.wrong(
        f"its kind {point.name!r} comes from package {_title(point)}, and {point.value} can not be "
        f"used: {problem}; install that package again, with what it needs, or uninstall it"
    )


def _title(point: EntryPoint) -> str:
    return title_of(package_of(point), version_of(point))
