"""Open a store, and hide what SQLite and PostgreSQL do differently.

A transaction is a writer from its first statement on, or it only reads. Every wait that the
database may impose is shorter than the lease's ttl, so that a leader which is paused inside a
transaction holds up its successor for a bounded time (L2), and a leader that waits for a lock
notices in time that it no longer leads.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import psycopg
from sqlalchemy import (
    URL,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    literal,
    make_url,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from headrace.clock import SystemClock
from headrace.errors import (
    BadSetting,
    KeyRefused,
    ProgramTooOld,
    StoreBusy,
    StoreRefused,
    StoreUnavailable,
)
from headrace.store.faults import store_errors, where
from headrace.store.keyring import KeyFile, Keyring, KeySource, own_file
from headrace.store.prepared import execute
from headrace.store.turns import Turns, turns_at

TTL_S = 3.0  # of the leader's lease
WAIT_SHARE = 2 / 3  # of the ttl: the longest that a statement, a lock or silence may take
LOCK_SHARE = 1 / 3  # of the ttl: the longest wait for a row, for a turn, for SQLite's write lock
POOL_CONNECTIONS = 5  # kept open; the writer keeps one of them, routes read with the rest
POOL_OVERFLOW_CONNECTIONS = 5
CONNECT_TIMEOUT_MIN_S = 2  # libpq rounds anything shorter up to this
TOUCH_TRIES, TOUCH_PAUSE_S = 20, 0.02
OLDEST_SQLITE = (3, 38, 0)  # the first with `->>`
OLDEST_POSTGRESQL = 13

FORMS = "sqlite:///path/to/store.db or postgresql://user@host:5432/database"
_WRITER = "headrace_writer"  # the execution option that makes a transaction a writer
_TURNS = "headrace_turns"  # of an engine: how writers of this process take turns
_WAIT_S = "headrace_wait_s"  # of an engine: how long a turn is waited for
_KEYRING = "headrace_keyring"  # of an engine: the keys that its secrets are encrypted under
_WRITES = "headrace_writes"  # of an engine: how its latest write went
_CLOCK = SystemClock()


def open_store(url: str, *, ttl_s: float = TTL_S, keys: KeySource | None = None) -> Engine:
    """Open the store at `url` and prove that it answers and keeps what it is given.

    The schema is not looked at: `prepare_store` does that. The caller disposes of the engine.
    `keys`: those of its secrets. Beside a SQLite store lies a file with one, unless another file
    is named.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(parsed, ttl_s=ttl_s, keys=keys)
    return _open_postgresql(parsed, ttl_s=ttl_s, keys=keys)


def keyring_of(conn: Connection | Engine) -> Keyring:
    """The keys that the store was opened with."""
    engine = conn if isinstance(conn, Engine) else conn.engine
    return engine.get_execution_options()[_KEYRING]


def with_keyring(engine: Engine, keyring: Keyring) -> Engine:
    """The same engine, for a store whose secrets are encrypted under these keys."""
    engine.update_execution_options(**{_KEYRING: keyring})
    return engine


def is_sqlite(engine: Engine | Connection) -> bool:
    return engine.dialect.name == "sqlite"


@contextmanager
def writing(engine: Engine) -> Generator[Connection]:
    """Open one write transaction; commit it at the end, or undo it when the body raises.

    StoreUnavailable says that the store was away or busy. The commit may have landed all the
    same, so whoever repeats the work must find its own effect; `in_tx` repeats it.
    """
    with (
        _write_errors(engine),
        _turn(engine),
        engine.connect() as conn,
        conn.execution_options(**{_WRITER: True}).begin(),
    ):
        yield conn


@contextmanager
def reading(engine: Engine) -> Generator[Connection]:
    """Only read, and never wait behind a writer. On SQLite all that is read is of one moment."""
    with store_errors(engine), engine.connect() as conn:
        # In a transaction, too, PostgreSQL would show each statement what is committed by then.
        yield conn if is_sqlite(conn) else conn.execution_options(isolation_level="AUTOCOMMIT")


def open_writer(engine: Engine) -> Connection:
    """Open a connection to keep, for `writing_on`. The caller closes it."""
    with store_errors(engine):
        return engine.connect().execution_options(**{_WRITER: True})


@contextmanager
def writing_on(conn: Connection) -> Generator[None]:
    """As `writing`, on a connection that is kept. After a lost one it connects anew."""
    with _write_errors(conn.engine), _turn(conn.engine), conn.begin():
        yield


@dataclass(slots=True)
class _Writes:
    failed_at_s: float | None = None  # the latest write, on the monotonic clock


