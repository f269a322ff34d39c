"""Counts by status, for metrics: what stands in the store, never a counter kept beside it."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Column, Connection, TextClause, func, select

from headrace.store.schema import OPEN_JOB, history, jobs, tasks, workers


def _count(conn: Connection, column: Column[str], *where: TextClause) -> Mapping[str, int]:
    query = select(column, func.count()).where(*where).group_by(column).order_by(column)
    return {str(value): int(count) for value, count in conn.execute(query)}


def jobs_by_status(conn: Connection) -> Mapping[str, int]:
    """Those that have not ended (C7)."""
    return _count(conn, jobs.c.status, OPEN_JOB)


def history_by_status(conn: Connection) -> Mapping[str, int]:
    return _count(conn, history.c.status)


def tasks_by_status(conn: Connection) -> Mapping[str, int]:
    return _count(conn, tasks.c.status)


def workers_by_group(conn: Connection) -> Mapping[str, int]:
    return _count(conn, workers.c.group_name)
