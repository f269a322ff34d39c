"""Lake tables: read, listed for people, and blocked. `table_changes.py` has the writes.

A `LakeTable` is read without its wide columns, which have readers of their own.

By a *blocker* a writer asks that a table be left alone for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, or_, select, update

from headrace.model.tables.status import (
    OptimizingType,
    ProcessStatus,
    TableErrorKind,
    TableStatus,
)
from headrace.model.task import ENDED, Lane, TaskKind
from headrace.store.core.engine import insert_new
from headrace.store.core.prepared_statements import PreparedStatement, one_of
from headrace.store.tables.schema import BUSY_TABLE, blockers, catalogs, lake_tables, processes
from headrace.store.tasks.schema import tasks
from headrace.store.tasks.tasks import COLUMNS as TASK_COLUMNS
from headrace.store.tasks.tasks import Task, to_task


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A lake table as it is read, without its wide columns."""

    id: str
    catalog: str
    namespace: tuple[str, ...]
    name: str
    identifier: str
    created_at_ms: int
    wanted_paused: bool
    wanted_type: OptimizingType | None
    status: TableStatus
    status_since_ms: int
    process_id: str | None
    processes: int
    task_id: str | None
    due_at_ms: int
    interval_ms: int
    planned_at_ms: int | None
    not_before_ms: int
    failures: int
    error: str | None
    error_kind: TableErrorKind | None
    uuid: str | None
    pointer: str | None
    snapshot: int | None
    evaluated_at_ms: int | None
    look_at_ms: int | None
    optimized_snapshot: int | None
    optimized_at_ms: int | None
    group: str
    enabled: bool
    quota: float
    min_plan_interval_ms: int
    pending_since_ms: int | None
    benefit: float

    @property
    def may_optimize(self) -> bool:
        """Whether it is not switched off, neither by its property nor by a command."""
        return self.enabled and not self.wanted_paused


_READ = (
    *("id", "catalog", "namespace", "name", "identifier", "created_at_ms", "wanted_paused"),
    *("wanted_type", "status", "status_since_ms", "process_id", "processes", "task_id"),
    *("due_at_ms", "interval_ms", "planned_at_ms", "not_before_ms", "failures", "error"),
    *("error_kind", "uuid", "pointer", "snapshot", "evaluated_at_ms", "look_at_ms"),
    *("optimized_snapshot", "optimized_at_ms", "group_name", "enabled", "quota"),
    *("min_plan_interval_ms", "pending_since_ms", "benefit"),
)
COLUMNS = tuple(lake_tables.c[name] for name in _READ)
_FIELDS = tuple({"group_name": "group"}.get(name, name) for name in _READ)


def to_table(row: Sequence[Any]) -> LakeTable:
    """The table of a row of COLUMNS."""
    fields = dict(zip(_FIELDS, row, strict=True))
    fields |= {name: bool(fields[name]) for name in ("wanted_paused", "enabled")}
    fields["namespace"] = tuple(fields["namespace"])
    fields["status"] = TableStatus(fields["status"])
    wanted = fields["wanted_type"]
    fields["wanted_type"] = OptimizingType[wanted] if wanted else None
    kind = fields["error_kind"]
    fields["error_kind"] = TableErrorKind(kind) if kind else None
    return LakeTable(**fields)


_GET = PreparedStatement(select(*COLUMNS).where(lake_tables.c.id == bindparam("of")))
_LOCK = PreparedStatement(
    select(*COLUMNS).where(lake_tables.c.id == bindparam("of")).with_for_update()
)
_NAMED = PreparedStatement(select(*COLUMNS).where(lake_tables.c.identifier == bindparam("of")))
_PAGE = PreparedStatement(
    select(*COLUMNS)
    .where(lake_tables.c.identifier > bindparam("after"))
    .order_by(lake_tables.c.identifier)
    .limit(bindparam("most"))
)
_BY_STATUS = PreparedStatement(
    select(lake_tables.c.id)
    .where(BUSY_TABLE, one_of(lake_tables.c.status, "statuses"))
    .order_by(lake_tables.c.id)
    .limit(bindparam("most"))
)
_WIDE = PreparedStatement(
    select(
        *(lake_tables.c[name] for name in ("clocks", "file_failures", "pending", "summary")),
        lake_tables.c.flaws,
    ).where(lake_tables.c.id == bindparam("of"))
)


