"""Epochs: plan, prepare, complete, abort. Unique by (incarnation, pipeline, epoch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from headrace.model.epoch import OPEN, EpochAt, EpochKind, EpochStatus
from headrace.store.schema import epochs


@dataclass(frozen=True, slots=True)
class Epoch:
    epoch: int
    kind: EpochKind
    status: EpochStatus
    plan: Mapping[str, Any]
    handles: Mapping[str, Any] | None
    execution: str


def _epoch(row: Row[tuple[Any, ...]]) -> Epoch:
    return Epoch(
        epoch=row.epoch,
        kind=EpochKind(row.kind),
        status=EpochStatus(row.status),
        plan=row.plan,
        handles=row.handles,
        execution=row.execution,
    )


def _at(at: EpochAt) -> tuple[Any, ...]:
    return (
        epochs.c.incarnation == at.incarnation,
        epochs.c.pipeline == at.pipeline,
        epochs.c.epoch == at.epoch,
    )


def get(conn: Connection, at: EpochAt) -> Epoch | None:
    row = conn.execute(select(epochs).where(*_at(at)).with_for_update()).one_or_none()
    return _epoch(row) if row else None


def open_one(conn: Connection, incarnation: str, pipeline: int) -> Epoch | None:
    """The oldest epoch of a pipeline that is planned or prepared."""
    row = conn.execute(
        select(epochs)
        .where(
            epochs.c.incarnation == incarnation,
            epochs.c.pipeline == pipeline,
            epochs.c.status.in_(sorted(OPEN)),
        )
        .order_by(epochs.c.epoch)
        .limit(1)
    ).one_or_none()
    return _epoch(row) if row else None


def plan(
    conn: Connection,
    at: EpochAt,
    *,
    job_id: str,
    slices: Mapping[str, Any],
    now_ms: int,
    kind: EpochKind = EpochKind.CHECKPOINT,
) -> None:
    ended = kind is EpochKind.COMPLETED
    conn.execute(
        insert(epochs).values(
            incarnation=at.incarnation,
            pipeline=at.pipeline,
            epoch=at.epoch,
            job_id=job_id,
            kind=kind,
            status=EpochStatus.COMPLETED if ended else EpochStatus.PLANNED,
            plan=dict(slices),
            execution=at.execution,
            planned_at_ms=now_ms,
            ended_at_ms=now_ms if ended else None,
        )
    )


def prepare(conn: Connection, at: EpochAt, *, handles: Mapping[str, Any], now_ms: int) -> bool:
    result = conn.execute(
        update(epochs)
        .where(*_at(at), epochs.c.status == EpochStatus.PLANNED)
        .values(
            status=EpochStatus.PREPARED,
            handles=dict(handles),
            execution=at.execution,
            prepared_at_ms=now_ms,
        )
    )
    return result.rowcount == 1


def complete(conn: Connection, at: EpochAt, *, rows_in: int, rows_out: int, now_ms: int) -> bool:
    result = conn.execute(
        update(epochs)
        .where(*_at(at), epochs.c.status == EpochStatus.PREPARED)
        .values(
            status=EpochStatus.COMPLETED,
            rows_in=rows_in,
            rows_out=rows_out,
            execution=at.execution,
            ended_at_ms=now_ms,
        )
    )
    return result.rowcount == 1


def abort(conn: Connection, at: EpochAt, *, now_ms: int) -> bool:
    """Record that an abort spent the token of a planned epoch. A prepared one is finished."""
    result = conn.execute(
        update(epochs)
        .where(*_at(at), epochs.c.status == EpochStatus.PLANNED)
        .values(status=EpochStatus.ABORTED, execution=at.execution, ended_at_ms=now_ms)
    )
    return result.rowcount == 1
