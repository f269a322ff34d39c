"""Which lake tables are due: to be evaluated, or to be planned.

A pass runs twice a second, and there may be 100,000 tables: each query here uses an index, and
reads narrow rows, so that one broken row can't spoil the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    bindparam,
    func,
    or_,
    select,
    update,
)

from headrace.model.tables.schedule import PendingTable, SchedulingPolicy
from headrace.model.tables.status import TableStatus
from headrace.model.task import TaskKind
from headrace.store.core.prepared_statements import PreparedStatement, Statement, one_of
from headrace.store.tables.schema import (
    BUSY_TABLE,
    RUNNING_PROCESS,
    WANTED_TABLE,
    blockers,
    catalogs,
    lake_tables,
    processes,
)
from headrace.store.tasks.schema import ASSIGNED_TASK, PLANNED_TASK, tasks, workers


@dataclass(frozen=True, slots=True)
class DueTable:
    """A table that is to be evaluated."""

    id: str
    task_id: str | None  # the evaluation or planning that was under way at the last look
    status: TableStatus
    failures: int


_DUE_SINCE = (
    select(func.min(lake_tables.c.due_at_ms))
    .where(lake_tables.c.catalog == catalogs.c.name)
    .scalar_subquery()
)
_DUE_CATALOGS = PreparedStatement(
    select(catalogs.c.name)
    .where(catalogs.c.wanted_removed == 0, bindparam("now_ms") >= _DUE_SINCE)
    .order_by(_DUE_SINCE, catalogs.c.name)
)
_DUE = PreparedStatement(
    select(lake_tables.c.id, lake_tables.c.task_id, lake_tables.c.status, lake_tables.c.failures)
    .where(
        lake_tables.c.catalog == bindparam("catalog"),
        lake_tables.c.due_at_ms <= bindparam("now_ms"),
    )
    .order_by(lake_tables.c.due_at_ms)
    .limit(bindparam("most"))
)
_LOCK = PreparedStatement(
    select(lake_tables.c.id)
    .where(one_of(lake_tables.c.id, "ids"))
    .order_by(lake_tables.c.id)
    .with_for_update()
)
_LET_GO = PreparedStatement(
    update(lake_tables)
    .where(one_of(lake_tables.c.id, "ids"), lake_tables.c.task_id == bindparam("task"))
    .values(task_id=None, due_at_ms=bindparam("again_ms"))
)
_CLOCKS = PreparedStatement(
    select(lake_tables.c.id, lake_tables.c.clocks).where(
        one_of(lake_tables.c.id, "ids"), lake_tables.c.task_id == bindparam("task")
    )
)
_KNOWN = PreparedStatement(
    select(lake_tables.c.id, lake_tables.c.identifier, lake_tables.c.namespace)
    .where(lake_tables.c.catalog == bindparam("catalog"))
    .order_by(lake_tables.c.identifier)
)
_FIRST = PreparedStatement(
    select(lake_tables.c.id)
    .where(lake_tables.c.catalog == bindparam("catalog"))
    .limit(bindparam("most"))
)
_CONTROL_SLOTS = PreparedStatement(
    select(func.coalesce(func.sum(workers.c.control_slots), 0)).where(
        workers.c.group_name == bindparam("group")
    )
)
_QUOTAS = PreparedStatement(
    select(lake_tables.c.id, lake_tables.c.quota).where(one_of(lake_tables.c.id, "ids"))
)
_UUIDS = PreparedStatement(
    select(lake_tables.c.id, lake_tables.c.uuid).where(one_of(lake_tables.c.id, "ids"))
)
_GROUPS_WAITING = PreparedStatement(
    select(tasks.c.group_name)
    .where(PLANNED_TASK, tasks.c.kind == TaskKind.REWRITE, tasks.c.granted == 0)
    .distinct()
    .order_by(tasks.c.group_name)
)


def due_catalogs(conn: Connection, *, now_ms: int) -> Sequence[str]:
    """The catalogs that have a table to be evaluated, the longest due first."""
    return [name for (name,) in _DUE_CATALOGS.rows(conn, {"now_ms": now_ms})]


def due(conn: Connection, catalog: str, *, now_ms: int, most: int) -> Sequence[DueTable]:
    """Tables to be evaluated, the longest due first; also one that an evaluation holds, which
    may be lost."""
    values = {"catalog": catalog, "now_ms": now_ms, "most": most}
    return [
        DueTable(id_, task, TableStatus(status), failures)
        for id_, task, status, failures in _DUE.rows(conn, values)
    ]


def lock(conn: Connection, ids: Collection[str]) -> None:
    """Lock these tables, to avoid a deadlock in the order that everybody uses."""
    _LOCK.rows(conn, {"ids": sorted(ids)})


def let_go(conn: Connection, ids: Collection[str], *, task_id: str, due_at_ms: int) -> None:
    """Free those tables that this evaluation still holds, and set when they are due again."""
    _LET_GO.change(conn, {"ids": sorted(ids), "task": task_id, "again_ms": due_at_ms})


def clocks_in(conn: Connection, ids: Collection[str], *, task_id: str) -> Mapping[str, int]:
    """How many partition clocks each of those tables has that this evaluation still holds."""
    rows = _CLOCKS.rows(conn, {"ids": sorted(ids), "task": task_id})
    return {id_: len(clocks) for id_, clocks in rows}


def known(conn: Connection, catalog: str) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Id and namespace by identifier of all tables of a catalog; so only once for each
    discovery."""
    rows = _KNOWN.rows(conn, {"catalog": catalog})
    return {identifier: (id_, tuple(namespace)) for id_, identifier, namespace in rows}


