"""Checkpoints, for people and for a restore: what became of the epochs of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Text, bindparam, cast, func, or_, select

from headrace.model.epoch import OPEN, EpochKind, EpochStatus
from headrace.store.prepared import Prepared
from headrace.store.schema import epochs, ready_sources


@dataclass(frozen=True, slots=True)
class Checkpoint:
    pipeline: int
    epoch: int
    kind: EpochKind
    status: EpochStatus
    planned_at_ms: int
    prepared_at_ms: int | None
    ended_at_ms: int | None
    rows_in: int | None
    rows_out: int | None
    size_bytes: int  # of its plan and its stage handles, as they are stored


_IS_OPEN = or_(*(epochs.c.status == status for status in sorted(OPEN)))
_OF = epochs.c.incarnation == bindparam("of")
# JSON is written as ASCII, so characters are bytes.
_SIZE = func.length(cast(epochs.c.plan, Text)) + func.coalesce(
    func.length(cast(epochs.c.handles, Text)), 0
)
_LISTED = Prepared(
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
    .where(_OF)
    .order_by(epochs.c.epoch.desc(), epochs.c.pipeline)
    .limit(bindparam("most"))
)
_KIND = Prepared(
    select(epochs.c.kind).where(
        _OF, epochs.c.pipeline == bindparam("place"), epochs.c.epoch == bindparam("number")
    )
)
_HIGHEST = Prepared(select(func.max(epochs.c.epoch)).where(_OF))
_OPEN_ONES = Prepared(
    select(epochs.c.pipeline, epochs.c.epoch)
    .where(_OF, _IS_OPEN)
    .order_by(epochs.c.pipeline, epochs.c.epoch.desc())
)
_READY_BY = Prepared(
    select(ready_sources.c.source)
    .where(
        ready_sources.c.incarnation == bindparam("of"),
        ready_sources.c.pipeline == bindparam("place"),
        ready_sources.c.epoch <= bindparam("number"),
    )
    .order_by(ready_sources.c.source)
)


def listed(conn: Connection, incarnation: str, *, most: int) -> Sequence[Checkpoint]:
    """Those with the highest ids, whatever became of them; the newest first."""
    return [
        Checkpoint(pipeline, epoch, EpochKind(kind), EpochStatus(status), *rest)
        for pipeline, epoch, kind, status, *rest in _LISTED.rows(
            conn, {"of": incarnation, "most": most}
        )
    ]


def kind_of(conn: Connection, incarnation: str, pipeline: int, epoch: int) -> EpochKind | None:
    row = _KIND.row(conn, {"of": incarnation, "place": pipeline, "number": epoch})
    return EpochKind(row[0]) if row else None


def highest(conn: Connection, incarnation: str) -> int:
    """The highest id that any pipeline ever had, also one that was aborted: its token is spent."""
    row = _HIGHEST.row(conn, {"of": incarnation})
    return int(row[0]) if row and row[0] is not None else 0


def open_ones(conn: Connection, incarnation: str) -> Mapping[int, int]:
    """By pipeline: its oldest epoch that is planned or prepared."""
    rows = _OPEN_ONES.rows(conn, {"of": incarnation})
    return dict(rows)


def ready_by(conn: Connection, incarnation: str, pipeline: int, epoch: int) -> Sequence[str]:
    """The sources that had read everything when this epoch was complete."""
    asked = {"of": incarnation, "place": pipeline, "number": epoch}
    return [source for (source,) in _READY_BY.rows(conn, asked)]
