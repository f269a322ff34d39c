"""Every write to the row of a lake table, each by the name of what happens to the table.

A *move* changes the status. It names the row that it was decided by and is checked against the maps
of model/tables/status.py: a step that these do not have is refused (S1). When the status is no
longer the one that the caller saw, the move changes nothing and says so: of two concurrent
decisions only one takes effect. No move here takes a table out of a running process; what a restart
does instead is in `table_reset.py` (T8).

All other writes leave the status alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Update, case, delete, or_, select, update

from headrace.model.tables.status import (
    OptimizingType,
    ProcessStatus,
    TableErrorKind,
    TableStatus,
    check_table_release,
    check_table_transition,
)
from headrace.store.core.engine import insert_absent
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.schema import blockers, lake_tables

PartitionTimes = Mapping[str, Sequence[int | None]]  # the clocks of a table, by partition


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of a table that the leader decides by."""

    group: str
    enabled: bool
    quota: float
    min_plan_interval_ms: int
    flaws: Sequence[str] = ()  # invalid properties


@dataclass(frozen=True, slots=True)
class DiscoveredTable:
    """A table that a discovery found."""

    id: str
    catalog: str
    namespace: Sequence[str]
    name: str
    identifier: str
    settings: TableSettings
    interval_ms: int


@dataclass(frozen=True, slots=True)
class ScannedTable:
    """The table itself, as an evaluation saw it."""

    uuid: str | None
    pointer: str | None
    snapshot: int | None
    look_at_ms: int | None
    summary: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class NextEvaluation:
    """When a table was evaluated, and when it is due again."""

    evaluated_at_ms: int
    interval_ms: int
    due_at_ms: int


def add_discovered(conn: Connection, tables: Sequence[DiscoveredTable], *, now_ms: int) -> None:
    """Add tables that a discovery found, to be evaluated at once; those that are known stay as they
    are."""
    rows = [
        {
            "id": each.id,
            "catalog": each.catalog,
            "namespace": list(each.namespace),
            "name": each.name,
            "identifier": each.identifier,
            "created_at_ms": now_ms,
            "status": TableStatus.IDLE,
            "status_since_ms": now_ms,
            "due_at_ms": now_ms,
            "interval_ms": each.interval_ms,
            **_settings(each.settings),
        }
        for each in tables
    ]
    if rows:
        insert_absent(conn, lake_tables, rows)


def drop(conn: Connection, table_id: str) -> None:
    """Delete a table that is no longer in its catalog. Its processes must have ended; their
    history stays."""
    conn.execute(delete(blockers).where(blockers.c.table_id == table_id))
    conn.execute(delete(lake_tables).where(lake_tables.c.id == table_id))


def await_turn(conn: Connection, table: LakeTable, *, now_ms: int) -> bool:
    """Move to PENDING: there is input, or a wish, that waits for its turn from now on."""
    return _landed(
        conn, _step(table, TableStatus.PENDING, now_ms=now_ms).values(pending_since_ms=now_ms)
    )


def rest(conn: Connection, table: LakeTable, *, now_ms: int) -> bool:
    """Move to IDLE: nothing waits any more, or optimizing is switched off."""
    return _landed(conn, _step(table, TableStatus.IDLE, now_ms=now_ms))


def begin_planning(conn: Connection, table: LakeTable, *, task_id: str, now_ms: int) -> bool:
    """Move to PLANNING, by this task."""
    step = _step(table, TableStatus.PLANNING, now_ms=now_ms)
    return _landed(conn, step.values(task_id=task_id, planned_at_ms=now_ms))


def await_another_plan(
    conn: Connection, table: LakeTable, *, planned_at_ms: int | None, now_ms: int
) -> bool:
    """Move back to PENDING, since there is no plan. `planned_at_ms`: from when its shortest
    interval between plans counts; None: it may be planned at once."""
    step = _step(table, TableStatus.PENDING, now_ms=now_ms)
    return _landed(conn, step.values(task_id=None, planned_at_ms=planned_at_ms))


def drop_plan(conn: Connection, table: LakeTable, *, now_ms: int) -> bool:
    """Move to IDLE without what was planned; the table is scanned at once."""
    step = _found_again(_step(table, TableStatus.IDLE, now_ms=now_ms), now_ms=now_ms)
    return _landed(conn, step.values(task_id=None))


def need_no_process(
    conn: Connection,
    table: LakeTable,
    *,
    wanted: OptimizingType | None,
    due_at_ms: int,
    now_ms: int,
) -> bool:
    """Move to IDLE: planning found that no rewrite would gain anything. `wanted`: the wish that the
    plan did not cover."""
    step = _step(table, TableStatus.IDLE, now_ms=now_ms).values(
        task_id=None,
        wanted_type=_name_of(wanted),
        pending=None,
        pending_since_ms=None,
        failures=0,
        error=None,
        error_kind=None,
        due_at_ms=due_at_ms,
    )
    return _landed(conn, step)


