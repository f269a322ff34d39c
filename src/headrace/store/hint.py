"""The take-over hint: something that lets go by itself when its holder's process dies.

Whoever gets it may take the lease before it is stale, so that a killed leader is replaced at
once instead of after the ttl. It is never the authority: a paused leader keeps it and loses
the lease all the same, and a lease may be taken without it. The fence decides (L1).
"""

from __future__ import annotations

import fcntl
import os
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol

import psycopg
from sqlalchemy import Engine

from headrace.store.engine import is_sqlite, open_session, store_errors

LOCK = 0x6865_6164_6C65_6164  # the key of PostgreSQL's advisory lock: "headlead"
SUFFIX = ".leader"  # of the locked file beside a SQLite store


class Hint(Protocol):
    def try_acquire(self) -> bool:
        """Hold the hint, or say at once that somebody else does. Again while held: True."""
        ...

    def release(self) -> None:
        """Let go of it, and of what it was held with. It may be acquired again later."""
        ...


def open_hint(engine: Engine) -> Hint:
    """The hint that belongs to the store. Use it from one thread."""
    if is_sqlite(engine):
        return FileHint(Path(str(engine.url.database) + SUFFIX))
    return SessionHint(engine)


class FileHint:
    """An flock beside the SQLite file; the kernel frees it when the process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def try_acquire(self) -> bool:
        if self._file is not None:
            return True
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._file = file
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)  # the file stays: deleted, two could lock two files of its name
            self._file = None


class SessionHint:
    """A session advisory lock; PostgreSQL frees it when the connection ends.

    The connection is out of the pool, which would hand it, lock and all, to somebody else.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session: psycopg.Connection[Any] | None = None
        self._held = False

    def try_acquire(self) -> bool:
        with store_errors(self._engine):
            if self._session is None:
                self._session = open_session(self._engine)
            try:
                return self._ask(self._session)
            except psycopg.OperationalError:
                self.release()  # the session is gone, and the lock with it; next time a new one
                raise

    def release(self) -> None:
        session, self._session = self._session, None
        held, self._held = self._held, False
        if session is None:
            return
        with closing(session):
            if held and not session.broken:
                # Closing frees it, too, but not before the server notices. Where this fails
                # the session has ended, and the lock with it.
                with suppress(psycopg.OperationalError):
                    session.execute("SELECT pg_advisory_unlock(%s)", [LOCK])

    def _ask(self, session: psycopg.Connection[Any]) -> bool:
        if self._held:
            # Locks of a session add up, so the lock is not asked for again; but the session
            # may have ended unnoticed.
            session.execute("SELECT 1")
        else:
            asked = session.execute("SELECT pg_try_advisory_lock(%s)", [LOCK])
            self._held = asked.fetchone() == (True,)
        return self._held
