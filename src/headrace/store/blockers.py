"""Blockers: by which a writer asks that a table be left alone for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, select, update

from headrace.store.engine import insert_new
from headrace.store.prepared import Prepared
from headrace.store.table_schema import blockers


@dataclass(frozen=True, slots=True)
class Blocker:
    table_id: str
    name: str
    reason: str
    created_at_ms: int
    expires_at_ms: int


_COLUMNS = tuple(
    blockers.c[name] for name in ("table_id", "name", "reason", "created_at_ms", "expires_at_ms")
)
_OF = Prepared(
    select(*_COLUMNS)
    .where(blockers.c.table_id == bindparam("table"), blockers.c.expires_at_ms > bindparam("now"))
    .order_by(blockers.c.name)
)
_ALL = Prepared(
    select(blockers.c.table_id).where(blockers.c.expires_at_ms > bindparam("now")).distinct()
)


def block(
    conn: Connection, table_id: str, name: str, *, reason: str, until_ms: int, now_ms: int
) -> Blocker:
    """Take a blocker, or renew it: the same name holds the same one, for longer or shorter."""
    added = insert_new(
        conn,
        blockers,
        table_id=table_id,
        name=name,
        reason=reason,
        created_at_ms=now_ms,
        expires_at_ms=until_ms,
    )
    if not added:
        mine = (blockers.c.table_id == table_id, blockers.c.name == name)
        conn.execute(update(blockers).where(*mine).values(reason=reason, expires_at_ms=until_ms))
    return Blocker(table_id, name, reason, now_ms, until_ms)


def unblock(conn: Connection, table_id: str, name: str) -> bool:
    gone = conn.execute(
        delete(blockers).where(blockers.c.table_id == table_id, blockers.c.name == name)
    )
    return gone.rowcount == 1


def of(conn: Connection, table_id: str, *, now_ms: int) -> Sequence[Blocker]:
    """Those that hold now."""
    return [Blocker(*row) for row in _OF.rows(conn, {"table": table_id, "now": now_ms})]


def blocked(conn: Connection, *, now_ms: int) -> frozenset[str]:
    """The tables that somebody blocks now."""
    return frozenset(table for (table,) in _ALL.rows(conn, {"now": now_ms}))


def any_expired(conn: Connection, *, until_ms: int) -> bool:
    found = select(blockers.c.name).where(blockers.c.expires_at_ms <= until_ms).limit(1)
    return conn.execute(found).first() is not None


def expire(conn: Connection, *, until_ms: int) -> int:
    return conn.execute(delete(blockers).where(blockers.c.expires_at_ms <= until_ms)).rowcount
