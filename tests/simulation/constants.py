"""Waits of the product that are others in a history, by the names that it knows them by."""

from __future__ import annotations

from collections.abc import Mapping

# Seconds that the product waits at most between two looks. Longer here, where a look costs as
# much as an event; every one of them is also woken.
CONSTANTS: Mapping[str, object] = {
    "headrace.coordinator.service.CAMPAIGN_INTERVAL_S": 0.5,
    "headrace.coordinator.term.PASS_INTERVAL_S": 1.0,
    "headrace.coordinator.term.WAKE_TIMEOUT_S": 2.0,
    "headrace.coordinator.reconcile.cleaning.LOOK_AGAIN_MS": 5000,
    "headrace.model.cleanup.RETRY_PAUSE_MS": 1000,
    "headrace.coordinator.writer.LOOK_INTERVAL_S": 2.0,
    "tests.simulation.actors.ANSWER_TIMEOUT_S": 2.0,
    "headrace.worker.host.WAIT_TIMEOUT_S": 4.0,
    "headrace.worker.outbox.LOOK_INTERVAL_S": 1.0,
    "headrace.worker.execution.LOOK_INTERVAL_S": 1.0,
    "headrace.worker.tending.TEND_INTERVAL_S": 5.0,
    # So that all tries of a commit or a settlement take longer than a fault, and no longer.
    "headrace.coordinator.attempts.SETTLE_PAUSE_MAX_MS": 10_000,
    # Of tables: shorter, so that a history is short; their order is as it was.
    "headrace.coordinator.tables.catalogs.AWAY_MAX_MS": 8000,
    "headrace.model.tables.backoff.wait_ms.__kwdefaults__": {"first_ms": 1000, "most_ms": 16_000},
    "headrace.coordinator.tables.evaluating.LOOK_AGAIN_MS": 5000,
    "headrace.coordinator.tables.evaluating.FIRST_WAIT_MS": 1000,
    "headrace.coordinator.tables.closing.DISCARD_PAUSE_MS": 2000,
    "headrace.coordinator.tables.leftovers.LOOK_AGAIN_MS": 3000,
    "headrace.coordinator.tables.processes.SETTLE_TIMEOUT_S": 60,
    "headrace.coordinator.tables.granting.PASSED_OVER_S": 8.0,
    "headrace.coordinator.tables.planning.RETRY_INTERVAL_S": 1,
    "headrace.coordinator.tables.evaluating.RETRY_INTERVAL_S": 1,
    "headrace.coordinator.tables.catalogs.RETRY_INTERVAL_S": 1,
}