@contextmanager
def _write_errors(engine: Engine) -> Generator[None]:
    """As `store_errors`, and remember whether the store could be written."""
    writes = _writes_of(engine)
    try:
        with store_errors(engine):
            yield
    except (StoreBusy, ProgramTooOld, KeyRefused):
        raise  # it could be written, by others
    except (StoreUnavailable, StoreRefused):
        writes.failed_at_s = _CLOCK.monotonic_s()
        raise
    writes.failed_at_s = None


def _writes_of(engine: Engine) -> _Writes:
    """Of an engine that was not opened here, nothing is remembered."""
    return engine.get_execution_options().get(_WRITES) or _Writes()


def write_failed_s_ago(engine: Engine) -> float | None:
    """How long ago the latest write of an engine failed; None: it did not, or there was none."""
    failed_at_s = _writes_of(engine).failed_at_s
    return None if failed_at_s is None else _CLOCK.monotonic_s() - failed_at_s


def open_session(engine: Engine) -> psycopg.Connection[Any]:
    """Open a PostgreSQL session of its own, in autocommit mode, which the pool never reuses.

    For what belongs to a session: an advisory lock, a LISTEN. Use it in `store_errors`; close it.
    """
    pooled = engine.raw_connection()
    pooled.detach()
    session = pooled.dbapi_connection
    assert isinstance(session, psycopg.Connection)
    session.set_autocommit(True)
    return session


@contextmanager
def _turn(engine: Engine) -> Generator[None]:
    """On SQLite, the writers of this process go one after the other, in order."""
    turns: Turns | None = engine.get_execution_options().get(_TURNS)
    if turns is None:
        yield
        return
    try:
        turn = ExitStack()
        turn.enter_context(turns.turn(engine.get_execution_options()[_WAIT_S]))
    except TimeoutError as error:
        raise StoreUnavailable(
            f"store {where(engine)} is busy: writers of this process wait too long"
        ) from error
    with turn:
        yield


def in_byte_order(conn: Connection, column: Column[str]) -> ColumnElement[str]:
    """The column, compared byte by byte: what begins with a text is a range of it.

    SQLite's indexes are so. PostgreSQL's are in the order of a language, in which "aa" may stand
    behind "z", and don't serve it.
    """
    return column if is_sqlite(conn) else column.collate("C")


def insert_new(conn: Connection, table: Table, **values: object) -> bool:
    """Insert a row, unless one with the same key is there. False: one was there.

    On PostgreSQL it waits for a rival that inserted the same key and has not committed yet.
    """
    insert = sqlite.insert(table) if is_sqlite(conn) else postgresql.insert(table)
    statement = insert.values(**values).on_conflict_do_nothing().returning(literal(1))
    return conn.execute(statement).one_or_none() is not None


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        # The text may hold a password, so it is not repeated.
        raise BadSetting(f"the store's URL can not be read; write it as {FORMS}") from error
    match parsed.drivername:
        case "sqlite" | "sqlite+pysqlite":
            if not parsed.database or parsed.database == ":memory:":
                raise BadSetting(
                    f"store {url!r} names no file, and a store must outlive its process; "
                    "write it as sqlite:///path/to/store.db"
                )
            path = Path(parsed.database).absolute()
            return parsed.set(drivername="sqlite+pysqlite", database=str(path))
        case "postgresql" | "postgres" | "postgresql+psycopg":
            return parsed.set(drivername="postgresql+psycopg")
        case scheme:
            raise BadSetting(f"a store can not be a {scheme!r} database; write it as {FORMS}")


