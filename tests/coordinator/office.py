"""A writer on its own thread, which a test holds and lets go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine

from headrace.coordinator.drafts import Touched
from headrace.coordinator.metrics import Metrics
from headrace.coordinator.writer import Writer
from headrace.errors import LeaderFenced
from headrace.seams import arm
from headrace.store import leases
from headrace.store.engine import writing
from headrace.store.fence import Term
from tests.coordinator.desk import Desk

BOUND_S = 120.0  # for a state to come, also on a busy machine


@dataclass
class Office:
    """The writer of a desk's term, and what it called for."""

    desk: Desk
    writer: Writer
    fenced: list[LeaderFenced] = field(default_factory=list[LeaderFenced])
    touched: list[Touched] = field(default_factory=list[Touched])
    ended: threading.Event = field(default_factory=threading.Event)
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def hold(self) -> None:
        def wait() -> None:
            self.arrived.release()
            assert self.gate.acquire(timeout=BOUND_S)

        arm("before sync transaction", wait)

    def let_go(self) -> None:
        arm("before sync transaction", lambda: None)
        self.gate.release()

    def batch(self, *asks: Callable[[], Future[Any]]) -> list[Future[Any]]:
        """Ask all of these so that they make up one batch."""
        self.hold()
        first = self.writer.do(lambda _: None)
        assert self.arrived.acquire(timeout=BOUND_S)
        futures = [ask() for ask in asks]
        self.let_go()
        first.result(BOUND_S)
        return futures

    def sync(self, name: str, **said: Any) -> Callable[[], Future[Any]]:
        return lambda: self.writer.ask(self.desk.say(name, **said))


@contextmanager
def opened(desk: Desk, term: Term | None = None) -> Generator[Office]:
    fenced: list[LeaderFenced] = []
    touched: list[Touched] = []
    ended = threading.Event()
    writer = Writer(
        desk.store,
        term or desk.term,
        desk.dispatch,
        committed=touched.append,
        fenced=fenced.append,
        ended=ended.set,
        metrics=Metrics(),
    )
    writer.start()
    yield Office(desk, writer, fenced, touched, ended)
    writer.stop(timeout_s=BOUND_S)


def take_the_lease(store: Engine) -> None:
    with writing(store) as conn:
        assert leases.take(conn, leases.read(conn), holder="rival", address="http://r:1")


def poison(_: Connection) -> None:
    raise ZeroDivisionError
