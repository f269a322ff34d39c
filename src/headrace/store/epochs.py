"""Epochs: plan, prepare, complete, abort. Unique by (incarnation, pipeline, epoch)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, or_, select, update

from headrace.model.epoch import OPEN, EpochAt, EpochKind, EpochStatus
from headrace.store.prepared import Prepared
from headrace.store.schema import epochs


@dataclass(frozen=True, slots=True)
class Epoch:
    epoch: int
    kind: EpochKind
    status: EpochStatus
    plan: Mapping[str, Any]
    handles: Mapping[str, Any] | None
    execution: str  # that was last granted its plan, then prepared, then completed it
    lost_on: Mapping[str, str]  # workers lost while it was running on them, with the cause
    read: Mapping[str, int] | None = None  # rows, by source name; None: nobody counted them


_EPOCH = (
    epochs.c.epoch,
    epochs.c.kind,
    epochs.c.status,
    epochs.c.plan,
    epochs.c.handles,
    epochs.c.execution,
    epochs.c.lost_on,
    epochs.c.read,
)
_AT = (
    epochs.c.incarnation == bindparam("incarnation_at"),
    epochs.c.pipeline == bindparam("pipeline_at"),
    epochs.c.epoch == bindparam("epoch_at"),
)
_GET = Prepared(select(*_EPOCH).where(*_AT).with_for_update())
_OPEN = Prepared(
    select(*_EPOCH)
    .where(
        *_AT[:2],
        or_(*(epochs.c.status == status for status in sorted(OPEN))),
    )
    .order_by(epochs.c.epoch)
)


def _epoch(row: tuple[Any, ...]) -> Epoch:
    epoch, kind, status, *rest = row
    return Epoch(epoch, EpochKind(kind), EpochStatus(status), *rest)


def _at(at: EpochAt) -> Mapping[str, Any]:
    return {
        "incarnation_at": at.incarnation,
        "pipeline_at": at.pipeline,
        "epoch_at": at.epoch,
        "by": at.execution,
    }


def get(conn: Connection, at: EpochAt) -> Epoch | None:
    row = _GET.row(conn, _at(at))
    return _epoch(row) if row else None


def all_open(conn: Connection, incarnation: str, pipeline: int) -> Sequence[Epoch]:
    """The epochs of a pipeline that are planned or prepared, in their order."""
    values = {"incarnation_at": incarnation, "pipeline_at": pipeline}
    return [_epoch(row) for row in _OPEN.rows(conn, values)]


_HIGHEST = Prepared(select(func.max(epochs.c.epoch)).where(*_AT[:2]))


def highest(conn: Connection, incarnation: str, pipeline: int) -> int:
    """The highest id that the pipeline's rows have, whatever became of it; -1: there is none."""
    row = _HIGHEST.row(conn, {"incarnation_at": incarnation, "pipeline_at": pipeline})
    return int(row[0]) if row and row[0] is not None else -1


_ABORTED_AFTER = Prepared(
    select(epochs.c.epoch)
    .where(
        *_AT[:2],
        epochs.c.epoch > bindparam("epoch_at"),
        epochs.c.status == EpochStatus.ABORTED,
    )
    .order_by(epochs.c.epoch)
)


def aborted_after(conn: Connection, at: EpochAt) -> Sequence[int]:
    """Epochs of a pipeline above the last completed one that were given up, in their order. They
    are few: each restore by hand gives up `OPEN_MAX` of them at most, and the next one that is
    completed is above them all."""
    return [epoch for (epoch,) in _ABORTED_AFTER.rows(conn, _at(at))]


def open_one(conn: Connection, incarnation: str, pipeline: int) -> Epoch | None:
    """The oldest of them."""
    return next(iter(all_open(conn, incarnation, pipeline)), None)


