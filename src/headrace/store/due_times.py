"""Every time in the store that something waits for, and how far ahead of now it can be.

Two kinds: until when a pause lasts (`due_at_ms`), and since when something is so (`planned_at_ms`),
for what lasts so long from there. Beside them stand times that only tell people when something
was; those are not here. 0 and NULL stand for no time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Table,
    Text,
    TextClause,
    bindparam,
    case,
    cast,
    func,
    literal,
    or_,
    select,
    true,
    update,
)

from headrace.model.cleanup import CleanupStep
from headrace.store.engine import is_sqlite
from headrace.store.group_schema import groups, resources
from headrace.store.schema import cleanups, savepoints, tasks, workers
from headrace.store.table_schema import (
    LEFTOVERS_OF_PROCESS,
    RUNNING_PROCESS,
    blockers,
    catalogs,
    lake_tables,
    processes,
)

log = logging.getLogger(__name__)

CLOCKS_PAGE_MAX = 500  # tables whose partitions' clocks are read and written at a time
MOVE_MAX_MS = 60_000  # one statement that moves due times: of a table with all its rows

# What a change of the wall clock moves. A task's pause stands beside it (`pause_ms`), so a claim
# sees by itself which one is too long; that of a group likewise by its setting.
WAITED_FOR: Mapping[Table, Sequence[str]] = {
    tasks: ("not_before_ms",),
    workers: ("drain_since_ms",),
    cleanups: ("made_at_ms", "due_at_ms", "targets_due_at_ms"),
    savepoints: ("made_at_ms",),
    catalogs: ("due_at_ms", "discovered_at_ms"),
    lake_tables: (
        *("due_at_ms", "not_before_ms", "planned_at_ms", "pending_since_ms"),
        *("evaluated_at_ms", "look_at_ms", "optimized_at_ms"),
    ),
    processes: ("settling_since_ms", "discard_at_ms"),
    blockers: ("expires_at_ms",),
    groups: ("keep_next_at_ms",),
    resources: ("launched_at_ms", "orphaned_since_ms"),
}

# When marks and savepoints may go. A guess may be wrong each time that machines take turns, and
# what is lost by it adds up; it is made good from above alone (`limits`). Of a cleanup's targets
# `due_at_ms` is such a time, too.
NEVER_BY_A_GUESS = {
    (cleanups, "made_at_ms"),
    (cleanups, "targets_due_at_ms"),
    (savepoints, "made_at_ms"),
}

# Of a month of processes nearly all have ended: only those that are in an index are looked at.
ONLY_OF: Mapping[tuple[Table, str], TextClause] = {
    (processes, "settling_since_ms"): RUNNING_PROCESS,
    (processes, "discard_at_ms"): LEFTOVERS_OF_PROCESS,
}


@dataclass(frozen=True, slots=True)
class LongestPauses:
    discovery_ms: int  # of a catalog
    look_again_ms: int  # of a table; its own interval may be longer
    rest_ms: int  # of a table that failed
    discard_ms: int  # of what a process left staged
    block_ms: int  # by a blocker
    cleanup_ms: int  # of a job, and until the next try; its own may be longer
    floor_ms: int  # until a group's floor is asked for again


def give_time(conn: Connection, statement_max_ms: int) -> None:
    """For each further statement of this transaction. SQLite has no such limit."""
    if not is_sqlite(conn):
        limit_ms = str(statement_max_ms)
        conn.execute(select(func.set_config("statement_timeout", limit_ms, True)))  # noqa: FBT003


def move(conn: Connection, by_ms: int, *, known_ms: int) -> None:
    """The wall clock was set by so much: what waits, waits as long as it would have.

    `known_ms`: the part of it that is no guess. What is deleted for good moves by that alone.
    It must be done before anything else, however long it takes; on PostgreSQL a candidate waits
    for it at the fence."""
    give_time(conn, MOVE_MAX_MS)
    for table, names in WAITED_FOR.items():
        for together, only in _together(table, names):
            columns = [table.c[name] for name in together]
            moved = {c.name: case((c > 0, c + _by(c, by_ms, known_ms)), else_=c) for c in columns}
            conn.execute(update(table).where(only, or_(*(c > 0 for c in columns))).values(moved))
    _move_clocks(conn, by_ms)


def _by(column: Column[int], by_ms: int, known_ms: int) -> ColumnElement[int]:
    if (column.table, column.name) in NEVER_BY_A_GUESS:
        return _long(known_ms)
    if column is cleanups.c.due_at_ms:
        of_targets = cleanups.c.step == CleanupStep.TARGETS
        return case((of_targets, _long(known_ms)), else_=_long(by_ms))
    return _long(by_ms)


def _move_clocks(conn: Connection, by_ms: int) -> None:
    """When partitions of a table were last optimized: their rules by time count from there.

    They are read as text: one value that can't be read must not keep everybody from leading. It
    stays as it is, for the table's own evaluation to stumble over (T6)."""
    after = ""
    stored = cast(lake_tables.c.clocks, Text()).label("stored")
    page = select(lake_tables.c.id, stored).order_by(lake_tables.c.id)
    change = (
        update(lake_tables)
        .where(lake_tables.c.id == bindparam("of"))
        .values(clocks=bindparam("moved"))
    )
    while rows := conn.execute(page.where(lake_tables.c.id > after).limit(CLOCKS_PAGE_MAX)).all():
        found = ((id_, _moved(id_, stored, by_ms)) for id_, stored in rows)
        if moved := [{"of": id_, "moved": clocks} for id_, clocks in found if clocks]:
            conn.execute(change, moved)
        after = rows[-1].id


