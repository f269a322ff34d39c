"""Lake tables: found in catalogs, evaluated, and moved through their optimizing.

Every move names the status that it was decided by, and says whether it landed: two that decide at
once can't both have their way. There is no move here that takes a table out of a running process;
what a restart does instead stands in table_recovery.py (T8).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select, update

from headrace.model.tables.status import (
    ProcessStatus,
    TableStatus,
    check_table_transition,
    released,
)
from headrace.store.inserts import insert_absent
from headrace.store.lake_rows import COLUMNS, LakeTable, to_table
from headrace.store.prepared import Prepared, one_of
from headrace.store.table_schema import BUSY_TABLE, blockers, lake_tables

_GET = Prepared(select(*COLUMNS).where(lake_tables.c.id == bindparam("of")))
_LOCK = Prepared(select(*COLUMNS).where(lake_tables.c.id == bindparam("of")).with_for_update())
_NAMED = Prepared(select(*COLUMNS).where(lake_tables.c.identifier == bindparam("of")))
_PAGE = Prepared(
    select(*COLUMNS)
    .where(lake_tables.c.identifier > bindparam("after"))
    .order_by(lake_tables.c.identifier)
    .limit(bindparam("most"))
)
_BY_STATUS = Prepared(
    select(lake_tables.c.id)
    .where(BUSY_TABLE, one_of(lake_tables.c.status, "statuses"))
    .order_by(lake_tables.c.id)
    .limit(bindparam("most"))
)
_WIDE = Prepared(
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
    row = _NAMED.row(conn, {"of": identifier})
    return to_table(row) if row else None


def page(conn: Connection, *, after: str, most: int) -> Sequence[LakeTable]:
    """In the order of their names."""
    return [to_table(row) for row in _PAGE.rows(conn, {"after": after, "most": most})]


def in_status(conn: Connection, statuses: Collection[TableStatus], *, most: int) -> Sequence[str]:
    """Their ids alone, so that no broken row hides the others. Any but IDLE, which no index
    finds."""
    assert TableStatus.IDLE not in statuses
    asked = {"statuses": sorted(statuses), "most": most}
    return [id_ for (id_,) in _BY_STATUS.rows(conn, asked)]


def counts(conn: Connection) -> Mapping[TableStatus, int]:
    grouped = select(lake_tables.c.status, func.count()).group_by(lake_tables.c.status)
    return {TableStatus(status): int(n) for status, n in conn.execute(grouped)}


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


def add_found(conn: Connection, found: Sequence[Mapping[str, Any]]) -> None:
    """Tables that a discovery brought; those that are known stay as they are."""
    if found:
        insert_absent(conn, lake_tables, found)


def change(conn: Connection, table_id: str, **values: object) -> None:
    """What is known of a table. Its status has `move`, `release` and recovery."""
    assert "status" not in values
    conn.execute(update(lake_tables).where(lake_tables.c.id == table_id).values(**values))


def change_many(conn: Connection, ids: Collection[str], **values: object) -> None:
    assert "status" not in values
    chosen = lake_tables.c.id.in_(sorted(ids))
    conn.execute(update(lake_tables).where(chosen).values(**values))


def move(
    conn: Connection, table: LakeTable, to: TableStatus, *, now_ms: int, **values: object
) -> bool:
    """One step of its optimizing. False: it is not where the caller saw it, and nothing changed."""
    check_table_transition(table.identifier, table.status, to)
    return _move(conn, table, to, now_ms=now_ms, **values)


def release(
    conn: Connection, table: LakeTable, process: ProcessStatus, *, now_ms: int, **values: object
) -> bool:
    """Back to IDLE, with the process that it was in: refused unless that has ended (T8)."""
    to = released(table.identifier, table.status, process)
    return _move(conn, table, to, now_ms=now_ms, process_id=None, **values)


def _move(
    conn: Connection, table: LakeTable, to: TableStatus, *, now_ms: int, **values: object
) -> bool:
    moved = conn.execute(
        update(lake_tables)
        .where(lake_tables.c.id == table.id, lake_tables.c.status == table.status)
        .values(status=to, status_since_ms=now_ms, **values)
    )
    return moved.rowcount == 1


def drop(conn: Connection, table_id: str) -> None:
    """It is no longer in its catalog. Its processes must have ended; their history stays."""
    conn.execute(delete(blockers).where(blockers.c.table_id == table_id))
    conn.execute(delete(lake_tables).where(lake_tables.c.id == table_id))
