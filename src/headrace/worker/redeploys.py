"""A task that is deployed again: the same answer, and one line in the log (D6)."""

from __future__ import annotations

import logging

from headrace.logs import Once
from headrace.model.task import Location, TaskKind
from headrace.protocol.messages import Assignment

log = logging.getLogger(__name__)


def location_of(assignment: Assignment) -> Location | None:
    """Where a pipeline is deployed. Control tasks beside it are deployed nowhere."""
    job, pipeline = assignment.payload.get("job"), assignment.payload.get("pipeline")
    if assignment.kind is not TaskKind.PIPELINE or not isinstance(pipeline, dict):
        return None
    number = pipeline.get("number")
    if not isinstance(job, str) or not isinstance(number, int):
        return None
    return Location(job, number)


def is_same_place(one: Assignment, other: Assignment) -> bool:
    """Whether they are attempts of one task, or tasks of one location: a restored job has new
    tasks. Only one of them may run at a time."""
    at = location_of(one)
    return one.claim.task == other.claim.task or (at is not None and at == location_of(other))


class Redeploys:
    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._once = Once()

    def note(self, assignment: Assignment, *, term: int, active: bool) -> None:
        """Say it once for each execution and term, however often the leader repeats itself."""
        if not self._once.first((assignment.claim, term)):
            return
        at = location_of(assignment)
        log.warning(
            "task deployed again, it is active" if active else "task deployed again, it has ended",
            extra={
                "job": at and at.job,
                "pipeline": at and at.pipeline,
                "task_group": at and at.task_group,
                "execution": assignment.claim.execution,
                "worker": self._worker,
                "term": term,
            },
        )
