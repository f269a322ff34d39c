"""Assignments that had to be said again: one line for each execution and term, and a count (D6)."""

from __future__ import annotations

import logging

from headrace.coordinator.metrics import Metrics
from headrace.logs import Once
from headrace.model.task import Location
from headrace.store.tasks import Task

log = logging.getLogger(__name__)


class Redeploys:
    """Of one term."""

    def __init__(self, term: int, metrics: Metrics) -> None:
        self._term, self._metrics = term, metrics
        self._once = Once()

    def note(self, task: Task) -> None:
        """The count tells of each, so that a loop can be seen; the log says it once."""
        self._metrics.redeploys.inc()
        if not self._once.first(task.claim):
            return
        named = task.job_id is not None and task.pipeline is not None
        at = Location(task.job_id or "", task.pipeline or 0) if named else None
        log.warning(
            "task deployed again",
            extra={
                "job": at and at.job,
                "pipeline": at and at.pipeline,
                "task_group": at and at.task_group,
                "execution": task.claim.execution,
                "worker": task.worker_id,
                "term": self._term,
            },
        )
