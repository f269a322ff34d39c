"""The end of a job: all that its last transaction leaves behind, and what it takes along (C2, C3).

Its history, its savepoint (what a restore needs), and the record of what is to be cleaned up are
written with the terminal status. So whoever sees that status finds them, whoever sees
SAVEPOINT_DONE can restore, and the next leader goes on from them. The job's secrets go with its
end, except those of its sinks: the cleanup record keeps them for as long as it exists.

The last part looks up jobs that may be gone: by their rows, or else by their history.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.workforce import Workforce
from headrace.errors import KeyRefused, NotFound, Refused
from headrace.model.jobs.epoch import EpochKind, Retention
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import FailureCause, SettleOrder, TaskKind, TaskStatus
from headrace.store.core.encryption import of_job, unseal
from headrace.store.jobs import cleanups, epochs, history, jobs, savepoints
from headrace.store.jobs.history import EndedRun
from headrace.store.jobs.jobs import Job, PipelineRow
from headrace.store.jobs.savepoints import Savepoint
from headrace.store.tasks import tasks
from headrace.store.tasks.tasks import Task

log = logging.getLogger(__name__)

KnownJob = Job | EndedRun

# By status: what is kept for a restore. After any other end there is nothing to go on with.
KEPT = {JobStatus.SAVEPOINT_DONE: EpochKind.SAVEPOINT, JobStatus.FAILED: EpochKind.CHECKPOINT}


def end_job(
    conn: Connection, job_id: str, pipelines: Sequence[PipelineRow], retention: Retention
) -> None:
    """Record the end of a job, which got its terminal status in this very transaction."""
    job = _ended_job(conn, job_id)
    keep_savepoint(conn, job, pipelines, job.status, now_ms=_ended_at_ms(job))
    _write_history(conn, job, pipelines)
    record_cleanup(conn, job, retention)


def end_job_again(conn: Connection, job: Job) -> None:
    """An epoch was settled after the end: write the savepoint and the history again."""
    pipelines = jobs.pipelines_of(conn, job.id)
    keep_savepoint(conn, job, pipelines, job.status, now_ms=_ended_at_ms(job))
    _write_history(conn, job, pipelines)


def sweep_unrecorded(conn: Connection, job: Job, retention: Retention) -> None:
    """Record the cleanup of a job that ended under an older program, or lost its record (C5)."""
    pipelines = jobs.pipelines_of(conn, job.id)
    if history.of_run(conn, job.incarnation, job.run) is None:
        _write_history(conn, job, pipelines)
    savepoint = savepoints.of_incarnation(conn, job.incarnation)
    # A savepoint without spec is of an older program, which kept these facts in the job's rows.
    if savepoint is not None and not savepoint.spec:
        savepoints.put(conn, with_restore_facts(conn, savepoint, job, pipelines))
    record_cleanup(conn, job, retention)


def _ended_job(conn: Connection, job_id: str) -> Job:
    job = jobs.get(conn, job_id)
    assert job is not None, "it was moved a moment ago, and its row is ours"
    return job


def _ended_at_ms(job: Job) -> int:
    assert job.ended_at_ms is not None, "a terminal status has its time: a constraint says so"
    return job.ended_at_ms


def _write_history(conn: Connection, job: Job, pipelines: Sequence[PipelineRow]) -> None:
    history.put(
        conn,
        EndedRun(
            incarnation=job.incarnation,
            run=job.run,
            job_id=job.id,
            submission_key=job.key,
            name=job.name,
            group=job.group,
            status=job.status,
            error=job.error,
            created_at_ms=job.created_at_ms,
            started_at_ms=job.started_at_ms,
            ended_at_ms=_ended_at_ms(job),
            spec=jobs.raw_spec(conn, job.id),
            pipelines=pipeline_facts(conn, job, pipelines),
        ),
    )


def pipeline_facts(
    conn: Connection, job: Job, pipelines: Sequence[PipelineRow]
) -> Sequence[Mapping[str, Any]]:
    """Of each pipeline what outlives its row, and why it failed, if it did."""
    causes: dict[int | None, FailureCause] = {}
    for task in tasks.of_job(conn, job.id):
        if task.status is TaskStatus.FAILED and task.failure_cause is not None:
            known = causes.get(task.pipeline)
            older = known is FailureCause.STORE_OLDER  # it wins over a later failure to settle
            causes[task.pipeline] = known if known and older else task.failure_cause
    return [{**p.as_record(), "failure_cause": causes.get(p.number)} for p in pipelines]


def record_cleanup(conn: Connection, job: Job, retention: Retention) -> bool:
    """Record that the state of an ended job is to be deleted. False: it is recorded already."""
    ended_at_ms = _ended_at_ms(job)
    added = cleanups.add(
        conn,
        job,
        due_at_ms=ended_at_ms + retention.state_cleanup_delay_ms,
        targets_due_at_ms=ended_at_ms + max(retention.marks_kept_ms, _marks_needed_ms(conn, job)),
        now_ms=ended_at_ms,
    )
    secrets = _sink_secrets(conn, job, _take_secrets(conn, job))
    if added:
        cleanups.put_secrets(conn, job.incarnation, secrets)
    return added


def _take_secrets(conn: Connection, job: Job) -> Mapping[str, Any]:
    """Remove the secrets from the job, and return them.

    A job ends also when no key can decrypt them; the cleanup of its targets then says which ones
    are missing. A job whose key is only missing right now ends in a later pass: KeyRefused rolls
    this one back.
    """
    stored = jobs.take_secrets(conn, job)
    try:
        return unseal(conn, of_job(job.incarnation), stored)
    except KeyRefused:
        raise
    except Refused as error:
        log.warning("secrets of an ended job are lost", extra={"job": job.id, "reason": str(error)})
        return {}


def _sink_secrets(conn: Connection, job: Job, secrets: Mapping[str, Any]) -> Mapping[str, Any]:
    """The secrets of sinks, which the cleanup still needs: others should be kept no longer."""
    if not secrets:
        return secrets
    try:
        spec = jobs.spec_of(conn, job.id)
    except ValidationError:  # a newer program wrote it, and will need all of the secrets
        return secrets
    sinks = tuple(f"{sink.name}." for pipeline in spec.pipelines for sink in pipeline.sinks)
    return {path: value for path, value in secrets.items() if path.startswith(sinks)}


def _marks_needed_ms(conn: Connection, job: Job) -> int:
    """How long marks are needed for the deadlines in its tasks, which another leader's settings may
    have made longer."""
    orders = [SettleOrder.of(task.payload) for task in tasks.of_job(conn, job.id)]
    return round(2000 * max((order.commit_deadline_s for order in orders), default=0.0))


def is_saved(conn: Connection, job: Job, pipelines: Sequence[PipelineRow]) -> bool:
    """Whether all its pipelines have ended, and one of them did so with a savepoint."""
    if not job.wanted_savepoint or any(p.status is not PipelineStatus.FINISHED for p in pipelines):
        return False
    kinds = {epochs.kind_of(conn, job.incarnation, p.number, p.epoch) for p in pipelines}
    return EpochKind.SAVEPOINT in kinds


def saving_waits_for(job: Job, job_tasks: Sequence[Task], workforce: Workforce) -> str | None:
    """What a job that is to end with a savepoint waits for: a worker, when its group has none that
    can run it."""
    waiting = [
        task
        for task in job_tasks
        if task.kind is TaskKind.PIPELINE and task.status is TaskStatus.PLANNED
    ]
    if not waiting:
        return None
    if job.group in workforce:
        return workforce.lacks(job.group, waiting[0].needs)
    return (
        f"a worker in group {job.group!r} to finish pipeline {waiting[0].pipeline} "
        "for its savepoint"
    )


def keep_savepoint(
    conn: Connection, job: Job, pipelines: Sequence[PipelineRow], end: JobStatus, *, now_ms: int
) -> None:
    """Keep a savepoint if the job can be restored; forget what only a running job needs."""
    kind = KEPT.get(end)
    if kind is EpochKind.SAVEPOINT or (kind and any(p.epoch > 0 for p in pipelines)):
        savepoints.put(conn, _savepoint(conn, job, pipelines, kind, now_ms=now_ms))
    elif not _never_began(pipelines, end):
        savepoints.delete_savepoint(conn, job.incarnation)
    elif any(task.kind is TaskKind.SETTLE for task in tasks.of_job(conn, job.id)):
        _keep_settled(conn, job, pipelines, now_ms=now_ms)
    # A restore may resume an epoch that could not be settled, with the sources ready in it.
    left_open = epochs.open_checkpoints(conn, job.incarnation)
    epochs.forget_ready(conn, job.incarnation, but=left_open.keys())


def _never_began(pipelines: Sequence[PipelineRow], end: JobStatus) -> bool:
    """Whether this is a restored job, canceled while it waited: its savepoint stays as it was."""
    return end is JobStatus.CANCELED and all(p.task_id is None for p in pipelines)


def _keep_settled(
    conn: Connection, job: Job, pipelines: Sequence[PipelineRow], *, now_ms: int
) -> None:
    """Add to the savepoint what was committed since: a settle task finished prepared epochs before
    the restored job began, and their rows must not be read again."""
    if (savepoint := savepoints.of_incarnation(conn, job.incarnation)) is None:
        return
    now = _savepoint(conn, job, pipelines, savepoint.kind, now_ms=now_ms)
    positions, written = (
        {**savepoint.positions, **now.positions},
        {**savepoint.written, **now.written},
    )
    ready = sorted({*savepoint.ready, *now.ready})
    savepoints.put(conn, replace(now, positions=positions, written=written, ready=ready))


def _savepoint(
    conn: Connection, job: Job, pipelines: Sequence[PipelineRow], kind: EpochKind, *, now_ms: int
) -> Savepoint:
    ready = {
        source
        for p in pipelines
        for source in epochs.ready_by(conn, job.incarnation, p.number, p.epoch)
    }
    before = savepoints.of_incarnation(conn, job.incarnation)
    if before is not None and before.run == job.run:  # the rows that said so are gone by now
        ready |= set(before.ready)
    return Savepoint(
        incarnation=job.incarnation,
        job_id=job.id,
        kind=kind,
        epoch=max(p.epoch for p in pipelines),
        positions={source: at for p in pipelines for source, at in p.positions.items()},
        ready=sorted(ready),
        written={sink: rows for p in pipelines for sink, rows in p.written.items()},
        made_at_ms=now_ms,
        **_restore_facts(conn, job, pipelines),
    )


def with_restore_facts(
    conn: Connection, savepoint: Savepoint, job: Job, pipelines: Sequence[PipelineRow]
) -> Savepoint:
    """The same savepoint, with all that a restore needs once the job's rows are gone."""
    return replace(savepoint, **_restore_facts(conn, job, pipelines))


