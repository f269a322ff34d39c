"""Views of jobs: how the API shows the store's rows about jobs, pipelines, attempts and savepoints.

Only this module reads how failures are counted (which attempt of how many, why the last one failed,
when the next begins), so that a view, a page and a metric agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.client.views import (
    AttemptView,
    CheckpointView,
    CleanupView,
    EndedView,
    JobView,
    PipelineView,
    ProgressView,
    SavepointView,
)
from headrace.coordinator.jobs.attempts import SETTLE_TRIES_MAX
from headrace.coordinator.jobs.job_end import KnownJob
from headrace.coordinator.jobs.reconciler import ENDING
from headrace.coordinator.workforce import Workforce
from headrace.model.jobs.epoch import CleanupStep, EpochKind, EpochStatus, Retention
from headrace.model.jobs.spec import JobSpec, PipelineSpec, PluginSpec
from headrace.model.jobs.status import (
    JOB_ENDED,
    PIPELINE_ENDED,
    PIPELINE_ENDING,
    JobStatus,
    PipelineStatus,
)
from headrace.model.task import ASSIGNED, ENDED, LOSSES, TaskKind, TaskStatus
from headrace.plugins.catalog import catalog
from headrace.store.jobs import cleanups, epochs, jobs, savepoints
from headrace.store.jobs.epochs import Checkpoint
from headrace.store.jobs.history import EndedRun
from headrace.store.jobs.jobs import Job
from headrace.store.jobs.savepoints import Savepoint
from headrace.store.tasks import claims, tasks
from headrace.store.tasks.claims import LatestAttempt
from headrace.store.tasks.tasks import Task

# By the names that users know.
KIND_NAMES: Mapping[EpochKind, str] = {
    EpochKind.OPENING: "save mode",
    EpochKind.CHECKPOINT: "checkpoint",
    EpochKind.SAVEPOINT: "savepoint",
    EpochKind.COMPLETED: "completed",
}
NO_MORE_ATTEMPTS = PIPELINE_ENDED | PIPELINE_ENDING  # of a pipeline in these states
STORE_IS_OLDER = "the store is older than its targets"  # E7
RESTORABLE = frozenset({JobStatus.SAVEPOINT_DONE, JobStatus.FAILED, JobStatus.CANCELED})


def view_of(
    conn: Connection,
    job: KnownJob,
    retention: Retention,
    *,
    spec: JobSpec | None = None,
    notes: Sequence[str] = (),
) -> JobView:
    """A job as it stands, or what history keeps of it.

    `spec`: to say which pipelines are repeatable; lists do without.
    """
    cleaned = isinstance(job, EndedRun)
    ended_ms = job.ended_at_ms
    history_until_ms = None if ended_ms is None else ended_ms + retention.history_expire_ms
    pipelines = _ended_pipelines(job) if cleaned else _pipelines_of(conn, job, spec)
    return JobView(
        **_common_fields(job),
        pipelines=pipelines,
        waits_for=None if cleaned else job.waits_for or _waits_for_worker(conn, job, pipelines),
        savepoint=_savepoint_of(conn, job, retention),
        notes=tuple(notes),
        cleaned=cleaned,
        cleanup=_cleanup_of(conn, job) if job.status in JOB_ENDED else None,
        history_until_ms=history_until_ms,
    )


def ended_view(ended: EndedRun) -> EndedView:
    return EndedView(
        **_common_fields(ended), pipelines=_ended_pipelines(ended), incarnation=ended.incarnation
    )


def _common_fields(job: KnownJob) -> dict[str, Any]:
    job_id = job.job_id if isinstance(job, EndedRun) else job.id
    return {
        "id": job_id,
        "name": job.name,
        "status": job.status,
        "group": job.group,
        "run": job.run,
        "error": job.error,
        "created_at_ms": job.created_at_ms,
        "started_at_ms": job.started_at_ms,
        "ended_at_ms": job.ended_at_ms,
    }


def _pipelines_of(conn: Connection, job: Job, spec: JobSpec | None) -> tuple[PipelineView, ...]:
    executions = claims.latest_attempts_of(conn, job.id)
    reasons = {p.number: not_repeatable(p) for p in spec.pipelines} if spec else {}
    settling = _settling(conn, job)
    return tuple(
        _pipeline_view(
            pipeline, executions.get(pipeline.task_id or ""), reasons, settling.get(pipeline.number)
        )
        for pipeline in jobs.pipelines_of(conn, job.id)
    )


def _waits_for_worker(conn: Connection, job: Job, pipelines: Sequence[PipelineView]) -> str | None:
    """What a job that was admitted waits for, when the workers that could run it are gone, and
    others of its group can't."""
    if job.status in JOB_ENDED or all(p.status != PipelineStatus.SCHEDULED for p in pipelines):
        return None
    for task in tasks.of_job(conn, job.id):
        if task.status is TaskStatus.PLANNED:
            return Workforce.read(conn).lacks(job.group, task.needs, task.kind)
    return None


