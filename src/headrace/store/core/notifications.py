"""Wake-ups: learn that some process wrote to the store, instead of polling all the time.

A wake-up is a hint to look, not a message: it may come for nothing, and a waiter looks again after
its timeout anyway. PostgreSQL sends a NOTIFY; on SQLite a number that is cheap to read changes.
"""

from __future__ import annotations

import logging
import selectors
import socket
import sqlite3
from contextlib import closing
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Connection, Engine, text

from headrace.clock import Clock, SystemClock
from headrace.errors import StoreUnavailable
from headrace.store.core.driver_errors import session_errors, store_errors
from headrace.store.core.engine import is_sqlite, open_session

if TYPE_CHECKING:
    import psycopg

CHANNEL = "headrace"
POLL_S = 0.01  # how often SQLite's number is read; this costs 1 % of a core
RECONNECT_PAUSE_S = 0.5

log = logging.getLogger(__name__)


class Waker(Protocol):
    """Waits for writes to the store."""

    def wait(self, timeout_s: float) -> bool:
        """Wait until somebody wrote, at most `timeout_s`. True: look again now.

        What was written since the last call, or since opening, is not missed. For one thread only.
        """
        ...

    def close(self) -> None:
        """End a wait that is under way, from any thread, and free the connection. Call it once."""
        ...


def open_waker(engine: Engine, *, clock: Clock | None = None) -> Waker:
    if is_sqlite(engine):
        return FileWaker(str(engine.url.database), clock=clock or SystemClock())
    return SessionWaker(engine, clock=clock or SystemClock())


def notify(conn: Connection) -> None:
    """Wake all waiters when this transaction commits. On SQLite every commit does so by itself."""
    if not is_sqlite(conn):
        conn.execute(text("SELECT pg_notify(:channel, '')"), {"channel": CHANNEL})


class FileWaker:
    """Polls `PRAGMA data_version`, which changes when another connection has committed."""

    def __init__(self, path: str, *, clock: Clock) -> None:
        self._clock = clock
        self._closed = Event()
        self._lock = Lock()  # a wait holds it; `close` takes it before it frees the connection
        self._conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._seen = self._version()

    def wait(self, timeout_s: float) -> bool:
        end_s = self._clock.monotonic_s() + timeout_s
        with self._lock:
            while not self._closed.is_set():
                if (version := self._version()) != self._seen:
                    self._seen = version
                    return True
                left_s = end_s - self._clock.monotonic_s()
                if left_s <= 0:
                    return False
                self._closed.wait(min(POLL_S, left_s))
        return False

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            self._conn.close()

    def _version(self) -> int:
        with closing(self._conn.execute("PRAGMA data_version")) as cursor:
            return cursor.fetchone()[0]


class SessionWaker:
    """LISTENs on a PostgreSQL session outside of the pool; after a reconnect it wakes its
    waiter."""

    def __init__(self, engine: Engine, *, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._closed = Event()
        self._lock = Lock()
        self._session: psycopg.Connection[Any] | None = _listen(engine)
        # Closing the sender ends a wait, which selects on the receiver.
        self._close_sender, self._close_receiver = socket.socketpair()

    def wait(self, timeout_s: float) -> bool:
        end_s = self._clock.monotonic_s() + timeout_s
        with self._lock:
            if self._closed.is_set():
                return False
            if self._session is None:
                return self._reconnect(end_s)
            try:
                return self._wait_for_notify(self._session, end_s)
            except session_errors(self._engine) as error:
                log.warning("wake-up session lost", extra={"reason": str(error)})
                self._drop()
                return self._reconnect(end_s)

    def close(self) -> None:
        self._closed.set()
        self._close_sender.close()
        with self._lock:
            self._drop()
            self._close_receiver.close()

    def _wait_for_notify(self, session: psycopg.Connection[Any], end_s: float) -> bool:
        """Wait for a notification. False: the time is up, or `close` was called."""
        with selectors.DefaultSelector() as selector:
            selector.register(session.fileno(), selectors.EVENT_READ)
            selector.register(self._close_receiver, selectors.EVENT_READ)
            # The queue is drained before each select: a notification may have arrived with an
            # earlier answer, when the socket stays silent; and what arrives may be something
            # else, such as the server's message that it shuts down.
            while not self._closed.is_set():
                if _drain(session):
                    return True
                left_s = end_s - self._clock.monotonic_s()
                if left_s <= 0:
                    return False
                selector.select(left_s)
        return False

    def _reconnect(self, end_s: float) -> bool:
        """Reconnect within the time left. True: done, and any number of wake-ups may have been
        missed."""
        while True:
            try:
                self._session = _listen(self._engine)
            except StoreUnavailable:
                left_s = end_s - self._clock.monotonic_s()
                if left_s <= 0 or self._closed.wait(min(RECONNECT_PAUSE_S, left_s)):
                    return False
            else:
                return True

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _drain(session: psycopg.Connection[Any]) -> bool:
    """Consume all notifications that have arrived. Whether there were any."""
    return len(list(session.notifies(timeout=0))) > 0


def _listen(engine: Engine) -> psycopg.Connection[Any]:
    with store_errors(engine):
        session = open_session(engine)
        session.execute(f"LISTEN {CHANNEL}")
        return session
