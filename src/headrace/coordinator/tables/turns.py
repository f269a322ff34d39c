"""Whose turn it is to be planned, group by group.

Tables are planned a few at a time, and only as far ahead as the group's slots can use: a plan that
waits grows old, and a writer makes a conflict of it. So a group has no more processes with rewrites
left to do than its slots, plus those that are being planned. Within that the policy orders, and
what somebody asked for goes first.

Nothing starves: a table that has waited for half an hour is passed only by tables that had waited
longer, and by what people ask for (model/tables/schedule.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from headrace.clock import Clock
from headrace.coordinator.tables import planning
from headrace.errors import Fenced, Unavailable
from headrace.model.ids import Ids
from headrace.model.tables.backoff import wait_ms
from headrace.model.tables.schedule import (
    OCCUPATION_WINDOW_MS,
    STARVED_AFTER_MS,
    Candidate,
    SchedulingPolicy,
    quota_limit,
    rank,
)
from headrace.model.tables.status import TableStatus
from headrace.model.task import TaskKind
from headrace.store import groups, lake, lake_turns, table_tasks, workers
from headrace.store.engine import reading
from headrace.store.lake import LakeTable

log = logging.getLogger(__name__)

PLANNING_MAX = 2  # tables planned at once in a group: Amoro's `max-planning-parallelism`
WANTED_MAX = 50  # tables that somebody asked for, looked at in one pass
CANDIDATES_MAX = 200  # of each kind, the starved and the others, looked at in one pass
RANKED_MAX = 100_000  # tables among which one is told its rank
BUDGET_PER_SLOT_BYTES = 512 * 1024 * 1024  # Amoro's `max-input-file-size-per-thread`


class Turns:
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
        if lake_turns.wanted_now(conn, key, now_ms=now_ms, most=1):
            return True
        return lake_turns.one_waits(conn, key, now_ms=now_ms) and is_hungry(conn, key, slots)

    def reconcile(self, conn: Connection, key: str) -> None:
        slots = workers.slots_by_group(conn).get(key, 0)
        room = _room(conn, key) if slots else 0
        turns = self._turns(conn, key, slots)
        while room > 0 and (table_id := next(turns, None)) is not None:
            room -= self._begin_apart(conn, table_id, slots)

    def _turns(self, conn: Connection, group: str, slots: int) -> Iterator[str]:
        now_ms = self._clock.wall_ms()
        wanted = lake_turns.wanted_now(conn, group, now_ms=now_ms, most=WANTED_MAX)
        yield from wanted
        if not is_hungry(conn, group, slots):
            return
        policy = policy_of(conn, group, otherwise=self._policy)
        for each in _ranked(conn, group, slots, policy, now_ms=now_ms, most=CANDIDATES_MAX):
            if each.table not in wanted:
                yield each.table

    def _begin_apart(self, conn: Connection, table_id: str, slots: int) -> bool:
        """Whether the table is being planned now. One whose row is broken holds nobody up."""
        now_ms = self._clock.wall_ms()
        try:
            with conn.begin_nested():
                return self._begin(conn, table_id, slots, now_ms=now_ms)
        except (Fenced, Unavailable, OperationalError):
            raise  # the store is away, and no table is to blame
        except Exception as error:
            log.exception("table can't be planned", extra={"table_id": table_id})
            later_ms, reason = now_ms + wait_ms(1), f"it can't be planned: {type(error).__name__}"
            lake.change(conn, table_id, not_before_ms=later_ms, error=reason)
            return False

    def _begin(self, conn: Connection, table_id: str, slots: int, *, now_ms: int) -> bool:
        table = lake.lock(conn, table_id)
        if table is None:
            return False
        if table.status is TableStatus.IDLE and table.wanted_type is not None:
            pending = TableStatus.PENDING
            lake.move(conn, table, pending, now_ms=now_ms, pending_since_ms=now_ms)
            table = replace(table, status=pending)
        if table.status is not TableStatus.PENDING or not table.may_optimize:
            return False  # something has changed since we read
        planning.begin(
            conn,
            table,
            task_id=self._ids.new(),
            now_ms=now_ms,
            budget_bytes=slots * BUDGET_PER_SLOT_BYTES,
            at_least=table.wanted_type,
        )
        return True


def policy_of(conn: Connection, group: str, *, otherwise: SchedulingPolicy) -> SchedulingPolicy:
    """The group's own, if it has one; else what the coordinator was told."""
    found = groups.get(conn, group)
    return found.policy if found is not None and found.policy is not None else otherwise


def rank_of(
    conn: Connection, table: LakeTable, *, now_ms: int, policy: SchedulingPolicy
) -> tuple[int, int] | None:
    """The place of a table among those that may be planned now, from 1, and how many these are.

    None: it is not among them. A read of all that wait, for people: no pass asks it.
    """
    slots = workers.slots_by_group(conn).get(table.group, 0)
    if not slots:
        return None  # no worker of its group could plan it
    ranked = _ranked(conn, table.group, slots, policy, now_ms=now_ms, most=RANKED_MAX)
    places = {each.table: place for place, each in enumerate(ranked, start=1)}
    return (places[table.id], len(ranked)) if table.id in places else None


def _ranked(
    conn: Connection,
    group: str,
    slots: int,
    policy: SchedulingPolicy,
    *,
    now_ms: int,
    most: int,
) -> Sequence[Candidate]:
    starved_ms = now_ms - STARVED_AFTER_MS
    waiting = lake_turns.waiting(
        conn, group, policy=policy, now_ms=now_ms, starved_ms=starved_ms, most=most
    )
    if policy is SchedulingPolicy.QUOTA and len(waiting) > 1:
        ids, since_ms = {each.table for each in waiting}, now_ms - OCCUPATION_WINDOW_MS
        ran_ms = table_tasks.run_ms(conn, ids, since_ms=since_ms, now_ms=now_ms)
        waiting = [replace(each, task_ms=ran_ms.get(each.table, 0)) for each in waiting]
    return rank(policy, waiting, threads=slots, now_ms=now_ms)


def _room(conn: Connection, group: str) -> int:
    return max(0, PLANNING_MAX - lake_turns.open_of_kind(conn, TaskKind.PLAN, group=group))


def is_hungry(conn: Connection, group: str, slots: int) -> bool:
    """Whether the group has slots for more than its processes may use within their quotas."""
    at_work = table_tasks.at_work(conn, group=group)
    quotas = lake_turns.quotas(conn, {each.table_id for each in at_work})
    used = sum(
        min(each.running + each.waiting, quota_limit(quotas.get(each.table_id, 1.0), slots))
        for each in at_work
    )
    return used < slots
