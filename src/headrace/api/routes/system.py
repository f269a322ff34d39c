"""/health, /metrics, /v1/leader, /v1/workers: how this coordinator and its cluster stand."""

from __future__ import annotations

import os

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from headrace import __version__
from headrace.api.routes.jobs import Served
from headrace.api.views import worker_views
from headrace.client import Health, WorkerList
from headrace.coordinator.service import Coordinator
from headrace.errors import Unavailable
from headrace.store import census
from headrace.store.engine import reading

router = APIRouter(tags=["system"])


@router.get("/health")
def health(coordinator: Coordinator = Served) -> Health:
    """Answers as long as this process lives; `status` says whether it reaches the store."""
    leading = coordinator.leading
    try:
        status, leader = "ok", coordinator.leader_address()
    except Unavailable:
        status, leader = "store away", None
    return Health(
        status=status,
        leading=leading is not None,
        term=leading.term.epoch if leading else None,
        leader=leader,
        version=__version__,
        store=coordinator.engine.dialect.name,
        pid=os.getpid(),
    )


@router.get("/metrics")
def metrics(coordinator: Coordinator = Served) -> Response:
    found = coordinator.metrics
    with reading(coordinator.engine) as conn:
        for gauge, counts in (
            (found.jobs, census.jobs_by_status(conn)),
            (found.tasks, census.tasks_by_status(conn)),
            (found.workers, census.workers_by_group(conn)),
        ):
            gauge.clear()
            for label, count in counts.items():
                gauge.labels(label).set(count)
    return Response(generate_latest(found.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/workers")
def listed(coordinator: Coordinator = Served) -> WorkerList:
    with reading(coordinator.engine) as conn:
        return WorkerList(workers=tuple(worker_views(conn)))
