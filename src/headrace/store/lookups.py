"""Read-only lookups across rooms: counts by status, ids by prefix, and the users of a group.

Counts are for metrics: they are taken from the rows in the store, never from a counter kept beside
it. Ids are looked up by their beginning because an id has 32 digits, and people type the first few
that they see on the screen. Who uses a group is shown before the group is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Column, Connection, TextClause, func, select, union

from headrace.store.core.engine import in_byte_order
from headrace.store.groups.groups import resources
from headrace.store.jobs.schema import OPEN_JOB, history, jobs, pipelines, savepoints
from headrace.store.tables.schema import catalogs, lake_tables
from headrace.store.tasks.schema import tasks, workers

AFTER_ALL = "~"  # it sorts after every character that an id may have
ID_DIGITS = 32  # of a generated id; one that somebody chose has to be typed in full
JOBS_NAMED_MAX = 5  # jobs of a group that are listed by name


class RowsCounted(NamedTuple):
    """How many rows the sources and sinks of a pipeline have read and written, by their names."""

    job: str
    pipeline: int
    read: Mapping[str, int]
    written: Mapping[str, int]


def _count(conn: Connection, column: Column[str], *where: TextClause) -> Mapping[str, int]:
    """How many rows there are for each value of the column."""
    query = select(column, func.count()).where(*where).group_by(column).order_by(column)
    return {str(value): int(count) for value, count in conn.execute(query)}


def jobs_by_status(conn: Connection) -> Mapping[str, int]:
    """How many jobs that have not ended are in each status (C7)."""
    return _count(conn, jobs.c.status, OPEN_JOB)


def rows_by_plugin(conn: Connection, *, most: int) -> Sequence[RowsCounted]:
    """Row counts of the pipelines of jobs that have not ended, the newest jobs first."""
    query = (
        select(jobs.c.id, pipelines.c.number, pipelines.c.read, pipelines.c.written)
        .join(jobs, jobs.c.id == pipelines.c.job_id)
        .where(OPEN_JOB)
        .order_by(jobs.c.created_at_ms.desc(), jobs.c.id, pipelines.c.number)
        .limit(most)
    )
    return [RowsCounted(*row) for row in conn.execute(query)]


def history_by_status(conn: Connection) -> Mapping[str, int]:
    return _count(conn, history.c.status)


def tasks_by_status(conn: Connection) -> Mapping[str, int]:
    return _count(conn, tasks.c.status)


def workers_by_group(conn: Connection) -> Mapping[str, int]:
    return _count(conn, workers.c.group_name)


class IdKind(StrEnum):
    """What an id belongs to."""

    JOB = "job"
    WORKER = "worker"
    RESOURCE = "resource"  # or a worker, which people may name in its place


_ID_COLUMNS: Mapping[IdKind, Sequence[Column[str]]] = {
    IdKind.JOB: (jobs.c.id, history.c.job_id, savepoints.c.job_id),
    IdKind.WORKER: (workers.c.id,),
    IdKind.RESOURCE: (resources.c.id, workers.c.id),
}


def ids_with_prefix(conn: Connection, kind: IdKind, text: str, *, most: int) -> Sequence[str]:
    """Generated ids that begin with `text`, and the id that is exactly this; in their order."""
    queries = [
        select(column.label("id")).where(
            in_byte_order(conn, column) >= text,
            in_byte_order(conn, column) < text + AFTER_ALL,
            (column == text) | (func.length(column) == ID_DIGITS),
        )
        for column in _ID_COLUMNS[kind]
    ]
    every = union(*queries).subquery()
    return list(conn.scalars(select(every.c.id).order_by(every.c.id).limit(most)))


@dataclass(frozen=True, slots=True)
class GroupUsers:
    """What needs the workers of a group. False when nothing does."""

    jobs: int = 0  # that have not ended yet
    named: Sequence[str] = ()  # some of these jobs
    catalogs: Sequence[str] = ()
    tables: int = 0
    by_hand: int = 0  # workers that Headrace did not start

    def __bool__(self) -> bool:
        return bool(self.jobs or self.catalogs or self.tables or self.by_hand)


def users_of(conn: Connection, group: str) -> GroupUsers:
    """What needs the workers of the group."""
    mine = (jobs.c.group_name == group, OPEN_JOB)
    named = select(jobs.c.id).where(*mine).order_by(jobs.c.id).limit(JOBS_NAMED_MAX)
    of_catalogs = select(catalogs.c.name).where(catalogs.c.group_name == group)
    by_hand = (workers.c.group_name == group, workers.c.resource_id.is_(None))
    return GroupUsers(
        jobs=int(conn.scalar(select(func.count()).select_from(jobs).where(*mine)) or 0),
        named=list(conn.execute(named).scalars()),
        catalogs=list(conn.execute(of_catalogs.order_by(catalogs.c.name)).scalars()),
        tables=int(
            conn.scalar(
                select(func.count())
                .select_from(lake_tables)
                .where(lake_tables.c.group_name == group)
            )
            or 0
        ),
        by_hand=int(conn.scalar(select(func.count()).select_from(workers).where(*by_hand)) or 0),
    )
