"""Every time in the store that something waits for: moved with the wall clock, and kept in bounds.

Times are of two kinds: until when a pause lasts (`due_at_ms`), and since when something is so
(`planned_at_ms`), for what lasts a given duration from there. Other times only tell people when
something happened; those are not here. 0 and NULL stand for no time.
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

from headrace.model.jobs.epoch import CleanupStep
from headrace.store.core.engine import is_sqlite
from headrace.store.groups.groups import groups, resources
from headrace.store.jobs.schema import TIMED_JOB, cleanups, jobs, savepoints
from headrace.store.tables.schema import (
    LEFTOVERS_OF_PROCESS,
    RUNNING_PROCESS,
    blockers,
    catalogs,
    lake_tables,
    processes,
)
from headrace.store.tasks.schema import tasks, workers

log = logging.getLogger(__name__)

CLOCKS_PAGE_MAX = 500  # lake tables whose partition clocks are read and written at a time
MOVE_MAX_MS = 60_000  # for one statement that moves the times of all rows of a table

# The columns that a change of the wall clock moves. The length of a task's pause is stored beside
# it (`pause_ms`), so a claim sees by itself when one is too long; a group's pause is checked
# against its setting.
WAITED_FOR: Mapping[Table, Sequence[str]] = {
    tasks: ("not_before_ms",),
    workers: ("drain_since_ms",),
    jobs: ("due_at_ms",),
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

# These times decide when marks and savepoints are deleted for good, so they move only by the part
# of a change that is known. A guess may be wrong at each change of leader, and the errors add up;
# only times that are too late are corrected (`limits`). `due_at_ms` of a cleanup that is at its
# targets is such a time, too.
MOVED_ONLY_BY_KNOWN = {
    (cleanups, "made_at_ms"),
    (cleanups, "targets_due_at_ms"),
    (savepoints, "made_at_ms"),
}

# Of a month of processes nearly all have ended, and of all open jobs few wait for a time: only rows
# that a partial index holds are read.
INDEXED_ROWS: Mapping[tuple[Table, str], TextClause] = {
    (jobs, "due_at_ms"): TIMED_JOB,
    (processes, "settling_since_ms"): RUNNING_PROCESS,
    (processes, "discard_at_ms"): LEFTOVERS_OF_PROCESS,
}


@dataclass(frozen=True, slots=True)
class LongestPauses:
    """How long a pause of each kind may last, as the coordinator is configured."""

    discovery_ms: int  # between two discoveries of a catalog
    look_again_ms: int  # between two evaluations of a table; its own interval may be longer
    rest_ms: int  # of a table after a failure
    discard_ms: int  # until what a process left staged is discarded
    block_ms: int  # for which a blocker holds
    stopping_ms: int  # between two looks at a job that is stopping
    cleanup_ms: int  # until a job is cleaned up, and between tries; the job's own may be longer
    floor_ms: int  # until a group's minimum parallelism is requested again


def set_statement_timeout(conn: Connection, statement_max_ms: int) -> None:
    """Limit each further statement of this transaction. SQLite has no such limit."""
    if not is_sqlite(conn):
        limit_ms = str(statement_max_ms)
        conn.execute(select(func.set_config("statement_timeout", limit_ms, True)))  # noqa: FBT003


def move(conn: Connection, by_ms: int, *, known_ms: int) -> None:
    """Move all due times: the wall clock was set by `by_ms`, and what waits must not wait longer or
    shorter for it.

    `known_ms` is the part of it that is no guess. What is deleted for good moves by that part
    alone. A term must do this before anything else, however long it takes; on PostgreSQL a
    candidate waits for it at the fence.
    """
    set_statement_timeout(conn, MOVE_MAX_MS)
    for table, names in WAITED_FOR.items():
        for together, only in _columns_per_statement(table, names):
            columns = [table.c[name] for name in together]
            moved = {
                c.name: case((c > 0, c + _shift_of(c, by_ms, known_ms)), else_=c) for c in columns
            }
            conn.execute(update(table).where(only, or_(*(c > 0 for c in columns))).values(moved))
    _move_clocks(conn, by_ms)


def _shift_of(column: Column[int], by_ms: int, known_ms: int) -> ColumnElement[int]:
    """By how much a column moves."""
    if (column.table, column.name) in MOVED_ONLY_BY_KNOWN:
        return _bigint(known_ms)
    if column is cleanups.c.due_at_ms:
        of_targets = cleanups.c.step == CleanupStep.TARGETS
        return case((of_targets, _bigint(known_ms)), else_=_bigint(by_ms))
    return _bigint(by_ms)


def _move_clocks(conn: Connection, by_ms: int) -> None:
    """Move the partition clocks of tables: when partitions were last optimized, from which rules by
    time count.

    They are read as text, since one value that can't be read must not keep everybody from leading.
    Such a value stays as it is, and the table's own evaluation will fail on it (T6).
    """
    after = ""
    stored = cast(lake_tables.c.clocks, Text()).label("stored")
    page = select(lake_tables.c.id, stored).order_by(lake_tables.c.id)
    change = (
        update(lake_tables)
        .where(lake_tables.c.id == bindparam("of"))
        .values(clocks=bindparam("moved"))
    )
    while rows := conn.execute(page.where(lake_tables.c.id > after).limit(CLOCKS_PAGE_MAX)).all():
        changed = ((id_, _moved_clocks(id_, stored, by_ms)) for id_, stored in rows)
        if moved := [{"of": id_, "moved": clocks} for id_, clocks in changed if clocks]:
            conn.execute(change, moved)
        after = rows[-1].id


def _moved_clocks(table_id: str, stored: str, by_ms: int) -> Mapping[str, Sequence[int | None]]:
    """The moved clocks of one table. Empty: there are none, or they can't be read."""
    try:
        clocks: Mapping[str, Sequence[int | None]] = json.loads(stored)
        return {
            key: [at_ms and index(at_ms) + by_ms for at_ms in times]
            for key, times in clocks.items()
        }
    except Exception:
        log.exception("clocks of a table can't be moved", extra={"table": table_id})
        return {}


