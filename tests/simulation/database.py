"""The store: real statements on one real SQLite connection, whose commits may fail either way.

All processes share the connection, so no two transactions are ever open at once: what depends on
that (read committed, SKIP LOCKED, deadlocks) is for the tests on real PostgreSQL.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import StaticPool

from headrace.store.core.engine import with_keyring
from headrace.store.core.keyring import Keyring, own_file
from headrace.store.core.schema import metadata
from headrace.store.migrate import prepare_store
from tests.simulation.faults import AT_STORE, AT_STORED, Faults
from tests.simulation.world import Crash, the_world
from tests.stores import KEY, KEYS, open_store

Committed = Callable[[str, int | None, list[str]], None]  # actor, its thread's term, statements
_WRITER = "headrace_writer"  # the product's own option, which makes a transaction a writer


class Wire(sqlite3.Connection):
    """The connection. Everything that any process asks of the store goes through here."""

    faults: Faults | None = None
    committed: Committed | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.writes: list[str] = []
        self.digest = hashlib.blake2b(digest_size=16)
        self.commits = 0
        self._looking = False

    def trace(self, statement: str) -> None:
        if self._looking:
            return
        self.digest.update(statement.encode())
        if statement[:6] in {"UPDATE", "INSERT", "DELETE"}:
            self.writes.append(statement)

    def cursor(self, *args: Any, **kwargs: Any) -> sqlite3.Cursor:
        process = the_world().process
        if process is not None:
            if process.dead:
                raise Crash
            if process.storeless_until_s > the_world().now_s:
                raise _away("the store does not answer")
        return super().cursor(*args, **kwargs)

    def look(self, query: str) -> list[tuple[Any, ...]]:
        """For invariants: not part of the history."""
        self._looking = True
        try:
            return super().execute(query).fetchall()
        finally:
            self._looking = False

    def close(self) -> None:
        """It is everybody's: one process that loses it does not lose it for the others."""
        self.rollback()

    def rollback(self) -> None:
        self.writes.clear()
        super().rollback()

    def commit(self) -> None:
        if not self.in_transaction:
            return
        world, writes = the_world(), list(self.writes)
        if not writes:
            super().commit()
            return
        try:
            self._meet("store commit", AT_STORE)
        except BaseException:
            self.rollback()
            raise
        super().commit()
        self.commits += 1
        self.writes.clear()
        process = world.process
        if self.committed is not None and process is not None:
            self.committed(process.actor, world.fiber.term, writes)
        self._meet("store committed", AT_STORED)

    def _meet(self, point: str, kinds: tuple[str, ...]) -> None:
        if self.faults is not None and self.faults.meet(point, kinds):
            raise _away("the answer got lost")


def _away(reason: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(reason)
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


@cache
def _template() -> bytes:
    """An empty store, as the product's own migrations make it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "store.db"
        own_file(file).write([KEY])
        engine = open_store(f"sqlite:///{file}")
        prepare_store(engine)
        engine.dispose()
        source, copy = sqlite3.connect(file), sqlite3.connect(":memory:")
        source.backup(copy)
        image = bytearray(copy.serialize())
        source.close()
        copy.close()
    image[18:20] = b"\x01\x01"  # not a WAL file: an image of one can't be opened
    return bytes(image)


class Database:
    """Made once for many histories: `reset` empties it."""

    def __init__(self) -> None:
        template = _template()
        self.wire = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, factory=Wire
        )
        self.wire.deserialize(template)
        self.wire.execute("PRAGMA foreign_keys=ON")
        self.engine = _engine(self.wire)
        self.wire.set_trace_callback(self.wire.trace)

    def reset(self, faults: Faults, committed: Committed) -> None:
        self.wire.set_trace_callback(None)
        if self.wire.in_transaction:
            sqlite3.Connection.rollback(self.wire)
        for table in reversed(metadata.sorted_tables):  # cheaper than a new store
            if table.name != "facts":
                sqlite3.Connection.execute(self.wire, f"DELETE FROM {table.name}")
        # Facts of the store itself stay; those of what was in it are named after that.
        sqlite3.Connection.execute(self.wire, "DELETE FROM facts WHERE name LIKE '%.%'")
        self.wire.set_trace_callback(self.wire.trace)
        self.wire.faults, self.wire.committed = faults, committed
        self.wire.digest = hashlib.blake2b(digest_size=16)
        self.wire.commits = 0
        self.wire.writes.clear()

    def backup(self) -> sqlite3.Connection:
        """The store as it is now, as an online backup copies it."""
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        sqlite3.Connection.backup(self.wire, copy)
        return copy

    def rewind(self, copy: sqlite3.Connection) -> None:
        """All that was committed since is gone."""
        self.wire.set_trace_callback(None)
        copy.backup(self.wire)
        copy.close()
        self.wire.set_trace_callback(self.wire.trace)


def _engine(wire: Wire) -> Engine:
    engine = create_engine("sqlite://", creator=lambda: wire, poolclass=StaticPool)

    @event.listens_for(engine, "begin")
    def begin(conn: Connection) -> None:
        if conn.get_execution_options().get(_WRITER, False):
            conn.exec_driver_sql("BEGIN IMMEDIATE")

    vars(engine)["dispose"] = lambda: None  # it is everybody's
    return with_keyring(engine, Keyring(KEYS))
