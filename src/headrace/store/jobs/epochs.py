"""Epochs of pipelines: plan, prepare, complete, abort. Unique by (incarnation, pipeline, epoch).

A source is *ready to close* when it has read everything (K1); it has one row in `ready_sources`.
The row is written by the transaction that records the epoch of its last slice as prepared, so it is
there before anybody is told. From then on that epoch can only be committed, so a source that is
ready stays ready.

Checkpoints are the epochs of a job as people and a restore read them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from headrace.model.jobs.epoch import (
    EPOCH_BEGINS,
    EPOCH_TRANSITIONS,
    OPEN,
    EpochAt,
    EpochKind,
    EpochStatus,
)
from headrace.store.core.engine import insert_new
from headrace.store.core.prepared_statements import PreparedStatement, one_of
from headrace.store.core.schema import may_become
from headrace.store.jobs.schema import epochs, ready_sources


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch as it is read."""

    epoch: int
    kind: EpochKind
    status: EpochStatus
    plan: Mapping[str, Any]
    handles: Mapping[str, Any] | None
    execution: str  # the one that was last granted its plan; then prepared, then completed it
    lost_on: Mapping[str, str]  # the cause, by worker that was lost while it ran there
    read: Mapping[str, int] | None = None  # rows by source name; None: they were not counted


@dataclass(frozen=True, slots=True)
class EpochBrief:
    """An epoch that is planned or prepared, without what it holds."""

    epoch: int
    status: EpochStatus


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
_GET = PreparedStatement(select(*_EPOCH).where(*_AT).with_for_update())
_IS_OPEN = or_(*(epochs.c.status == status for status in sorted(OPEN)))
_OPEN = PreparedStatement(select(*_EPOCH).where(*_AT[:2], _IS_OPEN).order_by(epochs.c.epoch))
_OPEN_OF_ALL = PreparedStatement(
    select(epochs.c.incarnation, epochs.c.pipeline, epochs.c.epoch, epochs.c.status)
    .where(one_of(epochs.c.incarnation, "incarnations"), _IS_OPEN)
    .order_by(epochs.c.incarnation, epochs.c.pipeline, epochs.c.epoch)
)


def _to_epoch(row: tuple[Any, ...]) -> Epoch:
    epoch, kind, status, *rest = row
    return Epoch(epoch, EpochKind(kind), EpochStatus(status), *rest)


def _epoch_values(at: EpochAt) -> Mapping[str, Any]:
    """The parameters that name an epoch, and its execution."""
    return {
        "incarnation_at": at.incarnation,
        "pipeline_at": at.pipeline,
        "epoch_at": at.epoch,
        "by": at.execution,
    }


def get(conn: Connection, at: EpochAt) -> Epoch | None:
    """The epoch, locked."""
    row = _GET.row(conn, _epoch_values(at))
    return _to_epoch(row) if row else None


def all_open(conn: Connection, incarnation: str, pipeline: int) -> Sequence[Epoch]:
    """The epochs of a pipeline that are planned or prepared, in their order."""
    values = {"incarnation_at": incarnation, "pipeline_at": pipeline}
    return [_to_epoch(row) for row in _OPEN.rows(conn, values)]


def open_of_all(
    conn: Connection, incarnations: Collection[str]
) -> Mapping[tuple[str, int], Sequence[EpochBrief]]:
    """The same of all pipelines of many jobs, by incarnation and pipeline; those without any are
    left out."""
    found: dict[tuple[str, int], list[EpochBrief]] = {}
    asked = {"incarnations": sorted(incarnations)}
    for incarnation, pipeline, epoch, status in _OPEN_OF_ALL.rows(conn, asked):
        each = EpochBrief(epoch, EpochStatus(status))
        found.setdefault((incarnation, pipeline), []).append(each)
    return found


_HIGHEST = PreparedStatement(select(func.max(epochs.c.epoch)).where(*_AT[:2]))


def highest(conn: Connection, incarnation: str, pipeline: int) -> int:
    """The highest epoch of a pipeline, whatever became of it; -1: there is none."""
    row = _HIGHEST.row(conn, {"incarnation_at": incarnation, "pipeline_at": pipeline})
    return int(row[0]) if row and row[0] is not None else -1


_ABORTED_AFTER = PreparedStatement(
    select(epochs.c.epoch)
    .where(
        *_AT[:2],
        epochs.c.epoch > bindparam("epoch_at"),
        epochs.c.status == EpochStatus.ABORTED,
    )
    .order_by(epochs.c.epoch)
)


def aborted_after(conn: Connection, at: EpochAt) -> Sequence[int]:
    """The epochs of a pipeline above the last completed one that were aborted, in their order.

    They are few: each restore by hand aborts `OPEN_MAX` of them at most, and the next epoch that is
    completed is above them all.
    """
    return [epoch for (epoch,) in _ABORTED_AFTER.rows(conn, _epoch_values(at))]


def oldest_open(conn: Connection, incarnation: str, pipeline: int) -> Epoch | None:
    """The oldest epoch of a pipeline that is planned or prepared."""
    return next(iter(all_open(conn, incarnation, pipeline)), None)


