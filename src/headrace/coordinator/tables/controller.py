"""The table controller: one pass over all table reconcilers, and the grants of rewrite tasks.

A `TableController` lives for one leader term. `RewriteGrants` decides how many rewrite tasks of
each table may be claimed: its share of the group's slots. A granted task stays granted until it has
ended, whoever holds it: when a worker that died or polled again gives it back, it is still one task
of its table, and counts once (T4). All numbers are counted from the rows.

Jobs go first. While a job waits for slots that its group has, nothing more is granted in that
group, with one exception against starvation: when no rewrite of the group has run for
`PASSED_OVER_S`, the oldest process gets one. So a job that fits waits, beyond what ran when it
came, for one rewrite task at most. And as long as a slot is free, tables advance by one task every
`PASSED_OVER_S` plus its run time, however many jobs are queued.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.context import Metrics, TableOptions, run_once
from headrace.coordinator.tables import tasks
from headrace.coordinator.tables.catalogs import CatalogReconciler
from headrace.coordinator.tables.evaluation import EvaluationScheduler
from headrace.coordinator.tables.plan_scheduler import PlanScheduler
from headrace.coordinator.tables.processes import Discards, ProcessReconciler
from headrace.coordinator.tables.recovery import RecoveryPass
from headrace.coordinator.tables.table_task import Loop
from headrace.coordinator.workforce import Workforce
from headrace.errors import Fenced, Unavailable
from headrace.model.ids import Ids
from headrace.model.tables.schedule import Demand, grants
from headrace.store.core.engine import reading
from headrace.store.core.transactions import Term
from headrace.store.tables import due_tables, table_tasks
from headrace.store.tables.table_tasks import AtWork
from headrace.store.tasks import workers

log = logging.getLogger(__name__)

PASSED_OVER_S = 300.0  # without a running rewrite, while jobs wait


class TableController:
    """Runs every table reconciler once per pass. Lives for one leader term."""

    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, metrics: Metrics, options: TableOptions
    ) -> None:
        self._engine, self._metrics = engine, metrics
        self._recovery = RecoveryPass(clock)
        self._processes = ProcessReconciler(clock)
        self._loops: Sequence[Loop] = (
            CatalogReconciler(clock, ids, discover_ms=options.discover_ms),
            EvaluationScheduler(clock, ids, refresh_ms=options.refresh_ms),
            self._processes,
            PlanScheduler(clock, ids, policy=options.policy),
            RewriteGrants(clock, break_quota=options.break_quota),
            Discards(clock, ids),
            *(each.loop(clock, ids) for each in tasks.TABLE_TASKS if each.loop is not None),
        )

    def run(self, term: Term) -> None:
        """One pass. Recovery comes first, once per term. What could not be recovered is tried again
        later, and the process reconciler skips it until then."""
        if keys := self._recovery.keys(self._engine):
            outcome = run_once(self._engine, term, self._recovery, keys)
            self._recovery.recovered(outcome.done, outcome.failed)
            self._metrics.reconcile_failures.inc(len(outcome.failed))
        self._processes.skipped = frozenset(self._recovery.left or ())
        for loop in self._loops:
            failed = run_once(self._engine, term, loop, self._keys(loop)).failed
            self._metrics.reconcile_failures.inc(len(failed))

    def _keys(self, loop: Loop) -> Sequence[str]:
        """No keys when a reconciler fails to find its keys: the others go on (T6)."""
        try:
            return loop.keys(self._engine)
        except (Fenced, Unavailable):
            raise  # the store is unavailable, which is no fault of the reconciler
        except Exception:
            log.exception("nothing reconciled", extra={"reconciler": loop.name})
            self._metrics.reconcile_failures.inc()
            return ()


class RewriteGrants:
    """Keys are groups in which a rewrite task waits for a grant."""

    name = "grants"

    def __init__(self, clock: Clock, *, break_quota: bool) -> None:
        self._clock, self._break_quota = clock, break_quota
        # By group: since when this leader has seen no rewrite running.
        self._at_rest_since_s: dict[str, float] = {}

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            waiting = due_tables.groups_waiting(conn)
        since_s = self._at_rest_since_s
        self._at_rest_since_s = {each: since_s[each] for each in waiting if each in since_s}
        return waiting

    def due(self, conn: Connection, key: str) -> bool:
        return bool(self._grants(conn, key))

    def reconcile(self, conn: Connection, key: str) -> None:
        for process_id, count in self._grants(conn, key).items():
            table_tasks.grant(conn, process_id, count=count)

    def _grants(self, conn: Connection, group: str) -> Mapping[str, int]:
        """How many more tasks to grant, by process id."""
        at_work = table_tasks.at_work(conn, group=group)
        self._note(group, at_work)
        slots = workers.slots_by_group(conn).get(group, 0)
        free = slots - table_tasks.open_slots(conn, group=group)
        if free > 0 and _has_waiting_job(conn, group):
            free = 1 if self._is_passed_over(group) else 0
        if free <= 0:
            return {}
        quotas = due_tables.quotas(conn, {each.table_id for each in at_work})
        known = [each for each in at_work if each.table_id in quotas]
        granted = grants(
            [Demand(e.table_id, quotas[e.table_id], e.running, e.waiting) for e in known],
            threads=slots,
            free=free,
            break_quota=self._break_quota,
        )
        by_process = {each.process_id: granted[each.table_id] for each in known}
        return {process: count for process, count in by_process.items() if count}

    def _note(self, group: str, at_work: Sequence[AtWork]) -> None:
        now_s = self._clock.monotonic_s()
        if any(each.running for each in at_work):
            self._at_rest_since_s[group] = now_s
        else:
            self._at_rest_since_s.setdefault(group, now_s)

    def _is_passed_over(self, group: str) -> bool:
        return self._clock.monotonic_s() - self._at_rest_since_s[group] >= PASSED_OVER_S


def _has_waiting_job(conn: Connection, group: str) -> bool:
    """Whether a job waits for slots of the group. A job that needs more slots than there are, or
    plug-ins that no worker has, waits for workers, and slots kept free would not help it."""
    return Workforce.read(conn).any_fits(conn, group)