def some_of(conn: Connection, catalog: str, *, most: int) -> Sequence[str]:
    """The ids of some tables of the catalog, in no order."""
    return [id_ for (id_,) in _FIRST.rows(conn, {"catalog": catalog, "most": most})]


def control_slots(conn: Connection, group: str) -> int:
    [(slots,)] = _CONTROL_SLOTS.rows(conn, {"group": group})
    return int(slots)


def quotas(conn: Connection, ids: Collection[str]) -> Mapping[str, float]:
    """Quotas of those tables that still exist."""
    return dict(_QUOTAS.rows(conn, {"ids": sorted(ids)}))


def uuids(conn: Connection, ids: Collection[str]) -> Mapping[str, str | None]:
    """UUIDs, as last seen, of those tables that still exist."""
    return dict(_UUIDS.rows(conn, {"ids": sorted(ids)}))


def groups_waiting(conn: Connection) -> Sequence[str]:
    """Groups in which a rewrite task waits for a grant. Nobody can have claimed it, so it is
    PLANNED."""
    return [group for (group,) in _GROUPS_WAITING.rows(conn)]


def _open_of_kind() -> Statement:
    mine = (tasks.c.kind == bindparam("kind"), tasks.c.group_name == bindparam("group"))
    planned, assigned = (  # two counts, each by its partial index: most tasks have ended
        select(func.count()).select_from(tasks).where(state, *mine).scalar_subquery()
        for state in (PLANNED_TASK, ASSIGNED_TASK)
    )
    return select(planned + assigned)


_OPEN_OF_KIND = PreparedStatement(_open_of_kind())


def open_of_kind(conn: Connection, kind: TaskKind, *, group: str) -> int:
    """How many tasks of this kind are open in the group."""
    [(number,)] = _OPEN_OF_KIND.rows(conn, {"kind": kind, "group": group})
    return int(number)


