"""The queue: jobs that were accepted and have no tasks yet, in the order in which they came.

The order is a number that is written with each job, not a time: when a clock is set back, later
jobs must not overtake those that wait. Each group has a line of its own, and thousands may wait in
one: what is asked in every pass reads a limited part of a line, by an index.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    ScalarSelect,
    Text,
    bindparam,
    case,
    func,
    literal_column,
    select,
    tuple_,
)

from headrace.model.task import Lane
from headrace.store.core.prepared_statements import PreparedStatement, Statement, one_of
from headrace.store.jobs.schema import WAITING_JOB, jobs, pipelines
from headrace.store.tasks.schema import ASSIGNED_TASK, OPEN_TASK, PLANNED_TASK, tasks

SCAN_MAX = 1000  # jobs of a line that are read at a time to find such as fit

Place = tuple[int, int, str]  # in a line: number, time and id
FIRST: Place = (-1, -1, "")  # before all jobs


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits for slots."""

    job_id: str
    group: str
    waits_for: str | None  # the reason that its row has
    number: int
    created_at_ms: int
    needed: int  # slots: one for each pipeline
    needs: str | None = None  # plug-ins that its workers must have (`model/jobs/needs`)

    @property
    def place(self) -> Place:
        return self.number, self.created_at_ms, self.job_id


@dataclass(frozen=True, slots=True)
class FittingJobs:
    """Jobs that need no more slots than were asked for, as far as a line was read."""

    jobs: Sequence[QueuedJob]
    read_up_to: Place | None  # there are more behind it; None: those that were found are enough


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
_ROW = (jobs.c.id, jobs.c.group_name, jobs.c.waits_for, jobs.c.queue_number, jobs.c.created_at_ms)
_QUEUED = select(*_ROW, _OF_JOB, jobs.c.needs).where(*_IS_WAITING)
_IN_LINE = (*_IS_WAITING, jobs.c.group_name == bindparam("group"))
_LINE = select(*_ROW, _OF_JOB, jobs.c.needs).where(*_IN_LINE).order_by(*_PLACE)
_FRONT = PreparedStatement(_LINE.limit(bindparam("most")))
_BEHIND = tuple_(*_PLACE) > tuple_(
    bindparam("after_number", type_=BigInteger()),
    bindparam("after_ms", type_=BigInteger()),
    bindparam("after", type_=Text()),
)


def _fitting(fewer: Mapping[str, int]) -> Statement:
    """Slots are counted of jobs in the order of the line, until there are enough that fit."""
    row = select(*_ROW, jobs.c.needs).where(*_IN_LINE, _BEHIND)
    part = row.order_by(*_PLACE).limit(bindparam("scan")).subquery("part")
    needed = select(func.count()).where(pipelines.c.job_id == part.c.id).scalar_subquery()
    *shown, needs = part.c
    place = (part.c.queue_number, part.c.created_at_ms, part.c.id)
    fits = _room(needs, fewer) >= needed
    return select(*shown, needed, needs).where(fits).order_by(*place).limit(bindparam("most"))


def _first_fitting(fewer: Mapping[str, int]) -> Statement:
    # In the order of the line, so by the index of those that wait, and not of all of the group.
    return _LINE.where(_room(jobs.c.needs, fewer) >= _OF_JOB).limit(1)


def _room(needs: ColumnElement[str], fewer: Mapping[str, int]) -> ColumnElement[int]:
    """The slots that a job may have: `fewer` of them, by what it needs."""
    slots = bindparam("slots", type_=Integer())
    return case(fewer, value=needs, else_=slots) if fewer else slots


_FITTING = PreparedStatement(_fitting({}))
_FIRST_FITTING = PreparedStatement(_first_fitting({}))
_END_OF_SCAN = PreparedStatement(
    select(*_PLACE).where(*_IN_LINE, _BEHIND).order_by(*_PLACE).offset(bindparam("before")).limit(1)
)
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
_TAKES_SLOT = (
    tasks.c.group_name == bindparam("group"),
    tasks.c.lane == Lane.SLOT,
    tasks.c.granted == 1,  # a rewrite that waits for its table's share holds no slot
)
_BUSY = PreparedStatement(select(func.count()).where(*_TAKES_SLOT, OPEN_TASK))
_PLANNED_BY_NEEDS = PreparedStatement(
    select(tasks.c.needs, func.count()).where(*_TAKES_SLOT, PLANNED_TASK).group_by(tasks.c.needs)
)
_HELD_BY = PreparedStatement(
    select(func.count()).where(
        one_of(tasks.c.worker_id, "workers"), tasks.c.lane == Lane.SLOT, ASSIGNED_TASK
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


def front(conn: Connection, group: str, *, most: int) -> Sequence[QueuedJob]:
    """The first jobs of a group's line, first come first. Times and ids decide between those that
    came at one moment through several nodes."""
    rows = _FRONT.rows(conn, {"group": group, "most": most})
    return [QueuedJob(*row) for row in rows]


def fitting(
    conn: Connection,
    group: str,
    *,
    slots: int,
    fewer: Mapping[str, int],
    after: Place,
    most: int,
) -> FittingJobs:
    """The first jobs behind a place in the line that need no more than so many slots. `fewer`: by
    what they need, jobs that can only have so many."""
    number, created_at_ms, job_id = after
    at = {"group": group, "after_number": number, "after_ms": created_at_ms, "after": job_id}
    values = {**at, "slots": slots, "most": most, "scan": SCAN_MAX}
    rows = _rows(conn, _fitting(fewer), values) if fewer else _FITTING.rows(conn, values)
    end = None
    if len(rows) < most:
        end = _END_OF_SCAN.row(conn, {**at, "before": SCAN_MAX - 1})
    return FittingJobs([QueuedJob(*row) for row in rows], (end[0], end[1], end[2]) if end else None)


def first_fitting(
    conn: Connection, group: str, *, slots: int, fewer: Mapping[str, int]
) -> QueuedJob | None:
    """The first job that needs no more than so many slots, however far back in the line."""
    values = {"group": group, "slots": slots}
    if fewer:
        rows = _rows(conn, _first_fitting(fewer), values)
    else:
        rows = _FIRST_FITTING.rows(conn, values)
    return QueuedJob(*rows[0]) if rows else None


def some(conn: Connection, ids: Collection[str]) -> Mapping[str, QueuedJob]:
    """Those of these jobs that wait, by id."""
    return {row[0]: QueuedJob(*row) for row in _SOME.rows(conn, {"ids": sorted(ids)})}


def needed(conn: Connection, group: str) -> int:
    """The slots that all queued jobs of the group need together."""
    return _count(conn, _NEEDED, group)


def busy(conn: Connection, group: str) -> int:
    """The slots of the group that an open task holds, or may be given: counted from the rows, and
    never kept in a counter."""
    return _count(conn, _BUSY, group)


def planned_by_needs(conn: Connection, group: str) -> Mapping[str | None, int]:
    """How many of them nobody holds yet, by the plug-ins that they need."""
    rows = _PLANNED_BY_NEEDS.rows(conn, {"group": group})
    return {needs: int(count) for needs, count in rows}


def held_by(conn: Connection, workers: Collection[str]) -> int:
    """How many of them these workers hold."""
    [(number,)] = _HELD_BY.rows(conn, {"workers": sorted(workers)})
    return int(number)


def _rows(conn: Connection, question: Statement, values: Mapping[str, Any]) -> Sequence[Any]:
    return conn.execute(question, values).all()


def _count(conn: Connection, question: PreparedStatement, group: str) -> int:
    [(number,)] = question.rows(conn, {"group": group})
    return int(number)
