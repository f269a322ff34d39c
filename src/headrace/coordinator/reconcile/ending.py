"""The end of a job: all that its last transaction leaves behind (C2, C3).

Its history, what a restore needs, and the record of what is to be deleted are written with the
terminal status, so whoever sees that status finds them, and whoever leads next goes on from them.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from headrace.coordinator.reconcile.saving import completed, keep
from headrace.model.cleanup import Retention
from headrace.store import cleanups, history, jobs, savepoints, tasks
from headrace.store.history import Ended
from headrace.store.jobs import Job, Pipeline


def end(conn: Connection, job_id: str, pipelines: Sequence[Pipeline], retention: Retention) -> None:
    """The job has its terminal status by now, in this very transaction."""
    job = _ended(conn, job_id)
    keep(conn, job, pipelines, job.status, now_ms=_ended_at_ms(job))
    _tell_history(conn, job, pipelines)
    record_cleanup(conn, job, retention)


def end_again(conn: Connection, job: Job) -> None:
    """An epoch was settled after the end: what was kept and told of the job is told anew."""
    pipelines = jobs.pipelines_of(conn, job.id)
    keep(conn, job, pipelines, job.status, now_ms=_ended_at_ms(job))
    _tell_history(conn, job, pipelines)


def record_cleanup(conn: Connection, job: Job, retention: Retention) -> bool:
    """Record that the state of a job that has ended is to go. False: it is recorded already."""
    ended_at_ms = _ended_at_ms(job)
    return cleanups.add(
        conn,
        job,
        due_at_ms=ended_at_ms + retention.state_cleanup_delay_ms,
        targets_due_at_ms=ended_at_ms + max(retention.marks_kept_ms, _marks_needed_ms(conn, job)),
        now_ms=ended_at_ms,
    )


def _marks_needed_ms(conn: Connection, job: Job) -> int:
    """Its tasks may have been given a longer deadline, by a leader that was told another one."""
    given_s = [float(t.payload.get("commit_deadline_s", 0)) for t in tasks.of_job(conn, job.id)]
    return round(2000 * max(given_s, default=0.0))


def sweep_unrecorded(conn: Connection, job: Job, retention: Retention) -> None:
    """A job that ended under an older program, or of which the record was lost (C5)."""
    pipelines = jobs.pipelines_of(conn, job.id)
    if history.of_run(conn, job.incarnation, job.run) is None:
        _tell_history(conn, job, pipelines)
    made = savepoints.of(conn, job.incarnation)
    if made is not None and not made.spec:  # of an older program, which kept it with the rows
        savepoints.put(conn, completed(conn, made, job, pipelines))
    record_cleanup(conn, job, retention)


def _ended(conn: Connection, job_id: str) -> Job:
    job = jobs.get(conn, job_id)
    assert job is not None, "it was moved a moment ago, and its row is ours"
    return job


def _ended_at_ms(job: Job) -> int:
    assert job.ended_at_ms is not None, "a terminal status has its time: a constraint says so"
    return job.ended_at_ms


def _tell_history(conn: Connection, job: Job, pipelines: Sequence[Pipeline]) -> None:
    history.put(
        conn,
        Ended(
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
            pipelines=[p.facts() for p in pipelines],
        ),
    )
