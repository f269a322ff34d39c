"""The plan scheduler: which pending table of a group is planned next, and how a plan becomes rows.

Tables are planned a few at a time, and only as far ahead as the group's slots can use: a plan that
waits grows stale, and other writers turn it into a conflict. So a group has no more processes with
rewrites left to do than slots, plus the tables that are being planned. Within that limit the policy
decides the order, and tables that somebody asked for go first.

Nothing starves: a table that has waited for half an hour is overtaken only by tables that have
waited longer, and by what people ask for (model/tables/schedule.py).

A PLAN task chooses the files. The process, its rewrite tasks and the table's new status are then
written in one transaction: before it nothing has happened, after it everything that is to be done
stands in the store.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from headrace.clock import Clock
from headrace.coordinator.planned_tasks import plan_task
from headrace.coordinator.tables.table_state import MOVED, back_off, clocks_for, left_out_of
from headrace.coordinator.tables.table_task import (
    EndedTask,
    TableTask,
    catalog_access,
    defaults_of_groups,
    identifier,
    table_of,
)
from headrace.errors import Fenced, Unavailable
from headrace.model.ids import Ids
from headrace.model.tables.schedule import (
    OCCUPATION_WINDOW_MS,
    STARVED_AFTER_MS,
    PendingTable,
    SchedulingPolicy,
    quota_limit,
    rank,
    wait_ms,
)
from headrace.model.tables.status import OptimizingType, TableStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.protocol import task_types
from headrace.protocol.tables import Planned, PlanPayload, type_name
from headrace.protocol.task_types import PlanOrder, RewriteOrder
from headrace.seams import seam
from headrace.store.core.engine import reading
from headrace.store.groups import groups
from headrace.store.tables import due_tables, lake_tables, processes, table_changes, table_tasks
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tasks import tasks, workers
from headrace.store.tasks.tasks import OfTable, Task, TaskEnd

log = logging.getLogger(__name__)

PLANNING_MAX = 2  # tables in planning at a time in a group: Amoro's `max-planning-parallelism`
WANTED_MAX = 50  # tables that somebody asked for, considered in one pass
CANDIDATES_MAX = 200  # of each kind, the starved and the others, considered in one pass
RANKED_MAX = 100_000  # tables among which the rank of one is computed
BUDGET_PER_SLOT_BYTES = 512 * 1024 * 1024  # Amoro's `max-input-file-size-per-thread`
PLAN_RETRIES = 1  # a worker may die; after other failures the table backs off
RETRY_INTERVAL_S = 5


class PlanScheduler:
    """Keys are groups that have workers."""

    name = "turns"

    def __init__(self, clock: Clock, ids: Ids, *, policy: SchedulingPolicy) -> None:
        self._clock, self._ids, self._policy = clock, ids, policy

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            return sorted(workers.slots_by_group(conn))

    def due(self, conn: Connection, key: str) -> bool:
        now_ms = self._clock.wall_ms()
        slots = workers.slots_by_group(conn).get(key, 0)
        if not slots or not _room(conn, key):
            return False
        if due_tables.wanted_now(conn, key, now_ms=now_ms, most=1):
            return True
        return due_tables.one_waits(conn, key, now_ms=now_ms) and has_spare_slots(conn, key, slots)

    def reconcile(self, conn: Connection, key: str) -> None:
        slots = workers.slots_by_group(conn).get(key, 0)
        room = _room(conn, key) if slots else 0
        turns = self._turns(conn, key, slots)
        while room > 0 and (table_id := next(turns, None)) is not None:
            room -= self._begin_isolated(conn, table_id, slots)

    def _turns(self, conn: Connection, group: str, slots: int) -> Iterator[str]:
        """Table ids in the order in which they are to be planned."""
        now_ms = self._clock.wall_ms()
        wanted = due_tables.wanted_now(conn, group, now_ms=now_ms, most=WANTED_MAX)
        yield from wanted
        if not has_spare_slots(conn, group, slots):
            return
        policy = policy_of(conn, group, otherwise=self._policy)
        for each in _ranked(conn, group, slots, policy, now_ms=now_ms, most=CANDIDATES_MAX):
            if each.table not in wanted:
                yield each.table

    def _begin_isolated(self, conn: Connection, table_id: str, slots: int) -> bool:
        """Begin planning in a nested transaction: a broken row stops no other table. True: planning
        began."""
        now_ms = self._clock.wall_ms()
        try:
            with conn.begin_nested():
                return self._begin(conn, table_id, slots, now_ms=now_ms)
        except (Fenced, Unavailable, OperationalError):
            raise  # the store is unavailable, which is no fault of the table
        except Exception as error:
            log.exception("table can't be planned", extra={"table_id": table_id})
            later_ms, reason = now_ms + wait_ms(1), f"it can't be planned: {type(error).__name__}"
            table_changes.note_not_planned(conn, table_id, error=reason, not_before_ms=later_ms)
            return False

    def _begin(self, conn: Connection, table_id: str, slots: int, *, now_ms: int) -> bool:
        table = lake_tables.lock(conn, table_id)
        if table is None:
            return False
        if table.status is TableStatus.IDLE and table.wanted_type is not None:
            table_changes.await_turn(conn, table, now_ms=now_ms)
            table = replace(table, status=TableStatus.PENDING)
        if table.status is not TableStatus.PENDING or not table.may_optimize:
            return False  # it has changed since it was read
        begin_planning(
            conn,
            table,
            task_id=self._ids.new(),
            now_ms=now_ms,
            budget_bytes=slots * BUDGET_PER_SLOT_BYTES,
            at_least=table.wanted_type,
        )
        return True


def policy_of(conn: Connection, group: str, *, otherwise: SchedulingPolicy) -> SchedulingPolicy:
    """The group's own policy if it has one, otherwise the coordinator's."""
    row = groups.get(conn, group)
    return row.policy if row is not None and row.policy is not None else otherwise


def rank_of(
    conn: Connection, table: LakeTable, *, now_ms: int, policy: SchedulingPolicy
) -> tuple[int, int] | None:
    """The place of a table among those that may be planned now, from 1, and how many these are.

    None: it is not among them. Reads all tables that wait, so it is for people only; no pass calls
    it.
    """
    slots = workers.slots_by_group(conn).get(table.group, 0)
    if not slots:
        return None  # no worker of its group could plan it
    ranked = _ranked(conn, table.group, slots, policy, now_ms=now_ms, most=RANKED_MAX)
    places = {each.table: place for place, each in enumerate(ranked, start=1)}
    return (places[table.id], len(ranked)) if table.id in places else None


def has_spare_slots(conn: Connection, group: str, slots: int) -> bool:
    """Whether the group has more slots than its processes can use within their quotas."""
    at_work = table_tasks.at_work(conn, group=group)
    quotas = due_tables.quotas(conn, {each.table_id for each in at_work})
    used = sum(
        min(each.running + each.waiting, quota_limit(quotas.get(each.table_id, 1.0), slots))
        for each in at_work
    )
    return used < slots


def _ranked(
    conn: Connection,
    group: str,
    slots: int,
    policy: SchedulingPolicy,
    *,
    now_ms: int,
    most: int,
) -> Sequence[PendingTable]:
    starved_ms = now_ms - STARVED_AFTER_MS
    waiting = due_tables.waiting(
        conn, group, policy=policy, now_ms=now_ms, starved_ms=starved_ms, most=most
    )
    if policy is SchedulingPolicy.QUOTA and len(waiting) > 1:
        ids, since_ms = {each.table for each in waiting}, now_ms - OCCUPATION_WINDOW_MS
        ran_ms = table_tasks.run_ms(conn, ids, since_ms=since_ms, now_ms=now_ms)
        waiting = [replace(each, task_ms=ran_ms.get(each.table, 0)) for each in waiting]
    return rank(policy, waiting, threads=slots, now_ms=now_ms)


def _room(conn: Connection, group: str) -> int:
    """How many more tables of the group may be in planning."""
    return max(0, PLANNING_MAX - due_tables.open_of_kind(conn, TaskKind.PLAN, group=group))


def begin_planning(
    conn: Connection,
    table: LakeTable,
    *,
    task_id: str,
    now_ms: int,
    budget_bytes: int,
    at_least: OptimizingType | None,
) -> None:
    """Move a pending table to PLANNING and plan its PLAN task."""
    order = PlanOrder(
        budget_bytes=budget_bytes,
        at_least=None if at_least is None else type_name(at_least),
        retry_times=PLAN_RETRIES,
        retry_interval_s=RETRY_INTERVAL_S,
    )
    if not table_changes.begin_planning(conn, table, task_id=task_id, now_ms=now_ms):
        return
    plan_task(
        conn,
        task_types.PLAN,
        order,
        task_id=task_id,
        group=table.group,
        of=OfTable(table.id),
        now_ms=now_ms,
    )


def _payload(conn: Connection, task: Task, now_ms: int) -> PlanPayload:
    table, order = table_of(conn, task), PlanOrder.of(task.payload)
    catalog, reach = catalog_access(conn, table.catalog)
    return PlanPayload(
        **reach,
        defaults=dict(catalog.defaults),
        groups=defaults_of_groups(conn),
        table=identifier(table),
        now_ms=now_ms,
        clocks=clocks_for(conn, table),
        left_out=left_out_of(conn, table),
        budget_bytes=order.budget_bytes,
        at_least=order.at_least,
        dry=order.dry,
    )


def planned(conn: Connection, ended: EndedTask[Planned], now_ms: int) -> None:
    """Apply the result of a PLAN task. A result that the table no longer waits for changes
    nothing."""
    task, table_plan = ended.task, ended.result
    order = PlanOrder.of(task.payload)
    result = table_plan.model_dump(mode="json") if order.dry else None
    end = TaskEnd(task.claim, TaskStatus.SUCCESS, result=result)
    if not tasks.finish(conn, [end], now_ms=now_ms):
        return
    table = lake_tables.lock(conn, task.table_id or "")
    if order.dry or table is None or not _waits_for(table, task):
        return
    if order.at_least is not None and table.wanted_type is None:
        # The wish was canceled meanwhile, and this plan was made without regard to the rules.
        table_changes.drop_plan(conn, table, now_ms=now_ms)
    elif not table_plan.tasks or table_plan.type is None or table_plan.snapshot is None:
        log.info(
            "nothing to optimize", extra={"table": table.identifier, "reason": table_plan.reason}
        )
        _nothing(conn, table, task, now_ms=now_ms)
    else:
        _begin_process(conn, table, task, table_plan, now_ms=now_ms)
        seam("plan persisted, in transaction")


PLAN = TableTask(task_types.PLAN, build=_payload, apply=planned)


def planning_failed(conn: Connection, table: LakeTable, *, because: str, now_ms: int) -> None:
    """Planning failed, but the input is still there: the table is PENDING again, with back-off
    (T2)."""
    before_ms = table.planned_at_ms
    table_changes.await_another_plan(conn, table, planned_at_ms=before_ms, now_ms=now_ms)
    back_off(conn, table, because=because, now_ms=now_ms)


def planning_moved(conn: Connection, table: LakeTable, *, now_ms: int) -> None:
    """The table has another group by now: the former group's workers are not to plan it any
    more."""
    table_tasks.cancel(conn, [table.task_id or ""], because=MOVED, now_ms=now_ms)
    table_changes.await_another_plan(conn, table, planned_at_ms=None, now_ms=now_ms)


def _waits_for(table: LakeTable, task: Task) -> bool:
    return table.status is TableStatus.PLANNING and table.task_id == task.id


def _left_wish(table: LakeTable, task: Task) -> OptimizingType | None:
    """The wish that was made while the table was being planned, which the plan does not cover."""
    wanted, planned_for = table.wanted_type, PlanOrder.of(task.payload).at_least
    if wanted is None or (planned_for is not None and OptimizingType[planned_for] >= wanted):
        return None
    return wanted


def _nothing(conn: Connection, table: LakeTable, task: Task, *, now_ms: int) -> None:
    """No rewrite would gain anything: the table is IDLE until it changes or a rule by time is
    due."""
    table_changes.need_no_process(
        conn,
        table,
        wanted=_left_wish(table, task),
        # An evaluation that was under way when planning began is discarded: schedule the next.
        due_at_ms=now_ms + table.interval_ms,
        now_ms=now_ms,
    )


def _begin_process(
    conn: Connection, table: LakeTable, task: Task, table_plan: Planned, *, now_ms: int
) -> None:
    """Begin the process. It has the id of the task that planned it, so it begins only once."""
    assert table_plan.type is not None
    assert table_plan.snapshot is not None
    kind, process_id = OptimizingType[table_plan.type], task.id
    number = max(table.processes, table_plan.spent) + 1
    recorded = table_plan.model_dump(mode="json", exclude={"tasks", "left_out"})
    bins = sum(len(rewritten) for rewritten in table_plan.tasks)
    processes.begin(
        conn,
        process_id=process_id,
        table_id=table.id,
        identifier=table.identifier,
        number=number,
        type=kind,
        group=table.group,
        uuid=table_plan.uuid,
        snapshot=table_plan.snapshot,
        plan={**recorded, "bins": bins, "left_out": list(table_plan.left_out)},
        now_ms=now_ms,
    )
    _plan_rewrites(conn, table, process_id, table_plan, now_ms=now_ms)
    table_changes.begin_process(
        conn,
        table,
        process_id=process_id,
        type=kind,
        number=number,
        wanted=None if kind >= (table.wanted_type or kind) else _left_wish(table, task),
        now_ms=now_ms,
    )
    facts = {"table": table.identifier, "process_id": process_id, "type": table_plan.type}
    log.info("process begins", extra={**facts, "bins": bins, "tasks": len(table_plan.tasks)})


def _plan_rewrites(
    conn: Connection, table: LakeTable, process_id: str, table_plan: Planned, *, now_ms: int
) -> None:
    for place, rewritten in enumerate(table_plan.tasks):
        order = RewriteOrder(
            bins=rewritten, retry_times=table_plan.retries, retry_interval_s=RETRY_INTERVAL_S
        )
        plan_task(
            conn,
            task_types.REWRITE,
            order,
            task_id=f"{process_id}-{place}",
            group=table.group,
            of=OfTable(table.id, process_id, place, granted=False),
            now_ms=now_ms,
        )
