"""Waits of the product that are others in a history, by the names that it knows them by."""

from __future__ import annotations

from collections.abc import Mapping

# Seconds that the product waits at most between two looks. Longer here, where a look costs as
# much as an event; every one of them is also woken.
CONSTANTS: Mapping[str, object] = {
    "headrace.coordinator.service.CAMPAIGN_INTERVAL_S": 0.5,
    "headrace.coordinator.leadership.term.PASS_INTERVAL_S": 1.0,
    "headrace.coordinator.leadership.term.WAKE_TIMEOUT_S": 2.0,
    "headrace.coordinator.jobs.passes.SWEEP_INTERVAL_S": 0.0,  # with each pass: it judges marks
    "headrace.coordinator.jobs.cleanup.LOOK_AGAIN_MS": 5000,
    "headrace.model.jobs.epoch.RETRY_PAUSE_MS": 1000,
    "headrace.coordinator.sync.writer.LOOK_INTERVAL_S": 2.0,
    "tests.simulation.actors.ANSWER_TIMEOUT_S": 2.0,
    "headrace.worker.sync_loop.WAIT_TIMEOUT_S": 4.0,
    "headrace.worker.outbox.STOP_CHECK_INTERVAL_S": 1.0,
    "headrace.worker.execution.STOP_CHECK_INTERVAL_S": 1.0,
    "headrace.worker.jvm_monitor.JVM_POLL_INTERVAL_S": 5.0,
    # So that all tries of a commit or a settlement take longer than a fault, and no longer.
    "headrace.coordinator.jobs.attempts.SETTLE_PAUSE_MAX_MS": 10_000,
    # Of tables: shorter, so that a history is short; their order is as it was.
    "headrace.coordinator.tables.catalogs.AWAY_MAX_MS": 8000,
    "headrace.model.tables.schedule.wait_ms.__kwdefaults__": {"first_ms": 1000, "most_ms": 16_000},
    "headrace.coordinator.tables.evaluation.LOOK_AGAIN_MS": 5000,
    "headrace.coordinator.tables.evaluation.FIRST_WAIT_MS": 1000,
    "headrace.coordinator.tables.table_state.DISCARD_PAUSE_MS": 2000,
    "headrace.coordinator.tables.processes.LOOK_AGAIN_MS": 3000,
    "headrace.coordinator.tables.processes.SETTLE_TIMEOUT_S": 60,
    "headrace.coordinator.tables.controller.PASSED_OVER_S": 8.0,
    "headrace.coordinator.tables.plan_scheduler.RETRY_INTERVAL_S": 1,
    "headrace.coordinator.tables.evaluation.RETRY_INTERVAL_S": 1,
    "headrace.coordinator.tables.catalogs.RETRY_INTERVAL_S": 1,
}