def _moved(table_id: str, stored: str, by_ms: int) -> Mapping[str, Sequence[int | None]]:
    """The clocks of one table. Empty: there are none, or they can't be read."""
    try:
        clocks: Mapping[str, Sequence[int | None]] = json.loads(stored)
        return {
            key: [at_ms and index(at_ms) + by_ms for at_ms in times]
            for key, times in clocks.items()
        }
    except Exception:
        log.exception("clocks of a table can't be moved", extra={"table": table_id})
        return {}


def _together(
    table: Table, names: Iterable[str]
) -> Iterator[tuple[Sequence[str], ColumnElement[bool] | TextClause]]:
    """Which columns one statement changes, and of which rows: each by an index, if it has one."""
    rest = [name for name in names if (table, name) not in ONLY_OF]
    if rest:
        yield rest, true()
    yield from (((name,), ONLY_OF[table, name]) for name in names if name not in rest)


def limit(conn: Connection, table: Table, limits: Mapping[str, Any]) -> int:
    """Cut what is later than now and the longest pause of its kind. How many times there were."""
    return sum(
        _cut(conn, table, {name: limits[name] for name in together}, only)
        for together, only in _together(table, limits)
    )


def limits(longest: LongestPauses, *, now_ms: int) -> Mapping[Table, Mapping[str, Any]]:
    """The latest that each time can be, of one that ought to wait."""
    tables, kept = lake_tables.c, cleanups.c
    interval_ms = _greater(tables.interval_ms, longest.look_again_ms)
    pause_ms = case((tables.failures > 0, _long(longest.rest_ms)), else_=interval_ms)
    # A committer goes by the deadline that it was told, and that was longer once: marks stay as
    # long as their job was promised.
    cleanup_ms = _greater(kept.targets_due_at_ms - kept.made_at_ms, longest.cleanup_ms)
    return {
        catalogs: {"due_at_ms": now_ms + longest.discovery_ms, "discovered_at_ms": now_ms},
        lake_tables: {
            "due_at_ms": _long(now_ms) + pause_ms,
            "not_before_ms": now_ms + longest.rest_ms,
            **dict.fromkeys(("planned_at_ms", "pending_since_ms"), now_ms),
            **dict.fromkeys(("evaluated_at_ms", "optimized_at_ms"), now_ms),
        },
        processes: {
            "discard_at_ms": now_ms + longest.discard_ms,
            "settling_since_ms": now_ms,
        },
        blockers: {"expires_at_ms": now_ms + longest.block_ms},
        cleanups: {
            "due_at_ms": _long(now_ms) + cleanup_ms,
            "targets_due_at_ms": _long(now_ms) + cleanup_ms,
        },
        savepoints: {"made_at_ms": now_ms},
        groups: {"keep_next_at_ms": now_ms + longest.floor_ms},
        resources: dict.fromkeys(("launched_at_ms", "orphaned_since_ms"), now_ms),
        workers: {"drain_since_ms": now_ms},
    }


def _cut(
    conn: Connection,
    table: Table,
    limits: Mapping[str, Any],
    only: ColumnElement[bool] | TextClause,
) -> int:
    late = {name: table.c[name] > most for name, most in limits.items()}
    values = {name: case((late[name], most), else_=table.c[name]) for name, most in limits.items()}
    cut = update(table).where(only, or_(*late.values())).values(values)
    return conn.execute(cut).rowcount


def _greater(column: ColumnElement[int], other: int) -> ColumnElement[int]:
    return case((column > other, column), else_=_long(other))


def _long(value: int) -> ColumnElement[int]:
    """PostgreSQL takes a number that it is told nothing of for one of 32 bits."""
    return literal(value, BigInteger())
