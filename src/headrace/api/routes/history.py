"""/v1/history: how jobs ended. What has not ended stands under /v1/jobs, and nowhere in both."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headrace.api.routes.jobs import Served
from headrace.api.views import ended_view
from headrace.client import HISTORY_SHOWN
from headrace.coordinator.service import Coordinator
from headrace.errors import Refused
from headrace.model.job import JOB_ENDED, JobStatus
from headrace.model.text import Text
from headrace.store import history
from headrace.store.engine import reading
from headrace.views import HistoryList

LISTED_MAX = 1000  # runs in one answer

router = APIRouter(prefix="/v1/history", tags=["history"])


@router.get("")
def listed(
    coordinator: Coordinator = Served,
    *,
    job: Text | None = None,
    status: str | None = None,
    name: Text | None = None,
    most: Annotated[int, Query(ge=1, le=LISTED_MAX)] = HISTORY_SHOWN,
) -> HistoryList:
    """The latest first. Every restore of a job is a run of its own."""
    wanted = _ended_status(status)
    with reading(coordinator.engine) as conn:
        found = history.listed(conn, most=most, job_id=job, status=wanted, name=name)
    return HistoryList(runs=tuple(map(ended_view, found)))


def _ended_status(text: str | None) -> JobStatus | None:
    if text is None:
        return None
    if text.upper() not in JOB_ENDED:
        raise Refused(
            f"status {text!r} is not one that a job ends in; take {', '.join(sorted(JOB_ENDED))}. "
            "What has not ended is shown by `headrace job list`"
        )
    return JobStatus(text.upper())
