"""Write only while you lead (L1)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, select

from headrace.errors import LeaderFenced
from headrace.seams import seam
from headrace.store.engine import writing
from headrace.store.prepared import Prepared
from headrace.store.schema import leases

LEADER = "leader"  # the one row of `leases`

_CURRENT = Prepared(
    select(leases.c.epoch, leases.c.holder)
    .where(leases.c.name == LEADER)
    .with_for_update(read=True, key_share=True)
)


@dataclass(frozen=True, slots=True)
class Term:
    """One period of leadership. Only winning an election makes one."""

    holder: str
    epoch: int


@contextmanager
def fenced(engine: Engine, term: Term) -> Generator[Connection]:
    """Open a transaction that can commit only while `term` is the current one.

    Keep it short: no network, no files, no long computing inside. On SQLite everybody waits
    for it, on PostgreSQL a successor does.
    """
    seam("before fenced transaction")
    with writing(engine) as conn:
        check_fence(conn, term)
        seam("in fenced transaction")
        yield conn
    seam("fenced transaction committed")


def check_fence(conn: Connection, term: Term) -> None:
    """Raise LeaderFenced unless `term` is current, and keep it current until the commit.

    `conn` must be inside a write transaction, before its first write. On PostgreSQL the lease
    row stays locked FOR KEY SHARE: a take-over, which changes the key column `epoch`, waits for
    the commit; a renewal, which does not, goes on. On SQLite the write lock does the same.
    """
    current = _CURRENT.row(conn)
    if current is None or current != (term.epoch, term.holder):
        raise LeaderFenced(held=term.epoch, current=current[0] if current else None)
