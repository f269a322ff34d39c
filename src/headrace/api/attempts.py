"""Attempts as people see them: which one of how many, why the last failed, when the next begins.

The only reader of how failures are counted, so that a view, a page and a metric agree.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.coordinator.attempts import SETTLE_TRIES_MAX
from headrace.model.task import ASSIGNED, LOSSES, TaskKind
from headrace.store.claims import Execution
from headrace.views import AttemptView


def next_attempt(execution: Execution, *, epoch: int) -> AttemptView | None:
    """None: no attempt has failed that still counts."""
    if not execution.failures + execution.losses:
        return None
    number, most = execution.failures + 1, execution.retry_times + 1
    if execution.failure_cause in LOSSES and execution.losses:
        number, most = execution.losses + 1, execution.lost_workers_max
    elif execution.failure_cause in LOSSES:
        # Forgiven, and the errors before it are not: what they were is known no longer.
        execution = replace(execution, failure_cause=None, error=None, failed_at_ms=None)
    return _attempt(TaskKind.PIPELINE, execution, number=number, most=most, epoch=epoch)


def settle_attempt(execution: Execution | None, *, epoch: int) -> AttemptView:
    """`execution`: None while nobody has claimed it."""
    most = SETTLE_TRIES_MAX
    if execution is None:
        return AttemptView(kind=TaskKind.SETTLE, number=1, most=most, epoch=epoch, running=False)
    number = execution.failures + 1
    return _attempt(TaskKind.SETTLE, execution, number=number, most=most, epoch=epoch)


def _attempt(
    kind: TaskKind, execution: Execution, *, number: int, most: int, epoch: int
) -> AttemptView:
    running = execution.status in ASSIGNED
    return AttemptView(
        kind=kind,
        number=number,
        most=most,
        epoch=epoch,
        running=running,
        lost=execution.failure_cause in LOSSES,
        error=execution.error,
        failed_at_ms=execution.failed_at_ms,
        next_at_ms=None if running else execution.not_before_ms or None,
    )
