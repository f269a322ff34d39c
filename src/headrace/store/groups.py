"""Groups of workers: what was asked for, and how keeping that has got on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from headrace.model.groups.capacity import Keeping
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.store.engine import insert_new
from headrace.store.group_schema import groups
from headrace.store.prepared import Prepared

EXTERNAL = "external"  # the container of groups whose workers are started by their users


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    container: str
    min_parallelism: int
    memory_mb: int
    policy: SchedulingPolicy | None
    properties: Mapping[str, str]
    created_at_ms: int
    wanted_removed: bool
    keeping: Keeping


_COLUMNS = tuple(
    groups.c[name]
    for name in (
        *("name", "container", "min_parallelism", "memory_mb", "policy", "properties"),
        *("created_at_ms", "wanted_removed", "keep_attempts", "keep_next_at_ms"),
        *("effective_parallelism", "effective_reason"),
    )
)
_GET = Prepared(select(*_COLUMNS).where(groups.c.name == bindparam("of")))
_LOCK = Prepared(select(*_COLUMNS).where(groups.c.name == bindparam("of")).with_for_update())
_ALL = Prepared(select(*_COLUMNS).order_by(groups.c.name))


def _to_group(row: Sequence[Any]) -> Group:
    name, container, floor, memory_mb, policy, properties, created_at_ms, removed, *keeping = row
    return Group(
        name,
        container,
        floor,
        memory_mb,
        SchedulingPolicy(policy) if policy else None,
        properties,
        created_at_ms,
        bool(removed),
        Keeping(*keeping),
    )


def add(
    conn: Connection,
    name: str,
    *,
    now_ms: int,
    container: str = EXTERNAL,
    min_parallelism: int = 0,
    memory_mb: int = 0,
    policy: SchedulingPolicy | None = None,
    properties: Mapping[str, str] | None = None,
) -> bool:
    """Add a group. False: there is one of that name, which stays as it is."""
    return insert_new(
        conn,
        groups,
        name=name,
        container=container,
        min_parallelism=min_parallelism,
        memory_mb=memory_mb,
        policy=policy,
        properties=dict(properties or {}),
        created_at_ms=now_ms,
    )


def get(conn: Connection, name: str) -> Group | None:
    row = _GET.row(conn, {"of": name})
    return _to_group(row) if row else None


def lock(conn: Connection, name: str) -> Group | None:
    row = _LOCK.row(conn, {"of": name})
    return _to_group(row) if row else None


def all_of_them(conn: Connection) -> Sequence[Group]:
    return [_to_group(row) for row in _ALL.rows(conn)]


def change(conn: Connection, name: str, **values: object) -> None:
    conn.execute(update(groups).where(groups.c.name == name).values(**values))


def note_keeping(conn: Connection, name: str, keeping: Keeping) -> None:
    """Beside what was asked for, which is the user's (R5)."""
    change(
        conn,
        name,
        keep_attempts=keeping.attempts,
        keep_next_at_ms=keeping.next_at_ms,
        effective_parallelism=keeping.effective,
        effective_reason=keeping.reason,
    )


def drop(conn: Connection, name: str) -> None:
    """Its resources must be gone."""
    conn.execute(delete(groups).where(groups.c.name == name))
