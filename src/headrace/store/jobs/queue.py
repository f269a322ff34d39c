"""The queue: jobs that were accepted and have no tasks yet, in the order in which they came.

The order is a number that is written with each job, not a time: when a clock is set back, later
jobs must not overtake those that wait. Each group has a line of its own, and thousands may wait in
one: every query here reads a limited part of a line, by an index.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, ScalarSelect, Text, bindparam, func, literal_column, select

from headrace.model.task import Lane
from headrace.store.core.prepared_statements import PreparedStatement, Statement, one_of
from headrace.store.jobs.schema import WAITING_JOB, jobs, pipelines
from headrace.store.tasks.schema import OPEN_TASK, tasks, workers


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
_IS_WAITING = (WAITING_JOB, jobs.c.wanted_cancel == 0)
# The time decides only between jobs without a number, which a much older program accepted.
_PLACE = (jobs.c.queue_number, jobs.c.created_at_ms, jobs.c.id)
_OF_JOB = (
    select(func.count()).where(pipelines.c.job_id == jobs.c.id).correlate(jobs).scalar_subquery()
)
_QUEUED = select(jobs.c.id, jobs.c.group_name, jobs.c.waits_for, _OF_JOB).where(*_IS_WAITING)
_IN_LINE = _QUEUED.where(jobs.c.group_name == bindparam("group")).order_by(*_PLACE)
_FRONT = PreparedStatement(_IN_LINE.limit(bindparam("most")))
_FITTING = PreparedStatement(_IN_LINE.where(bindparam("slots") >= _OF_JOB).limit(bindparam("most")))
_SOME = PreparedStatement(_QUEUED.where(one_of(jobs.c.id, "ids")))


def _groups() -> Statement:
    """One step in the index for each group, however many jobs wait in it."""
    named = func.min(jobs.c.group_name)
    lines = select(named.label("name")).where(*_IS_WAITING).cte("lines", recursive=True)
    before = literal_column("lines.name", Text())
    following = select(named).where(*_IS_WAITING, jobs.c.group_name > before).scalar_subquery()
    lines = lines.union_all(select(following).select_from(lines).where(lines.c.name.is_not(None)))
    return select(lines.c.name).where(lines.c.name.is_not(None)).order_by(lines.c.name)


_GROUPS = PreparedStatement(_groups())
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
        OPEN_TASK,
    )
)


def next_place(group: str) -> ScalarSelect[int]:
    """The queue number for a job that is being written: after all of its group that are there."""
    others = jobs.alias("others")
    last = func.coalesce(func.max(others.c.queue_number), 0)
    return select(last + 1).where(others.c.group_name == group).scalar_subquery()


def groups(conn: Connection) -> Sequence[str]:
    """The groups in which a job waits."""
    return [group for (group,) in _GROUPS.rows(conn)]


def front(
    conn: Connection, group: str, *, most: int, slots: int | None = None
) -> Sequence[QueuedJob]:
    """The first jobs of a group's line, first come first; with `slots`, only those that need no
    more of them. Times and ids decide between those that came at one moment through several
    nodes."""
    if slots is None:
        rows = _FRONT.rows(conn, {"group": group, "most": most})
    else:
        rows = _FITTING.rows(conn, {"group": group, "most": most, "slots": slots})
    return [QueuedJob(*row) for row in rows]


def some(conn: Connection, ids: Collection[str]) -> Mapping[str, QueuedJob]:
    """Those of these jobs that wait, by id."""
    return {row[0]: QueuedJob(*row) for row in _SOME.rows(conn, {"ids": sorted(ids)})}


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
