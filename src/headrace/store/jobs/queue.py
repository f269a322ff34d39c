"""The queue: jobs that were accepted and have no tasks yet, in the order in which they came.

The order is a number that is written with each job, not a time: when a clock is set back, later
jobs must not overtake those that wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, ScalarSelect, bindparam, func, select

from headrace.model.jobs.status import JobStatus
from headrace.model.task import ENDED, Lane
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.jobs.schema import OPEN_JOB, jobs, pipelines
from headrace.store.tasks.schema import tasks, workers


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits for slots."""

    job_id: str
    group: str
    waits_for: str | None  # the reason that its row has
    needed: int  # slots: one for each pipeline


@dataclass(frozen=True, slots=True)
class GroupSlots:
    """The slots of a group."""

    slots: int  # of all its workers that don't drain
    free: int  # no open task holds them, or may be given them


# A job that is to be canceled waits for nothing any more, and holds up no other.
_IS_WAITING = (
    OPEN_JOB,
    (jobs.c.status == JobStatus.CREATED) | (jobs.c.status == JobStatus.PENDING),
    jobs.c.wanted_cancel == 0,
)
# The time decides only between jobs without a number, which a much older program accepted.
_PLACE = (jobs.c.queue_number, jobs.c.created_at_ms, jobs.c.id)
_WAITING = PreparedStatement(
    select(jobs.c.id, jobs.c.group_name, jobs.c.waits_for, func.count(pipelines.c.number))
    .outerjoin(pipelines, pipelines.c.job_id == jobs.c.id)
    .where(*_IS_WAITING)
    .group_by(*_PLACE, jobs.c.group_name, jobs.c.waits_for)
    .order_by(*_PLACE)
)
_NEEDED = PreparedStatement(
    select(func.count())
    .select_from(jobs)
    .join(pipelines, pipelines.c.job_id == jobs.c.id)
    .where(*_IS_WAITING, jobs.c.group_name == bindparam("group"))
)
_SLOTS = PreparedStatement(
    select(func.coalesce(func.sum(workers.c.slots), 0)).where(
        workers.c.group_name == bindparam("group"),
        workers.c.drain_since_ms == 0,  # one that drains is given nothing more
    )
)
_BUSY = PreparedStatement(
    select(func.count()).where(
        tasks.c.group_name == bindparam("group"),
        tasks.c.lane == Lane.SLOT,
        tasks.c.granted == 1,  # a rewrite that waits for its table's share holds no slot
        *(tasks.c.status != ended for ended in sorted(ENDED)),
    )
)


def next_place() -> ScalarSelect[int]:
    """The queue number for a job that is being written: after all that are there."""
    others = jobs.alias("others")
    return select(func.coalesce(func.max(others.c.queue_number), 0) + 1).scalar_subquery()


def waiting(conn: Connection) -> Sequence[QueuedJob]:
    """The queued jobs of all groups, first come first. Times and ids decide between those that
    came at one moment through several nodes."""
    return [QueuedJob(*row) for row in _WAITING.rows(conn)]


def needed(conn: Connection, group: str) -> int:
    """The slots that all queued jobs of the group need together."""
    return _count(conn, _NEEDED, group)


def room(conn: Connection, group: str) -> GroupSlots:
    """The slots of the group, counted from the rows and never kept in a counter."""
    slots = _count(conn, _SLOTS, group)
    return GroupSlots(slots, free=max(0, slots - _count(conn, _BUSY, group)))


def _count(conn: Connection, question: PreparedStatement, group: str) -> int:
    [(number,)] = question.rows(conn, {"group": group})
    return int(number)
