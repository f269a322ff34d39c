"""Hear that some process wrote to the store, so that nobody has to ask all the time.

A wake is a hint to look, not a message: it may come for nothing, and a waiter looks again after
its timeout anyway. PostgreSQL tells by NOTIFY; SQLite changes a number that is cheap to read.
"""

from __future__ import annotations

import logging
import selectors
import socket
import sqlite3
from contextlib import closing
from threading import Event, Lock
from typing import Any, Protocol

import psycopg
from sqlalchemy import Connection, Engine, text

from headrace.clock import Clock, SystemClock
from headrace.errors import StoreUnavailable
from headrace.store.engine import is_sqlite, open_session, store_errors

CHANNEL = "headrace"
POLL_S = 0.01  # how often SQLite's number is read: 1 % of a core
RECONNECT_PAUSE_S = 0.5

log = logging.getLogger(__name__)


class Waker(Protocol):
    def wait(self, timeout_s: float) -> bool:
        """Wait until somebody wrote, at most `timeout_s`. True: look again now.

        What was written since the last call (or since opening) is not missed. For one thread.
        """
        ...

    def close(self) -> None:
        """End a wait under way, from any thread, and free the connection. Once is enough."""
        ...


def open_waker(engine: Engine, *, clock: Clock | None = None) -> Waker:
    if is_sqlite(engine):
        return FileWaker(str(engine.url.database), clock=clock or SystemClock())
    return SessionWaker(engine, clock=clock or SystemClock())


def notify(conn: Connection) -> None:
    """Wake everybody who waits, when this transaction commits. On SQLite a commit does so."""
    if not is_sqlite(conn):
        conn.execute(text("SELECT pg_notify(:channel, '')"), {"channel": CHANNEL})


class FileWaker:
    """Reads `PRAGMA data_version`, which changes when another connection has committed."""

    def __init__(self, path: str, *, clock: Clock) -> None:
        self._clock = clock
        self._closed = Event()
        self._lock = Lock()  # held by a wait; `close` takes it to free the connection
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
    """LISTENs on a session of its own; reconnects by itself, and then wakes."""

    def __init__(self, engine: Engine, *, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._closed = Event()
        self._lock = Lock()
        self._session: psycopg.Connection[Any] | None = _listen(engine)
        self._bell, self._ear = socket.socketpair()  # `close` rings, a wait hears

    def wait(self, timeout_s: float) -> bool:
        end_s = self._clock.monotonic_s() + timeout_s
        with self._lock:
            if self._closed.is_set():
                return False
            if self._session is None:
                return self._reconnect(end_s)
            try:
                return self._hear(self._session, end_s)
            except psycopg.OperationalError as error:
                log.warning("wake-up session lost", extra={"reason": str(error)})
                self._drop()
                return self._reconnect(end_s)

    def close(self) -> None:
        self._closed.set()
        self._bell.close()
        with self._lock:
            self._drop()
            self._ear.close()

    def _hear(self, session: psycopg.Connection[Any], end_s: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(session.fileno(), selectors.EVENT_READ)
            selector.register(self._ear, selectors.EVENT_READ)
            # Drained first: a wake may have come in with an earlier answer, and the socket is
            # silent. And again: what arrives may be something else, such as a server's farewell.
            while not self._closed.is_set():
                if _drain(session):
                    return True
                left_s = end_s - self._clock.monotonic_s()
                if left_s <= 0:
                    return False
                selector.select(left_s)
        return False

    def _reconnect(self, end_s: float) -> bool:
        """Connect anew within the time left. True: done, and nobody knows what was missed."""
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
    """Take in all that has arrived. Whether there was anything."""
    return len(list(session.notifies(timeout=0))) > 0


def _listen(engine: Engine) -> psycopg.Connection[Any]:
    with store_errors(engine):
        session = open_session(engine)
        session.execute(f"LISTEN {CHANNEL}")
        return session
