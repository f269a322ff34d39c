"""Fenced and repeated write transactions.

`fenced` writes only while its term leads (L1). `in_tx` repeats a whole transaction when the store
was only briefly away.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TypeVar

from sqlalchemy import Connection, Engine, select

from headrace.errors import LeaderFenced, StoreUnavailable
from headrace.seams import seam
from headrace.store.core.engine import writing
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.core.schema import leases

T = TypeVar("T")
PAUSES_S = (0.1, 0.5, 2.0)  # back-off between tries: at most four of them
LEADER = "leader"  # the name of the only row of `leases`
_CURRENT = PreparedStatement(
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

    Keep it short: no network, no files, no long computation inside. On SQLite all writers wait for
    it, on PostgreSQL a successor does.
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


def in_tx(engine: Engine, work: Callable[[Connection], T], *, stop: Event) -> T:
    """Run `work` in one write transaction, and again from its start if the store was away.

    `work` may run again after its commit landed and only the answer was lost. So it must be
    idempotent: it recognises its own effect (an expected old value, a unique key) and never adds
    blindly. It touches nothing but `conn`, and returns its result. After the last try, or when
    `stop` is set, StoreUnavailable gets out. All other errors get out at once.
    """
    for pause_s in PAUSES_S:
        try:
            return _once(engine, work)
        except StoreUnavailable:
            if stop.wait(pause_s):
                raise
    return _once(engine, work)


def _once(engine: Engine, work: Callable[[Connection], T]) -> T:
    seam("before transaction")
    with writing(engine) as conn:
        result = work(conn)
    seam("transaction committed")
    return result
