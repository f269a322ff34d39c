"""How a table is called by people: catalog.namespace.name, one text for each table."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PLAIN = re.compile(r"[\w-]+")


def identifier_of(catalog: str, namespace: Sequence[str], name: str) -> str:
    """A part with any other character than letters, digits, `_` and `-` stands in backquotes, and
    a backquote in it is doubled: no two tables have the same text."""
    return ".".join(_quoted(part) for part in (catalog, *namespace, name))


def _quoted(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`"
