"""/health and /metrics: how this coordinator and its cluster stand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from sqlalchemy import Connection

from headrace import __version__
from headrace.api.group_views import count_groups
from headrace.api.routes.jobs import Served
from headrace.client.views import Health
from headrace.coordinator.service import Coordinator
from headrace.model.jobs.epoch import CleanupStep
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.store import lookups
from headrace.store.core.engine import reading
from headrace.store.jobs import cleanups
from headrace.store.tables import lake_tables, processes

PIPELINES_COUNTED_MAX = 1000  # in one answer, of the newest jobs

router = APIRouter(tags=["system"])


@router.get("/health")
async def health(coordinator: Coordinator = Served) -> Health:
    """Answers 200 as long as this process lives, and asks the store nothing.

    A load balancer that took a degraded coordinator out would take them all: what they lack is the
    same store, and they go on by themselves when it is back.
    """
    leading, problems = coordinator.leading, coordinator.problems()
    return Health(
        status="degraded" if problems else "ok",
        problems=problems,
        leading=leading is not None,
        term=leading.term.epoch if leading else None,
        leader=coordinator.leader_known(),
        version=__version__,
        store=coordinator.engine.dialect.name,
        pid=os.getpid(),
    )


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"description": "As Prometheus reads it"}},
)
def metrics(coordinator: Coordinator = Served) -> Response:
    """What this process counted, and what the store holds now.

    The latter is built for each request: two at once would see each other's half.
    """
    registry = CollectorRegistry()
    with reading(coordinator.engine) as conn:
        for name, doc, label, counts in (
            ("jobs", "Jobs that have not ended", "status", lookups.jobs_by_status(conn)),
            ("history", "Runs that ended", "status", lookups.history_by_status(conn)),
            ("tasks", "Tasks in the store", "status", lookups.tasks_by_status(conn)),
            ("workers", "Registered workers", "group", lookups.workers_by_group(conn)),
        ):
            gauge = Gauge(f"headrace_{name}", doc, [label], registry=registry)
            for value, count in counts.items():
                gauge.labels(value).set(count)
        _count_rows(registry, lookups.rows_by_plugin(conn, most=PIPELINES_COUNTED_MAX))
        _count_cleanups(registry, cleanups.counts(conn))
        _count_tables(registry, conn)
        count_groups(registry, conn, coordinator)
    text = generate_latest(coordinator.metrics.registry) + generate_latest(registry)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _count_rows(registry: CollectorRegistry, counted: Sequence[lookups.RowsCounted]) -> None:
    """Gauges from the store, no counters: they go on under another leader, and end with the job."""
    labels = ["job", "pipeline"]
    read = Gauge(
        "headrace_rows_read",
        "Rows that a source of a job has read, in epochs that are complete",
        [*labels, "source"],
        registry=registry,
    )
    written = Gauge(
        "headrace_rows_written",
        "Rows that a sink of a job has committed",
        [*labels, "sink"],
        registry=registry,
    )
    for pipeline_rows in counted:
        for gauge, rows in ((read, pipeline_rows.read), (written, pipeline_rows.written)):
            for name, count in rows.items():
                gauge.labels(pipeline_rows.job, pipeline_rows.pipeline, name).set(count)


def _count_cleanups(
    registry: CollectorRegistry, counts: Mapping[tuple[CleanupStep, bool], int]
) -> None:
    """Also steps with a count of zero: an alarm needs the zero to know that it is over."""
    doc = "Ended jobs of which something is to be deleted"
    gauge = Gauge("headrace_cleanups", doc, ["step", "failing"], registry=registry)
    for step, failing in itertools.product(CleanupStep, (False, True)):
        gauge.labels(step.value, str(failing).lower()).set(counts.get((step, failing), 0))


def _count_tables(registry: CollectorRegistry, conn: Connection) -> None:
    """Every status, also those with a count of zero."""
    tables = {status.value: 0 for status in TableStatus} | _by_text(lake_tables.counts(conn))
    kept = {status.value: 0 for status in ProcessStatus} | _by_text(processes.counts(conn))
    for name, doc, counts in (
        ("tables", "Lake tables by where their optimizing stands", tables),
        ("processes", "Processes of tables, running and in their history", kept),
    ):
        gauge = Gauge(f"headrace_{name}", doc, ["status"], registry=registry)
        for status, count in counts.items():
            gauge.labels(status).set(count)
    for name, doc, count in (
        (
            "processes_settling",
            "Processes whose table is asked whether their commit has landed",
            lake_tables.count_settling(conn),
        ),
        (
            "processes_leftovers",
            "Processes that ended, and whose staged files are to be deleted",
            lake_tables.count_leftovers(conn),
        ),
    ):
        Gauge(f"headrace_{name}", doc, registry=registry).set(count)
    gauge = Gauge("headrace_catalogs", "Catalogs", ["failing"], registry=registry)
    by_failing = lake_tables.catalogs_by_failing(conn)
    for failing in (False, True):
        gauge.labels(str(failing).lower()).set(by_failing.get(failing, 0))


def _by_text(counts: Mapping[TableStatus, int] | Mapping[ProcessStatus, int]) -> dict[str, int]:
    return {status.value: count for status, count in counts.items()}
