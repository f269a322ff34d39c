"""Our own pipelines tell which tables they wrote to: these need not wait until they are looked at.

Tables that others write to are found changed by their next evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from headrace.store import catalogs, lake

NEWS_PAUSE_MS = 10_000  # a table that is written to all the time is looked at this often at most


def written(conn: Connection, commits: Mapping[str, Any], *, now_ms: int) -> None:
    """An epoch was committed: `commits` says by sink what it wrote to."""
    named = {str(told["table"]) for told in commits.values() if _names_a_table(told)}
    for identifier in sorted(named):
        table = lake.named(conn, identifier)
        if table is not None:
            at_ms = max(now_ms, (table.evaluated_at_ms or 0) + NEWS_PAUSE_MS)
            if at_ms < table.due_at_ms:
                lake.change(conn, table.id, due_at_ms=at_ms)
        else:
            _look_into(conn, identifier.partition(".")[0], now_ms=now_ms)


def _names_a_table(told: Any) -> bool:
    return isinstance(told, Mapping) and "table" in told


def _look_into(conn: Connection, catalog: str, *, now_ms: int) -> None:
    """A table that nobody has seen yet."""
    found = catalogs.get(conn, catalog)
    if found is None:
        return
    at_ms = max(now_ms, (found.discovered_at_ms or 0) + NEWS_PAUSE_MS)
    if at_ms < found.due_at_ms:
        catalogs.change(conn, catalog, due_at_ms=at_ms)
