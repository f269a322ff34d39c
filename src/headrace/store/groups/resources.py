"""Resources: what was requested from containers, each launch of it, and what is kept afterwards.

Every change of a launch names the launch that it is about: an answer that comes late, after a newer
launch was intended, changes nothing (R8). Nor does one that the steps of a launch do not allow any
more (`LAUNCH_TRANSITIONS`, S1).

The record of a resource that was given up is deleted (R3), and the reason with it. So the last few
reasons of each group are kept among the facts of the store, for people, until the group is deleted.

A launch is identified by its resource and its number: to its container, which starts it once, and
to its worker, which may come late. So a number is never given twice, also when somebody uses the id
of a resource again: the number of its last launch outlives its record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Update, bindparam, delete, select, update

from headrace.model.groups import (
    LAUNCH_TRANSITIONS,
    LaunchStep,
    ResourceErrorKind,
    ResourceNotice,
)
from headrace.store.core.engine import insert_new
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.core.schema import facts
from headrace.store.groups.groups import resources

KEPT_MAX = 5  # resources that were given up, the latest of each group
KEPT_DAYS = 60  # by then its container and its workers have long forgotten a launch
_DAY_MS = 86_400_000
_PREFIX = "launches."  # of the facts that hold the last launch of a resource


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource as it is stored."""

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
    notice: ResourceNotice | None
    error: str | None
    error_kind: ResourceErrorKind | None


_READ = (
    *("id", "group_name", "container", "threads", "memory_mb", "properties", "made_for"),
    *("created_at_ms", "wanted_released", "launch", "step", "started_at_ms", "launched_at_ms"),
    *("orphaned_since_ms", "attempts", "told", "notice", "error", "error_kind"),
)
_COLUMNS = tuple(resources.c[name] for name in _READ)
_GET = PreparedStatement(select(*_COLUMNS).where(resources.c.id == bindparam("of")))
_LOCK = PreparedStatement(
    select(*_COLUMNS).where(resources.c.id == bindparam("of")).with_for_update()
)
_ALL = PreparedStatement(select(*_COLUMNS).order_by(resources.c.group_name, resources.c.id))
_OF_GROUP = PreparedStatement(
    select(*_COLUMNS).where(resources.c.group_name == bindparam("group")).order_by(resources.c.id)
)
_FIELDS = tuple({"group_name": "group"}.get(name, name) for name in _READ)


def _to_resource(row: Sequence[Any]) -> Resource:
    fields = dict(zip(_FIELDS, row, strict=True))
    fields["wanted_released"] = bool(fields["wanted_released"])
    fields["step"] = LaunchStep(fields["step"])
    notice, kind = fields["notice"], fields["error_kind"]
    fields["notice"] = ResourceNotice(notice) if notice else None
    fields["error_kind"] = ResourceErrorKind(kind) if kind else None
    return Resource(**fields)


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
    """Request a resource, with its first launch intended. False: it was requested before."""
    first = last_launch(conn, resource_id) + 1
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
    """The resource, which nobody else changes until the transaction ends."""
    row = _LOCK.row(conn, {"of": resource_id})
    return _to_resource(row) if row else None


def all_of_them(conn: Connection) -> Sequence[Resource]:
    return [_to_resource(row) for row in _ALL.rows(conn)]


def of_group(conn: Connection, group: str) -> Sequence[Resource]:
    return [_to_resource(row) for row in _OF_GROUP.rows(conn, {"group": group})]


def intend(conn: Connection, resource: Resource, *, attempts: int, now_ms: int) -> bool:
    """Intend its next launch. False: somebody has intended another one since."""
    return _landed(
        conn,
        _of(resource).values(
            launch=resource.launch + 1,
            step=LaunchStep.INTENDED,
            launched_at_ms=now_ms,
            attempts=attempts,
            told=None,
            notice=None,
        ),
    )


def started(
    conn: Connection, resource: Resource, discovered: Mapping[str, str], *, now_ms: int
) -> bool:
    """Record a start and the properties that it discovered; the first start's time stays (R4).
    False: another launch was intended since, or the start of this one is recorded already."""
    step = _step(resource, LaunchStep.STARTED).values(
        launched_at_ms=now_ms,
        properties={**resource.properties, **discovered},
        started_at_ms=resource.started_at_ms or now_ms,
        error=None,
        error_kind=None,
    )
    return _landed(conn, step)


def failed(conn: Connection, resource: Resource, kind: ResourceErrorKind, error: str) -> bool:
    """Record that its launch failed: its start raised, or nothing is left of it. False: another
    launch was intended since, or this one is known to have failed."""
    step = _step(resource, LaunchStep.FAILED)
    return _landed(conn, step.values(error=error, error_kind=kind))


def registered(conn: Connection, resource: Resource) -> bool:
    """Record that the worker of this launch registered, also if its start had failed. False:
    another launch was intended since."""
    came_up = resource.step is LaunchStep.FAILED
    change = _step(resource, LaunchStep.STARTED) if came_up else _of(resource)
    recovered = _recovered(change)
    return _landed(conn, recovered.values(error=None, error_kind=None))


