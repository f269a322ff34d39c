"""Evaluation: schedules EVALUATE tasks for tables that are due, and applies their results.

A worker evaluates some dozens of tables in one task. A table is in one evaluation at a time, the
one that `task_id` names. Meanwhile its due time says when to check whether that evaluation is still
alive, so a lost one is found through the same index as everything that is due. After an evaluation
has failed as a whole, each of its tables is evaluated alone: if one was to blame, it takes no other
down again.

A result changes what is known of a table, its status, and when it is due again. Pending input is
never lost (T2): a table leaves PENDING only when a later evaluation finds no input, or when its
optimizing is switched off; then the input is kept, and waits until it is switched on.

Our own pipelines report the tables that they wrote to (`notice_commits`), so these are evaluated
early. Changes by other writers are found by the next evaluation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError

from headrace.clock import Clock
from headrace.coordinator.planned_tasks import plan_task
from headrace.coordinator.tables.evaluation_payload import evaluation_payload, shorten_evaluation
from headrace.coordinator.tables.table_state import (
    MOVED,
    bounded_clocks,
    clocks_for,
    close_process,
    drop_table,
    waits_elsewhere,
)
from headrace.coordinator.tables.table_task import EndedTask, TableTask
from headrace.errors import Fenced, Unavailable
from headrace.model.ids import Ids
from headrace.model.tables.schedule import BASE_INTERVAL_MS, FIRST_WAIT_MS, RefreshPace, wait_ms
from headrace.model.tables.status import ProcessStatus, TableErrorKind, TableStatus
from headrace.model.task import ENDED, TaskKind, TaskStatus
from headrace.model.text import without_nul
from headrace.protocol import task_types
from headrace.protocol.tables import (
    TABLES_PER_EVALUATION_MAX,
    Clocks,
    EvaluatedTable,
    EvaluationResult,
)
from headrace.protocol.task_types import EvaluateOrder
from headrace.store.core.engine import reading
from headrace.store.tables import (
    catalogs,
    due_tables,
    lake_tables,
    processes,
    table_changes,
    table_tasks,
)
from headrace.store.tables.catalogs import Catalog
from headrace.store.tables.due_tables import DueTable
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.table_changes import NextEvaluation, ScannedTable, TableSettings
from headrace.store.tasks import tasks
from headrace.store.tasks.tasks import Task

log = logging.getLogger(__name__)

# For each control slot of the group, one that runs and one that is ready: more would only delay the
# commits and plans that need the same slots.
EVALUATIONS_PER_CONTROL_SLOT = 2
EVALUATIONS_MAX = 64  # open in one group
BATCHES_PER_PASS_MAX = 16  # of one catalog; at two passes a second, 1,600 tables a second
LOOK_AGAIN_MS = 60_000  # between checks that an evaluation is alive
EVALUATE_RETRIES = 1  # a worker may die
RETRY_INTERVAL_S = 5
COMMIT_NOTICE_PAUSE_MS = 10_000  # at least, between evaluations of a table that is always written

_AT_REST = frozenset({TableStatus.IDLE, TableStatus.PENDING})


class EvaluationScheduler:
    """Keys are catalog names."""

    name = "evaluations"

    def __init__(self, clock: Clock, ids: Ids, *, refresh_ms: int = BASE_INTERVAL_MS) -> None:
        self._clock, self._ids, self._refresh_ms = clock, ids, refresh_ms

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            return due_tables.due_catalogs(conn, now_ms=self._clock.wall_ms())

    def due(self, conn: Connection, key: str) -> bool:
        catalog, now_ms = catalogs.get(conn, key), self._clock.wall_ms()
        if catalog is None or catalog.wanted_removed or not _room(conn, catalog):
            return False
        return bool(due_tables.due(conn, key, now_ms=now_ms, most=1))

    def reconcile(self, conn: Connection, key: str) -> None:
        catalog, now_ms = catalogs.get(conn, key), self._clock.wall_ms()
        if catalog is None or catalog.wanted_removed:
            return
        room = min(BATCHES_PER_PASS_MAX, _room(conn, catalog))
        most = room * TABLES_PER_EVALUATION_MAX
        rows = due_tables.due(conn, key, now_ms=now_ms, most=most)
        due_tables.lock(conn, [each.id for each in rows])
        held = [each for each in rows if each.task_id is not None]
        _check_held(conn, catalog, held, now_ms=now_ms)
        free = [each for each in rows if each.task_id is None]
        for batch in _batches(free)[:room]:
            self._plan(conn, catalog, batch, now_ms=now_ms)

    def _plan(
        self, conn: Connection, catalog: Catalog, batch: Sequence[str], *, now_ms: int
    ) -> None:
        task_id = self._ids.new()
        order = EvaluateOrder(
            catalog=catalog.name,
            tables=tuple(batch),
            refresh_ms=self._refresh_ms,
            retry_times=EVALUATE_RETRIES,
            retry_interval_s=RETRY_INTERVAL_S,
        )
        plan_task(
            conn, task_types.EVALUATE, order, task_id=task_id, group=catalog.group, now_ms=now_ms
        )
        look_again_at_ms = now_ms + LOOK_AGAIN_MS
        table_changes.hold_for_evaluation(
            conn, batch, task_id=task_id, look_again_at_ms=look_again_at_ms
        )


def _room(conn: Connection, catalog: Catalog) -> int:
    """How many more evaluations may be open; none without a worker that could run one."""
    slots = due_tables.control_slots(conn, catalog.group)
    most = min(EVALUATIONS_MAX, EVALUATIONS_PER_CONTROL_SLOT * slots)
    return max(0, most - due_tables.open_of_kind(conn, TaskKind.EVALUATE, group=catalog.group))


def _batches(free: Iterable[DueTable]) -> Sequence[Sequence[str]]:
    """Table ids in batches, in the order in which they are due; a table with failures is alone in
    its batch."""
    batches: list[list[str]] = []
    together: list[str] = []
    for each in free:
        if each.failures:
            batches.append([each.id])
            continue
        if not together or len(together) >= TABLES_PER_EVALUATION_MAX:
            together = []
            batches.append(together)
        together.append(each.id)
    return batches


def _check_held(
    conn: Connection, catalog: Catalog, held: Sequence[DueTable], *, now_ms: int
) -> None:
    """Check whether the evaluations that have held these tables for a while are still alive."""
    by_task: dict[str, list[DueTable]] = {}
    for each in held:
        by_task.setdefault(each.task_id or "", []).append(each)
    for task_id, tables in by_task.items():
        task = tasks.get(conn, task_id)
        planning = {each.id for each in tables if each.status is TableStatus.PLANNING}
        if not planning and waits_elsewhere(task, catalog.group):
            table_tasks.cancel(conn, [task_id], because=MOVED, now_ms=now_ms)
            task = None
        if task is not None and task.status not in ENDED:
            planning = {each.id for each in tables}
        if planning:  # still under way, or left to the process reconciler, which handles plans
            look_again_at_ms = now_ms + LOOK_AGAIN_MS
            table_changes.schedule_evaluation(conn, planning, due_at_ms=look_again_at_ms)
        lost = [each for each in tables if each.id not in planning]
        if lost:
            _free(conn, lost, task_id, task, now_ms=now_ms)


def _free(
    conn: Connection, lost: Sequence[DueTable], task_id: str, task: Task | None, *, now_ms: int
) -> None:
    """Take tables out of an evaluation that has ended, or of which nothing is known any more."""
    if task is None or task.status is not TaskStatus.FAILED:  # canceled or lost, no table's fault
        ids = [each.id for each in lost]
        due_tables.let_go(conn, ids, task_id=task_id, due_at_ms=now_ms + FIRST_WAIT_MS)
        return
    error = task.error or "nobody said why"
    for each in lost:
        evaluation_failed(conn, each.id, each.failures, error, now_ms=now_ms)
    facts = {"execution": task.claim.execution, "tables": len(lost), "reason": error}
    log.warning("evaluation failed", extra=facts)


def evaluated(conn: Connection, ended: EndedTask[EvaluationResult], now_ms: int) -> None:
    """Apply the result of an EVALUATE task, each table in isolation: one that fails stops no other.

    The task is deleted: its result is in the rows of its tables.
    """
    task, result = ended.task, ended.result
    order = EvaluateOrder.of(task.payload)
    ids = order.tables
    results = {each.id: each for each in result.tables}
    _lock_processes(conn, ids, results)
    due_tables.lock(conn, ids)
    away = result.catalog_error is not None
    for table_id in sorted(results.keys() & set(ids) if away else ids):
        apply_isolated(conn, task, table_id, results.get(table_id), now_ms=now_ms)
    if result.catalog_error is not None:
        catalog_away(conn, order.catalog, ids, task, result.catalog_error, now_ms=now_ms)
    tasks.delete(conn, task.id)


EVALUATE = TableTask(
    task_types.EVALUATE,
    build=evaluation_payload,
    apply=evaluated,
    make_room=shorten_evaluation,
)


def _lock_processes(
    conn: Connection, ids: Sequence[str], results: Mapping[str, EvaluatedTable]
) -> None:
    """Lock the processes of tables that are gone or were created anew: everybody locks a process
    before its table, which avoids deadlock."""
    known = due_tables.uuids(conn, ids)
    ending = [
        each.id
        for each in results.values()
        if each.gone or (each.uuid is not None and known.get(each.id) not in (None, each.uuid))
    ]
    running = [processes.running_of(conn, table_id) for table_id in sorted(ending)]
    for process_id in sorted(each.id for each in running if each is not None):
        processes.lock(conn, process_id)


def catalog_away(
    conn: Connection, name: str, ids: Sequence[str], task: Task, error: str, *, now_ms: int
) -> None:
    """The catalog is unavailable, which counts against none of its tables: those that were not
    evaluated are due again later."""
    catalog = catalogs.get(conn, name)
    catalogs.note_error(conn, name, error)
    again_ms = now_ms + wait_ms(max(1, catalog.failures if catalog else 0))
    due_tables.let_go(conn, ids, task_id=task.id, due_at_ms=again_ms)
    log.warning("catalog away", extra={"catalog": name, "reason": error})


def apply_isolated(
    conn: Connection, task: Task, table_id: str, result: EvaluatedTable | None, *, now_ms: int
) -> None:
    """Apply the result for one locked table, in a nested transaction: a broken table stops no
    other. Nothing is applied to a table that has moved on to another evaluation."""
    try:
        with conn.begin_nested():
            table = lake_tables.get(conn, table_id)
            if table is not None and table.task_id == task.id:
                base_ms = EvaluateOrder.of(task.payload).refresh_ms
                _apply(conn, table, result, base_ms=base_ms, now_ms=now_ms)
    except (Fenced, Unavailable, OperationalError):
        raise  # the store is unavailable, which is no fault of the table
    except Exception as error:
        log.exception("evaluation of a table broken off", extra={"table_id": table_id})
        # A driver error repeats the statement with all its values; the original error is enough.
        reason = error.orig if isinstance(error, DBAPIError) else error
        before = lake_tables.failures_of(conn, table_id)
        evaluation_failed(conn, table_id, before, without_nul(repr(reason)), now_ms=now_ms)


def evaluation_failed(
    conn: Connection, table_id: str, before: int, error: str, *, now_ms: int
) -> None:
    """Record a failed evaluation, after `before` in a row, and back off."""
    failures = before + 1
    table_changes.note_not_evaluated(
        conn,
        table_id,
        failures=failures,
        error=f"it can't be evaluated: {error}",
        due_at_ms=now_ms + wait_ms(failures),
    )


def _apply(
    conn: Connection, table: LakeTable, result: EvaluatedTable | None, *, base_ms: int, now_ms: int
) -> None:
    if result is None:
        error = "its worker said nothing of it"
        evaluation_failed(conn, table.id, table.failures, error, now_ms=now_ms)
    elif result.gone:
        because = f"there is no table {table.identifier} any more"
        drop_table(conn, table.id, because=because, now_ms=now_ms)
    elif result.error is not None:
        evaluation_failed(conn, table.id, table.failures, result.error, now_ms=now_ms)
    elif result.unchanged:
        _apply_unchanged(conn, table, result, base_ms=base_ms, now_ms=now_ms)
    else:
        _apply_changed(conn, table, result, base_ms=base_ms, now_ms=now_ms)


def _apply_unchanged(
    conn: Connection, table: LakeTable, result: EvaluatedTable, *, base_ms: int, now_ms: int
) -> None:
    """The table has not changed, so what is known of it, pending input included, still holds. Its
    settings may differ: a catalog has defaults for its tables."""
    demand = table.pending_since_ms is not None
    pace = _pace(result, base_ms)
    following = _next_evaluation(table, pace, table.look_at_ms, demand=demand, now_ms=now_ms)
    table_changes.note_unchanged(conn, table.id, _settings(result), following)
    if result.chosen.enabled and not table.enabled:  # its input is not known yet
        table_changes.scan_at_once(conn, table.id, now_ms=now_ms)
    _clear_error(conn, table)
    _move_status(conn, table, result, waits=demand, now_ms=now_ms)


def _apply_changed(
    conn: Connection, table: LakeTable, result: EvaluatedTable, *, base_ms: int, now_ms: int
) -> None:
    if table.uuid is not None and result.uuid != table.uuid:
        table = _recreated(conn, table, now_ms=now_ms)
    _clear_error(conn, table)
    demand, pace = result.pending is not None, _pace(result, base_ms)
    following = _next_evaluation(table, pace, result.look_at_ms, demand=demand, now_ms=now_ms)
    table_changes.note_evaluated(conn, table.id, _scanned(result), _settings(result), following)
    if result.seen:
        seen: Clocks = dict.fromkeys(result.seen, (None, None, None, now_ms))
        clocks = bounded_clocks({**seen, **clocks_for(conn, table)})
        table_changes.note_clocks(conn, table.id, clocks)
    if table.status in _AT_REST:
        _note_pending(conn, table, result, now_ms=now_ms)
    _move_status(conn, table, result, waits=result.pending is not None, now_ms=now_ms)


def _recreated(conn: Connection, table: LakeTable, *, now_ms: int) -> LakeTable:
    """The table was dropped and created again: nothing that was known of the former one holds."""
    log.info("another table of the same name", extra={"table": table.identifier})
    running = processes.running_of(conn, table.id)
    process = processes.lock(conn, running.id) if running is not None else None
    if process is not None and process.status is ProcessStatus.RUNNING:
        because = "its table was dropped and made anew"
        close_process(conn, process, ProcessStatus.CLOSED, because=because, now_ms=now_ms)
    table_changes.forget_former(conn, table.id)
    return lake_tables.get(conn, table.id) or table


def _scanned(result: EvaluatedTable) -> ScannedTable:
    return ScannedTable(
        uuid=result.uuid,
        pointer=result.pointer,
        snapshot=result.snapshot,
        look_at_ms=result.look_at_ms,
        summary=result.summary.model_dump(mode="json") if result.summary else None,
    )


def _settings(result: EvaluatedTable) -> TableSettings:
    return TableSettings(
        group=result.chosen.group,
        enabled=result.chosen.enabled,
        quota=result.chosen.quota,
        min_plan_interval_ms=result.chosen.min_plan_interval_ms,
        flaws=result.flaws,
    )


def _pace(result: EvaluatedTable, base_ms: int) -> RefreshPace:
    return RefreshPace(
        result.chosen.refresh_max_interval_ms, result.chosen.refresh_step_ms, base_ms
    )


def _next_evaluation(
    table: LakeTable,
    pace: RefreshPace,
    look_at_ms: int | None,
    *,
    demand: bool,
    now_ms: int,
) -> NextEvaluation:
    interval_ms = pace.next_interval_ms(table.interval_ms, demand=demand)
    due_at_ms = pace.due_at_ms(now_ms, interval_ms, look_at_ms=look_at_ms)
    return NextEvaluation(now_ms, interval_ms, due_at_ms)


def _note_pending(
    conn: Connection, table: LakeTable, result: EvaluatedTable, *, now_ms: int
) -> None:
    """Record pending input. Not for a table in a process: its input is being rewritten, and is
    evaluated again afterwards."""
    if result.pending is None:
        table_changes.note_pending(conn, table.id, None, since_ms=None, benefit=0.0)
        return
    since_ms = now_ms if table.pending_since_ms is None else table.pending_since_ms
    pending, benefit = result.pending.model_dump(mode="json"), result.pending.benefit
    table_changes.note_pending(conn, table.id, pending, since_ms=since_ms, benefit=benefit)


def _clear_error(conn: Connection, table: LakeTable) -> None:
    """Clear the error and failures of earlier evaluations, now that one succeeded. Failures of
    processes stay, or they would never add up."""
    if table.error_kind is TableErrorKind.EVALUATION:
        table_changes.forget_failures(conn, table.id)


def _move_status(
    conn: Connection, table: LakeTable, result: EvaluatedTable, *, waits: bool, now_ms: int
) -> None:
    """Move between IDLE and PENDING. A table that somebody asked to optimize stays PENDING even
    without pending input: planning decides whether there is anything to do."""
    may_optimize = result.chosen.enabled and not table.wanted_paused
    if table.status is TableStatus.IDLE and waits and may_optimize:
        table_changes.await_turn(conn, table, now_ms=now_ms)
        return
    nothing = not waits and table.wanted_type is None
    if table.status is TableStatus.PENDING and (nothing or not may_optimize):
        table_changes.rest(conn, table, now_ms=now_ms)


def notice_commits(conn: Connection, commits: Mapping[str, Any], *, now_ms: int) -> None:
    """An epoch was committed: have the tables it wrote to evaluated soon. `commits` says, by sink,
    what it wrote to."""
    named = {str(commit["table"]) for commit in commits.values() if _names_a_table(commit)}
    for identifier in sorted(named):
        table = lake_tables.named(conn, identifier)
        if table is not None:
            at_ms = max(now_ms, (table.evaluated_at_ms or 0) + COMMIT_NOTICE_PAUSE_MS)
            if at_ms < table.due_at_ms:
                table_changes.schedule_evaluation(conn, [table.id], due_at_ms=at_ms)
        else:
            _discover_soon(conn, identifier.partition(".")[0], now_ms=now_ms)


def _names_a_table(commit: Any) -> bool:
    return isinstance(commit, Mapping) and "table" in commit


def _discover_soon(conn: Connection, catalog: str, *, now_ms: int) -> None:
    """Have the catalog of a table that is not known yet discovered soon."""
    row = catalogs.get(conn, catalog)
    if row is None:
        return
    at_ms = max(now_ms, (row.discovered_at_ms or 0) + COMMIT_NOTICE_PAUSE_MS)
    if at_ms < row.due_at_ms:
        catalogs.schedule_discovery(conn, catalog, due_at_ms=at_ms)
