"""Ids by their beginning: what people type who have one on the screen, and it is 32 digits long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from sqlalchemy import Column, Connection, func, select, union

from headrace.store.engine import in_byte_order
from headrace.store.group_schema import resources
from headrace.store.schema import history, jobs, savepoints, workers

AFTER_ALL = "~"  # a character behind all that ids consist of
ID_DIGITS = 32  # of an id that was made; one that somebody chose has to be typed as it is


class IdKind(StrEnum):
    JOB = "job"
    WORKER = "worker"
    RESOURCE = "resource"  # or of the worker that was started for one


_WHERE: Mapping[IdKind, Sequence[Column[str]]] = {
    IdKind.JOB: (jobs.c.id, history.c.job_id, savepoints.c.job_id),
    IdKind.WORKER: (workers.c.id,),
    IdKind.RESOURCE: (resources.c.id, workers.c.id),
}


def beginning_with(conn: Connection, kind: IdKind, text: str, *, most: int) -> Sequence[str]:
    """Ids that were made and begin so, and the one that is exactly this; in their order."""
    found = [
        select(column.label("id")).where(
            in_byte_order(conn, column) >= text,
            in_byte_order(conn, column) < text + AFTER_ALL,
            (column == text) | (func.length(column) == ID_DIGITS),
        )
        for column in _WHERE[kind]
    ]
    every = union(*found).subquery()
    return list(conn.scalars(select(every.c.id).order_by(every.c.id).limit(most)))
