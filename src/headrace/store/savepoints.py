"""Savepoints: where a stopped job can be restored. One for each incarnation, the latest.

A savepoint, and the last checkpoint of a failed job, outlive what is cleaned up of a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy import delete as delete_from

from headrace.model.epoch import EpochKind
from headrace.model.task import ENDED, TaskKind
from headrace.store.prepared import Prepared
from headrace.store.schema import savepoints, tasks

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


_DELETE = Prepared(delete_from(savepoints).where(savepoints.c.incarnation == bindparam("of")))
_OF_JOB = Prepared(select(savepoints).where(savepoints.c.job_id == bindparam("of")))


def put(conn: Connection, made: Savepoint) -> None:
    """Keep it, in place of an earlier one of the same incarnation."""
    delete(conn, made.incarnation)
    conn.execute(insert(savepoints).values(**asdict(made)))


def get(conn: Connection, job_id: str) -> Savepoint | None:
    row = _OF_JOB.row(conn, {"of": job_id})
    if row is None:
        return None
    incarnation, of_job, kind, *rest = row
    return Savepoint(incarnation, of_job, EpochKind(kind), *rest)


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
