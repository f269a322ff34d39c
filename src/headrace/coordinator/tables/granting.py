"""How many rewrite tasks of each table may be claimed: its share of the group's slots.

A task that was granted stays so until it has ended, whoever holds it: given back by a worker that
died or polled again, it is still one task of its table, and counts once (T4). All numbers are
counted from the rows.

Jobs go first. While one waits for slots that its group has, nothing more is granted there, with one
exception that keeps tables moving: when no rewrite of the group has been at work for
`PASSED_OVER_S`, the oldest process gets one. So a job that fits waits, beyond what ran when it
came, for one rewrite task at most; and as long as a slot is free, tables get on by one task every
`PASSED_OVER_S` and its run time, however many jobs stand in line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.model.tables.schedule import Demand, grants
from headrace.store import lake_turns, queue, table_tasks, workers
from headrace.store.engine import reading
from headrace.store.table_tasks import AtWork

PASSED_OVER_S = 300.0  # without a rewrite, while jobs wait


class Grants:
    """Keys are groups in which a rewrite task waits for a grant."""

    name = "grants"

    def __init__(self, clock: Clock, *, break_quota: bool) -> None:
        self._clock, self._break_quota = clock, break_quota
        # By group: since when no rewrite has been at work, as far as this leader has seen.
        self._at_rest_since_s: dict[str, float] = {}

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            found = lake_turns.groups_waiting(conn)
        since_s = self._at_rest_since_s
        self._at_rest_since_s = {each: since_s[each] for each in found if each in since_s}
        return found

    def due(self, conn: Connection, key: str) -> bool:
        return bool(self._grants(conn, key))

    def reconcile(self, conn: Connection, key: str) -> None:
        for process_id, count in self._grants(conn, key).items():
            table_tasks.grant(conn, process_id, count=count)

    def _grants(self, conn: Connection, group: str) -> Mapping[str, int]:
        """By process."""
        at_work = table_tasks.at_work(conn, group=group)
        self._note(group, at_work)
        slots = workers.slots_by_group(conn).get(group, 0)
        free = slots - table_tasks.open_slots(conn, group=group)
        if free > 0 and _is_awaited(conn, group, slots):
            free = 1 if self._is_passed_over(group) else 0
        if free <= 0:
            return {}
        quotas = lake_turns.quotas(conn, {each.table_id for each in at_work})
        known = [each for each in at_work if each.table_id in quotas]
        given = grants(
            [Demand(e.table_id, quotas[e.table_id], e.running, e.waiting) for e in known],
            threads=slots,
            free=free,
            break_quota=self._break_quota,
        )
        found = {each.process_id: given[each.table_id] for each in known}
        return {process: count for process, count in found.items() if count}

    def _note(self, group: str, at_work: Sequence[AtWork]) -> None:
        now_s = self._clock.monotonic_s()
        if any(each.running for each in at_work):
            self._at_rest_since_s[group] = now_s
        else:
            self._at_rest_since_s.setdefault(group, now_s)

    def _is_passed_over(self, group: str) -> bool:
        return self._clock.monotonic_s() - self._at_rest_since_s[group] >= PASSED_OVER_S


def _is_awaited(conn: Connection, group: str, slots: int) -> bool:
    """Whether a job waits for slots of the group. One that needs more than there are waits for
    workers, and nothing that is kept free would help it."""
    return any(each.group == group and each.needed <= slots for each in queue.waiting(conn))