def _settling(conn: Connection, job: Job) -> Mapping[int, AttemptView]:
    """By pipeline: the attempt to finish or abort what an ended execution left open."""
    if job.status not in ENDING:
        return {}
    executions = claims.latest_attempts_of(conn, job.id)
    attempts: dict[int, AttemptView] = {}
    for task in tasks.of_job(conn, job.id):
        if task.kind is TaskKind.SETTLE and task.pipeline is not None and task.status not in ENDED:
            open_epoch = epochs.oldest_open(conn, job.incarnation, task.pipeline)
            attempts[task.pipeline] = settle_attempt(
                executions.get(task.id), epoch=open_epoch.epoch if open_epoch else 0
            )
    return attempts


def _ended_pipelines(ended: EndedRun) -> tuple[PipelineView, ...]:
    """Positions are left out: they are for a restore, and may be long."""
    counts = ("rows_in", "rows_out", "read", "written")
    shown = ("number", "status", "epoch", *counts, "commits", "error")
    return tuple(
        PipelineView.model_validate({name: facts[name] for name in shown if name in facts})
        for facts in ended.pipelines
    )


def _pipeline_view(
    pipeline: jobs.PipelineRow,
    execution: claims.LatestAttempt | None,
    reasons: Mapping[int, str | None],
    settling: AttemptView | None,
) -> PipelineView:
    progress: Mapping[str, Any] | None = execution.progress if execution else None
    why = reasons.get(pipeline.number)
    attempt = settling
    if settling is None and execution is not None and pipeline.status not in NO_MORE_ATTEMPTS:
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
        repeatable=why is None if pipeline.number in reasons else None,
        not_repeatable=why,
    )


def _progress_view(progress: Mapping[str, Any]) -> ProgressView:
    return ProgressView(
        step=progress["step"],
        epoch=progress["epoch"],
        rows=progress["rows"],
        rows_expected=progress["rows_expected"],
    )


def next_attempt(execution: LatestAttempt, *, epoch: int) -> AttemptView | None:
    """The attempt that runs or comes next. None: no failed attempt counts any more."""
    if not execution.failures + execution.losses:
        return None
    number, most = execution.failures + 1, execution.retry_times + 1
    if execution.failure_cause in LOSSES and execution.losses:
        number, most = execution.losses + 1, execution.lost_workers_max
    elif execution.failure_cause in LOSSES:
        # The loss was forgiven, the errors before it were not; what those were is not kept.
        execution = replace(execution, failure_cause=None, error=None, failed_at_ms=None)
    return _attempt(TaskKind.PIPELINE, execution, number=number, most=most, epoch=epoch)


def settle_attempt(execution: LatestAttempt | None, *, epoch: int) -> AttemptView:
    """The attempt to settle an epoch. `execution`: None while no worker has claimed it."""
    most = SETTLE_TRIES_MAX
    if execution is None:
        return AttemptView(kind=TaskKind.SETTLE, number=1, most=most, epoch=epoch, running=False)
    number = execution.failures + 1
    return _attempt(TaskKind.SETTLE, execution, number=number, most=most, epoch=epoch)


def _attempt(
    kind: TaskKind, execution: LatestAttempt, *, number: int, most: int, epoch: int
) -> AttemptView:
    running = execution.status in ASSIGNED
    return AttemptView(
        kind=kind,
        number=number,
        most=most,
        epoch=epoch,
        running=running,
        lost=execution.failure_cause in LOSSES,
        error=execution.error,
        failed_at_ms=execution.failed_at_ms,
        next_at_ms=None if running else execution.not_before_ms or None,
    )


