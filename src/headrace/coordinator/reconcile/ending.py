"""The end of a job: all that its last transaction leaves behind (C2, C3), and what it takes along.

Its history, what a restore needs, and the record of what is to be deleted are written with the
terminal status, so whoever sees that status finds them, and whoever leads next goes on from them.
Secrets go with it, but for those of the sinks: the record has them for as long as it stands.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.reconcile.saving import completed, facts_of, keep
from headrace.errors import KeyRefused, Refused
from headrace.model.cleanup import Retention
from headrace.store import cleanups, history, jobs, savepoints, tasks
from headrace.store.history import Ended
from headrace.store.jobs import Job, Pipeline
from headrace.store.sealed import of_job, unseal

log = logging.getLogger(__name__)


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
    added = cleanups.add(
        conn,
        job,
        due_at_ms=ended_at_ms + retention.state_cleanup_delay_ms,
        targets_due_at_ms=ended_at_ms + max(retention.marks_kept_ms, _marks_needed_ms(conn, job)),
        now_ms=ended_at_ms,
    )
    secrets = _sink_secrets(conn, job, _taken(conn, job))
    if added:
        cleanups.put_secrets(conn, job.incarnation, secrets)
    return added


def _taken(conn: Connection, job: Job) -> Mapping[str, Any]:
    """Its secrets, which the job has no longer. A job ends also when no key can decrypt them: the
    cleanup of its targets then says which ones are missing. One whose key is only missing right now
    ends at a later pass: KeyRefused undoes this one."""
    stored = jobs.take_secrets(conn, job)
    try:
        return unseal(conn, of_job(job.incarnation), stored)
    except KeyRefused:
        raise
    except Refused as error:
        log.warning("secrets of an ended job are lost", extra={"job": job.id, "reason": str(error)})
        return {}


def _sink_secrets(conn: Connection, job: Job, secrets: Mapping[str, Any]) -> Mapping[str, Any]:
    """Those that are still needed: the shorter a secret is kept, the better."""
    if not secrets:
        return secrets
    try:
        spec = jobs.spec_of(conn, job.id)
    except ValidationError:  # of a newer program, which may read it: but not without its secrets
        return secrets
    sinks = tuple(f"{sink.name}." for pipeline in spec.pipelines for sink in pipeline.sinks)
    return {path: value for path, value in secrets.items() if path.startswith(sinks)}


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
            pipelines=facts_of(conn, job, pipelines),
        ),
    )
