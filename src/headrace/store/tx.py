"""Run a whole transaction again when the database was only briefly away."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TypeVar

from sqlalchemy import Connection, Engine

from headrace.errors import StoreUnavailable
from headrace.seams import seam
from headrace.store.engine import writing

T = TypeVar("T")
PAUSES_S = (0.1, 0.5, 2.0)  # between tries, so at most four


def in_tx(engine: Engine, work: Callable[[Connection], T], *, stop: Event) -> T:
    """Run `work` in one write transaction, and again from its start if the store was away.

    `work` may run again after its commit landed and only the answer was lost. So it must find
    its own effect (an expected old value, a unique key) and never add blindly; it touches
    nothing but `conn`, and returns what it found. After the last try, or when `stop` is set,
    StoreUnavailable gets out. All other errors get out at once.
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
        found = work(conn)
    seam("transaction committed")
    return found
