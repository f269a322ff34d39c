"""The targets of a job that has ended, settled at once: for a run whose coordinator goes with it.

What is open is settled at once by whoever leads. The marks, and the secrets with which they are
reached, go at once only when nobody is left who could commit (E6). That is known when each of the
job's executions said its own end: an execution says so once nothing of it goes on, and a task that
was claimed once had no other. One that was lost, or failed and was tried again, may still be paused
somewhere with a commit in its hands: then the marks stay until no commit can be that old (ADR 17).
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from headrace.coordinator.known import Known
from headrace.errors import Refused
from headrace.model.job import JOB_ENDED
from headrace.model.task import TaskStatus
from headrace.store import checkpoints, cleanups, tasks
from headrace.store.cleanups import Cleanup
from headrace.store.jobs import Job


def want_settled(conn: Connection, found: Known) -> None:
    """Have the cleanup of its targets begin, if there is more to it than what can wait."""
    if found.status not in JOB_ENDED:
        job_id = found.id if isinstance(found, Job) else found.job_id
        raise Refused(
            f"job {job_id!r} is {found.status}: its targets are settled once it has ended; stop it "
            f"with `headrace job cancel {job_id}`"
        )
    of = found.incarnation
    if cleanups.secret_names(conn, of) or checkpoints.open_ones(conn, of):
        cleanups.want_at_once(conn, of)


def begin_at_once(conn: Connection, found: Cleanup, *, now_ms: int) -> Cleanup:
    """The record as it was wanted: due now, its targets too if nobody can commit any more."""
    job = cleanups.owned_job(conn, found)
    safe = job is not None and job.status in JOB_ENDED and has_no_committer(conn, job)
    targets_due_at_ms = min(now_ms, found.targets_due_at_ms) if safe else found.targets_due_at_ms
    begun = replace(
        found, wanted_at_once=False, due_at_ms=now_ms, targets_due_at_ms=targets_due_at_ms
    )
    cleanups.begin_at_once(conn, begun)
    return begun


def has_no_committer(conn: Connection, job: Job) -> bool:
    """Whether each execution that the job ever had said its own end, and a good one."""
    if job.run > 1:  # the tasks of the runs before it are gone
        return False
    given = [task for task in tasks.of_job(conn, job.id) if task.attempt > 0]
    return all(task.attempt == 1 and task.status is TaskStatus.SUCCESS for task in given)
