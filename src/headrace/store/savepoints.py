"""Savepoints: where a stopped job can be restored. One for each incarnation, the latest.

A savepoint, and the last checkpoint of a failed job, outlive what is cleaned up of a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, insert, not_, select, update
from sqlalchemy import delete as delete_from

from headrace.model.epoch import EpochKind
from headrace.model.task import ENDED, FailureCause, TaskKind
from headrace.store.prepared import Prepared
from headrace.store.schema import OPEN_JOB, jobs, savepoints, tasks

MARK = "savepoint"  # in the payload of a task: its execution is to end with a savepoint


@dataclass(frozen=True, slots=True)
class Savepoint:
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
    run: int  # that made it
    spec: Mapping[str, Any]  # without secrets
    # As they ended, with `failure_cause`, and `highest`: no id up to that is used again, also one
    # that was aborted.
    pipelines: Sequence[Mapping[str, Any]]

    @property
    def store_is_older(self) -> bool:
        """Whether the job ended because its targets know more than the store (E7). A restore is
        stopped by them in the same way, until a newer copy of the store takes this one's place."""
        causes = {facts.get("failure_cause") for facts in self.pipelines}
        return FailureCause.STORE_OLDER in causes


_DELETE = Prepared(delete_from(savepoints).where(savepoints.c.incarnation == bindparam("of")))
_DELETE_ALL = Prepared(delete_from(savepoints).where(savepoints.c.job_id == bindparam("of")))
_LATEST_FIRST = (savepoints.c.made_at_ms.desc(), savepoints.c.incarnation)
_LATEST = (
    select(savepoints)
    .where(savepoints.c.job_id == bindparam("of"))
    .order_by(*_LATEST_FIRST)
    .limit(1)
)
_OF_JOB, _LOCKED = Prepared(_LATEST), Prepared(_LATEST.with_for_update())
_OF = Prepared(select(savepoints).where(savepoints.c.incarnation == bindparam("of")))
# Of a job that runs again it is its job's to replace or to drop.
_EXPIRED = (
    savepoints.c.made_at_ms <= bindparam("until_ms"),
    not_(
        select(jobs.c.id).where(jobs.c.incarnation == savepoints.c.incarnation, OPEN_JOB).exists()
    ),
)
_ANY_EXPIRED = Prepared(select(savepoints.c.incarnation).where(*_EXPIRED).limit(1))
_EXPIRE = Prepared(delete_from(savepoints).where(*_EXPIRED))


def put(conn: Connection, made: Savepoint) -> None:
    """Keep it, in place of an earlier one of the same incarnation."""
    delete(conn, made.incarnation)
    values = asdict(made)
    values["group_name"] = values.pop("group")
    conn.execute(insert(savepoints).values(**values))


def get(conn: Connection, job_id: str) -> Savepoint | None:
    """The latest of any job that had this id."""
    row = _OF_JOB.row(conn, {"of": job_id})
    return _to_savepoint(row) if row else None


def lock(conn: Connection, job_id: str) -> Savepoint | None:
    """As `get`; nobody else restores from it until the transaction ends."""
    row = _LOCKED.row(conn, {"of": job_id})
    return _to_savepoint(row) if row else None


def of(conn: Connection, incarnation: str) -> Savepoint | None:
    row = _OF.row(conn, {"of": incarnation})
    return _to_savepoint(row) if row else None


def _to_savepoint(row: Sequence[Any]) -> Savepoint:
    incarnation, job_id, kind, *rest = row
    return Savepoint(incarnation, job_id, EpochKind(kind), *rest)


def delete_all(conn: Connection, job_id: str) -> int:
    """Of every job that had this id. Returns how many there were."""
    return _DELETE_ALL.change(conn, {"of": job_id})


def any_expired(conn: Connection, *, until_ms: int) -> bool:
    return _ANY_EXPIRED.row(conn, {"until_ms": until_ms}) is not None


def expire(conn: Connection, *, until_ms: int) -> int:
    """Forget those made by then. Returns how many there were."""
    return _EXPIRE.change(conn, {"until_ms": until_ms})


def delete(conn: Connection, incarnation: str) -> None:
    _DELETE.change(conn, {"of": incarnation})


# In order, as a sync that speaks of several tasks locks them: two orders would be a deadlock.
_OPEN_TASKS = Prepared(
    select(tasks.c.id, tasks.c.payload, tasks.c.worker_id)
    .where(
        tasks.c.job_id == bindparam("of"),
        tasks.c.kind == TaskKind.PIPELINE,
        *(tasks.c.status != ended for ended in sorted(ENDED)),
    )
    .order_by(tasks.c.id)
    .with_for_update()
)
_MARK = Prepared(
    update(tasks).where(tasks.c.id == bindparam("task")).values(payload=bindparam("marked"))
)


def mark_tasks(conn: Connection, job_id: str) -> Sequence[str]:
    """Have the job's pipelines end with a savepoint; return the workers that hold one.

    The mark stands in the payload, which every sync reads anyway. A task that nobody holds is
    still given to a worker: it may have an epoch to finish first.
    """
    found = _OPEN_TASKS.rows(conn, {"of": job_id})
    for task, payload, _ in found:
        _MARK.change(conn, {"task": task, "marked": {**payload, MARK: True}})
    return [worker for _, _, worker in found if worker is not None]
