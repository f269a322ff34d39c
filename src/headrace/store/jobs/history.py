"""History: how each run of a job ended. Of most jobs it is all that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from headrace.model.jobs.status import JobStatus
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.jobs.schema import history

EXPIRED_AT_ONCE_MAX = 1_000  # runs in one transaction, and all of the last one's millisecond


@dataclass(frozen=True, slots=True)
class EndedRun:
    """One run of a job, as it ended. A restore is another run of the same incarnation."""

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
        """The job's id, under the name that a Job has for it."""
        return self.job_id


_LATEST_FIRST = (history.c.ended_at_ms.desc(), history.c.run.desc(), history.c.incarnation)
_OF_JOB = PreparedStatement(
    select(history)
    .where(history.c.job_id == bindparam("of"))
    .order_by(*_LATEST_FIRST)
    .limit(bindparam("most"))
)
_BY_KEY = PreparedStatement(
    select(history)
    .where(history.c.submission_key == bindparam("key"))
    .order_by(*_LATEST_FIRST)
    .limit(1)
)
_THIS_RUN = (history.c.incarnation == bindparam("of"), history.c.run == bindparam("nth"))
_OF_RUN = PreparedStatement(select(history).where(*_THIS_RUN))
_REMOVE = PreparedStatement(delete(history).where(*_THIS_RUN))
_LATEST_RUN = PreparedStatement(
    select(history)
    .where(history.c.incarnation == bindparam("of"))
    .order_by(history.c.run.desc())
    .limit(1)
)
_EXPIRE = PreparedStatement(delete(history).where(history.c.ended_at_ms <= bindparam("until_ms")))
_OLDEST = PreparedStatement(
    select(history.c.ended_at_ms)
    .where(history.c.ended_at_ms <= bindparam("until_ms"))
    .order_by(history.c.ended_at_ms)
    .limit(1)
    .offset(bindparam("skipped"))
)


def _to_ended(row: Sequence[Any]) -> EndedRun:
    incarnation, run, job_id, key, name, group, status, *rest = row
    return EndedRun(incarnation, run, job_id, key, name, group, JobStatus(status), *rest)


def put(conn: Connection, ended: EndedRun) -> None:
    """Write how a run ended, in place of what was known of it: an epoch may be settled after the
    end."""
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


def of_job(conn: Connection, job_id: str, *, most: int) -> Sequence[EndedRun]:
    """All runs under this id, the latest first, including those of jobs that had the id before."""
    return [_to_ended(row) for row in _OF_JOB.rows(conn, {"of": job_id, "most": most})]


def latest(conn: Connection, job_id: str) -> EndedRun | None:
    return next(iter(of_job(conn, job_id, most=1)), None)


def by_key(conn: Connection, key: str) -> EndedRun | None:
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
) -> Sequence[EndedRun]:
    """Runs that match, the latest first."""
    query = select(history).order_by(*_LATEST_FIRST).limit(most)
    if job_id is not None:
        query = query.where(history.c.job_id == job_id)
    if status is not None:
        query = query.where(history.c.status == status)
    if name is not None:
        query = query.where(history.c.name == name)
    return [_to_ended(row) for row in conn.execute(query)]


def of_run(conn: Connection, incarnation: str, run: int) -> EndedRun | None:
    row = _OF_RUN.row(conn, {"of": incarnation, "nth": run})
    return _to_ended(row) if row else None


def latest_run(conn: Connection, incarnation: str) -> EndedRun | None:
    row = _LATEST_RUN.row(conn, {"of": incarnation})
    return _to_ended(row) if row else None


def any_expired(conn: Connection, *, until_ms: int) -> bool:
    return _OLDEST.row(conn, {"until_ms": until_ms, "skipped": 0}) is not None


def expire(conn: Connection, *, until_ms: int) -> int:
    """Delete the oldest runs that ended by then, as many as one transaction may. Returns how
    many."""
    batch = {"until_ms": until_ms, "skipped": EXPIRED_AT_ONCE_MAX - 1}
    (last_ms,) = _OLDEST.row(conn, batch) or (until_ms,)
    return _EXPIRE.change(conn, {"until_ms": last_ms})
