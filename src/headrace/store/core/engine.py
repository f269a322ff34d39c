"""Open a store, and hide the differences between SQLite and PostgreSQL.

A transaction is a writer from its first statement on, or it only reads. Every wait that the
database may impose is shorter than the lease's ttl: so a leader that is paused inside a transaction
holds up its successor for a bounded time only (L2), and a leader that waits for a lock notices in
time that it no longer leads.

`FairLock` queues the writers of one process at a SQLite file, first come, first served. SQLite lets
a waiting writer sleep and try again, so that one which writes all the time starves the others; the
lease of a busy leader would run out for want of a renewal. Between processes there is nothing
better than SQLite's own waiting, and little is needed.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

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
    ExtraMissing,
    KeyRefused,
    ProgramTooOld,
    StoreBusy,
    StoreRefused,
    StoreUnavailable,
)
from headrace.store.core.driver_errors import (
    store_errors,
    store_name,
)
from headrace.store.core.keyring import KeyFile, Keyring, KeySource, own_file
from headrace.store.core.prepared_statements import execute

if TYPE_CHECKING:
    import psycopg

TTL_S = 3.0  # of the leader's lease
WAIT_SHARE = 2 / 3  # of the ttl: the longest that a statement, a lock or silence may take
LOCK_SHARE = 1 / 3  # of the ttl: the longest wait for a row, for a turn, for SQLite's write lock
POOL_CONNECTIONS = 5  # kept open; the writer holds one of them, API routes read with the rest
POOL_OVERFLOW_CONNECTIONS = 5
CONNECT_TIMEOUT_MIN_S = 2  # libpq rounds anything shorter up to this
TOUCH_TRIES, TOUCH_PAUSE_S = 20, 0.02
OLDEST_SQLITE = (3, 38, 0)  # the first with `->>`
OLDEST_POSTGRESQL = 13

FORMS = "sqlite:///path/to/store.db or postgresql://user@host:5432/database"
_WRITER = "headrace_writer"  # the execution option that makes a transaction a writer
_FAIR_LOCK = "headrace_turns"  # of an engine: the FairLock that queues writers of this process
_WAIT_S = "headrace_wait_s"  # of an engine: the longest wait for that lock
_KEYRING = "headrace_keyring"  # of an engine: the keys that its secrets are encrypted under
_WRITES = "headrace_writes"  # of an engine: whether its latest write failed
_CLOCK = SystemClock()


def open_store(url: str, *, ttl_s: float = TTL_S, keys: KeySource | None = None) -> Engine:
    """Open the store at `url`, and prove that it answers and keeps what it is given.

    The schema is not looked at: `prepare_store` does that. The caller disposes of the engine.
    `keys` are those of the store's secrets; a SQLite store has a file with one beside it, unless
    another file is named.
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
    """Open one write transaction; commit it at the end, or roll it back when the body raises.

    StoreUnavailable says that the store was away or busy. The commit may have landed all the same,
    so repeating the work must be idempotent; `in_tx` repeats it.
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
    """Only read, and never wait for a writer. On SQLite the reads see one snapshot."""
    with store_errors(engine), engine.connect() as conn:
        # A transaction would be of no use on PostgreSQL: at READ COMMITTED each statement sees
        # what is committed by then.
        yield conn if is_sqlite(conn) else conn.execution_options(isolation_level="AUTOCOMMIT")


def open_writer(engine: Engine) -> Connection:
    """Open a connection to keep, for `writing_on`. The caller closes it."""
    with store_errors(engine):
        return engine.connect().execution_options(**{_WRITER: True})


@contextmanager
def writing_on(conn: Connection) -> Generator[None]:
    """Like `writing`, on a connection that is kept. After a lost connection it reconnects."""
    with _write_errors(conn.engine), _turn(conn.engine), conn.begin():
        yield


@dataclass(slots=True)
class _Writes:
    """Whether the latest write of an engine failed."""

    failed_at_s: float | None = None  # on the monotonic clock; None: the latest write did not fail


@contextmanager
def _write_errors(engine: Engine) -> Generator[None]:
    """Like `store_errors`, and remember whether the store could be written."""
    writes = _writes_of(engine)
    try:
        with store_errors(engine):
            yield
    except (StoreBusy, ProgramTooOld, KeyRefused):
        raise  # others can write to it, so the store itself is in order
    except (StoreUnavailable, StoreRefused):
        writes.failed_at_s = _CLOCK.monotonic_s()
        raise
    writes.failed_at_s = None


def _writes_of(engine: Engine) -> _Writes:
    """The record of an engine. One that was not opened here gets a record that nobody keeps."""
    return engine.get_execution_options().get(_WRITES) or _Writes()


def write_failed_s_ago(engine: Engine) -> float | None:
    """How long ago the latest write of an engine failed. None: it did not, or there was none."""
    failed_at_s = _writes_of(engine).failed_at_s
    return None if failed_at_s is None else _CLOCK.monotonic_s() - failed_at_s


def open_session(engine: Engine) -> psycopg.Connection[Any]:
    """Open a PostgreSQL session in autocommit mode that the pool never reuses.

    It is for what belongs to a session: an advisory lock, a LISTEN. Use it inside `store_errors`,
    and close it.
    """
    pooled = engine.raw_connection()
    pooled.detach()
    session = cast("psycopg.Connection[Any]", pooled.dbapi_connection)
    session.set_autocommit(True)
    return session


@contextmanager
def _turn(engine: Engine) -> Generator[None]:
    """On SQLite, let the writers of this process go one after the other, in order."""
    fair_lock: FairLock | None = engine.get_execution_options().get(_FAIR_LOCK)
    if fair_lock is None:
        yield
        return
    try:
        turn = ExitStack()
        turn.enter_context(fair_lock.turn(engine.get_execution_options()[_WAIT_S]))
    except TimeoutError as error:
        raise StoreUnavailable(
            f"store {store_name(engine)} is busy: writers of this process wait too long"
        ) from error
    with turn:
        yield


def in_byte_order(conn: Connection, column: Column[str]) -> ColumnElement[str]:
    """The column, compared byte by byte, so that all texts with one prefix are a range of it.

    SQLite's indexes have that order. PostgreSQL's follow a language, in which "aa" may come after
    "z", and can't be used for it.
    """
    return column if is_sqlite(conn) else column.collate("C")


def insert_new(conn: Connection, table: Table, **values: object) -> bool:
    """Insert a row, unless one with the same key is there. False: one was there.

    On PostgreSQL it waits for a rival that inserted the same key and has not committed yet.
    """
    insert = sqlite.insert(table) if is_sqlite(conn) else postgresql.insert(table)
    statement = insert.values(**values).on_conflict_do_nothing().returning(literal(1))
    return conn.execute(statement).one_or_none() is not None


def insert_absent(conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose keys are not there yet; the rows that are there stay as they are."""
    insert = sqlite.insert(table) if is_sqlite(conn) else postgresql.insert(table)
    conn.execute(insert.on_conflict_do_nothing(), [dict(row) for row in rows])


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
    # For its owner only, since it holds secrets. An existing file must not be opened here: closing
    # it again would drop the locks that SQLite has on it in this process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    engine = create_engine(
        url,
        # The driver would begin at the first write only: a read before it, such as the check of
        # the fence, would be outside the transaction and prove nothing. Ours is the only BEGIN.
        connect_args={"isolation_level": None, "timeout": ttl_s * LOCK_SHARE},
        hide_parameters=True,  # in errors, and so in logs: there are secrets among them
        pool_size=POOL_CONNECTIONS,
        max_overflow=POOL_OVERFLOW_CONNECTIONS,
        pool_timeout=ttl_s * WAIT_SHARE,
        execution_options={
            _FAIR_LOCK: fair_lock_at(str(path)),
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
    """Read once, with retries: SQLite fails at once while another program switches the file to
    WAL."""
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
    """Raise StoreRefused when SQLite is too old, or the file can't be created or written."""
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
    try:
        engine = create_engine(
            url,
            connect_args=_connect_args(url, ttl_s=ttl_s),
            hide_parameters=True,  # in errors, and so in logs: there are secrets among them
            pool_size=POOL_CONNECTIONS,
            max_overflow=POOL_OVERFLOW_CONNECTIONS,
            pool_timeout=ttl_s * WAIT_SHARE,
            pool_pre_ping=True,  # so that the first request after a restart of the server succeeds
            execution_options={_WRITES: _Writes()},
        )
    except ImportError as error:  # SQLAlchemy imports the driver when it makes an engine
        raise ExtraMissing("postgresql", "a PostgreSQL store needs psycopg") from error
    with_keyring(engine, Keyring(keys))
    try:
        _check_server(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _check_server(engine: Engine) -> None:
    """Raise StoreRefused when PostgreSQL is too old, or may lose what it confirmed."""
    number, fsync, synchronous_commit = _probe(
        engine,
        "SELECT current_setting('server_version_num'), current_setting('fsync'),"
        " current_setting('synchronous_commit')",
    )
    if (version := int(number) // 10_000) < OLDEST_POSTGRESQL:
        raise StoreRefused(
            f"store {store_name(engine)} is PostgreSQL {version}, and the store needs "
            f"{OLDEST_POSTGRESQL} or newer; upgrade the server, or name another store"
        )
    for name, value in (("fsync", fsync), ("synchronous_commit", synchronous_commit)):
        if value == "off":
            raise StoreRefused(
                f"store {store_name(engine)} runs with {name}=off and may forget what it "
                f"confirmed; set {name}=on for this server, database and user"
            )


def _connect_args(url: URL, *, ttl_s: float) -> dict[str, str | int]:
    """What libpq is told: time limits below the ttl, and keepalives that detect a dead peer."""
    wait_ms, lock_ms = int(ttl_s * WAIT_SHARE * 1000), int(ttl_s * LOCK_SHARE * 1000)
    probe_s = max(1, round(ttl_s / 3))
    session = {
        "default_transaction_isolation": r"read\ committed",
        "idle_in_transaction_session_timeout": wait_ms,
        "statement_timeout": wait_ms,
        "lock_timeout": lock_ms,
        # The server must notice a client whose network is cut, too, and free its locks.
        "tcp_keepalives_idle": probe_s,
        "tcp_keepalives_interval": probe_s,
        "tcp_keepalives_count": 2,
    }
    ours = " ".join(f"-c {name}={value}" for name, value in session.items())
    given = url.query.get("options", "")
    return {
        "options": f"{given if isinstance(given, str) else ' '.join(given)} {ours}".strip(),
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


class FairLock:
    """A mutex that is handed to its waiters in the order in which they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._queue: deque[threading.Event] = deque()

    @contextmanager
    def turn(self, timeout_s: float) -> Generator[None]:
        """Hold the lock in the body. Raises TimeoutError when it could not be had in time."""
        self._take(timeout_s)
        try:
            yield
        finally:
            self._pass_on()

    def _take(self, timeout_s: float) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Event()
            self._queue.append(mine)
        if mine.wait(timeout_s):
            return
        with self._lock:
            if mine not in self._queue:
                return  # the lock was passed on after the timeout, and is held now
            self._queue.remove(mine)
        raise TimeoutError

    def _pass_on(self) -> None:
        with self._lock:
            if self._queue:
                self._queue.popleft().set()
            else:
                self._taken = False


_by_file: WeakValueDictionary[str, FairLock] = WeakValueDictionary()
_lock = threading.Lock()


def fair_lock_at(file: str) -> FairLock:
    """The lock of a file, the same for every engine of this process that has it open."""
    with _lock:
        fair_lock = _by_file.get(file)
        if fair_lock is None:
            fair_lock = _by_file[file] = FairLock()
        return fair_lock
