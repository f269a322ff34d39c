"""The last launch of a resource whose record has gone: another one of its id goes on from there.

A launch is known by its resource and its number: to its container, which starts it once, and to its
worker, which may come late. So a number is never given twice, also when somebody uses an id again.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, update

from headrace.store.engine import insert_new
from headrace.store.schema import facts

KEPT_DAYS = 60  # by then containers have long forgotten it, and its workers
_DAY_MS = 86_400_000
_PREFIX = "launches."


def last(conn: Connection, resource_id: str) -> int:
    """0: nobody knows of any."""
    told = conn.scalar(select(facts.c.value).where(facts.c.name == f"{_PREFIX}{resource_id}"))
    return int(told.partition(" ")[2]) if told else 0


def note(conn: Connection, resource_id: str, launch: int, *, now_ms: int) -> None:
    """And forget those of long ago."""
    mine = {"name": f"{_PREFIX}{resource_id}", "value": f"{_sortable(now_ms)} {launch}"}
    if not insert_new(conn, facts, **mine):
        conn.execute(update(facts).where(facts.c.name == mine["name"]).values(mine))
    old = facts.c.value < _sortable(now_ms - KEPT_DAYS * _DAY_MS)
    conn.execute(delete(facts).where(facts.c.name.startswith(_PREFIX, autoescape=True), old))


def _sortable(at_ms: int) -> str:
    return f"{max(0, at_ms):015d}"
