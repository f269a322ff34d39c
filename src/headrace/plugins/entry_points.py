"""What is true of every entry point: which package it is of, once each, and why it can't be loaded.

Packages offer plug-ins (catalog) and kinds of containers (containers/kinds.py) by entry points.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint
from pathlib import Path

from headrace.model.text import legible, shortened

REASON_CHARACTERS_MAX = 300


def distinct(points: Iterable[EntryPoint]) -> Iterable[EntryPoint]:
    """Each entry point once, in an order that does not depend on the path's."""
    distinct: dict[tuple[str, str, str], EntryPoint] = {}
    for point in sorted(points, key=lambda each: (_is_left_over(each), *_place(each))):
        distinct.setdefault((point.group, point.name, point.value), point)
    return sorted(distinct.values(), key=_place)


def _place(point: EntryPoint) -> tuple[str, ...]:
    return point.group, point.name, package_of(point), version_of(point)


def _is_left_over(point: EntryPoint) -> bool:
    """Whether pip renamed the metadata in order to delete them, and did not get that far."""
    return Path(str(getattr(point.dist, "_path", ""))).name.startswith("~")


def package_of(point: EntryPoint) -> str:
    """The name of the package that declares it."""
    # Metadata that are damaged may lack both, whatever their types say.
    return str((point.dist and point.dist.name) or "of no name")


def version_of(point: EntryPoint) -> str:
    return str((point.dist and point.dist.version) or "")


def title_of(package: str, version: str) -> str:
    """A package as people are told of it."""
    return f"{package} {version}".strip()


def reason_of(error: BaseException) -> str:
    """Why something of a package can't be used: its error, in one line."""
    return legible(shortened(f"{type(error).__name__}: {error}", REASON_CHARACTERS_MAX))
