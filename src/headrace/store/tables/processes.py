"""Processes: the rewrite that a table is in, and how earlier ones ended.

A process that is *settling* no longer has its table: the table is asked whether the commit is in
it, and the answer is how the process ends (E3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Update, bindparam, delete, func, insert, or_, select, update

from headrace.model.tables.status import (
    PROCESS_ENDED,
    OptimizingType,
    ProcessStatus,
    check_process_transition,
)
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.tables.schema import RUNNING_PROCESS, processes
from headrace.store.tasks.schema import tasks

EXPIRED_AT_ONCE_MAX = 200  # rows of one transaction; the next pass takes the rest


@dataclass(frozen=True, slots=True)
class Process:
    """A process as it is read, without its plan and result."""

    id: str
    table_id: str
    identifier: str
    number: int
    type: OptimizingType
    status: ProcessStatus
    group: str
    wanted_cancel: bool
    uuid: str
    snapshot: int
    commit_task: str | None
    settling_since_ms: int | None
    error: str | None
    leftovers: bool
    discard_task: str | None
    discard_at_ms: int | None
    discard_failures: int
    created_at_ms: int
    ended_at_ms: int | None

    @property
    def settling(self) -> bool:
        """Whether its table no longer waits for it, and how it ended is being found out."""
        return self.settling_since_ms is not None and self.status is ProcessStatus.RUNNING


_READ = (
    *("id", "table_id", "identifier", "number", "type", "status", "group_name", "wanted_cancel"),
    *("uuid", "snapshot", "commit_task", "settling_since_ms", "error", "leftovers"),
    *("discard_task", "discard_at_ms", "discard_failures", "created_at_ms", "ended_at_ms"),
)
_COLUMNS = tuple(processes.c[name] for name in _READ)
_GET = PreparedStatement(select(*_COLUMNS).where(processes.c.id == bindparam("of")))
_LOCK = PreparedStatement(
    select(*_COLUMNS).where(processes.c.id == bindparam("of")).with_for_update()
)
_RUNNING = PreparedStatement(
    select(processes.c.id, processes.c.table_id)
    .where(RUNNING_PROCESS, processes.c.id > bindparam("after"))
    .order_by(processes.c.id)
    .limit(bindparam("most"))
)
_RUNNING_OF = PreparedStatement(
    select(*_COLUMNS).where(RUNNING_PROCESS, processes.c.table_id == bindparam("table"))
)
_OF_TABLE = PreparedStatement(
    select(*_COLUMNS)
    .where(
        or_(
            processes.c.table_id == bindparam("table"), processes.c.identifier == bindparam("named")
        )
    )
    .order_by(processes.c.created_at_ms.desc(), processes.c.number.desc())
    .limit(bindparam("most"))
)
_LEFTOVERS = PreparedStatement(
    select(processes.c.id)
    .where(processes.c.leftovers == 1, processes.c.discard_at_ms <= bindparam("now_ms"))
    .order_by(processes.c.discard_at_ms, processes.c.id)
    .limit(bindparam("most"))
)
_JSON = PreparedStatement(
    select(processes.c.plan, processes.c.result).where(processes.c.id == bindparam("of"))
)


def _to_process(row: Sequence[Any]) -> Process:
    process_id, table_id, identifier, number, kind, status, group, cancel, *rest = row
    uuid, snapshot, commit_task, settling, error, leftovers, *discard = rest
    return Process(
        process_id,
        table_id,
        identifier,
        number,
        OptimizingType[kind],
        ProcessStatus(status),
        group,
        bool(cancel),
        uuid,
        snapshot,
        commit_task,
        settling,
        error,
        bool(leftovers),
        *discard,
    )


def begin(
    conn: Connection,
    *,
    process_id: str,
    table_id: str,
    identifier: str,
    number: int,
    type: OptimizingType,  # noqa: A002 - the column's name
    group: str,
    uuid: str,
    snapshot: int,
    plan: Mapping[str, Any],
    now_ms: int,
) -> None:
    """Persist a plan, whose process runs from then on. The store refuses a second one of the
    table."""
    conn.execute(
        insert(processes).values(
            id=process_id,
            table_id=table_id,
            identifier=identifier,
            number=number,
            type=type.name,
            status=ProcessStatus.RUNNING,
            group_name=group,
            uuid=uuid,
            snapshot=snapshot,
            plan=dict(plan),
            created_at_ms=now_ms,
        )
    )


def get(conn: Connection, process_id: str) -> Process | None:
    row = _GET.row(conn, {"of": process_id})
    return _to_process(row) if row else None


def lock(conn: Connection, process_id: str) -> Process | None:
    """The process, which nobody else changes until the transaction ends."""
    row = _LOCK.row(conn, {"of": process_id})
    return _to_process(row) if row else None


def running(conn: Connection, *, after: str = "", most: int) -> Mapping[str, str]:
    """Table by running process, settling ones included, in the order of the process ids from the
    one that follows `after`. Only ids, so that no broken row hides the others."""
    return dict(_RUNNING.rows(conn, {"after": after, "most": most}))


def running_of(conn: Connection, table_id: str) -> Process | None:
    """The running process of a table, settling or not: until it has ended, nothing else is
    planned."""
    row = _RUNNING_OF.row(conn, {"table": table_id})
    return _to_process(row) if row else None


def of_table(conn: Connection, table_id: str, *, identifier: str, most: int) -> Sequence[Process]:
    """Processes of a table, the latest first; also those of a former table of that identifier."""
    values = {"table": table_id, "named": identifier, "most": most}
    return [_to_process(row) for row in _OF_TABLE.rows(conn, values)]


def with_leftovers(conn: Connection, *, now_ms: int, most: int) -> Sequence[str]:
    """Ended processes whose staged files are to be deleted now."""
    return [of for (of,) in _LEFTOVERS.rows(conn, {"now_ms": now_ms, "most": most})]


def plan_of(conn: Connection, process_id: str) -> Mapping[str, Any]:
    row = _JSON.row(conn, {"of": process_id})
    return row[0] if row else {}


def result_of(conn: Connection, process_id: str) -> Mapping[str, Any] | None:
    row = _JSON.row(conn, {"of": process_id})
    return row[1] if row else None


def end(
    conn: Connection,
    process: Process,
    to: ProcessStatus,
    *,
    now_ms: int,
    error: str | None = None,
    result: Mapping[str, Any] | None = None,
    discard_at_ms: int | None = None,
) -> bool:
    """Record how a process ended, along its map (S1). False: it has ended since the caller read it,
    and that end stands. `discard_at_ms`: when to delete what it may have staged; None: there is
    nothing."""
    check_process_transition(process.id, process.status, to)
    seen = (processes.c.id == process.id, processes.c.status == process.status)
    ended = conn.execute(
        update(processes)
        .where(*seen)
        .values(
            status=to,
            ended_at_ms=now_ms,
            error=error,
            result=None if result is None else dict(result),
            leftovers=int(discard_at_ms is not None),
            discard_at_ms=discard_at_ms,
        )
    )
    return ended.rowcount == 1


def note_commit_task(conn: Connection, process_id: str, task_id: str) -> None:
    conn.execute(_of(process_id).values(commit_task=task_id))


def begin_settling(conn: Connection, process_id: str, *, now_ms: int) -> None:
    """Its table no longer waits for it: from now on it is found out how it ended."""
    conn.execute(_of(process_id).values(settling_since_ms=now_ms))


def begin_discard(
    conn: Connection, process_id: str, *, task_id: str, look_again_at_ms: int
) -> None:
    """A task is to delete what the process staged."""
    conn.execute(_of(process_id).values(discard_task=task_id, discard_at_ms=look_again_at_ms))


def postpone_discard(conn: Connection, process_id: str, *, look_again_at_ms: int) -> None:
    conn.execute(_of(process_id).values(discard_at_ms=look_again_at_ms))


def note_discard_failed(
    conn: Connection, process_id: str, *, failures: int, again_at_ms: int
) -> None:
    """What it staged could not be deleted, after other tries in a row: try again later."""
    conn.execute(
        _of(process_id).values(
            discard_task=None, discard_failures=failures, discard_at_ms=again_at_ms
        )
    )


def note_nothing_left(conn: Connection, process_id: str) -> None:
    """No staged file of the process is left at its table."""
    conn.execute(_of(process_id).values(leftovers=0, discard_task=None, discard_at_ms=None))


def note_late_commit(
    conn: Connection, process_id: str, *, error: str, result: Mapping[str, Any]
) -> None:
    """Its commit had landed, though the process ended without one."""
    conn.execute(_of(process_id).values(error=error, result=dict(result)))


def _of(process_id: str) -> Update:
    return update(processes).where(processes.c.id == process_id)


def want_cancel(conn: Connection, process_id: str) -> bool:
    """Ask for the end of a process. False: it has ended, or somebody asked before."""
    result = conn.execute(
        update(processes)
        .where(processes.c.id == process_id, RUNNING_PROCESS, processes.c.wanted_cancel == 0)
        .values(wanted_cancel=1)
    )
    return result.rowcount == 1


def counts(conn: Connection) -> Mapping[ProcessStatus, int]:
    grouped = select(processes.c.status, func.count()).group_by(processes.c.status)
    return {ProcessStatus(status): int(n) for status, n in conn.execute(grouped)}


def _expired(until_ms: int) -> Any:
    """The conditions of an ended process that may be deleted: nothing of it is left at its
    table."""
    return (
        processes.c.status.in_(sorted(PROCESS_ENDED)),
        processes.c.ended_at_ms <= until_ms,
        processes.c.leftovers == 0,
    )


def any_expired(conn: Connection, *, until_ms: int) -> bool:
    query = select(processes.c.id).where(*_expired(until_ms)).limit(1)
    return conn.execute(query).first() is not None


def expire(conn: Connection, *, until_ms: int) -> int:
    """Delete processes that ended by then, with their tasks. Returns how many."""
    chosen = select(processes.c.id).where(*_expired(until_ms)).limit(EXPIRED_AT_ONCE_MAX)
    ids = list(conn.execute(chosen).scalars())
    if ids:
        conn.execute(delete(tasks).where(tasks.c.process_id.in_(ids)))
        conn.execute(delete(processes).where(processes.c.id.in_(ids)))
    return len(ids)
