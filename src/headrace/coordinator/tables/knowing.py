"""What is known of a table's partitions and files, as its tasks are told."""

from __future__ import annotations

from sqlalchemy import Connection

from headrace.model.tables.backoff import left_out
from headrace.protocol.tables import CLOCKS_MAX, Clocks, Times
from headrace.store import lake
from headrace.store.lake import LakeTable


def clocks_for(conn: Connection, table: LakeTable) -> Clocks:
    return {key: _times(told) for key, told in lake.clocks_of(conn, table.id).items()}


def _times(told: list[int | None]) -> Times:
    minor, major, full, seen = told
    return minor, major, full, seen


def kept(clocks: Clocks) -> Clocks:
    """As many as are kept: those that something happened to last. What is dropped counts as never
    optimized, and a plan must gain anyway."""
    if len(clocks) <= CLOCKS_MAX:
        return clocks
    latest = sorted(clocks.items(), key=lambda item: max(t or 0 for t in item[1]), reverse=True)
    return dict(latest[:CLOCKS_MAX])


def left_out_of(conn: Connection, table: LakeTable) -> tuple[str, ...]:
    """Files that failed too often, and are not to be touched."""
    return tuple(sorted(left_out(lake.file_failures_of(conn, table.id))))
