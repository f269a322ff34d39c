"""Drive one kind of object towards what was asked for, one object at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy import Connection, Engine

from headrace.errors import Fenced, Unavailable
from headrace.store.engine import reading
from headrace.store.fence import Term, fenced

log = logging.getLogger(__name__)


class Reconciler(Protocol):
    name: str

    def due(self, conn: Connection, key: str) -> bool:
        """Whether `reconcile` would change anything: a read, so that nothing costs no write."""
        ...

    def reconcile(self, conn: Connection, key: str) -> None:
        """Read all there is about `key`, then write what brings it one step closer.

        It is not told why it was called, and calling it twice changes nothing.
        """
        ...


@dataclass(slots=True)
class Pass:
    done: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])


def run_once(engine: Engine, term: Term, reconciler: Reconciler, keys: Iterable[str]) -> Pass:
    """Reconcile each object that is due, in its own fenced transaction (T6)."""
    outcome = Pass()
    for key in keys:
        try:
            with reading(engine) as conn:
                due = reconciler.due(conn, key)
            if due:
                with fenced(engine, term) as conn:
                    reconciler.reconcile(conn, key)
                outcome.done.append(key)
        except (Fenced, Unavailable):
            raise  # no key is to blame, and the next pass finds them all again
        except Exception:
            log.exception("reconcile failed", extra={"reconciler": reconciler.name, "key": key})
            outcome.failed.append(key)
    return outcome
