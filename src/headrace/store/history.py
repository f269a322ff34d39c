"""History: how each run of a job ended. Most of the time it is all that is left of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from headrace.model.job import JobStatus
from headrace.store.prepared import Prepared
from headrace.store.schema import history


@dataclass(frozen=True, slots=True)
class Ended:
    """One run of a job, as it ended. A restore is a further run of the same incarnation."""

    incarnation: str
    run: int
    job_id: str
    submission_key: str
    name: str
    group: str
    status: JobStatus
    error: str | None
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int
    spec: Mapping[str, Any]  # without secrets
    # Each: number, status, epoch, positions, rows_in, rows_out, commits, written, read, error,
    # failure_cause.
    pipelines: Sequence[Mapping[str, Any]]

    @property
    def id(self) -> str:
        """As a job has it."""
        return self.job_id


_LATEST_FIRST = (history.c.ended_at_ms.desc(), history.c.run.desc(), history.c.incarnation)
_OF_JOB = Prepared(
    select(history)
    .where(history.c.job_id == bindparam("of"))
    .order_by(*_LATEST_FIRST)
    .limit(bindparam("most"))
)
_BY_KEY = Prepared(
    select(history)
    .where(history.c.submission_key == bindparam("key"))
    .order_by(*_LATEST_FIRST)
    .limit(1)
)
_THIS_RUN = (history.c.incarnation == bindparam("of"), history.c.run == bindparam("nth"))
_OF_RUN = Prepared(select(history).where(*_THIS_RUN))
_REMOVE = Prepared(delete(history).where(*_THIS_RUN))
_LATEST_RUN = Prepared(
    select(history)
    .where(history.c.incarnation == bindparam("of"))
    .order_by(history.c.run.desc())
    .limit(1)
)
_EXPIRE = Prepared(delete(history).where(history.c.ended_at_ms <= bindparam("until_ms")))
_OLDEST = Prepared(
    select(history.c.ended_at_ms)
    .where(history.c.ended_at_ms <= bindparam("until_ms"))
    .order_by(history.c.ended_at_ms)
    .limit(1)
    .offset(bindparam("skipped"))
)
EXPIRED_AT_ONCE_MAX = 1_000  # runs in one transaction, and those of the same millisecond


def _to_ended(row: Sequence[Any]) -> Ended:
    incarnation, run, job_id, key, name, group, status, *rest = row
    return Ended(incarnation, run, job_id, key, name, group, JobStatus(status), *rest)


def put(conn: Connection, ended: Ended) -> None:
    """Write it, in place of what was known of this run: an epoch may be settled after the end."""
    _REMOVE.change(conn, {"of": ended.incarnation, "nth": ended.run})
    conn.execute(
        insert(history).values(
            incarnation=ended.incarnation,
            run=ended.run,
            job_id=ended.job_id,
            submission_key=ended.submission_key,
            name=ended.name,
            group_name=ended.group,
            status=ended.status,
            error=ended.error,
            created_at_ms=ended.created_at_ms,
            started_at_ms=ended.started_at_ms,
            ended_at_ms=ended.ended_at_ms,
            spec=dict(ended.spec),
            pipelines=[dict(each) for each in ended.pipelines],
        )
    )


def of_job(conn: Connection, job_id: str, *, most: int) -> Sequence[Ended]:
    """All runs under this id, the latest first: also of jobs that had the id before."""
    return [_to_ended(row) for row in _OF_JOB.rows(conn, {"of": job_id, "most": most})]


def latest(conn: Connection, job_id: str) -> Ended | None:
    return next(iter(of_job(conn, job_id, most=1)), None)


def by_key(conn: Connection, key: str) -> Ended | None:
    """The run that was submitted, or restored, under this key."""
    row = _BY_KEY.row(conn, {"key": key})
    return _to_ended(row) if row else None


def listed(
    conn: Connection,
    *,
    most: int,
    job_id: str | None = None,
    status: JobStatus | None = None,
    name: str | None = None,
) -> Sequence[Ended]:
    """The latest first."""
    query = select(history).order_by(*_LATEST_FIRST).limit(most)
    if job_id is not None:
        query = query.where(history.c.job_id == job_id)
    if status is not None:
        query = query.where(history.c.status == status)
    if name is not None:
        query = query.where(history.c.name == name)
    return [_to_ended(row) for row in conn.execute(query)]


def of_run(conn: Connection, incarnation: str, run: int) -> Ended | None:
    row = _OF_RUN.row(conn, {"of": incarnation, "nth": run})
    return _to_ended(row) if row else None


def latest_run(conn: Connection, incarnation: str) -> Ended | None:
    row = _LATEST_RUN.row(conn, {"of": incarnation})
    return _to_ended(row) if row else None


def any_expired(conn: Connection, *, until_ms: int) -> bool:
    return _OLDEST.row(conn, {"until_ms": until_ms, "skipped": 0}) is not None


def expire(conn: Connection, *, until_ms: int) -> int:
    """Forget the oldest of what ended by then, as many as go at once. Returns how many."""
    batch = {"until_ms": until_ms, "skipped": EXPIRED_AT_ONCE_MAX - 1}
    (last_ms,) = _OLDEST.row(conn, batch) or (until_ms,)
    return _EXPIRE.change(conn, {"until_ms": last_ms})
