"""What people see of the store's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.client import (
    CheckpointView,
    JobView,
    PipelineView,
    ProgressView,
    SavepointView,
    WorkerView,
)
from headrace.jobfile.nodes import NOWHERE, Problem
from headrace.jobfile.registry import find_plugin
from headrace.model.epoch import EpochKind, EpochStatus
from headrace.model.job import JobStatus
from headrace.model.jobspec import JobSpec, PipelineSpec, PluginSpec
from headrace.store import claims, jobs, savepoints, workers
from headrace.store.checkpoints import Checkpoint
from headrace.store.jobs import Job
from headrace.store.savepoints import Savepoint

# As users know them.
KINDS: Mapping[EpochKind, str] = {
    EpochKind.OPENING: "save mode",
    EpochKind.CHECKPOINT: "checkpoint",
    EpochKind.SAVEPOINT: "savepoint",
    EpochKind.COMPLETED: "completed",
}
RESTORABLE = frozenset({JobStatus.SAVEPOINT_DONE, JobStatus.FAILED, JobStatus.CANCELED})


def job_view(
    conn: Connection, job: Job, *, spec: JobSpec | None = None, notes: Sequence[str] = ()
) -> JobView:
    """`spec`: to say which pipelines are repeatable; lists do without."""
    executions = claims.executions_of(conn, job.id)
    odd = {p.number: not_repeatable(p) for p in spec.pipelines} if spec else {}
    made = savepoints.get(conn, job.id) if job.status in RESTORABLE else None
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
            _pipeline_view(pipeline, executions.get(pipeline.task_id or ""), odd)
            for pipeline in jobs.pipelines_of(conn, job.id)
        ),
        savepoint=_savepoint_view(made) if made else None,
        notes=tuple(notes),
    )


def spec_or_none(conn: Connection, job_id: str) -> JobSpec | None:
    """None: a newer program wrote it so that this one can't read it; the rest can be shown."""
    try:
        return jobs.spec_of(conn, job_id)
    except ValidationError:
        return None


def not_repeatable(pipeline: PipelineSpec) -> str | None:
    """Why a pipeline may give other rows when an epoch is run again; None: it does not."""
    odd = [each for each in pipeline.sources if not _is_repeatable(each)]
    if not odd:
        return None
    names = ", ".join(each.name for each in odd)
    return f"{names}: what it reads may change between two reads of the same slice"


def _is_repeatable(source: PluginSpec) -> bool:
    try:
        return find_plugin("source", source.plugin, NOWHERE).repeatable
    except Problem:  # a newer program knows it, and this one shows what it can
        return True


def _pipeline_view(
    pipeline: jobs.Pipeline, execution: claims.Execution | None, odd: Mapping[int, str | None]
) -> PipelineView:
    progress: Mapping[str, Any] | None = execution.progress if execution else None
    why = odd.get(pipeline.number)
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
        repeatable=why is None if pipeline.number in odd else None,
        not_repeatable=why,
    )


def _savepoint_view(made: Savepoint) -> SavepointView:
    return SavepointView(
        kind=KINDS[made.kind],
        epoch=made.epoch,
        sources=tuple(sorted(made.positions)),
        ready=tuple(made.ready),
        written=dict(made.written),
        made_at_ms=made.made_at_ms,
    )


def checkpoint_view(found: Checkpoint) -> CheckpointView:
    ended_ms = found.ended_at_ms
    return CheckpointView(
        pipeline=found.pipeline,
        id=found.epoch,
        kind=KINDS[found.kind],
        status=found.status,
        planned_at_ms=found.planned_at_ms,
        prepared_at_ms=found.prepared_at_ms,
        completed_at_ms=ended_ms if found.status is EpochStatus.COMPLETED else None,
        duration_ms=ended_ms - found.planned_at_ms if ended_ms is not None else None,
        size_bytes=found.size_bytes,
        rows_in=found.rows_in,
        rows_out=found.rows_out,
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
