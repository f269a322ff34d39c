"""The plug-ins that a job needs: only a worker that has all of them is given it.

A need is a role and a name, "sink Iceberg". All needs of a job together are kept as one text, which
is the same for jobs that need the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

PluginRole = Literal["source", "transform", "sink"]
# Where a pipeline of a spec has the plug-ins of each role.
PLACES: Mapping[PluginRole, str] = {
    "source": "sources",
    "transform": "transforms",
    "sink": "sinks",
}
TEXTS_REMEMBERED_MAX = 1000


def need(role: str, name: str) -> str:
    return f"{role} {name}"


def needs_of(spec: Mapping[str, Any], *, only: PluginRole | None = None) -> str:
    """What the job of a stored spec needs; `only`: of its plug-ins in this role.

    The spec is not parsed: a newer program may have written it.
    """
    roles = PLACES if only is None else {only: PLACES[only]}
    return text_of(
        need(role, plugin["plugin"])
        for pipeline in spec.get("pipelines", ())
        for role, place in roles.items()
        for plugin in pipeline.get(place, ())
    )


def text_of(needs: Iterable[str]) -> str:
    return json.dumps(sorted(set(needs)), ensure_ascii=False)


@lru_cache(TEXTS_REMEMBERED_MAX)
def from_text(needs: str) -> frozenset[str]:
    return frozenset(json.loads(needs))
