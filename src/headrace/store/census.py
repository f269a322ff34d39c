"""Counts by status, for metrics: what stands in the store, never a counter kept beside it."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Column, Connection, func, select

from headrace.store.schema import jobs, tasks, workers


def _count(conn: Connection, column: Column[str]) -> Mapping[str, int]:
    rows = conn.execute(select(column, func.count()).group_by(column).order_by(column))
    return {str(value): int(count) for value, count in rows}


def jobs_by_status(conn: Connection) -> Mapping[str, int]:
    return _count(conn, jobs.c.status)


def tasks_by_status(conn: Connection) -> Mapping[str, int]:
    return _count(conn, tasks.c.status)


def workers_by_group(conn: Connection) -> Mapping[str, int]:
    return _count(conn, workers.c.group_name)