def note_orphaned(conn: Connection, resource: Resource, *, now_ms: int) -> bool:
    """It is seen without a worker for the first time. False: another launch was intended since."""
    return _landed(conn, _of(resource).values(orphaned_since_ms=now_ms))


def note_recovered(conn: Connection, resource: Resource) -> bool:
    """It has its worker again. False: another launch was intended since."""
    return _landed(conn, _recovered(_of(resource)))


def note_start_waits(conn: Connection, resource: Resource, *, now_ms: int) -> bool:
    """Its start still waits for its turn: its time counts from now on. False: another launch was
    intended since."""
    return _landed(conn, _of(resource).values(launched_at_ms=now_ms))


def note_error(conn: Connection, resource: Resource, kind: ResourceErrorKind, error: str) -> bool:
    """Record what is wrong with it, for people. False: another launch was intended since."""
    return _landed(conn, _of(resource).values(error=error, error_kind=kind))


def note_left_alone(
    conn: Connection, resource: Resource, notice: ResourceNotice, *, told: str
) -> bool:
    """Record why it is left alone. False: another launch was intended since."""
    return _landed(conn, _of(resource).values(told=told, notice=notice))


def release(conn: Connection, resource: Resource, notice: ResourceNotice, *, told: str) -> bool:
    """Have it released, and record why. False: another launch was intended since."""
    return _landed(conn, _of(resource).values(wanted_released=1, told=told, notice=notice))


def want_released(conn: Connection, resource_id: str) -> bool:
    """A person asks for the release of a resource. False: there is none.

    The message about it said why it was left alone, which no longer holds: it is cleared.
    """
    asked = update(resources).where(resources.c.id == resource_id)
    return _landed(conn, asked.values(wanted_released=1, told=None, notice=None))


def _of(resource: Resource) -> Update:
    """The UPDATE of a resource whose launch is still the one that the caller saw."""
    same = (resources.c.id == resource.id, resources.c.launch == resource.launch)
    return update(resources).where(*same)


def _step(resource: Resource, to: LaunchStep) -> Update:
    """The UPDATE of a step of this launch. What the step is by now decides, not what the caller
    saw: answers of containers may come late, and in any order."""
    before = sorted(step for step, after in LAUNCH_TRANSITIONS.items() if to in after)
    return _of(resource).where(resources.c.step.in_(before)).values(step=to)


def _recovered(change: Update) -> Update:
    return change.values(orphaned_since_ms=None, attempts=0, told=None, notice=None)


def _landed(conn: Connection, change: Update) -> bool:
    return conn.execute(change).rowcount == 1


def drop(conn: Connection, resource: Resource, *, now_ms: int) -> None:
    """Delete the record, but not the number of its last launch."""
    note_last_launch(conn, resource.id, resource.launch, now_ms=now_ms)
    conn.execute(delete(resources).where(resources.c.id == resource.id))


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A resource that was given up, and why."""

    resource: str
    container: str
    threads: int
    attempts: int
    reason: str
    at_ms: int


def given_up_of(conn: Connection, group: str) -> Sequence[GivenUp]:
    """Resources of the group that were given up, the latest first."""
    stored = conn.scalar(select(facts.c.value).where(facts.c.name == _given_up_name(group)))
    return [GivenUp(**each) for each in json.loads(stored)] if stored else []


def add_given_up(conn: Connection, resource: Resource, *, reason: str, now_ms: int) -> None:
    """Keep why a resource was given up. The caller has locked its group, so nobody else writes
    the same fact."""
    gone = GivenUp(
        resource=resource.id,
        container=resource.container,
        threads=resource.threads,
        attempts=resource.attempts,
        reason=reason,
        at_ms=now_ms,
    )
    before = [each for each in given_up_of(conn, resource.group) if each.resource != resource.id]
    value = json.dumps([asdict(each) for each in [gone, *before][:KEPT_MAX]])
    name = _given_up_name(resource.group)
    if not insert_new(conn, facts, name=name, value=value):
        conn.execute(update(facts).where(facts.c.name == name).values(value=value))


def forget_given_up(conn: Connection, group: str) -> None:
    conn.execute(delete(facts).where(facts.c.name == _given_up_name(group)))


def _given_up_name(group: str) -> str:
    return f"given_up.{group}"


def last_launch(conn: Connection, resource_id: str) -> int:
    """The number of the last launch of a resource whose record is gone; 0: none is known."""
    stored = conn.scalar(select(facts.c.value).where(facts.c.name == f"{_PREFIX}{resource_id}"))
    return int(stored.partition(" ")[2]) if stored else 0


def note_last_launch(conn: Connection, resource_id: str, launch: int, *, now_ms: int) -> None:
    """Keep the number of a resource's last launch, and forget those of long ago."""
    mine = {"name": f"{_PREFIX}{resource_id}", "value": f"{_sortable(now_ms)} {launch}"}
    if not insert_new(conn, facts, **mine):
        conn.execute(update(facts).where(facts.c.name == mine["name"]).values(mine))
    old = facts.c.value < _sortable(now_ms - KEPT_DAYS * _DAY_MS)
    conn.execute(delete(facts).where(facts.c.name.startswith(_PREFIX, autoescape=True), old))


def _sortable(at_ms: int) -> str:
    """A time as a text that sorts like the number."""
    return f"{max(0, at_ms):015d}"
