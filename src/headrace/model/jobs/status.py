"""The state machines of jobs and pipelines, with the status names of SeaTunnel.

`next_job_status` derives a job's status from its pipelines'. `ScheduleStrategy` says what becomes
of a job that can't have all its slots now.

No step of `JOB_TRANSITIONS` leads out of a status in which a job has ended. Only a restore begins
such a job again, as CREATED and as its next run. That is no step of the machine: it is allowed from
`RESTORABLE`, and written by a module of its own in the store, which only a restore may import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from headrace.errors import IllegalTransition
from headrace.model.transitions import check_transition


class JobStatus(StrEnum):
    INITIALIZING = "INITIALIZING"  # accepted; its pipelines are not stored yet
    CREATED = "CREATED"  # accepted with its pipelines
    PENDING = "PENDING"  # waits until there is a slot for each of its pipelines
    SCHEDULED = "SCHEDULED"  # every pipeline has a task
    RUNNING = "RUNNING"  # at least one pipeline runs
    FAILING = "FAILING"  # one pipeline failed, the others are being stopped
    FAILED = "FAILED"
    DOING_SAVEPOINT = "DOING_SAVEPOINT"  # its pipelines finish their open epochs, and end
    SAVEPOINT_DONE = "SAVEPOINT_DONE"  # ended, and can be restored
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"


class PipelineStatus(StrEnum):
    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"  # its task waits for a worker
    DEPLOYING = "DEPLOYING"  # assigned to a worker
    INITIALIZING = "INITIALIZING"  # held by a worker; its first epoch is not planned yet
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILING = "FAILING"
    FAILED = "FAILED"


class ScheduleStrategy(StrEnum):
    """What becomes of a job that can't have all its slots: SeaTunnel's `job-schedule-strategy`."""

    WAIT = "WAIT"  # it is queued in its group
    REJECT = "REJECT"  # it is refused at once, or fails with that reason


J = JobStatus
P = PipelineStatus

JOB_ENDED = frozenset({J.FAILED, J.SAVEPOINT_DONE, J.CANCELED, J.FINISHED})
JOB_WAITING = frozenset({J.CREATED, J.PENDING})  # for slots
PIPELINE_ENDED = frozenset({P.FINISHED, P.CANCELED, P.FAILED})
PIPELINE_ENDING = frozenset({P.CANCELING, P.FAILING})

_STOPPING = frozenset({J.CANCELING, J.FAILING})
_ADMITTED = frozenset({J.SCHEDULED, J.RUNNING, J.DOING_SAVEPOINT})
_ENDS: Mapping[JobStatus, JobStatus] = {J.CANCELING: J.CANCELED, J.FAILING: J.FAILED}

JOB_TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = {
    J.INITIALIZING: _STOPPING | {J.CREATED},
    J.CREATED: _STOPPING | {J.PENDING, J.SCHEDULED},
    J.PENDING: _STOPPING | {J.SCHEDULED},
    J.SCHEDULED: _STOPPING | {J.RUNNING, J.FINISHED},
    J.RUNNING: _STOPPING | {J.DOING_SAVEPOINT, J.FINISHED},
    J.DOING_SAVEPOINT: _STOPPING | {J.SAVEPOINT_DONE, J.FINISHED},
    J.FAILING: frozenset({J.FAILED}),
    J.CANCELING: frozenset({J.CANCELED}),
    J.FAILED: frozenset(),
    J.SAVEPOINT_DONE: frozenset(),
    J.CANCELED: frozenset(),
    J.FINISHED: frozenset(),
}


# From these a restore begins the next run. A job that FINISHED has read everything.
RESTORABLE = JOB_ENDED - {J.FINISHED}

# What may become of a pipeline whose task a worker holds.
_NO_LONGER_HELD = frozenset(
    {
        P.SCHEDULED,  # its task is given back, and another attempt follows
        P.FINISHED,  # also when there is nothing left to plan, so that it never was RUNNING
        P.CANCELING,
        P.CANCELED,  # its task was given back while it was being stopped, and nobody took it again
        P.FAILING,
    }
)

PIPELINE_TRANSITIONS: Mapping[PipelineStatus, frozenset[PipelineStatus]] = {
    # CANCELED, FAILED: its job was never admitted, so nothing runs, and nothing is open.
    P.CREATED: frozenset({P.SCHEDULED, P.CANCELED, P.FAILED}),
    P.SCHEDULED: frozenset({P.DEPLOYING, P.CANCELED}),
    # RUNNING: a quick worker plans an epoch in the very sync that first says that it holds it.
    P.DEPLOYING: _NO_LONGER_HELD | {P.INITIALIZING, P.RUNNING},
    P.INITIALIZING: _NO_LONGER_HELD | {P.RUNNING},
    P.RUNNING: _NO_LONGER_HELD,
    P.CANCELING: frozenset({P.CANCELED}),
    P.FAILING: frozenset({P.FAILED}),
    P.FINISHED: frozenset(),
    P.CANCELED: frozenset(),
    P.FAILED: frozenset(),
}


def check_job_transition(job: str, current: JobStatus, target: JobStatus) -> None:
    """Raise IllegalTransition for a step that the state machine does not have."""
    check_transition("job", job, JOB_TRANSITIONS, current, target)


def check_restorable(job: str, current: JobStatus) -> None:
    """Raise IllegalTransition for a job that can't begin its next run."""
    if current not in RESTORABLE:
        raise IllegalTransition("job", job, current, J.CREATED)


def next_job_status(
    current: JobStatus,
    pipelines: Sequence[PipelineStatus],
    *,
    cancel_wanted: bool,
    savepoint_wanted: bool = False,
    saved: bool = False,
) -> JobStatus:
    """The status of a job, derived from the statuses of its pipelines.

    A failed pipeline beats a wanted cancel only when it failed first: once CANCELING, the job
    ends CANCELED, and once FAILING it ends FAILED. A cancel beats a savepoint; a job whose
    pipelines have all reached their completed point is FINISHED, whatever was wanted of it.
    `saved`: one of its pipelines ended with a savepoint.
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
    return _advance(current, pipelines, wanted=savepoint_wanted or saved)


def _advance(current: JobStatus, pipelines: Sequence[PipelineStatus], *, wanted: bool) -> JobStatus:
    """SCHEDULED to RUNNING, RUNNING to DOING_SAVEPOINT.

    Only a running job can make a savepoint: before that no execution could be told to.
    """
    if current is J.SCHEDULED and any(p in {P.RUNNING, P.FINISHED} for p in pipelines):
        return J.RUNNING
    if current is J.RUNNING and wanted:
        return J.DOING_SAVEPOINT
    return current
