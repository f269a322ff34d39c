"""Evaluation: tables that are due are looked at by a worker, some dozens in one task.

A table is in one evaluation at a time, the one that `task_id` names. While it is, its due time is
when somebody looks whether that evaluation is still alive; so a lost one is found by the same index
as everything that is due. A table that was in an evaluation which failed as a whole is looked at
alone: if it was to blame, it takes no other down again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.tables import evaluations
from headrace.coordinator.tables.moving import MOVED, waits_elsewhere
from headrace.model.ids import Ids
from headrace.model.tables.backoff import FIRST_WAIT_MS
from headrace.model.tables.refresh import BASE_INTERVAL_MS
from headrace.model.tables.status import TableStatus
from headrace.model.task import ENDED, Lane, TaskKind, TaskStatus
from headrace.protocol.tables import TABLES_PER_EVALUATION_MAX, Evaluated, EvaluatedTable
from headrace.store import catalogs, lake, lake_turns, processes, table_tasks, tasks
from headrace.store.catalogs import Catalog
from headrace.store.engine import reading
from headrace.store.lake_turns import Due
from headrace.store.tasks import Task

log = logging.getLogger(__name__)

# One that runs and one that is ready, for each control slot of the group: more would only stand
# before the commits and plans that need the same slots.
EVALUATIONS_PER_CONTROL_SLOT = 2
EVALUATIONS_MAX = 64  # open in one group
BATCHES_PER_PASS_MAX = 16  # of one catalog; with two passes a second 1,600 tables a second
LOOK_AGAIN_MS = 60_000  # while an evaluation is under way
EVALUATE_RETRIES = 1  # a worker may die
RETRY_INTERVAL_S = 5


class Evaluations:
    """Keys are names of catalogs."""

    name = "evaluations"

    def __init__(self, clock: Clock, ids: Ids, *, refresh_ms: int = BASE_INTERVAL_MS) -> None:
        self._clock, self._ids, self._refresh_ms = clock, ids, refresh_ms

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            return lake_turns.due_catalogs(conn, now_ms=self._clock.wall_ms())

    def due(self, conn: Connection, key: str) -> bool:
        catalog, now_ms = catalogs.get(conn, key), self._clock.wall_ms()
        if catalog is None or catalog.wanted_removed or not _room(conn, catalog):
            return False
        return bool(lake_turns.due(conn, key, now_ms=now_ms, most=1))

    def reconcile(self, conn: Connection, key: str) -> None:
        catalog, now_ms = catalogs.get(conn, key), self._clock.wall_ms()
        if catalog is None or catalog.wanted_removed:
            return
        room = min(BATCHES_PER_PASS_MAX, _room(conn, catalog))
        most = room * TABLES_PER_EVALUATION_MAX
        found = lake_turns.due(conn, key, now_ms=now_ms, most=most)
        lake_turns.lock(conn, [each.id for each in found])
        held = [each for each in found if each.task_id is not None]
        _look_at_held(conn, catalog, held, now_ms=now_ms)
        free = [each for each in found if each.task_id is None]
        for batch in _batches(free)[:room]:
            self._plan(conn, catalog, batch, now_ms=now_ms)

    def _plan(
        self, conn: Connection, catalog: Catalog, batch: Sequence[str], *, now_ms: int
    ) -> None:
        task_id = self._ids.new()
        tasks.plan(
            conn,
            task_id=task_id,
            kind=TaskKind.EVALUATE,
            lane=Lane.CONTROL,
            group=catalog.group,
            payload={
                "catalog": catalog.name,
                "tables": list(batch),
                "refresh_ms": self._refresh_ms,  # whoever leads when it ends goes by it
                "retry_times": EVALUATE_RETRIES,
                "retry_interval_s": RETRY_INTERVAL_S,
            },
            now_ms=now_ms,
        )
        lake.change_many(conn, batch, task_id=task_id, due_at_ms=now_ms + LOOK_AGAIN_MS)


def evaluated(conn: Connection, task: Task, found: Evaluated, *, now_ms: int) -> None:
    """What an evaluation found, each table for itself: a broken one is told there and stops none.

    The task goes with its end: what it said is in the rows of its tables.
    """
    catalog, ids = str(task.payload["catalog"]), [str(one) for one in task.payload["tables"]]
    told = {each.id: each for each in found.tables}
    _lock_processes(conn, ids, told)
    lake_turns.lock(conn, ids)
    away = found.catalog_error is not None
    for table_id in sorted(told.keys() & set(ids) if away else ids):
        evaluations.apply_apart(conn, task, table_id, told.get(table_id), now_ms=now_ms)
    if found.catalog_error is not None:
        evaluations.catalog_away(conn, catalog, ids, task, found.catalog_error, now_ms=now_ms)
    tasks.delete(conn, task.id)


def _lock_processes(
    conn: Connection, ids: Sequence[str], told: Mapping[str, EvaluatedTable]
) -> None:
    """Of tables that are gone, or others by now: everybody locks a process before its table."""
    known = lake_turns.uuids(conn, ids)
    ending = [
        each.id
        for each in told.values()
        if each.gone or (each.uuid is not None and known.get(each.id) not in (None, each.uuid))
    ]
    running = [processes.running_of(conn, table_id) for table_id in sorted(ending)]
    for process_id in sorted(each.id for each in running if each is not None):
        processes.lock(conn, process_id)


def _room(conn: Connection, catalog: Catalog) -> int:
    """How many more evaluations may be open; none without a worker that could run one."""
    slots = lake_turns.control_slots(conn, catalog.group)
    most = min(EVALUATIONS_MAX, EVALUATIONS_PER_CONTROL_SLOT * slots)
    return max(0, most - lake_turns.open_of_kind(conn, TaskKind.EVALUATE, group=catalog.group))


def _batches(free: Iterable[Due]) -> Sequence[Sequence[str]]:
    """In the order in which they are due."""
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


def _look_at_held(conn: Connection, catalog: Catalog, held: Sequence[Due], *, now_ms: int) -> None:
    """Tables that were in an evaluation for a while: is it alive?"""
    by_task: dict[str, list[Due]] = {}
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
        if planning:  # under way, or for who looks after plans to decide
            lake.change_many(conn, planning, due_at_ms=now_ms + LOOK_AGAIN_MS)
        lost = [each for each in tables if each.id not in planning]
        if lost:
            _free(conn, lost, task, now_ms=now_ms)


def _free(conn: Connection, lost: Sequence[Due], task: Task | None, *, now_ms: int) -> None:
    if task is None or task.status is not TaskStatus.FAILED:  # taken away: no table is to blame
        ids = [each.id for each in lost]
        lake.change_many(conn, ids, task_id=None, due_at_ms=now_ms + FIRST_WAIT_MS)
        return
    error = task.error or "nobody said why"
    for each in lost:
        evaluations.failed(conn, each.id, each.failures, error, now_ms=now_ms)
    facts = {"execution": task.claim.execution, "tables": len(lost), "reason": error}
    log.warning("evaluation failed", extra=facts)
