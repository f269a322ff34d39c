"""The queue: jobs that were accepted and have no tasks yet, in the order in which they came.

The order is a number that is written with each job, and not a time: when a clock is set back, jobs
that come later must not go before those that wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, ScalarSelect, bindparam, func, select

from headrace.model.job import JobStatus
from headrace.model.task import ENDED, Lane
from headrace.store.prepared import Prepared
from headrace.store.schema import OPEN_JOB, jobs, pipelines, tasks, workers


@dataclass(frozen=True, slots=True)
class Waiting:
    job_id: str
    group: str
    told: str | None  # for what it waits, as it stands in the store
    needed: int  # slots, one for each pipeline


@dataclass(frozen=True, slots=True)
class Room:
    """The slots of a group."""

    slots: int  # of all its workers that do not drain
    free: int  # neither taken nor spoken for


# One that is to be canceled waits for nothing any more, and holds nobody up.
_IS_WAITING = (
    OPEN_JOB,
    (jobs.c.status == JobStatus.CREATED) | (jobs.c.status == JobStatus.PENDING),
    jobs.c.wanted_cancel == 0,
)
# The time decides only between jobs that have no place: a program of long ago accepted them.
_PLACE = (jobs.c.queue_number, jobs.c.created_at_ms, jobs.c.id)
_WAITING = Prepared(
    select(jobs.c.id, jobs.c.group_name, jobs.c.waits_for, func.count(pipelines.c.number))
    .outerjoin(pipelines, pipelines.c.job_id == jobs.c.id)
    .where(*_IS_WAITING)
    .group_by(*_PLACE, jobs.c.group_name, jobs.c.waits_for)
    .order_by(*_PLACE)
)
_NEEDED = Prepared(
    select(func.count())
    .select_from(jobs)
    .join(pipelines, pipelines.c.job_id == jobs.c.id)
    .where(*_IS_WAITING, jobs.c.group_name == bindparam("group"))
)
_SLOTS = Prepared(
    select(func.coalesce(func.sum(workers.c.slots), 0)).where(
        workers.c.group_name == bindparam("group"),
        workers.c.drain_since_ms == 0,  # one that drains is given nothing more
    )
)
_BUSY = Prepared(
    select(func.count()).where(
        tasks.c.group_name == bindparam("group"),
        tasks.c.lane == Lane.SLOT,
        tasks.c.granted == 1,  # a rewrite that waits for its table's share holds no slot
        *(tasks.c.status != ended for ended in sorted(ENDED)),
    )
)


def next_place() -> ScalarSelect[int]:
    """For a job that is written: behind all that are there."""
    others = jobs.alias("others")
    return select(func.coalesce(func.max(others.c.queue_number), 0) + 1).scalar_subquery()


def waiting(conn: Connection) -> Sequence[Waiting]:
    """Of all groups, who came first first; between those that came at one moment through several
    nodes, their times and ids decide."""
    return [Waiting(*row) for row in _WAITING.rows(conn)]


def needed(conn: Connection, group: str) -> int:
    """The slots that all who wait in the group need together."""
    return _one(conn, _NEEDED, group)


def room(conn: Connection, group: str) -> Room:
    """Derived from rows, never a counter."""
    slots = _one(conn, _SLOTS, group)
    return Room(slots, free=max(0, slots - _one(conn, _BUSY, group)))


def _one(conn: Connection, question: Prepared, group: str) -> int:
    [(number,)] = question.rows(conn, {"group": group})
    return int(number)