def get(conn: Connection, table_id: str) -> LakeTable | None:
    row = _GET.row(conn, {"of": table_id})
    return to_table(row) if row else None


def lock(conn: Connection, table_id: str) -> LakeTable | None:
    """The table, which nobody else moves until the transaction ends."""
    row = _LOCK.row(conn, {"of": table_id})
    return to_table(row) if row else None


def named(conn: Connection, identifier: str) -> LakeTable | None:
    """The table with this identifier."""
    row = _NAMED.row(conn, {"of": identifier})
    return to_table(row) if row else None


def page(conn: Connection, *, after: str, most: int) -> Sequence[LakeTable]:
    """Tables in the order of their identifiers, from the one that follows `after`."""
    return [to_table(row) for row in _PAGE.rows(conn, {"after": after, "most": most})]


def in_status(conn: Connection, statuses: Collection[TableStatus], *, most: int) -> Sequence[str]:
    """Ids of tables in these statuses. Only ids, so that no broken row hides the others; and any
    status but IDLE, which has no index."""
    assert TableStatus.IDLE not in statuses
    values = {"statuses": sorted(statuses), "most": most}
    return [id_ for (id_,) in _BY_STATUS.rows(conn, values)]


def counts(conn: Connection) -> Mapping[TableStatus, int]:
    grouped = select(lake_tables.c.status, func.count()).group_by(lake_tables.c.status)
    return {TableStatus(status): int(n) for status, n in conn.execute(grouped)}


def failures_of(conn: Connection, table_id: str) -> int:
    """How often in a row it failed. Reads nothing else, since the rest of the row may be broken."""
    failures = select(lake_tables.c.failures).where(lake_tables.c.id == table_id)
    return int(conn.scalar(failures) or 0)


def clocks_of(conn: Connection, table_id: str) -> Mapping[str, Any]:
    return _wide(conn, table_id)[0]


def file_failures_of(conn: Connection, table_id: str) -> Mapping[str, int]:
    return _wide(conn, table_id)[1]


def pending_of(conn: Connection, table_id: str) -> Mapping[str, Any] | None:
    return _wide(conn, table_id)[2]


def summary_of(conn: Connection, table_id: str) -> Mapping[str, Any] | None:
    return _wide(conn, table_id)[3]


def flaws_of(conn: Connection, table_id: str) -> Sequence[str]:
    return _wide(conn, table_id)[4]


def _wide(conn: Connection, table_id: str) -> tuple[Any, ...]:
    return _WIDE.row(conn, {"of": table_id}) or ({}, {}, None, None, [])


_OPEN_TASK = tasks.c.status.not_in(sorted(ENDED))


@dataclass(frozen=True, slots=True)
class TableMeasures:
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
    """Tables in the order of their identifiers, from the one that follows `after`."""
    query = select(*COLUMNS).where(lake_tables.c.identifier > after)
    if catalog is not None:
        query = query.where(lake_tables.c.catalog == catalog)
    if statuses:
        query = query.where(lake_tables.c.status.in_(sorted(statuses)))
    rows = conn.execute(query.order_by(lake_tables.c.identifier).limit(most))
    return [to_table(tuple(row)) for row in rows]


def measured(conn: Connection, ids: Collection[str]) -> Mapping[str, TableMeasures]:
    """The wide columns of these tables, by id."""
    query = select(lake_tables.c.id, lake_tables.c.pending, lake_tables.c.summary)
    rows = conn.execute(query.where(lake_tables.c.id.in_(sorted(ids))))
    return {table: TableMeasures(pending, summary) for table, pending, summary in rows}


def identifiers(conn: Connection, *, most: int, name: str | None = None) -> Sequence[str]:
    """Identifiers of all tables, or of those whose last part is `name`, to suggest after a
    typing error."""
    query = select(lake_tables.c.identifier).order_by(lake_tables.c.identifier).limit(most)
    if name is not None:
        query = query.where(lake_tables.c.name == name)
    return list(conn.execute(query).scalars())


def by_catalog(conn: Connection) -> Mapping[str, int]:
    """How many tables each catalog has."""
    grouped = select(lake_tables.c.catalog, func.count()).group_by(lake_tables.c.catalog)
    return {catalog: int(count) for catalog, count in conn.execute(grouped)}


