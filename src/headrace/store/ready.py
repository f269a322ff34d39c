"""Ready to close: which sources of a pipeline have read everything, one row each (K1).

The row is written in the transaction that records the epoch of the last slice as prepared, so it
is there before anybody is told. From then on that epoch is only ever committed, so a source that
is ready stays ready.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, bindparam, delete, select

from headrace.model.epoch import EpochAt
from headrace.store.engine import insert_new
from headrace.store.prepared import Prepared
from headrace.store.schema import ready_sources


def add(conn: Connection, at: EpochAt, sources: Collection[str]) -> None:
    """Said twice it changes nothing: the first epoch stands."""
    for source in sorted(sources):
        insert_new(
            conn,
            ready_sources,
            incarnation=at.incarnation,
            pipeline=at.pipeline,
            source=source,
            epoch=at.epoch,
        )


_OF = Prepared(
    select(ready_sources.c.source, ready_sources.c.epoch)
    .where(
        ready_sources.c.incarnation == bindparam("of_incarnation"),
        ready_sources.c.pipeline == bindparam("of_pipeline"),
    )
    .order_by(ready_sources.c.source)
)


def of(conn: Connection, incarnation: str, pipeline: int) -> Mapping[str, int]:
    """By source: the epoch it was prepared in. Raises `TypeError` for what can't be read (K4)."""
    values = {"of_incarnation": incarnation, "of_pipeline": pipeline}
    found: dict[str, int] = {}
    for source, epoch in _OF.rows(conn, values):
        if not isinstance(source, str) or not isinstance(epoch, int):  # SQLite takes anything
            raise TypeError(f"who is ready to close: source {source!r} in epoch {epoch!r}")
        found[source] = epoch
    return found


def forget(conn: Connection, incarnation: str, *, but: Collection[int] = ()) -> None:
    """The job has ended (K3), or begins again elsewhere. `but`: pipelines that keep theirs."""
    conn.execute(
        delete(ready_sources).where(
            ready_sources.c.incarnation == incarnation,
            ready_sources.c.pipeline.not_in(sorted(but)),
        )
    )
