"""A writer on its own thread, which a test holds and lets go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine

from headrace.coordinator.context import Metrics
from headrace.coordinator.sync.answers import BatchEffects
from headrace.coordinator.sync.writer import Writer
from headrace.errors import LeaderFenced
from headrace.seams import arm
from headrace.store.core import leases
from headrace.store.core.engine import writing
from headrace.store.core.transactions import Term
from tests.coordinator.leader_harness import LeaderHarness

BOUND_S = 120.0  # for a state to come, also on a busy machine


@dataclass
class WriterHarness:
    """The writer of a desk's term, and what it called for."""

    desk: LeaderHarness
    writer: Writer
    fenced: list[LeaderFenced] = field(default_factory=list[LeaderFenced])
    touched: list[BatchEffects] = field(default_factory=list[BatchEffects])
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
def opened(desk: LeaderHarness, term: Term | None = None) -> Generator[WriterHarness]:
    fenced: list[LeaderFenced] = []
    touched: list[BatchEffects] = []
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
    yield WriterHarness(desk, writer, fenced, touched, ended)
    writer.stop(timeout_s=BOUND_S)


def take_the_lease(store: Engine) -> None:
    with writing(store) as conn:
        assert leases.take(conn, leases.read(conn), holder="rival", address="http://r:1")


def poison(_: Connection) -> None:
    raise ZeroDivisionError