def open_plans(
    conn: Connection, *, most: int, table_id: str | None = None, until_ms: int | None = None
) -> Sequence[Task]:
    """Planning tasks that have not ended: dry runs, and those that may lead to a process.
    `until_ms`: only what was asked for by then."""
    query = select(*TASK_COLUMNS).where(tasks.c.kind == TaskKind.PLAN, _OPEN_TASK)
    if table_id is not None:
        query = query.where(tasks.c.table_id == table_id)
    if until_ms is not None:
        query = query.where(tasks.c.created_at_ms <= until_ms)
    rows = conn.execute(query.order_by(tasks.c.id).limit(most))
    return [to_task(tuple(row)) for row in rows]


def slots_held(conn: Connection, *, group: str) -> Mapping[TaskKind, int]:
    """How many slots of the group tasks of each kind hold, or may be given at any moment."""
    grouped = (
        select(tasks.c.kind, func.count())
        .where(
            tasks.c.group_name == group, tasks.c.lane == Lane.SLOT, tasks.c.granted == 1, _OPEN_TASK
        )
        .group_by(tasks.c.kind)
    )
    return {TaskKind(kind): int(count) for kind, count in conn.execute(grouped)}


def count_settling(conn: Connection) -> int:
    """How many processes are settling."""
    query = select(func.count()).where(
        processes.c.status == ProcessStatus.RUNNING, processes.c.settling_since_ms.is_not(None)
    )
    return int(conn.scalar(query) or 0)


def count_leftovers(conn: Connection) -> int:
    """How many processes have ended and may have left staged files at their tables."""
    return int(conn.scalar(select(func.count()).where(processes.c.leftovers == 1)) or 0)


def catalogs_by_failing(conn: Connection) -> Mapping[bool, int]:
    """How many catalogs fail, and how many don't."""
    failing = ((catalogs.c.failures > 0) | catalogs.c.error.is_not(None)).label("failing")
    grouped = select(failing, func.count()).group_by(failing)
    return {bool(value): int(count) for value, count in conn.execute(grouped)}


def process_by_number(conn: Connection, table_id: str, identifier: str, number: int) -> str | None:
    """The id of the process that a person names by its number. Of several tables that had the
    name, one after the other, the latest counts."""
    query = (
        select(processes.c.id)
        .where(
            or_(processes.c.table_id == table_id, processes.c.identifier == identifier),
            processes.c.number == number,
        )
        .order_by(processes.c.created_at_ms.desc())
        .limit(1)
    )
    return conn.scalar(query)


@dataclass(frozen=True, slots=True)
class Blocker:
    """A writer's request that a table be left alone."""

    table_id: str
    name: str
    reason: str
    created_at_ms: int
    expires_at_ms: int


_BLOCKER_COLUMNS = tuple(
    blockers.c[name] for name in ("table_id", "name", "reason", "created_at_ms", "expires_at_ms")
)
_BLOCKERS_OF = PreparedStatement(
    select(*_BLOCKER_COLUMNS)
    .where(blockers.c.table_id == bindparam("table"), blockers.c.expires_at_ms > bindparam("now"))
    .order_by(blockers.c.name)
)
_BLOCKED_TABLES = PreparedStatement(
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
    """Delete a blocker. False: there was none."""
    gone = conn.execute(
        delete(blockers).where(blockers.c.table_id == table_id, blockers.c.name == name)
    )
    return gone.rowcount == 1


def blockers_of(conn: Connection, table_id: str, *, now_ms: int) -> Sequence[Blocker]:
    """The blockers that hold a table now."""
    return [Blocker(*row) for row in _BLOCKERS_OF.rows(conn, {"table": table_id, "now": now_ms})]


def blocked_tables(conn: Connection, *, now_ms: int) -> frozenset[str]:
    """The tables that somebody blocks now."""
    return frozenset(table for (table,) in _BLOCKED_TABLES.rows(conn, {"now": now_ms}))


def any_expired_blocker(conn: Connection, *, until_ms: int) -> bool:
    query = select(blockers.c.name).where(blockers.c.expires_at_ms <= until_ms).limit(1)
    return conn.execute(query).first() is not None


def expire_blockers(conn: Connection, *, until_ms: int) -> int:
    return conn.execute(delete(blockers).where(blockers.c.expires_at_ms <= until_ms)).rowcount