def _may_be_planned() -> tuple[ColumnElement[bool], ...]:
    """The conditions besides its status: in the group, not switched off or resting, nothing of
    it runs."""
    table = lake_tables.c
    running = select(processes.c.id).where(RUNNING_PROCESS, processes.c.table_id == table.id)
    blocked = select(blockers.c.name).where(
        blockers.c.table_id == table.id, blockers.c.expires_at_ms > bindparam("now_ms")
    )
    removed = select(catalogs.c.name).where(
        catalogs.c.name == table.catalog, catalogs.c.wanted_removed == 1
    )
    return (
        table.group_name == bindparam("group"),
        table.enabled == 1,
        table.wanted_paused == 0,
        table.not_before_ms <= bindparam("now_ms"),
        ~running.exists(),
        ~blocked.exists(),
        ~removed.exists(),
    )


def _waits() -> tuple[Any, ...]:
    """The table is pending, and its shortest interval between plans has passed."""
    table = lake_tables.c
    planned_ms = func.coalesce(table.planned_at_ms, 0) + table.min_plan_interval_ms
    return (
        BUSY_TABLE,
        table.status == TableStatus.PENDING,
        or_(table.planned_at_ms.is_(None), planned_ms <= bindparam("now_ms")),
        *_may_be_planned(),
    )


_ONE_WAITS = PreparedStatement(select(lake_tables.c.id).where(*_waits()).limit(1))
_WANTED_NOW = PreparedStatement(
    select(lake_tables.c.id)
    .where(
        WANTED_TABLE,
        or_(lake_tables.c.status == TableStatus.IDLE, lake_tables.c.status == TableStatus.PENDING),
        *_may_be_planned(),
    )
    .order_by(lake_tables.c.id)
    .limit(bindparam("most"))
)


def _waiting(starved: bool, *order: Any) -> PreparedStatement:  # noqa: FBT001  which of the two
    """The pending tables that have waited since `starved_ms` or longer, or the others."""
    table = lake_tables.c
    since = table.pending_since_ms
    until = bindparam("starved_ms", type_=BigInteger())
    columns = (table.id, table.quota, since, table.optimized_at_ms, table.benefit)
    return PreparedStatement(
        select(*columns)
        .where(*_waits(), since <= until if starved else since > until)
        .order_by(*order, since, table.id)
        .limit(bindparam("most"))
    )


_STARVED = _waiting(True)  # noqa: FBT003
# In the order of `rank`, so that the first tables of all are among those that are read. How much a
# table ran lately is not in its row; such a table ranks after all that waited as long and did not
# run.
_OTHERS: Mapping[SchedulingPolicy, PreparedStatement] = {
    SchedulingPolicy.QUOTA: _waiting(False),  # noqa: FBT003
    SchedulingPolicy.BALANCED: _waiting(False, func.coalesce(lake_tables.c.optimized_at_ms, -1)),  # noqa: FBT003
    SchedulingPolicy.BENEFIT: _waiting(False, lake_tables.c.benefit.desc()),  # noqa: FBT003
}


def one_waits(conn: Connection, group: str, *, now_ms: int) -> bool:
    """Whether any table of the group could be planned now."""
    return _ONE_WAITS.row(conn, {"group": group, "now_ms": now_ms}) is not None


def wanted_now(conn: Connection, group: str, *, now_ms: int, most: int) -> Sequence[str]:
    """Tables that somebody asked to optimize, and that may be planned."""
    values = {"group": group, "now_ms": now_ms, "most": most}
    return [id_ for (id_,) in _WANTED_NOW.rows(conn, values)]


def waiting(
    conn: Connection,
    group: str,
    *,
    policy: SchedulingPolicy,
    now_ms: int,
    starved_ms: int,
    most: int,
) -> Sequence[PendingTable]:
    """Tables that may be planned now: first up to `most` that have waited since `starved_ms` or
    longer, then up to `most` of the others in the order of the policy."""
    values = {"group": group, "now_ms": now_ms, "starved_ms": starved_ms, "most": most}
    return [
        PendingTable(id_, quota, since_ms, optimized_ms=optimized_ms, benefit=benefit)
        for each in (_STARVED, _OTHERS[policy])
        for id_, quota, since_ms, optimized_ms, benefit in each.rows(conn, values)
    ]
