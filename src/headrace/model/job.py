"""Jobs and pipelines: their statuses, as SeaTunnel names them, and how they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from headrace.errors import IllegalTransition


class JobStatus(StrEnum):
    INITIALIZING = "INITIALIZING"  # accepted, its pipelines not written yet
    CREATED = "CREATED"  # accepted with its pipelines
    PENDING = "PENDING"  # waits until all its pipelines can have a slot
    SCHEDULED = "SCHEDULED"  # every pipeline has a task
    RUNNING = "RUNNING"  # at least one pipeline runs
    FAILING = "FAILING"  # one pipeline failed, the others are being stopped
    FAILED = "FAILED"
    DOING_SAVEPOINT = "DOING_SAVEPOINT"  # its pipelines finish what is open, and end
    SAVEPOINT_DONE = "SAVEPOINT_DONE"  # ended, and can be restored
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"


class PipelineStatus(StrEnum):
    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"  # its task waits for a worker
    DEPLOYING = "DEPLOYING"  # given to a worker
    INITIALIZING = "INITIALIZING"  # held by a worker, its first epoch not planned yet
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILING = "FAILING"
    FAILED = "FAILED"


J = JobStatus
P = PipelineStatus

JOB_ENDED = frozenset({J.FAILED, J.SAVEPOINT_DONE, J.CANCELED, J.FINISHED})
PIPELINE_ENDED = frozenset({P.FINISHED, P.CANCELED, P.FAILED})
PIPELINE_ENDING = frozenset({P.CANCELING, P.FAILING})

_LIVE = frozenset({J.CANCELING, J.FAILING})
_ADMITTED = frozenset({J.SCHEDULED, J.RUNNING, J.DOING_SAVEPOINT})
_ENDS: Mapping[JobStatus, JobStatus] = {J.CANCELING: J.CANCELED, J.FAILING: J.FAILED}

JOB_TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = {
    J.INITIALIZING: _LIVE | {J.CREATED},
    J.CREATED: _LIVE | {J.PENDING, J.SCHEDULED},
    J.PENDING: _LIVE | {J.SCHEDULED},
    J.SCHEDULED: _LIVE | {J.RUNNING, J.FINISHED},
    J.RUNNING: _LIVE | {J.DOING_SAVEPOINT, J.FINISHED},
    J.DOING_SAVEPOINT: _LIVE | {J.SAVEPOINT_DONE, J.FINISHED},
    J.FAILING: frozenset({J.FAILED}),
    J.CANCELING: frozenset({J.CANCELED}),
    J.FAILED: frozenset(),
    J.SAVEPOINT_DONE: frozenset(),
    J.CANCELED: frozenset(),
    J.FINISHED: frozenset(),
}


def check_job_transition(job: str, current: JobStatus, target: JobStatus) -> None:
    if target not in JOB_TRANSITIONS[current]:
        raise IllegalTransition("job", job, current, target)


def next_job_status(
    current: JobStatus,
    pipelines: Sequence[PipelineStatus],
    *,
    cancel_wanted: bool,
    savepoint_wanted: bool = False,
    saved: bool = False,
) -> JobStatus:
    """Decide where a job stands, from where its pipelines stand.

    A failed pipeline beats a wanted cancel only when it failed first: once CANCELING, the job
    ends CANCELED, and once FAILING it ends FAILED. A cancel beats a savepoint; a job of which
    every pipeline reached its completed point is FINISHED, whatever was wanted of it. `saved`: a
    pipeline of it ended with a savepoint.
    """
    if current in JOB_ENDED:
        return current
    if current in _ENDS:
        return _ENDS[current] if all(p in PIPELINE_ENDED for p in pipelines) else current
    if any(p in {P.FAILED, P.FAILING} for p in pipelines):
        return J.FAILING
    finished = current in _ADMITTED and all(p is P.FINISHED for p in pipelines)
    if finished and not saved:
        return J.FINISHED
    if cancel_wanted:
        return J.CANCELING
    if current is J.DOING_SAVEPOINT and finished:
        return J.SAVEPOINT_DONE
    return _nearer_to_a_savepoint(current, pipelines, wanted=savepoint_wanted or saved)


def _nearer_to_a_savepoint(
    current: JobStatus, pipelines: Sequence[PipelineStatus], *, wanted: bool
) -> JobStatus:
    """Only a job that runs is asked for one: before that there is nobody to ask."""
    if current is J.SCHEDULED and any(p in {P.RUNNING, P.FINISHED} for p in pipelines):
        return J.RUNNING
    if current is J.RUNNING and wanted:
        return J.DOING_SAVEPOINT
    return current