def _restore_facts(conn: Connection, job: Job, pipelines: Sequence[PipelineRow]) -> dict[str, Any]:
    highest = {p.number: epochs.highest(conn, job.incarnation, p.number) for p in pipelines}
    return {
        "name": job.name,
        "group": job.group,
        "run": job.run,
        "spec": jobs.raw_spec(conn, job.id),
        "pipelines": [
            {**facts, "completed_epoch": p.completed_epoch, "highest": highest[p.number]}
            for p, facts in zip(pipelines, pipeline_facts(conn, job, pipelines), strict=True)
        ],
    }


def known_job(conn: Connection, job_id: str) -> KnownJob:
    """The job; once its rows are gone, how the last job under this id ended. NotFound: neither."""
    job = jobs.get(conn, job_id) or history.latest(conn, job_id)
    if job is None:
        raise NotFound("job", job_id)
    return job


def submitted_before(conn: Connection, key: str) -> KnownJob | None:
    """The job that was submitted under this key, in whatever state it is (C6)."""
    if (job := jobs.by_submission_key(conn, key)) is not None:
        return job
    past = history.by_key(conn, key)
    return past and current_job(conn, past)


def current_job(conn: Connection, past: EndedRun) -> KnownJob:
    """The job of which `past` was a run, as it is by now."""
    job = jobs.get(conn, past.job_id)
    if job is not None and job.incarnation == past.incarnation:
        return job
    return history.latest_run(conn, past.incarnation) or past
