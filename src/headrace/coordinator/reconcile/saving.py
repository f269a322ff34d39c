"""Savepoints, as the leader sees them: who ended with one, and what is kept of a job that ended.

What is kept goes into the transaction that ends the job: whoever sees SAVEPOINT_DONE can restore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from headrace.model.epoch import EpochKind
from headrace.model.job import JobStatus, PipelineStatus
from headrace.model.task import FailureCause, TaskKind, TaskStatus
from headrace.store import checkpoints, epochs, jobs, ready, savepoints, tasks, workers
from headrace.store.jobs import Job, Pipeline
from headrace.store.savepoints import Savepoint
from headrace.store.tasks import Task

# What of a job that ended so is kept. Of any other nothing is: there is nothing to go on with.
KEPT = {JobStatus.SAVEPOINT_DONE: EpochKind.SAVEPOINT, JobStatus.FAILED: EpochKind.CHECKPOINT}


def is_saved(conn: Connection, job: Job, pipelines: Sequence[Pipeline]) -> bool:
    """Whether all its pipelines have ended, and one of them did so with a savepoint."""
    if not job.wanted_savepoint or any(p.status is not PipelineStatus.FINISHED for p in pipelines):
        return False
    kinds = {checkpoints.kind_of(conn, job.incarnation, p.number, p.epoch) for p in pipelines}
    return EpochKind.SAVEPOINT in kinds


def keep(
    conn: Connection, job: Job, pipelines: Sequence[Pipeline], end: JobStatus, *, now_ms: int
) -> None:
    """Keep where the job can be restored, if it can; forget what only a running job needs."""
    kind = KEPT.get(end)
    if kind is EpochKind.SAVEPOINT or (kind and any(p.epoch > 0 for p in pipelines)):
        savepoints.put(conn, _savepoint(conn, job, pipelines, kind, now_ms=now_ms))
    elif not _never_began(pipelines, end):
        savepoints.delete(conn, job.incarnation)
    elif any(task.kind is TaskKind.SETTLE for task in tasks.of_job(conn, job.id)):
        _keep_settled(conn, job, pipelines, now_ms=now_ms)
    # An epoch that could not be settled may be resumed by a restore, with who was ready in it.
    left_open = checkpoints.open_ones(conn, job.incarnation)
    ready.forget(conn, job.incarnation, but=left_open.keys())


def _never_began(pipelines: Sequence[Pipeline], end: JobStatus) -> bool:
    """A restored job that was cancelled while it waited: it left its savepoint as it was."""
    return end is JobStatus.CANCELED and all(p.task_id is None for p in pipelines)


def _keep_settled(
    conn: Connection, job: Job, pipelines: Sequence[Pipeline], *, now_ms: int
) -> None:
    """Before it could begin, what it was restored with was committed: that is not read again."""
    if (made := savepoints.of(conn, job.incarnation)) is None:
        return
    now = _savepoint(conn, job, pipelines, made.kind, now_ms=now_ms)
    positions, written = {**made.positions, **now.positions}, {**made.written, **now.written}
    read = sorted({*made.ready, *now.ready})
    savepoints.put(conn, replace(now, positions=positions, written=written, ready=read))


def _savepoint(
    conn: Connection, job: Job, pipelines: Sequence[Pipeline], kind: EpochKind, *, now_ms: int
) -> Savepoint:
    read = {
        source
        for p in pipelines
        for source in checkpoints.ready_by(conn, job.incarnation, p.number, p.epoch)
    }
    before = savepoints.of(conn, job.incarnation)
    if before is not None and before.run == job.run:  # the rows of these are gone by now
        read |= set(before.ready)
    return Savepoint(
        incarnation=job.incarnation,
        job_id=job.id,
        kind=kind,
        epoch=max(p.epoch for p in pipelines),
        positions={source: at for p in pipelines for source, at in p.positions.items()},
        ready=sorted(read),
        written={sink: rows for p in pipelines for sink, rows in p.written.items()},
        made_at_ms=now_ms,
        **_of_rows(conn, job, pipelines),
    )


def completed(
    conn: Connection, made: Savepoint, job: Job, pipelines: Sequence[Pipeline]
) -> Savepoint:
    """The same, with all that a restore asks for once the job's rows are gone."""
    return replace(made, **_of_rows(conn, job, pipelines))


def _of_rows(conn: Connection, job: Job, pipelines: Sequence[Pipeline]) -> dict[str, Any]:
    highest = {p.number: epochs.highest(conn, job.incarnation, p.number) for p in pipelines}
    return {
        "name": job.name,
        "group": job.group,
        "run": job.run,
        "spec": jobs.raw_spec(conn, job.id),
        "pipelines": [
            {**facts, "completed_epoch": p.completed_epoch, "highest": highest[p.number]}
            for p, facts in zip(pipelines, facts_of(conn, job, pipelines), strict=True)
        ],
    }


def facts_of(
    conn: Connection, job: Job, pipelines: Sequence[Pipeline]
) -> Sequence[Mapping[str, Any]]:
    """Of each pipeline what outlives its row, and why it failed, as far as it did."""
    causes: dict[int | None, FailureCause] = {}
    for task in tasks.of_job(conn, job.id):
        if task.status is TaskStatus.FAILED and task.failure_cause is not None:
            known = causes.get(task.pipeline)
            older = known is FailureCause.STORE_OLDER  # also when what it left is not settled
            causes[task.pipeline] = known if known and older else task.failure_cause
    return [{**p.facts(), "failure_cause": causes.get(p.number)} for p in pipelines]


def saving_waits_for(conn: Connection, job: Job, given: Sequence[Task]) -> str | None:
    """What a job waits for that is to end with a savepoint: a worker, when there is none."""
    waiting = [
        task
        for task in given
        if task.kind is TaskKind.PIPELINE and task.status is TaskStatus.PLANNED
    ]
    if not waiting or job.group in workers.slots_by_group(conn):
        return None
    return (
        f"a worker in group {job.group!r} to finish pipeline {waiting[0].pipeline} "
        "for its savepoint"
    )