def _open_sqlite(url: URL, *, ttl_s: float, keys: KeySource | None) -> Engine:
    path = Path(str(url.database))
    _check_file(path)
    # For its owner only: it holds secrets. One that exists must not be opened here, since closing
    # it again would drop the locks that SQLite has on it in this process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    engine = create_engine(
        url,
        # The driver would begin at the first write only, so that a read before it, such as the
        # check of a fence, is outside the transaction and proves nothing. Ours is the only BEGIN.
        connect_args={"isolation_level": None, "timeout": ttl_s * LOCK_SHARE},
        hide_parameters=True,  # in errors, and so in logs: there are secrets among them
        pool_size=POOL_CONNECTIONS,
        max_overflow=POOL_OVERFLOW_CONNECTIONS,
        pool_timeout=ttl_s * WAIT_SHARE,
        execution_options={
            _TURNS: turns_at(str(path)),
            _WAIT_S: ttl_s * LOCK_SHARE,
            _WRITES: _Writes(),
        },
    )
    own = None if isinstance(keys, KeyFile) else own_file(path)
    with_keyring(engine, Keyring(keys, own))

    @event.listens_for(engine, "connect")
    def set_up(dbapi: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        with closing(dbapi.cursor()) as cursor:
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=FULL")
            cursor.execute("PRAGMA foreign_keys=ON")
            cursor.execute("PRAGMA secure_delete=ON")  # a secret that is deleted is overwritten

    @event.listens_for(engine, "begin")
    def begin(conn: Connection) -> None:
        writer = conn.get_execution_options().get(_WRITER, False)
        execute(conn, "BEGIN IMMEDIATE" if writer else "BEGIN DEFERRED")

    try:
        _touch(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _touch(engine: Engine) -> None:
    """Read once. SQLite does not wait, it fails, while another program makes the file a WAL one."""
    for tries_left in reversed(range(TOUCH_TRIES)):
        try:
            _probe(engine, "SELECT count(*) FROM sqlite_master")
        except StoreUnavailable:
            if not tries_left:
                raise
            Event().wait(TOUCH_PAUSE_S)
        else:
            return


def _check_file(path: Path) -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreRefused(
            f"Python's SQLite is {sqlite3.sqlite_version}, and the store needs {needed} or newer; "
            "use a newer Python, or a PostgreSQL store"
        )
    folder = path.parent
    if not folder.is_dir():
        raise StoreRefused(f"store {path}: there is no folder {folder}; create it first")
    if path.is_dir():
        raise StoreRefused(f"store {path} is a folder; name a file in it, e.g. {path}/store.db")
    if not os.access(folder, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise StoreRefused(
            f"store {path}: this user may not write there (the file, and files beside it in "
            f"{folder}); change its permissions, or name another place"
        )


def _open_postgresql(url: URL, *, ttl_s: float, keys: KeySource | None) -> Engine:
    engine = create_engine(
        url,
        connect_args=_connect_args(url, ttl_s=ttl_s),
        hide_parameters=True,  # in errors, and so in logs: there are secrets among them
        pool_size=POOL_CONNECTIONS,
        max_overflow=POOL_OVERFLOW_CONNECTIONS,
        pool_timeout=ttl_s * WAIT_SHARE,
        pool_pre_ping=True,  # after a restart of the server the first request is served, too
        execution_options={_WRITES: _Writes()},
    )
    with_keyring(engine, Keyring(keys))
    try:
        _check_server(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _check_server(engine: Engine) -> None:
    number, fsync, synchronous_commit = _probe(
        engine,
        "SELECT current_setting('server_version_num'), current_setting('fsync'),"
        " current_setting('synchronous_commit')",
    )
    if (version := int(number) // 10_000) < OLDEST_POSTGRESQL:
        raise StoreRefused(
            f"store {where(engine)} is PostgreSQL {version}, and the store needs "
            f"{OLDEST_POSTGRESQL} or newer; upgrade the server, or name another store"
        )
    for name, value in (("fsync", fsync), ("synchronous_commit", synchronous_commit)):
        if value == "off":
            raise StoreRefused(
                f"store {where(engine)} runs with {name}=off and may forget what it confirmed; "
                f"set {name}=on for this server, database and user"
            )


def _connect_args(url: URL, *, ttl_s: float) -> dict[str, str | int]:
    wait_ms, lock_ms = int(ttl_s * WAIT_SHARE * 1000), int(ttl_s * LOCK_SHARE * 1000)
    probe_s = max(1, round(ttl_s / 3))
    session = {
        "default_transaction_isolation": r"read\ committed",
        "idle_in_transaction_session_timeout": wait_ms,
        "statement_timeout": wait_ms,
        "lock_timeout": lock_ms,
        # The server, too, must notice a client whose cable was cut, and free its locks.
        "tcp_keepalives_idle": probe_s,
        "tcp_keepalives_interval": probe_s,
        "tcp_keepalives_count": 2,
    }
    own = " ".join(f"-c {name}={value}" for name, value in session.items())
    given = url.query.get("options", "")
    return {
        "options": f"{given if isinstance(given, str) else ' '.join(given)} {own}".strip(),
        "application_name": "headrace",
        "connect_timeout": max(CONNECT_TIMEOUT_MIN_S, round(ttl_s * WAIT_SHARE)),
        "keepalives": 1,
        "keepalives_idle": probe_s,
        "keepalives_interval": probe_s,
        "keepalives_count": 2,
        "tcp_user_timeout": wait_ms,
    }


def _probe(engine: Engine, question: str) -> tuple[str, ...]:
    """Ask the store one thing, so that a wrong address is an error now and not later."""
    with store_errors(engine, opening=True), engine.connect() as conn:
        return tuple(map(str, conn.execute(text(question)).one()))
