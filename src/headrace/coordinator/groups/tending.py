"""All that a leader does for groups, in one pass. Made anew for each term."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine

from headrace.clock import Clock
from headrace.coordinator.groups.keeping import Groups
from headrace.coordinator.groups.launching import Launching
from headrace.coordinator.metrics import Metrics
from headrace.coordinator.options import GroupOptions
from headrace.coordinator.reconcile.loop import run_once
from headrace.model.ids import Ids
from headrace.store.fence import Term

KEEP_INTERVAL_S = 1.0  # between two looks at the groups


class GroupCare:
    def __init__(
        self,
        engine: Engine,
        term: Term,
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
        options: GroupOptions,
        *,
        trusted: Callable[[], bool],
    ) -> None:
        self._engine, self._term, self._clock, self._metrics = engine, term, clock, metrics
        self._groups = Groups(clock, ids, options)
        self.launching = Launching(engine, term, clock, options, trusted=trusted, metrics=metrics)
        self._next_at_s = 0.0

    def run(self) -> None:
        """Decide first, then have containers asked for what was decided."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_at_s:
            return
        self._next_at_s = now_s + KEEP_INTERVAL_S
        keys = self._groups.keys(self._engine)
        failed = run_once(self._engine, self._term, self._groups, keys).failed
        self._metrics.reconcile_failures.inc(len(failed))
        self.launching.run()

    def stop(self) -> None:
        self.launching.stop()
