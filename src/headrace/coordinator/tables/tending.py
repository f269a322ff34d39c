"""All that a leader does for tables, in the order of one pass. Made anew for each term."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from sqlalchemy import Engine

from headrace.clock import Clock
from headrace.coordinator.metrics import Metrics
from headrace.coordinator.options import TableOptions
from headrace.coordinator.reconcile.loop import Reconciler, run_once
from headrace.coordinator.tables.catalogs import Catalogs
from headrace.coordinator.tables.evaluating import Evaluations
from headrace.coordinator.tables.granting import Grants
from headrace.coordinator.tables.leftovers import Leftovers
from headrace.coordinator.tables.processes import Processes
from headrace.coordinator.tables.recovery import Recovering
from headrace.coordinator.tables.turns import Turns
from headrace.errors import Fenced, Unavailable
from headrace.model.ids import Ids
from headrace.store.fence import Term

log = logging.getLogger(__name__)


class Loop(Reconciler, Protocol):
    def keys(self, engine: Engine) -> Sequence[str]: ...


class Tables:
    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, metrics: Metrics, options: TableOptions
    ) -> None:
        self._engine, self._metrics = engine, metrics
        self._recovering = Recovering(clock)
        self._processes = Processes(clock)
        self._loops: Sequence[Loop] = (
            Catalogs(clock, ids, discover_ms=options.discover_ms),
            Evaluations(clock, ids, refresh_ms=options.refresh_ms),
            self._processes,
            Turns(clock, ids, policy=options.policy),
            Grants(clock, break_quota=options.break_quota),
            Leftovers(clock, ids),
        )

    def run(self, term: Term) -> None:
        """One pass. Recovery comes before everything else, and once: what it could not decide is
        tried again later, and left alone by the others until then."""
        if keys := self._recovering.keys(self._engine):
            found = run_once(self._engine, term, self._recovering, keys)
            self._recovering.recovered(found.done, found.failed)
            self._metrics.reconcile_failures.inc(len(found.failed))
        self._processes.skipped = frozenset(self._recovering.left or ())
        for loop in self._loops:
            failed = run_once(self._engine, term, loop, self._keys(loop)).failed
            self._metrics.reconcile_failures.inc(len(failed))

    def _keys(self, loop: Loop) -> Sequence[str]:
        """None, when a loop can't even find out what it is to look at: the others go on (T6)."""
        try:
            return loop.keys(self._engine)
        except (Fenced, Unavailable):
            raise  # the store is away, and no loop is to blame
        except Exception:
            log.exception("nothing reconciled", extra={"reconciler": loop.name})
            self._metrics.reconcile_failures.inc()
            return ()