def _may_become(target: EpochStatus) -> ColumnElement[bool]:
    """The guard of every step of an epoch (S1)."""
    return may_become(epochs.c.status, EPOCH_TRANSITIONS, target)


_PLAN = PreparedStatement(
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
_PREPARE = PreparedStatement(
    update(epochs)
    .where(*_AT, _may_become(EpochStatus.PREPARED))
    .values(
        status=EpochStatus.PREPARED,
        handles=bindparam("found"),
        read=bindparam("counted"),
        execution=bindparam("by"),
        prepared_at_ms=bindparam("now_ms"),
    )
)
_COMPLETE = PreparedStatement(
    update(epochs)
    .where(*_AT, _may_become(EpochStatus.COMPLETED))
    .values(
        status=EpochStatus.COMPLETED,
        rows_in=bindparam("read"),
        rows_out=bindparam("wrote"),
        execution=bindparam("by"),
        ended_at_ms=bindparam("now_ms"),
    )
)
_ABORT = PreparedStatement(
    update(epochs)
    .where(*_AT, _may_become(EpochStatus.ABORTED))
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
    """Write a planned epoch. One without slices, which only records where the pipeline ended, is
    completed at once."""
    status = EPOCH_BEGINS[kind]
    _PLAN.change(
        conn,
        {
            **_epoch_values(at),
            "job": job_id,
            "which": kind,
            "to": status,
            "slices": dict(slices),
            "now_ms": now_ms,
            "ended_ms": None if status in OPEN else now_ms,
        },
    )


_GRANT_AGAIN = PreparedStatement(
    update(epochs).where(*_AT, _may_become(EpochStatus.PREPARED)).values(execution=bindparam("by"))
)
_NOTE_LOST_WORKERS = PreparedStatement(
    update(epochs).where(*_AT, _IS_OPEN).values(lost_on=bindparam("workers"))
)
_FORGET_LOST_WORKERS = PreparedStatement(
    update(epochs)
    .where(epochs.c.incarnation == bindparam("incarnation_at"), _IS_OPEN)
    .values(lost_on={})
)


def grant_again(conn: Connection, at: EpochAt) -> None:
    """Let another execution run the plan of an earlier one from here on, while it may still be
    prepared."""
    _GRANT_AGAIN.change(conn, _epoch_values(at))


def note_lost_workers(conn: Connection, at: EpochAt, workers: Mapping[str, str]) -> None:
    """Remember, for as long as the epoch is open, which workers were lost while it ran on them."""
    _NOTE_LOST_WORKERS.change(conn, {**_epoch_values(at), "workers": dict(workers)})


def forget_lost_workers(conn: Connection, incarnation: str) -> None:
    """Forget which workers the open epochs of a job were lost with: the job is restored."""
    _FORGET_LOST_WORKERS.change(conn, {"incarnation_at": incarnation})


def prepare(
    conn: Connection,
    at: EpochAt,
    *,
    handles: Mapping[str, Any],
    read: Mapping[str, int] | None = None,
    now_ms: int,
) -> bool:
    """Record a planned epoch as prepared. False: it was not planned.

    `read` is the number of rows by source name, so that whoever completes the epoch need not know
    it.
    """
    counted = None if read is None else dict(read)
    values = {"found": dict(handles), "counted": counted, "now_ms": now_ms}
    return _PREPARE.change(conn, {**_epoch_values(at), **values}) == 1


def complete(conn: Connection, at: EpochAt, *, rows_in: int, rows_out: int, now_ms: int) -> bool:
    """Record a prepared epoch as completed. False: it was not prepared."""
    done = {"read": rows_in, "wrote": rows_out, "now_ms": now_ms}
    return _COMPLETE.change(conn, {**_epoch_values(at), **done}) == 1


def abort(conn: Connection, at: EpochAt, *, now_ms: int) -> bool:
    """Record that an abort spent the token of a planned epoch. A prepared one can only be
    completed."""
    return _ABORT.change(conn, {**_epoch_values(at), "now_ms": now_ms}) == 1


_FORGET = PreparedStatement(
    delete(epochs).where(
        *_AT[:2],
        epochs.c.epoch <= bindparam("up_to"),
        or_(epochs.c.status == EpochStatus.COMPLETED, epochs.c.status == EpochStatus.ABORTED),
        epochs.c.kind == EpochKind.CHECKPOINT,
    )
)


def forget(conn: Connection, at: EpochAt, *, retained: int) -> None:
    """Keep only the last `retained` checkpoints of a pipeline. Savepoints are kept, too."""
    if at.epoch > retained:
        _FORGET.change(conn, {**_epoch_values(at), "up_to": at.epoch - retained})


def add_ready(conn: Connection, at: EpochAt, sources: Collection[str]) -> None:
    """Record sources as ready to close. It is idempotent: the first epoch stands."""
    for source in sorted(sources):
        insert_new(
            conn,
            ready_sources,
            incarnation=at.incarnation,
            pipeline=at.pipeline,
            source=source,
            epoch=at.epoch,
        )


_READY_OF = PreparedStatement(
    select(ready_sources.c.source, ready_sources.c.epoch)
    .where(
        ready_sources.c.incarnation == bindparam("of_incarnation"),
        ready_sources.c.pipeline == bindparam("of_pipeline"),
    )
    .order_by(ready_sources.c.source)
)


def ready_of(conn: Connection, incarnation: str, pipeline: int) -> Mapping[str, int]:
    """By source that is ready: the epoch of its last slice. Raises TypeError for what can't be
    read (K4)."""
    values = {"of_incarnation": incarnation, "of_pipeline": pipeline}
    ready: dict[str, int] = {}
    for source, epoch in _READY_OF.rows(conn, values):
        if not isinstance(source, str) or not isinstance(epoch, int):  # SQLite stores any type
            raise TypeError(f"who is ready to close: source {source!r} in epoch {epoch!r}")
        ready[source] = epoch
    return ready


def forget_ready(conn: Connection, incarnation: str, *, but: Collection[int] = ()) -> None:
    """Forget who is ready: the job has ended (K3), or begins again elsewhere. `but`: pipelines
    that keep theirs."""
    conn.execute(
        delete(ready_sources).where(
            ready_sources.c.incarnation == incarnation,
            ready_sources.c.pipeline.not_in(sorted(but)),
        )
    )


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An epoch as people see it."""

    pipeline: int
    epoch: int
    kind: EpochKind
    status: EpochStatus
    planned_at_ms: int
    prepared_at_ms: int | None
    ended_at_ms: int | None
    rows_in: int | None
    rows_out: int | None
    size_bytes: int  # of its plan and its stage handles, as stored


_OF_INCARNATION = epochs.c.incarnation == bindparam("of")
# JSON is written as ASCII, so characters are bytes.
_SIZE = func.length(cast(epochs.c.plan, Text)) + func.coalesce(
    func.length(cast(epochs.c.handles, Text)), 0
)
_LISTED = PreparedStatement(
    select(
        epochs.c.pipeline,
        epochs.c.epoch,
        epochs.c.kind,
        epochs.c.status,
        epochs.c.planned_at_ms,
        epochs.c.prepared_at_ms,
        epochs.c.ended_at_ms,
        epochs.c.rows_in,
        epochs.c.rows_out,
        _SIZE.label("size_bytes"),
    )
    .where(_OF_INCARNATION)
    .order_by(epochs.c.epoch.desc(), epochs.c.pipeline)
    .limit(bindparam("most"))
)
_KIND = PreparedStatement(
    select(epochs.c.kind).where(
        _OF_INCARNATION,
        epochs.c.pipeline == bindparam("place"),
        epochs.c.epoch == bindparam("number"),
    )
)
_HIGHEST_OF_JOB = PreparedStatement(select(func.max(epochs.c.epoch)).where(_OF_INCARNATION))
_OPEN_ONES = PreparedStatement(
    select(epochs.c.pipeline, epochs.c.epoch)
    .where(_OF_INCARNATION, _IS_OPEN)
    .order_by(epochs.c.pipeline, epochs.c.epoch.desc())
)
_READY_BY = PreparedStatement(
    select(ready_sources.c.source)
    .where(
        ready_sources.c.incarnation == bindparam("of"),
        ready_sources.c.pipeline == bindparam("place"),
        ready_sources.c.epoch <= bindparam("number"),
    )
    .order_by(ready_sources.c.source)
)


def checkpoints_of(conn: Connection, incarnation: str, *, most: int) -> Sequence[Checkpoint]:
    """The epochs with the highest ids, whatever became of them; the newest first."""
    return [
        Checkpoint(pipeline, epoch, EpochKind(kind), EpochStatus(status), *rest)
        for pipeline, epoch, kind, status, *rest in _LISTED.rows(
            conn, {"of": incarnation, "most": most}
        )
    ]


def kind_of(conn: Connection, incarnation: str, pipeline: int, epoch: int) -> EpochKind | None:
    row = _KIND.row(conn, {"of": incarnation, "place": pipeline, "number": epoch})
    return EpochKind(row[0]) if row else None


def highest_checkpoint(conn: Connection, incarnation: str) -> int:
    """The highest id that any pipeline ever had; an aborted one counts, since its token is
    spent."""
    row = _HIGHEST_OF_JOB.row(conn, {"of": incarnation})
    return int(row[0]) if row and row[0] is not None else 0


def open_checkpoints(conn: Connection, incarnation: str) -> Mapping[int, int]:
    """By pipeline: its oldest epoch that is planned or prepared."""
    rows = _OPEN_ONES.rows(conn, {"of": incarnation})  # the oldest of each pipeline comes last
    return dict(rows)


def ready_by(conn: Connection, incarnation: str, pipeline: int, epoch: int) -> Sequence[str]:
    """The sources that had read everything when this epoch was completed."""
    values = {"of": incarnation, "place": pipeline, "number": epoch}
    return [source for (source,) in _READY_BY.rows(conn, values)]