def _savepoint_of(conn: Connection, job: KnownJob, retention: Retention) -> SavepointView | None:
    """What the job can be restored from. While a restored job runs, that is not the savepoint it
    came from."""
    if job.status not in RESTORABLE:
        return None
    savepoint = savepoints.of_incarnation(conn, job.incarnation)
    return _savepoint_view(savepoint, retention) if savepoint else None


def _savepoint_view(savepoint: Savepoint, retention: Retention) -> SavepointView:
    return SavepointView(
        kind=KIND_NAMES[savepoint.kind],
        epoch=savepoint.epoch,
        sources=tuple(sorted(savepoint.positions)),
        ready=tuple(savepoint.ready),
        written=dict(savepoint.written),
        made_at_ms=savepoint.made_at_ms,
        expires_at_ms=savepoint.made_at_ms + retention.savepoint_expire_ms,
        refused=STORE_IS_OLDER if savepoint.store_is_older else None,
    )


def checkpoint_view(checkpoint: Checkpoint) -> CheckpointView:
    ended_ms = checkpoint.ended_at_ms
    return CheckpointView(
        pipeline=checkpoint.pipeline,
        id=checkpoint.epoch,
        kind=KIND_NAMES[checkpoint.kind],
        status=checkpoint.status,
        planned_at_ms=checkpoint.planned_at_ms,
        prepared_at_ms=checkpoint.prepared_at_ms,
        completed_at_ms=ended_ms if checkpoint.status is EpochStatus.COMPLETED else None,
        duration_ms=ended_ms - checkpoint.planned_at_ms if ended_ms is not None else None,
        size_bytes=checkpoint.size_bytes,
        rows_in=checkpoint.rows_in,
        rows_out=checkpoint.rows_out,
    )


def _cleanup_of(conn: Connection, job: KnownJob) -> CleanupView | None:
    cleanup = cleanups.get(conn, job.incarnation)
    if cleanup is None:
        return None
    asks_worker = cleanup.step is CleanupStep.TARGETS or cleanup.task_id is not None
    task = tasks.get(conn, cleanup.task_id) if cleanup.task_id is not None else None
    waits_for = _cleaner_wanted(conn, cleanup, task) if asks_worker else None
    return CleanupView(
        step=cleanup.step,
        due_at_ms=cleanup.due_at_ms,
        failures=cleanup.failures,
        error=cleanup.error or (task.error if task is not None else None),
        waits_for=waits_for,
        at_work=cleanup.wanted_at_once or (task is not None and task.status not in ENDED),
        unsettled=tuple(sorted(epochs.open_checkpoints(conn, job.incarnation))),
        secrets=tuple(cleanups.secret_names(conn, job.incarnation)),
    )


def _cleaner_wanted(conn: Connection, cleanup: cleanups.Cleanup, task: Task | None) -> str | None:
    """What a cleanup waits for, when its group has no worker that could do it."""
    workforce = Workforce.read(conn)
    if cleanup.group not in workforce:
        return f"a worker in group {cleanup.group!r}"
    if task is None or task.status is not TaskStatus.PLANNED:
        return None
    return workforce.lacks(cleanup.group, task.needs, task.kind)


def spec_or_none(conn: Connection, job_id: str) -> JobSpec | None:
    """None: a newer program wrote a spec that this one can't read; the rest can still be shown."""
    try:
        return jobs.spec_of(conn, job_id)
    except ValidationError:
        return None


def not_repeatable(pipeline: PipelineSpec) -> str | None:
    """Why a pipeline may yield other rows when an epoch is run again; None: it does not."""
    unrepeatable = [each for each in pipeline.sources if not _is_repeatable(each)]
    if not unrepeatable:
        return None
    names = ", ".join(each.name for each in unrepeatable)
    return f"{names}: what it reads may change between two reads of the same slice"


def _is_repeatable(source: PluginSpec) -> bool:
    descriptor = catalog().find("source", source.plugin)
    # A program with other plugins may have taken the job; show what can be shown.
    return descriptor is None or descriptor.capabilities.repeatable
