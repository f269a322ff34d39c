"""Counts by status, for metrics: what stands in the store, never a counter kept beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Column, Connection, TextClause, func, select

from headrace.store.schema import OPEN_JOB, history, jobs, pipelines, tasks, workers


class Counted(NamedTuple):
    """How many rows the sources and sinks of a pipeline have read and written, by their names."""

    job: str
    pipeline: int
    read: Mapping[str, int]
    written: Mapping[str, int]


def _count(conn: Connection, column: Column[str], *where: TextClause) -> Mapping[str, int]:
    query = select(column, func.count()).where(*where).group_by(column).order_by(column)
    return {str(value): int(count) for value, count in conn.execute(query)}


def jobs_by_status(conn: Connection) -> Mapping[str, int]:
    """Those that have not ended (C7)."""
    return _count(conn, jobs.c.status, OPEN_JOB)


def rows_by_plugin(conn: Connection, *, most: int) -> Sequence[Counted]:
    """Of pipelines of jobs that have not ended, the newest jobs first."""
    query = (
        select(jobs.c.id, pipelines.c.number, pipelines.c.read, pipelines.c.written)
        .join(jobs, jobs.c.id == pipelines.c.job_id)
        .where(OPEN_JOB)
        .order_by(jobs.c.created_at_ms.desc(), jobs.c.id, pipelines.c.number)
        .limit(most)
    )
    return [Counted(*row) for row in conn.execute(query)]


def history_by_status(conn: Connection) -> Mapping[str, int]:
    return _count(conn, history.c.status)


def tasks_by_status(conn: Connection) -> Mapping[str, int]:
    return _count(conn, tasks.c.status)


def workers_by_group(conn: Connection) -> Mapping[str, int]:
    return _count(conn, workers.c.group_name)