def begin_process(
    conn: Connection,
    table: LakeTable,
    *,
    process_id: str,
    type: OptimizingType,  # noqa: A002 - as the process calls it
    number: int,
    wanted: OptimizingType | None,
    now_ms: int,
) -> bool:
    """Move into a process, whose input is no longer pending. `wanted`: the wish that it does not
    cover."""
    step = _step(table, type.status, now_ms=now_ms).values(
        process_id=process_id,
        processes=number,
        task_id=None,
        wanted_type=_name_of(wanted),
        pending=None,
        pending_since_ms=None,
    )
    return _landed(conn, step)


def begin_commit(conn: Connection, table: LakeTable, *, now_ms: int) -> bool:
    """Move to COMMITTING."""
    return _landed(conn, _step(table, TableStatus.COMMITTING, now_ms=now_ms))


def release(conn: Connection, table: LakeTable, process: ProcessStatus, *, now_ms: int) -> bool:
    """Move to IDLE, out of the process it was in, and have it scanned at once; refused unless that
    process has ended (T8)."""
    to = TableStatus.IDLE
    check_table_release(table.identifier, table.status, to, process=process)
    moved = _found_again(_status(table, to, now_ms=now_ms), now_ms=now_ms)
    return _landed(conn, moved.values(process_id=None))


def _step(table: LakeTable, to: TableStatus, *, now_ms: int) -> Update:
    """The UPDATE of an ordinary step, which the map must have."""
    check_table_transition(table.identifier, table.status, to)
    return _status(table, to, now_ms=now_ms)


def _status(table: LakeTable, to: TableStatus, *, now_ms: int) -> Update:
    """The UPDATE of a status, guarded by the status that the caller saw and that was checked."""
    seen = (lake_tables.c.id == table.id, lake_tables.c.status == table.status)
    return update(lake_tables).where(*seen).values(status=to, status_since_ms=now_ms)


def _landed(conn: Connection, move: Update) -> bool:
    return conn.execute(move).rowcount == 1


def _found_again(change: Update, *, now_ms: int) -> Update:
    """Have the table scanned at once: without its pointer it counts as changed."""
    return change.values(pointer=None, due_at_ms=now_ms, pending=None, pending_since_ms=None)


def _name_of(wanted: OptimizingType | None) -> str | None:
    return wanted.name if wanted is not None else None


def _of(table_id: str) -> Update:
    return update(lake_tables).where(lake_tables.c.id == table_id)


def hold_for_evaluation(
    conn: Connection, ids: Collection[str], *, task_id: str, look_again_at_ms: int
) -> None:
    """Put the tables into an evaluation; meanwhile their due time says when to check on it."""
    chosen = update(lake_tables).where(lake_tables.c.id.in_(sorted(ids)))
    conn.execute(chosen.values(task_id=task_id, due_at_ms=look_again_at_ms))


def schedule_evaluation(conn: Connection, ids: Collection[str], *, due_at_ms: int) -> None:
    """Set when the tables are evaluated, or the evaluation that they are in is checked on."""
    chosen = update(lake_tables).where(lake_tables.c.id.in_(sorted(ids)))
    conn.execute(chosen.values(due_at_ms=due_at_ms))


def scan_at_once(conn: Connection, table_id: str, *, now_ms: int) -> None:
    """Have the table evaluated at once, and scanned even if it has not changed."""
    conn.execute(_of(table_id).values(pointer=None, due_at_ms=now_ms))


def note_unchanged(
    conn: Connection, table_id: str, settings: TableSettings, following: NextEvaluation
) -> None:
    """An evaluation found the table unchanged; its settings may differ."""
    conn.execute(_of(table_id).values(**_settings(settings), **_following(following)))


def note_evaluated(
    conn: Connection,
    table_id: str,
    state: ScannedTable,
    settings: TableSettings,
    following: NextEvaluation,
) -> None:
    """An evaluation scanned the table."""
    conn.execute(
        _of(table_id).values(
            uuid=state.uuid,
            pointer=state.pointer,
            snapshot=state.snapshot,
            look_at_ms=state.look_at_ms,
            summary=None if state.summary is None else dict(state.summary),
            **_settings(settings),
            **_following(following),
        )
    )


def _settings(settings: TableSettings) -> dict[str, Any]:
    return {
        "group_name": settings.group,
        "enabled": int(settings.enabled),
        "quota": settings.quota,
        "min_plan_interval_ms": settings.min_plan_interval_ms,
        "flaws": list(settings.flaws),
    }


def _following(following: NextEvaluation) -> dict[str, Any]:
    return {
        "task_id": None,
        "evaluated_at_ms": following.evaluated_at_ms,
        "interval_ms": following.interval_ms,
        "due_at_ms": following.due_at_ms,
    }


def note_pending(
    conn: Connection,
    table_id: str,
    pending: Mapping[str, Any] | None,
    *,
    since_ms: int | None,
    benefit: float,
) -> None:
    """Record the input that waits to be rewritten (T2). None: there is none."""
    conn.execute(
        _of(table_id).values(
            pending=None if pending is None else dict(pending),
            pending_since_ms=since_ms,
            benefit=benefit,
        )
    )


