"""Resources: what was asked of containers, and each launch of it.

Every change of a launch names the launch that it speaks of: an answer that comes late, after a
newer one was intended, changes nothing (R8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from headrace.model.groups.resource import LaunchStep
from headrace.store import former_launches
from headrace.store.engine import insert_new
from headrace.store.group_schema import resources
from headrace.store.prepared import Prepared


@dataclass(frozen=True, slots=True)
class Resource:
    id: str
    group: str
    container: str
    threads: int
    memory_mb: int
    properties: Mapping[str, str]
    made_for: str
    created_at_ms: int
    wanted_released: bool
    launch: int
    step: LaunchStep
    started_at_ms: int | None
    launched_at_ms: int | None
    orphaned_since_ms: int | None
    attempts: int
    told: str | None
    error: str | None


_READ = (
    *("id", "group_name", "container", "threads", "memory_mb", "properties", "made_for"),
    *("created_at_ms", "wanted_released", "launch", "step", "started_at_ms", "launched_at_ms"),
    *("orphaned_since_ms", "attempts", "told", "error"),
)
_COLUMNS = tuple(resources.c[name] for name in _READ)
_GET = Prepared(select(*_COLUMNS).where(resources.c.id == bindparam("of")))
_LOCK = Prepared(select(*_COLUMNS).where(resources.c.id == bindparam("of")).with_for_update())
_ALL = Prepared(select(*_COLUMNS).order_by(resources.c.group_name, resources.c.id))
_OF_GROUP = Prepared(
    select(*_COLUMNS).where(resources.c.group_name == bindparam("group")).order_by(resources.c.id)
)


_FIELDS = tuple({"group_name": "group"}.get(name, name) for name in _READ)


def _to_resource(row: Sequence[Any]) -> Resource:
    told = dict(zip(_FIELDS, row, strict=True))
    told["wanted_released"] = bool(told["wanted_released"])
    told["step"] = LaunchStep(told["step"])
    return Resource(**told)


def add(
    conn: Connection,
    resource_id: str,
    *,
    group: str,
    container: str,
    threads: int,
    memory_mb: int,
    properties: Mapping[str, str],
    made_for: str,
    now_ms: int,
) -> bool:
    """Ask for a resource, with its first launch intended. False: it was asked for before."""
    first = former_launches.last(conn, resource_id) + 1
    return insert_new(
        conn,
        resources,
        id=resource_id,
        group_name=group,
        container=container,
        threads=threads,
        memory_mb=memory_mb,
        properties=dict(properties),
        made_for=made_for,
        created_at_ms=now_ms,
        launch=first,
        step=LaunchStep.INTENDED,
        launched_at_ms=now_ms,
    )


def get(conn: Connection, resource_id: str) -> Resource | None:
    row = _GET.row(conn, {"of": resource_id})
    return _to_resource(row) if row else None


def lock(conn: Connection, resource_id: str) -> Resource | None:
    row = _LOCK.row(conn, {"of": resource_id})
    return _to_resource(row) if row else None


def all_of_them(conn: Connection) -> Sequence[Resource]:
    return [_to_resource(row) for row in _ALL.rows(conn)]


def of_group(conn: Connection, group: str) -> Sequence[Resource]:
    return [_to_resource(row) for row in _OF_GROUP.rows(conn, {"group": group})]


def intend(conn: Connection, resource: Resource, *, attempts: int, now_ms: int) -> bool:
    """The next launch of it. False: somebody intended another one since."""
    return _change(
        conn,
        resource,
        launch=resource.launch + 1,
        step=LaunchStep.INTENDED,
        launched_at_ms=now_ms,
        attempts=attempts,
        told=None,
    )


def started(conn: Connection, resource: Resource, found: Mapping[str, str], *, now_ms: int) -> bool:
    """What the start found out is kept; when it was started first is not overwritten (R4)."""
    return _change(
        conn,
        resource,
        step=LaunchStep.STARTED,
        launched_at_ms=now_ms,
        properties={**resource.properties, **found},
        started_at_ms=resource.started_at_ms or now_ms,
        error=None,
    )


def failed(conn: Connection, resource: Resource, error: str) -> bool:
    """Its start raised."""
    return _change(conn, resource, step=LaunchStep.FAILED, error=error)


def note(conn: Connection, resource: Resource, **values: object) -> bool:
    return _change(conn, resource, **values)


def _change(conn: Connection, resource: Resource, **values: object) -> bool:
    same = (resources.c.id == resource.id, resources.c.launch == resource.launch)
    return conn.execute(update(resources).where(*same).values(**values)).rowcount == 1


def want_released(conn: Connection, resource_id: str) -> bool:
    """What was told of it before, why it is left alone, is of no use to anybody then."""
    released = {"wanted_released": 1, "told": None}
    asked = update(resources).where(resources.c.id == resource_id).values(released)
    return conn.execute(asked).rowcount == 1


def drop(conn: Connection, resource: Resource, *, now_ms: int) -> None:
    """Its record goes, not the number of its last launch."""
    former_launches.note(conn, resource.id, resource.launch, now_ms=now_ms)
    conn.execute(delete(resources).where(resources.c.id == resource.id))
