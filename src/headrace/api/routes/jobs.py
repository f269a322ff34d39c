"""/v1/jobs: submit, restore, look, savepoint, cancel. Any coordinator answers; the leader acts."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Depends, Request
from sqlalchemy import Connection

from headrace.api.schemas import SubmitJob
from headrace.api.views import checkpoint_view, job_view, spec_or_none
from headrace.client import CheckpointList, JobList, JobView
from headrace.coordinator.service import Coordinator
from headrace.errors import NotFound, Refused
from headrace.store import checkpoints, jobs
from headrace.store.engine import reading
from headrace.store.jobs import Job

LISTED_MAX = 1000  # jobs in one answer, newest first
CHECKPOINTS_LISTED_MAX = 1000  # in one answer, newest first
DEFAULT_GROUP = "default"

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


def coordinator_of(request: Request) -> Coordinator:
    return request.app.state.coordinator


Served = Depends(coordinator_of)


def _view(coordinator: Coordinator, job: Job, notes: Sequence[str] = ()) -> JobView:
    coordinator.look_at(job.id)
    with reading(coordinator.engine) as conn:
        return job_view(conn, job, notes=notes)


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
def listed(coordinator: Coordinator = Served, *, running: bool = False) -> JobList:
    with reading(coordinator.engine) as conn:
        found = jobs.listed(conn, open_only=running, most=LISTED_MAX)
        return JobList(jobs=tuple(job_view(conn, job) for job in found))


@router.get("/{job_id}")
def show(job_id: str, coordinator: Coordinator = Served) -> JobView:
    with reading(coordinator.engine) as conn:
        return job_view(conn, _found(conn, job_id), spec=spec_or_none(conn, job_id))


@router.get("/{job_id}/checkpoints")
def list_checkpoints(job_id: str, coordinator: Coordinator = Served) -> CheckpointList:
    with reading(coordinator.engine) as conn:
        job = _found(conn, job_id)
        found = checkpoints.listed(conn, job.incarnation, most=CHECKPOINTS_LISTED_MAX)
    return CheckpointList(checkpoints=tuple(map(checkpoint_view, found)))


@router.post("/{job_id}/savepoint")
def savepoint(job_id: str, coordinator: Coordinator = Served) -> JobView:
    return _view(coordinator, coordinator.commands.savepoint(job_id))


@router.post("/{job_id}/cancel")
def cancel(job_id: str, coordinator: Coordinator = Served) -> JobView:
    return _view(coordinator, coordinator.commands.cancel(job_id))


def _found(conn: Connection, job_id: str) -> Job:
    job = jobs.get(conn, job_id)
    if job is None:
        raise NotFound("job", job_id)
    return job