def _columns_per_statement(
    table: Table, names: Iterable[str]
) -> Iterator[tuple[Sequence[str], ColumnElement[bool] | TextClause]]:
    """The columns that one statement changes together, with the rows that it looks at: a column
    that has a partial index gets a statement of its own, which uses the index."""
    rest = [name for name in names if (table, name) not in INDEXED_ROWS]
    if rest:
        yield rest, true()
    yield from (((name,), INDEXED_ROWS[table, name]) for name in names if name not in rest)


def cut_to_limits(conn: Connection, table: Table, limits: Mapping[str, Any]) -> int:
    """Cut the times of a table that are later than now plus the longest pause of their kind.
    Returns how many rows had one."""
    return sum(
        _cut(conn, table, {name: limits[name] for name in together}, only)
        for together, only in _columns_per_statement(table, limits)
    )


def limits(longest: LongestPauses, *, now_ms: int) -> Mapping[Table, Mapping[str, Any]]:
    """The latest that each time may be, of something that waits."""
    tables, kept = lake_tables.c, cleanups.c
    interval_ms = _greater(tables.interval_ms, longest.look_again_ms)
    pause_ms = case((tables.failures > 0, _bigint(longest.rest_ms)), else_=interval_ms)
    # A committer relies on the deadline that it was sent, which may have been longer then: marks
    # stay for as long as their job was promised.
    cleanup_ms = _greater(kept.targets_due_at_ms - kept.made_at_ms, longest.cleanup_ms)
    return {
        catalogs: {"due_at_ms": now_ms + longest.discovery_ms, "discovered_at_ms": now_ms},
        lake_tables: {
            "due_at_ms": _bigint(now_ms) + pause_ms,
            "not_before_ms": now_ms + longest.rest_ms,
            **dict.fromkeys(("planned_at_ms", "pending_since_ms"), now_ms),
            **dict.fromkeys(("evaluated_at_ms", "optimized_at_ms"), now_ms),
        },
        processes: {
            "discard_at_ms": now_ms + longest.discard_ms,
            "settling_since_ms": now_ms,
        },
        blockers: {"expires_at_ms": now_ms + longest.block_ms},
        jobs: {"due_at_ms": now_ms + longest.stopping_ms},
        cleanups: {
            "due_at_ms": _bigint(now_ms) + cleanup_ms,
            "targets_due_at_ms": _bigint(now_ms) + cleanup_ms,
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
    return case((column > other, column), else_=_bigint(other))


def _bigint(value: int) -> ColumnElement[int]:
    """A 64-bit literal: PostgreSQL takes a number without a type for one of 32 bits."""
    return literal(value, BigInteger())