def note_clocks(conn: Connection, table_id: str, clocks: PartitionTimes) -> None:
    conn.execute(_of(table_id).values(clocks=dict(clocks)))


def note_file_failures(conn: Connection, table_id: str, failures: Mapping[str, int]) -> None:
    conn.execute(_of(table_id).values(file_failures=dict(failures)))


def note_not_evaluated(
    conn: Connection, table_id: str, *, failures: int, error: str, due_at_ms: int
) -> None:
    """An evaluation failed, after others in a row: the table leaves it, and is due again later."""
    conn.execute(
        _of(table_id).values(
            task_id=None,
            failures=failures,
            error=error,
            error_kind=TableErrorKind.EVALUATION,
            due_at_ms=due_at_ms,
        )
    )


def note_not_planned(conn: Connection, table_id: str, *, error: str, not_before_ms: int) -> None:
    """Planning could not begin, which counts as no failure of the table."""
    kind = TableErrorKind.OPTIMIZING
    conn.execute(_of(table_id).values(error=error, error_kind=kind, not_before_ms=not_before_ms))


def back_off(
    conn: Connection, table_id: str, *, failures: int, error: str, not_before_ms: int
) -> None:
    """Planning, or a process, failed: nothing is planned before `not_before_ms`."""
    conn.execute(
        _of(table_id).values(
            failures=failures,
            error=error,
            error_kind=TableErrorKind.OPTIMIZING,
            not_before_ms=not_before_ms,
        )
    )


def shorten_back_off(conn: Connection, table_id: str, *, not_before_ms: int) -> None:
    conn.execute(_of(table_id).values(not_before_ms=not_before_ms))


def forget_failures(conn: Connection, table_id: str) -> None:
    """Forget the error and the failures in a row; a back-off stays."""
    conn.execute(_of(table_id).values(failures=0, error=None, error_kind=None))


def forget_former(conn: Connection, table_id: str) -> None:
    """Forget what was known of a table that was dropped and created again."""
    conn.execute(
        _of(table_id).values(
            failures=0,
            error=None,
            error_kind=None,
            not_before_ms=0,
            file_failures={},
            optimized_snapshot=None,
            optimized_at_ms=None,
            pending_since_ms=None,
            clocks={},
        )
    )


def note_optimized(
    conn: Connection,
    table_id: str,
    *,
    snapshot: int | None,
    at_ms: int,
    clocks: PartitionTimes,
    file_failures: Mapping[str, int],
) -> None:
    """A process was committed: earlier failures are forgotten, and so is the back-off."""
    conn.execute(
        _of(table_id).values(
            optimized_snapshot=snapshot,
            optimized_at_ms=at_ms,
            clocks=dict(clocks),
            file_failures=dict(file_failures),
            failures=0,
            error=None,
            error_kind=None,
            not_before_ms=0,
        )
    )


def leave_process(conn: Connection, table_id: str, *, due_at_ms: int) -> None:
    """Forget a process that the status of the table knows nothing of."""
    conn.execute(_of(table_id).values(process_id=None, due_at_ms=due_at_ms))


def want_optimized(conn: Connection, table_id: str, kind: OptimizingType) -> None:
    """A person asked for it now, at least this thoroughly: the back-off is skipped."""
    conn.execute(_of(table_id).values(wanted_type=kind.name, not_before_ms=0))


def withdraw_wish(conn: Connection, table_id: str) -> None:
    conn.execute(_of(table_id).values(wanted_type=None))


def pause(conn: Connection, table_id: str) -> None:
    """A person asked that the table be left alone, which withdraws a wish."""
    conn.execute(_of(table_id).values(wanted_paused=1, wanted_type=None))


def resume(conn: Connection, table_id: str, *, due_at_ms: int) -> None:
    """A person lets the table be optimized again."""
    conn.execute(_of(table_id).values(wanted_paused=0, due_at_ms=due_at_ms))


def evaluate_again(
    conn: Connection, *, catalog: str | None = None, group: str | None = None, now_ms: int
) -> None:
    """Make the tables of a catalog or of a group due, since their defaults have changed.

    What was measured does not hold any more, and an evaluation that is under way is let go of.
    Planning that is under way is not: its plan is still good.
    """
    assert (catalog is None) != (group is None)
    # A table that is being evaluated now may turn out to belong to this group.
    of_group = or_(lake_tables.c.group_name == group, lake_tables.c.task_id.is_not(None))
    of = of_group if catalog is None else lake_tables.c.catalog == catalog
    planning = lake_tables.c.status == TableStatus.PLANNING
    # Locked in the order that everybody uses, to avoid a deadlock.
    mine = select(lake_tables.c.id).where(of)
    conn.execute(mine.order_by(lake_tables.c.id).with_for_update())
    conn.execute(
        update(lake_tables)
        .where(of)
        .values(due_at_ms=now_ms, pointer=None, task_id=case((planning, lake_tables.c.task_id)))
    )
