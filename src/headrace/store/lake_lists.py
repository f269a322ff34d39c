"""What people read of lake tables: lists, names, counts; and what a command changes of many."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, func, or_, select, update

from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.task import ENDED, Lane, TaskKind
from headrace.store.lake_rows import COLUMNS, LakeTable, to_table
from headrace.store.schema import tasks
from headrace.store.table_schema import catalogs, lake_tables, processes
from headrace.store.task_rows import COLUMNS as TASK_COLUMNS
from headrace.store.task_rows import Task, to_task

_OPEN = tasks.c.status.not_in(sorted(ENDED))


@dataclass(frozen=True, slots=True)
class Measured:
    """The wide columns of a table that a list shows."""

    pending: Mapping[str, Any] | None = None
    summary: Mapping[str, Any] | None = None


def listed(
    conn: Connection,
    *,
    after: str,
    most: int,
    catalog: str | None = None,
    statuses: Collection[TableStatus] = (),
) -> Sequence[LakeTable]:
    """In the order of their names, from the one that follows `after`."""
    found = select(*COLUMNS).where(lake_tables.c.identifier > after)
    if catalog is not None:
        found = found.where(lake_tables.c.catalog == catalog)
    if statuses:
        found = found.where(lake_tables.c.status.in_(sorted(statuses)))
    rows = conn.execute(found.order_by(lake_tables.c.identifier).limit(most))
    return [to_table(tuple(row)) for row in rows]


def measured(conn: Connection, ids: Collection[str]) -> Mapping[str, Measured]:
    found = select(lake_tables.c.id, lake_tables.c.pending, lake_tables.c.summary)
    rows = conn.execute(found.where(lake_tables.c.id.in_(sorted(ids))))
    return {table: Measured(pending, summary) for table, pending, summary in rows}


def identifiers(conn: Connection, *, most: int, name: str | None = None) -> Sequence[str]:
    """Of all tables, or of those whose last part is `name`; for whoever mistyped one."""
    found = select(lake_tables.c.identifier).order_by(lake_tables.c.identifier).limit(most)
    if name is not None:
        found = found.where(lake_tables.c.name == name)
    return list(conn.execute(found).scalars())


def evaluate_again(
    conn: Connection, *, catalog: str | None = None, group: str | None = None, now_ms: int
) -> None:
    """What tables of a catalog or of a group have by default has changed: what was measured doesn't
    hold any more, and an evaluation that is under way is let go of. A planning is not: its plan is
    still good."""
    assert (catalog is None) != (group is None)
    # Whoever is being looked at just now may be found to be of this group.
    of_group = or_(lake_tables.c.group_name == group, lake_tables.c.task_id.is_not(None))
    of = of_group if catalog is None else lake_tables.c.catalog == catalog
    planning = lake_tables.c.status == TableStatus.PLANNING
    # In the order in which everybody locks tables, so that nobody waits in a circle.
    mine = select(lake_tables.c.id).where(of)
    conn.execute(mine.order_by(lake_tables.c.id).with_for_update())
    conn.execute(
        update(lake_tables)
        .where(of)
        .values(due_at_ms=now_ms, pointer=None, task_id=case((planning, lake_tables.c.task_id)))
    )


def by_catalog(conn: Connection) -> Mapping[str, int]:
    grouped = select(lake_tables.c.catalog, func.count()).group_by(lake_tables.c.catalog)
    return {catalog: int(count) for catalog, count in conn.execute(grouped)}


def open_plans(
    conn: Connection, *, most: int, table_id: str | None = None, until_ms: int | None = None
) -> Sequence[Task]:
    """Planning that has not ended: dry ones, and those of which a process may come. `until_ms`:
    only what was asked for by then."""
    found = select(*TASK_COLUMNS).where(tasks.c.kind == TaskKind.PLAN, _OPEN)
    if table_id is not None:
        found = found.where(tasks.c.table_id == table_id)
    if until_ms is not None:
        found = found.where(tasks.c.created_at_ms <= until_ms)
    rows = conn.execute(found.order_by(tasks.c.id).limit(most))
    return [to_task(tuple(row)) for row in rows]


def slots_held(conn: Connection, *, group: str) -> Mapping[TaskKind, int]:
    """By what the slots of the group are held, or may be at any moment."""
    grouped = (
        select(tasks.c.kind, func.count())
        .where(tasks.c.group_name == group, tasks.c.lane == Lane.SLOT, tasks.c.granted == 1, _OPEN)
        .group_by(tasks.c.kind)
    )
    return {TaskKind(kind): int(count) for kind, count in conn.execute(grouped)}


def settling(conn: Connection) -> int:
    counted = select(func.count()).where(
        processes.c.status == ProcessStatus.RUNNING, processes.c.settling_since_ms.is_not(None)
    )
    return int(conn.scalar(counted) or 0)


def leftovers(conn: Connection) -> int:
    """Processes that have ended, and of which something may still lie at their tables."""
    return int(conn.scalar(select(func.count()).where(processes.c.leftovers == 1)) or 0)


def catalogs_by_failing(conn: Connection) -> Mapping[bool, int]:
    failing = ((catalogs.c.failures > 0) | catalogs.c.error.is_not(None)).label("failing")
    grouped = select(failing, func.count()).group_by(failing)
    return {bool(value): int(count) for value, count in conn.execute(grouped)}


def numbered(conn: Connection, table_id: str, identifier: str, number: int) -> str | None:
    """The id of a process that a person names by its number; of several tables of that name, one
    after the other, the latest."""
    found = (
        select(processes.c.id)
        .where(
            or_(processes.c.table_id == table_id, processes.c.identifier == identifier),
            processes.c.number == number,
        )
        .order_by(processes.c.created_at_ms.desc())
        .limit(1)
    )
    return conn.scalar(found)
