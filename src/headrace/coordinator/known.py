"""A job that may be gone: what there is of it, rows or history."""

from __future__ import annotations

from sqlalchemy import Connection

from headrace.errors import NotFound
from headrace.store import history, jobs
from headrace.store.history import Ended
from headrace.store.jobs import Job

Known = Job | Ended


def known_job(conn: Connection, job_id: str) -> Known:
    """The job; once its rows are gone, how the last job under this id ended."""
    found = jobs.get(conn, job_id) or history.latest(conn, job_id)
    if found is None:
        raise NotFound("job", job_id)
    return found


def submitted_before(conn: Connection, key: str) -> Known | None:
    """The job that was submitted under this key, in whatever state it is (C6)."""
    if (job := jobs.by_submission_key(conn, key)) is not None:
        return job
    past = history.by_key(conn, key)
    return past and now_of(conn, past)


def now_of(conn: Connection, past: Ended) -> Known:
    """What there is by now of the job of which that was a run."""
    job = jobs.get(conn, past.job_id)
    if job is not None and job.incarnation == past.incarnation:
        return job
    return history.latest_run(conn, past.incarnation) or past
