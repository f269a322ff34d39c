"""/v1/jobs: submit, restore, look, savepoint, cancel, settle.

Any coordinator answers; the leader acts.

The list has the jobs that have not ended, and no other (C7). A job that is asked for by its id is
also shown once it has ended, and from history when its state is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Depends, Request
from sqlalchemy import Connection

from headrace.api.schemas import SubmitJob
from headrace.api.views import STORE_IS_OLDER, checkpoint_view, spec_or_none, view_of
from headrace.coordinator.known import Known, known_job
from headrace.coordinator.service import Coordinator
from headrace.errors import NotFound, Refused
from headrace.model.cleanup import MINUTE_MS, Retention
from headrace.store import checkpoints, history, jobs, savepoints
from headrace.store.engine import reading
from headrace.store.history import Ended
from headrace.store.jobs import Job
from headrace.views import CheckpointList, JobList, JobView, SavepointDeleted

LISTED_MAX = 1000  # jobs in one answer, newest first
CHECKPOINTS_LISTED_MAX = 1000  # in one answer, newest first
DEFAULT_GROUP = "default"

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


async def coordinator_of(request: Request) -> Coordinator:
    """Without a thread: /health must be answered while all of them wait for a store."""
    return request.app.state.coordinator


Served = Depends(coordinator_of)


def _view(coordinator: Coordinator, found: Known, notes: Sequence[str] = ()) -> JobView:
    """Of a job about which something was commanded."""
    if isinstance(found, Job):
        coordinator.look_at(found.id)
    with reading(coordinator.engine) as conn:
        return view_of(conn, found, coordinator.options.retention, notes=notes)


@router.post("", status_code=201)
def submit(body: SubmitJob, coordinator: Coordinator = Served) -> JobView:
    if body.restore is not None:
        return _restore(body, body.restore, coordinator)
    job = coordinator.commands.submit(
        body.spec,
        submission_key=body.submission_key,
        job_id=body.job_id,
        group=body.group if body.group is not None else DEFAULT_GROUP,
    )
    return _view(coordinator, job)


def _restore(body: SubmitJob, job_id: str, coordinator: Coordinator) -> JobView:
    if body.job_id not in {None, job_id}:
        raise Refused(
            f"job {job_id!r} keeps its id when it is restored, and {body.job_id!r} was asked for; "
            "leave job_id out"
        )
    restored = coordinator.commands.restore(
        body.spec, job_id=job_id, submission_key=body.submission_key, group=body.group
    )
    return _view(coordinator, restored.job, restored.notes)


@router.get("")
def listed(coordinator: Coordinator = Served) -> JobList:
    retention = coordinator.options.retention
    with reading(coordinator.engine) as conn:
        found = jobs.running(conn, most=LISTED_MAX)
        return JobList(jobs=tuple(view_of(conn, job, retention) for job in found))


@router.get("/{job_id}")
def show(job_id: str, coordinator: Coordinator = Served) -> JobView:
    retention = coordinator.options.retention
    with reading(coordinator.engine) as conn:
        found = _found(conn, job_id, retention)
        spec = spec_or_none(conn, job_id) if isinstance(found, Job) else None
        view = view_of(conn, found, retention, spec=spec)
        if view.pipelines:
            return view
        # On PostgreSQL each statement sees its own moment, and between two of them the state of
        # the job was deleted. Whoever waits for its end needs its rows.
        return view_of(conn, history.latest(conn, job_id) or found, retention)


@router.get("/{job_id}/checkpoints")
def list_checkpoints(job_id: str, coordinator: Coordinator = Served) -> CheckpointList:
    with reading(coordinator.engine) as conn:
        job = _found(conn, job_id, coordinator.options.retention)
        if isinstance(job, Ended):
            raise NotFound(
                "checkpoint of job",
                job_id,
                way_out=f"it is {job.status}, and they were deleted with its state; "
                f"`headrace job show {job_id}` shows how it ended",
            )
        found = checkpoints.listed(conn, job.incarnation, most=CHECKPOINTS_LISTED_MAX)
    return CheckpointList(checkpoints=tuple(map(checkpoint_view, found)))


@router.post("/{job_id}/savepoint")
def savepoint(job_id: str, coordinator: Coordinator = Served) -> JobView:
    return _view(coordinator, coordinator.commands.savepoint(job_id))


@router.delete("/{job_id}/savepoint")
def delete_savepoint(job_id: str, coordinator: Coordinator = Served) -> SavepointDeleted:
    coordinator.commands.delete_savepoint(job_id)
    return SavepointDeleted(id=job_id)


@router.post("/{job_id}/settle")
def settle(job_id: str, coordinator: Coordinator = Served) -> JobView:
    return _view(coordinator, coordinator.commands.settle(job_id))


@router.post("/{job_id}/cancel")
def cancel(job_id: str, coordinator: Coordinator = Served) -> JobView:
    return _view(coordinator, coordinator.commands.cancel(job_id))


def _found(conn: Connection, job_id: str, retention: Retention) -> Known:
    try:
        return known_job(conn, job_id)
    except NotFound as error:
        raise NotFound("job", job_id, way_out=_way_out(conn, job_id, retention)) from error


def _way_out(conn: Connection, job_id: str, retention: Retention) -> str:
    if (made := savepoints.get(conn, job_id)) is not None:
        restore = f"restore it with `headrace run JOB_FILE --restore {job_id}`, or"
        if made.store_is_older:
            restore = f"a restore is refused as long as {STORE_IS_OLDER};"
        return (
            f"its history has expired, and its savepoint is still kept: {restore} delete it with "
            f"`headrace job savepoint delete {job_id}`"
        )
    minutes = retention.history_expire_ms // MINUTE_MS
    return (
        "`headrace job list` shows what runs, `headrace job history` what has ended, "
        f"for {minutes} minutes"
    )
