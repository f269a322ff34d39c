"""Ids and names: how things are called, and which names are allowed.

New ids come from an `Ids`, so that a simulation can repeat them. Names that people choose are
checked, because they become parts of folders, pods and pages. A table's identifier is
`catalog.namespace.name`, and no two tables share one.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import NewType, Protocol

from headrace.errors import BadSetting

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_PLAIN = re.compile(r"[\w-]+")  # a part of an identifier that needs no backquotes

JobId = NewType("JobId", str)
TaskId = NewType("TaskId", str)
WorkerId = NewType("WorkerId", str)


class Ids(Protocol):
    """Where new ids come from."""

    def new(self) -> str:
        """An id that was never used before: 32 lower-case hexadecimal digits."""
        ...


class RandomIds:
    """Random UUIDs."""

    def new(self) -> str:
        return uuid.uuid4().hex


def check_name(what: str, name: str) -> None:
    """Raise BadSetting when a name that somebody chose is not allowed; `what` it names."""
    if not NAME.fullmatch(name):
        raise BadSetting(
            f"{what} {name!r} can't be used; take up to 100 letters, digits, '.', '_' or '-', "
            "beginning with a letter or a digit"
        )


def identifier_of(catalog: str, namespace: Sequence[str], name: str) -> str:
    """The identifier of a table, as people write it; unique.

    A part with any other character than letters, digits, `_` and `-` stands in backquotes, and a
    backquote in it is doubled. So no two tables have the same identifier.
    """
    return ".".join(_quoted(part) for part in (catalog, *namespace, name))


def _quoted(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`"
