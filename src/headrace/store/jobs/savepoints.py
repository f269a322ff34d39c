"""Savepoints: where a stopped or failed job can go on. `store/jobs/restore.py` begins it again.

There is one savepoint for each incarnation, the latest. A savepoint, and the last checkpoint of a
failed job, outlive the cleanup of the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, insert, not_, select
from sqlalchemy import delete as delete_from

from headrace.model.jobs.epoch import EpochKind
from headrace.model.task import FailureCause
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.jobs.schema import OPEN_JOB, jobs, savepoints


@dataclass(frozen=True, slots=True)
class Savepoint:
    """Where a stopped or failed job can be restored."""

    incarnation: str
    job_id: str
    kind: EpochKind  # SAVEPOINT, or the last CHECKPOINT of a failed job
    epoch: int  # the highest of any of its pipelines
    positions: Mapping[str, Any]  # by source name
    ready: Sequence[str]  # names of sources that have read everything
    written: Mapping[str, int]  # rows, by sink name
    made_at_ms: int
    name: str
    group: str
    run: int  # the one that made it
    spec: Mapping[str, Any]  # without secrets
    # As they ended, with `failure_cause`, and `highest`: no epoch id up to that is used again, not
    # even an aborted one.
    pipelines: Sequence[Mapping[str, Any]]

    @property
    def store_is_older(self) -> bool:
        """Whether the job ended because its targets know more than the store (E7). They stop a
        restore in the same way, until a newer copy of the store takes this one's place."""
        causes = {pipeline.get("failure_cause") for pipeline in self.pipelines}
        return FailureCause.STORE_OLDER in causes


_DELETE = PreparedStatement(
    delete_from(savepoints).where(savepoints.c.incarnation == bindparam("of"))
)
_DELETE_ALL = PreparedStatement(
    delete_from(savepoints).where(savepoints.c.job_id == bindparam("of"))
)
_LATEST_FIRST = (savepoints.c.made_at_ms.desc(), savepoints.c.incarnation)
_LATEST = (
    select(savepoints)
    .where(savepoints.c.job_id == bindparam("of"))
    .order_by(*_LATEST_FIRST)
    .limit(1)
)
_LATEST_OF_JOB, _LATEST_LOCKED = (
    PreparedStatement(_LATEST),
    PreparedStatement(_LATEST.with_for_update()),
)
_OF_INCARNATION = PreparedStatement(
    select(savepoints).where(savepoints.c.incarnation == bindparam("of"))
)
# Only of jobs that are not open: an open job replaces or drops its savepoint itself.
_EXPIRED = (
    savepoints.c.made_at_ms <= bindparam("until_ms"),
    not_(
        select(jobs.c.id).where(jobs.c.incarnation == savepoints.c.incarnation, OPEN_JOB).exists()
    ),
)
_ANY_EXPIRED = PreparedStatement(select(savepoints.c.incarnation).where(*_EXPIRED).limit(1))
_EXPIRE = PreparedStatement(delete_from(savepoints).where(*_EXPIRED))


def put(conn: Connection, savepoint: Savepoint) -> None:
    """Keep the savepoint, in place of an earlier one of the same incarnation."""
    delete_savepoint(conn, savepoint.incarnation)
    values = asdict(savepoint)
    values["group_name"] = values.pop("group")
    conn.execute(insert(savepoints).values(**values))


def get(conn: Connection, job_id: str) -> Savepoint | None:
    """The latest savepoint of any job that had this id."""
    row = _LATEST_OF_JOB.row(conn, {"of": job_id})
    return _to_savepoint(row) if row else None


def lock(conn: Connection, job_id: str) -> Savepoint | None:
    """Like `get`; nobody else restores from it until the transaction ends."""
    row = _LATEST_LOCKED.row(conn, {"of": job_id})
    return _to_savepoint(row) if row else None


def of_incarnation(conn: Connection, incarnation: str) -> Savepoint | None:
    """The savepoint of this incarnation."""
    row = _OF_INCARNATION.row(conn, {"of": incarnation})
    return _to_savepoint(row) if row else None


def _to_savepoint(row: Sequence[Any]) -> Savepoint:
    incarnation, job_id, kind, *rest = row
    return Savepoint(incarnation, job_id, EpochKind(kind), *rest)


def delete_all(conn: Connection, job_id: str) -> int:
    """Delete the savepoints of every job that had this id. Returns how many there were."""
    return _DELETE_ALL.change(conn, {"of": job_id})


def any_expired(conn: Connection, *, until_ms: int) -> bool:
    return _ANY_EXPIRED.row(conn, {"until_ms": until_ms}) is not None


def expire(conn: Connection, *, until_ms: int) -> int:
    """Delete savepoints that were made by then. Returns how many there were."""
    return _EXPIRE.change(conn, {"until_ms": until_ms})


def delete_savepoint(conn: Connection, incarnation: str) -> None:
    _DELETE.change(conn, {"of": incarnation})
