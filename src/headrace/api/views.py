"""What people see of the store's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from headrace.client import JobView, PipelineView, ProgressView, WorkerView
from headrace.store import claims, jobs, workers
from headrace.store.jobs import Job


def job_view(conn: Connection, job: Job) -> JobView:
    executions = claims.executions_of(conn, job.id)
    return JobView(
        id=job.id,
        name=job.name,
        status=job.status,
        group=job.group,
        waits_for=job.waits_for,
        error=job.error,
        created_at_ms=job.created_at_ms,
        started_at_ms=job.started_at_ms,
        ended_at_ms=job.ended_at_ms,
        pipelines=tuple(
            _pipeline_view(pipeline, executions.get(pipeline.task_id or ""))
            for pipeline in jobs.pipelines_of(conn, job.id)
        ),
    )


def _pipeline_view(pipeline: jobs.Pipeline, execution: claims.Execution | None) -> PipelineView:
    progress: Mapping[str, Any] | None = execution.progress if execution else None
    return PipelineView(
        number=pipeline.number,
        status=pipeline.status,
        epoch=pipeline.epoch,
        rows_in=pipeline.rows_in,
        rows_out=pipeline.rows_out,
        commits=dict(pipeline.commits),
        error=pipeline.error or (execution.error if execution else None),
        execution=execution.id if execution else None,
        worker=execution.worker_id if execution else None,
        spark_application=progress.get("spark_application") if progress else None,
        progress=_progress_view(progress) if progress else None,
    )


def _progress_view(progress: Mapping[str, Any]) -> ProgressView:
    return ProgressView(
        step=progress["step"],
        epoch=progress["epoch"],
        rows=progress["rows"],
        rows_expected=progress["rows_expected"],
    )


def worker_views(conn: Connection) -> Sequence[WorkerView]:
    found = workers.registered(conn)
    held = claims.assigned_to(conn, [worker.id for worker in found])
    return [
        WorkerView(
            id=worker.id,
            group=worker.group,
            slots=worker.slots,
            host=worker.host,
            pid=worker.pid,
            version=worker.version,
            spark_application=worker.spark_application,
            registered_at_ms=worker.registered_at_ms,
            seen_at_ms=worker.seen_at_ms,
            executions=tuple(t.claim.execution for t in held if t.worker_id == worker.id),
        )
        for worker in found
    ]
