"""What people see of the store's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.api.attempts import next_attempt, settle_attempt
from headrace.coordinator.known import Known
from headrace.coordinator.reconcile.jobs import ENDING
from headrace.jobfile.nodes import NOWHERE, Problem
from headrace.jobfile.registry import find_plugin
from headrace.model.cleanup import CleanupStep, Retention
from headrace.model.epoch import EpochKind, EpochStatus
from headrace.model.job import JOB_ENDED, PIPELINE_ENDED, PIPELINE_ENDING, JobStatus
from headrace.model.jobspec import JobSpec, PipelineSpec, PluginSpec
from headrace.model.task import ENDED, TaskKind
from headrace.store import checkpoints, claims, cleanups, epochs, jobs, savepoints, tasks, workers
from headrace.store.checkpoints import Checkpoint
from headrace.store.history import Ended
from headrace.store.jobs import Job
from headrace.store.savepoints import Savepoint
from headrace.views import (
    AttemptView,
    CheckpointView,
    CleanupView,
    EndedView,
    JobView,
    PipelineView,
    ProgressView,
    SavepointView,
)

# As users know them.
KINDS: Mapping[EpochKind, str] = {
    EpochKind.OPENING: "save mode",
    EpochKind.CHECKPOINT: "checkpoint",
    EpochKind.SAVEPOINT: "savepoint",
    EpochKind.COMPLETED: "completed",
}
OVER = PIPELINE_ENDED | PIPELINE_ENDING  # no further attempt of it begins
STORE_IS_OLDER = "the store is older than its targets"  # E7
RESTORABLE = frozenset({JobStatus.SAVEPOINT_DONE, JobStatus.FAILED, JobStatus.CANCELED})


def view_of(
    conn: Connection,
    found: Known,
    retention: Retention,
    *,
    spec: JobSpec | None = None,
    notes: Sequence[str] = (),
) -> JobView:
    """A job as it stands, or what history has of it.

    `spec`: to say which pipelines are repeatable; lists do without.
    """
    cleaned = isinstance(found, Ended)
    ended_ms = found.ended_at_ms
    forgotten_ms = None if ended_ms is None else ended_ms + retention.history_expire_ms
    return JobView(
        **_run_of(found),
        pipelines=_ended_pipelines(found) if cleaned else _pipelines_of(conn, found, spec),
        waits_for=None if cleaned else found.waits_for,
        savepoint=_savepoint_of(conn, found, retention),
        notes=tuple(notes),
        cleaned=cleaned,
        cleanup=_cleanup_of(conn, found) if found.status in JOB_ENDED else None,
        history_until_ms=forgotten_ms,
    )


def ended_view(ended: Ended) -> EndedView:
    return EndedView(
        **_run_of(ended), pipelines=_ended_pipelines(ended), incarnation=ended.incarnation
    )


def _run_of(found: Known) -> dict[str, Any]:
    job_id = found.job_id if isinstance(found, Ended) else found.id
    return {
        "id": job_id,
        "name": found.name,
        "status": found.status,
        "group": found.group,
        "run": found.run,
        "error": found.error,
        "created_at_ms": found.created_at_ms,
        "started_at_ms": found.started_at_ms,
        "ended_at_ms": found.ended_at_ms,
    }


def _pipelines_of(conn: Connection, job: Job, spec: JobSpec | None) -> tuple[PipelineView, ...]:
    executions = claims.executions_of(conn, job.id)
    odd = {p.number: not_repeatable(p) for p in spec.pipelines} if spec else {}
    settling = _settling(conn, job)
    return tuple(
        _pipeline_view(
            pipeline, executions.get(pipeline.task_id or ""), odd, settling.get(pipeline.number)
        )
        for pipeline in jobs.pipelines_of(conn, job.id)
    )


def _settling(conn: Connection, job: Job) -> Mapping[int, AttemptView]:
    """By pipeline: the attempt to finish or abort what an ended execution left open."""
    if job.status not in ENDING:
        return {}
    executions = claims.executions_of(conn, job.id)
    found: dict[int, AttemptView] = {}
    for task in tasks.of_job(conn, job.id):
        if task.kind is TaskKind.SETTLE and task.pipeline is not None and task.status not in ENDED:
            left = epochs.open_one(conn, job.incarnation, task.pipeline)
            found[task.pipeline] = settle_attempt(
                executions.get(task.id), epoch=left.epoch if left else 0
            )
    return found


def _ended_pipelines(ended: Ended) -> tuple[PipelineView, ...]:
    """Positions stay in the store: they are for a restore, and may be long."""
    counts = ("rows_in", "rows_out", "read", "written")
    shown = ("number", "status", "epoch", *counts, "commits", "error")
    return tuple(
        PipelineView.model_validate({name: facts[name] for name in shown if name in facts})
        for facts in ended.pipelines
    )


def _savepoint_of(conn: Connection, found: Known, retention: Retention) -> SavepointView | None:
    """What can be restored. While a restored job runs, that is not the savepoint it came from."""
    if found.status not in RESTORABLE:
        return None
    made = savepoints.of(conn, found.incarnation)
    return _savepoint_view(made, retention) if made else None


def _cleanup_of(conn: Connection, found: Known) -> CleanupView | None:
    cleanup = cleanups.get(conn, found.incarnation)
    if cleanup is None:
        return None
    asks_worker = cleanup.step is CleanupStep.TARGETS or cleanup.task_id is not None
    task = tasks.get(conn, cleanup.task_id) if cleanup.task_id is not None else None
    alone = asks_worker and cleanup.group not in workers.slots_by_group(conn)
    return CleanupView(
        step=cleanup.step,
        due_at_ms=cleanup.due_at_ms,
        failures=cleanup.failures,
        error=cleanup.error or (task.error if task is not None else None),
        waits_for=f"a worker in group {cleanup.group!r}" if alone else None,
        at_work=cleanup.wanted_at_once or (task is not None and task.status not in ENDED),
        unsettled=tuple(sorted(checkpoints.open_ones(conn, found.incarnation))),
        secrets=tuple(cleanups.secret_names(conn, found.incarnation)),
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
    pipeline: jobs.Pipeline,
    execution: claims.Execution | None,
    odd: Mapping[int, str | None],
    settling: AttemptView | None,
) -> PipelineView:
    progress: Mapping[str, Any] | None = execution.progress if execution else None
    why = odd.get(pipeline.number)
    attempt = settling
    if settling is None and execution is not None and pipeline.status not in OVER:
        attempt = next_attempt(execution, epoch=pipeline.epoch + 1)
    return PipelineView(
        number=pipeline.number,
        status=pipeline.status,
        epoch=pipeline.epoch,
        rows_in=pipeline.rows_in,
        rows_out=pipeline.rows_out,
        read=dict(pipeline.read),
        written=dict(pipeline.written),
        commits=dict(pipeline.commits),
        error=pipeline.error or (execution.error if execution else None),
        execution=execution.id if execution else None,
        worker=execution.worker_id if execution else None,
        spark_application=progress.get("spark_application") if progress else None,
        progress=_progress_view(progress) if progress else None,
        attempt=attempt,
        repeatable=why is None if pipeline.number in odd else None,
        not_repeatable=why,
    )


def _savepoint_view(made: Savepoint, retention: Retention) -> SavepointView:
    return SavepointView(
        kind=KINDS[made.kind],
        epoch=made.epoch,
        sources=tuple(sorted(made.positions)),
        ready=tuple(made.ready),
        written=dict(made.written),
        made_at_ms=made.made_at_ms,
        expires_at_ms=made.made_at_ms + retention.savepoint_expire_ms,
        refused=STORE_IS_OLDER if made.store_is_older else None,
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
