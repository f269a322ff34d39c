"""Groups of workers: what users asked for, and how far keeping it has got. With the room's schema.

A *resource* is what was requested from a container, a *worker* is a process that registered. They
are separate records: a crash removes the worker's record, and the resource's record says that there
should be a worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    Update,
    bindparam,
    delete,
    select,
    text,
    update,
)

from headrace.model.groups import Keeping, LaunchStep, ResourceErrorKind, ResourceNotice
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.store.core.engine import insert_new
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.core.schema import metadata, quoted_list

groups = Table(
    "groups",
    metadata,
    Column("name", Text, primary_key=True),
    Column("container", Text, nullable=False),  # as configured; `external`: users start its workers
    Column("min_parallelism", Integer, nullable=False, server_default=text("0")),  # as asked for
    Column("memory_mb", Integer, nullable=False, server_default=text("0")),  # of each resource
    Column("policy", Text),  # how its tables are scheduled; NULL: the coordinator's setting
    Column("properties", JSON, nullable=False, server_default=text("'{}'")),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("wanted_removed", Integer, nullable=False, server_default=text("0")),
    # How far keeping the minimum parallelism has got. What the user asked for is never edited (R5).
    Column("keep_attempts", Integer, nullable=False, server_default=text("0")),
    Column("keep_next_at_ms", BigInteger, nullable=False, server_default=text("0")),
    Column("effective_parallelism", Integer),
    Column("effective_reason", Text),
    CheckConstraint("min_parallelism >= 0", name="floor"),
    CheckConstraint(f"policy IN {quoted_list(SchedulingPolicy)}", name="policy"),
)

resources = Table(
    "resources",
    metadata,
    Column("id", Text, primary_key=True),
    Column("group_name", Text, ForeignKey("groups.name"), nullable=False),
    Column("container", Text, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("properties", JSON, nullable=False),  # as requested, and as its starts reported them
    Column("made_for", Text, nullable=False),  # `floor`, or `user`
    Column("created_at_ms", BigInteger, nullable=False),
    Column("wanted_released", Integer, nullable=False, server_default=text("0")),
    # A start is not part of a transaction: the launch's number is written before it, its result
    # after it.
    Column("launch", Integer, nullable=False, server_default=text("0")),
    Column("step", Text, nullable=False),
    Column("started_at_ms", BigInteger),  # by its first launch; later ones keep it (R4)
    Column("launched_at_ms", BigInteger),  # by its latest launch
    Column("orphaned_since_ms", BigInteger),
    Column("attempts", Integer, nullable=False, server_default=text("0")),  # since it was orphaned
    Column("told", Text),  # the last reason logged about it, so that it is logged once
    Column("notice", Text),  # which reason that is
    # Why its latest start or stop failed, or how its latest worker ended; and which of these.
    Column("error", Text),
    Column("error_kind", Text),
    CheckConstraint(f"step IN {quoted_list(LaunchStep)}", name="step"),
    CheckConstraint(f"notice IN {quoted_list(ResourceNotice)}", name="notice"),
    CheckConstraint(f"error_kind IN {quoted_list(ResourceErrorKind)}", name="error_kind"),
    Index("ix_resources_group_name", "group_name"),
)

EXTERNAL = "external"  # the container of groups whose workers are started by their users


@dataclass(frozen=True, slots=True)
class Group:
    """A group as it is stored."""

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
_GET = PreparedStatement(select(*_COLUMNS).where(groups.c.name == bindparam("of")))
_LOCK = PreparedStatement(
    select(*_COLUMNS).where(groups.c.name == bindparam("of")).with_for_update()
)
_ALL = PreparedStatement(select(*_COLUMNS).order_by(groups.c.name))


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
    """The group, which nobody else changes until the transaction ends."""
    row = _LOCK.row(conn, {"of": name})
    return _to_group(row) if row else None


def all_of_them(conn: Connection) -> Sequence[Group]:
    return [_to_group(row) for row in _ALL.rows(conn)]


def configure(
    conn: Connection,
    name: str,
    *,
    container: str,
    min_parallelism: int,
    memory_mb: int,
    policy: SchedulingPolicy | None,
    properties: Mapping[str, str],
) -> None:
    """Write what users asked for."""
    conn.execute(
        _of(name).values(
            container=container,
            min_parallelism=min_parallelism,
            memory_mb=memory_mb,
            policy=policy,
            properties=dict(properties),
        )
    )


def want_removed(conn: Connection, name: str) -> None:
    conn.execute(_of(name).values(wanted_removed=1))


def note_keeping(conn: Connection, name: str, keeping: Keeping) -> None:
    """Record how far keeping the group has got, beside what the user asked for (R5)."""
    conn.execute(
        _of(name).values(
            keep_attempts=keeping.attempts,
            keep_next_at_ms=keeping.next_at_ms,
            effective_parallelism=keeping.effective,
            effective_reason=keeping.reason,
        )
    )


def _of(name: str) -> Update:
    return update(groups).where(groups.c.name == name)


def drop(conn: Connection, name: str) -> None:
    """Delete the group. Its resources must be gone."""
    conn.execute(delete(groups).where(groups.c.name == name))
