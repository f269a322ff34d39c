"""/v1/jobs: submit, look, cancel. Any coordinator answers; the leader acts."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request

from headrace.api.schemas import SubmitJob
from headrace.api.views import job_view
from headrace.client import JobList, JobView
from headrace.coordinator.service import Coordinator
from headrace.errors import NotFound
from headrace.store import jobs
from headrace.store.engine import reading
from headrace.store.jobs import Job

LISTED_MAX = 1000  # jobs in one answer, newest first

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


def coordinator_of(request: Request) -> Coordinator:
    return request.app.state.coordinator


Served = Depends(coordinator_of)


def _view(coordinator: Coordinator, job: Job) -> JobView:
    with reading(coordinator.engine) as conn:
        return job_view(conn, job)


@router.post("", status_code=201)
def submit(body: SubmitJob, coordinator: Coordinator = Served) -> JobView:
    job = coordinator.commands.submit(
        body.spec, submission_key=body.submission_key, job_id=body.job_id, group=body.group
    )
    coordinator.look_at(job.id)
    return _view(coordinator, job)


@router.get("")
def listed(coordinator: Coordinator = Served, *, running: bool = False) -> JobList:
    with reading(coordinator.engine) as conn:
        found = jobs.listed(conn, open_only=running, most=LISTED_MAX)
        return JobList(jobs=tuple(job_view(conn, job) for job in found))


@router.get("/{job_id}")
def show(job_id: str, coordinator: Coordinator = Served) -> JobView:
    with reading(coordinator.engine) as conn:
        job = jobs.get(conn, job_id)
        if job is None:
            raise NotFound("job", job_id)
        return job_view(conn, job)


@router.post("/{job_id}/cancel")
def cancel(job_id: str, coordinator: Coordinator = Served) -> JobView:
    job = coordinator.commands.cancel(job_id)
    coordinator.look_at(job.id)
    return _view(coordinator, job)