_PLAN = Prepared(
    insert(epochs).values(
        incarnation=bindparam("incarnation_at"),
        pipeline=bindparam("pipeline_at"),
        epoch=bindparam("epoch_at"),
        job_id=bindparam("job"),
        kind=bindparam("which"),
        status=bindparam("to"),
        plan=bindparam("slices"),
        execution=bindparam("by"),
        planned_at_ms=bindparam("now_ms"),
        ended_at_ms=bindparam("ended_ms"),
    )
)
_PREPARE = Prepared(
    update(epochs)
    .where(*_AT, epochs.c.status == EpochStatus.PLANNED)
    .values(
        status=EpochStatus.PREPARED,
        handles=bindparam("found"),
        read=bindparam("counted"),
        execution=bindparam("by"),
        prepared_at_ms=bindparam("now_ms"),
    )
)
_COMPLETE = Prepared(
    update(epochs)
    .where(*_AT, epochs.c.status == EpochStatus.PREPARED)
    .values(
        status=EpochStatus.COMPLETED,
        rows_in=bindparam("read"),
        rows_out=bindparam("wrote"),
        execution=bindparam("by"),
        ended_at_ms=bindparam("now_ms"),
    )
)
_ABORT = Prepared(
    update(epochs)
    .where(*_AT, epochs.c.status == EpochStatus.PLANNED)
    .values(status=EpochStatus.ABORTED, execution=bindparam("by"), ended_at_ms=bindparam("now_ms"))
)


def plan(
    conn: Connection,
    at: EpochAt,
    *,
    job_id: str,
    slices: Mapping[str, Any],
    now_ms: int,
    kind: EpochKind = EpochKind.CHECKPOINT,
) -> None:
    """One without slices, which only says where the pipeline ended, is complete at once."""
    ended = kind in {EpochKind.COMPLETED, EpochKind.SAVEPOINT}
    _PLAN.change(
        conn,
        {
            **_at(at),
            "job": job_id,
            "which": kind,
            "to": EpochStatus.COMPLETED if ended else EpochStatus.PLANNED,
            "slices": dict(slices),
            "now_ms": now_ms,
            "ended_ms": now_ms if ended else None,
        },
    )


_GRANT_AGAIN = Prepared(
    update(epochs)
    .where(*_AT, epochs.c.status == EpochStatus.PLANNED)
    .values(execution=bindparam("by"))
)
_LOSE = Prepared(
    update(epochs)
    .where(*_AT, or_(*(epochs.c.status == status for status in sorted(OPEN))))
    .values(lost_on=bindparam("workers"))
)
_FORGIVE = Prepared(
    update(epochs)
    .where(
        epochs.c.incarnation == bindparam("incarnation_at"),
        or_(*(epochs.c.status == status for status in sorted(OPEN))),
    )
    .values(lost_on={})
)


def grant_again(conn: Connection, at: EpochAt) -> None:
    """Another execution runs the plan of an earlier one from here on."""
    _GRANT_AGAIN.change(conn, _at(at))


def lose(conn: Connection, at: EpochAt, workers: Mapping[str, str]) -> None:
    """Remember on which workers it was running as each was lost, for as long as it is open."""
    _LOSE.change(conn, {**_at(at), "workers": dict(workers)})


def forgive(conn: Connection, incarnation: str) -> None:
    """Forget the workers that open epochs of a job were lost with: it is restored."""
    _FORGIVE.change(conn, {"incarnation_at": incarnation})


def prepare(
    conn: Connection,
    at: EpochAt,
    *,
    handles: Mapping[str, Any],
    read: Mapping[str, int] | None = None,
    now_ms: int,
) -> bool:
    """`read`: how many rows, by source name. Whoever completes the epoch need not know them."""
    counted = None if read is None else dict(read)
    values = {"found": dict(handles), "counted": counted, "now_ms": now_ms}
    return _PREPARE.change(conn, {**_at(at), **values}) == 1


def complete(conn: Connection, at: EpochAt, *, rows_in: int, rows_out: int, now_ms: int) -> bool:
    done = {"read": rows_in, "wrote": rows_out, "now_ms": now_ms}
    return _COMPLETE.change(conn, {**_at(at), **done}) == 1


def abort(conn: Connection, at: EpochAt, *, now_ms: int) -> bool:
    """Record that an abort spent the token of a planned epoch. A prepared one is finished."""
    return _ABORT.change(conn, {**_at(at), "now_ms": now_ms}) == 1


_FORGET = Prepared(
    delete(epochs).where(
        *_AT[:2],
        epochs.c.epoch <= bindparam("up_to"),
        or_(epochs.c.status == EpochStatus.COMPLETED, epochs.c.status == EpochStatus.ABORTED),
        epochs.c.kind == EpochKind.CHECKPOINT,
    )
)


def forget(conn: Connection, at: EpochAt, *, retained: int) -> None:
    """Keep the last `retained` checkpoints of a pipeline; what a savepoint says is kept, too."""
    if at.epoch > retained:
        _FORGET.change(conn, {**_at(at), "up_to": at.epoch - retained})
