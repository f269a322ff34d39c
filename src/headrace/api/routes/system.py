"""/health, /metrics, /v1/workers: how this coordinator and its cluster stand."""

from __future__ import annotations

import os

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

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
    """What this process counted, and what the store holds now.

    The latter is built for each request: two at once would see each other's half.
    """
    now = CollectorRegistry()
    with reading(coordinator.engine) as conn:
        for name, doc, label, counts in (
            ("jobs", "Jobs in the store", "status", census.jobs_by_status(conn)),
            ("tasks", "Tasks in the store", "status", census.tasks_by_status(conn)),
            ("workers", "Registered workers", "group", census.workers_by_group(conn)),
        ):
            gauge = Gauge(f"headrace_{name}", doc, [label], registry=now)
            for value, count in counts.items():
                gauge.labels(value).set(count)
    text = generate_latest(coordinator.metrics.registry) + generate_latest(now)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/v1/workers")
def listed(coordinator: Coordinator = Served) -> WorkerList:
    with reading(coordinator.engine) as conn:
        return WorkerList(workers=tuple(worker_views(conn)))
