"""What errors of the database drivers mean: the store is away, or it must not be used.

`store_errors` turns a driver's error into StoreUnavailable (the store is away: repeat) or
StoreRefused (it must not be used). Errors that are neither, such as a broken constraint or a wrong
statement, are bugs or a caller's own business, and pass through unchanged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.errors import HeadraceError, StoreBusy, StoreRefused, StoreUnavailable

_SQLITE_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SQLITE_AWAY = _SQLITE_BUSY | frozenset(
    {
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
_SQLITE_UNUSABLE = frozenset(
    {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
)
_PRIMARY_CODE = 0xFF  # SQLite's extended codes keep the primary one in the low byte

_POSTGRESQL_AWAY = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock
        "55P03",  # lock_timeout
        "57014",  # statement_timeout
        "57P01",  # the server shuts down
        "57P02",
        "57P03",  # the server starts up
        "57P05",  # idle session ended
        "25P03",  # idle in a transaction for too long
        "25006",  # read only: a standby that is not promoted yet
    }
)
_POSTGRESQL_AWAY_CLASSES = ("08", "53", "58")  # connection, resources, the server's own disk


def store_name(engine: Engine) -> str:
    """The store as messages name it, never with its user, its password or its options."""
    url = engine.url
    if engine.dialect.name == "sqlite":
        return str(url.database)
    host = url.host or url.query.get("host") or "localhost"
    return f"{host}:{url.port or 5432}/{url.database or ''}"


def session_errors(engine: Engine) -> tuple[type[Exception], ...]:
    """What a session outside of the pool raises when it is lost. SQLite has no such sessions.

    The classes are those of the driver that the engine has loaded: psycopg is not imported by
    name, since a coordinator on SQLite runs without it.
    """
    if engine.dialect.name == "sqlite":
        return ()
    return (engine.dialect.loaded_dbapi.OperationalError,)


@contextmanager
def store_errors(engine: Engine, *, opening: bool = False) -> Generator[None]:
    """Turn what the driver raises in the body into StoreUnavailable or StoreRefused."""
    try:
        yield
    except DBAPIError as error:
        store_error = _to_store_error(engine, error, opening=opening)
        if store_error is None:
            raise
        raise store_error from error
    except session_errors(engine) as error:
        raise StoreUnavailable(
            f"store {store_name(engine)} is not available: {_one_line(error)}"
        ) from error
    except PoolTimeout as error:
        raise StoreUnavailable(
            f"store {store_name(engine)}: all connections of this process are in use; try again"
        ) from error


def _to_store_error(engine: Engine, error: DBAPIError, *, opening: bool) -> HeadraceError | None:
    """The error of ours that `error` amounts to. None: the store is neither away nor unusable."""
    reason = _one_line(error.orig)
    code = getattr(error.orig, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if engine.dialect.name == "sqlite":
        if code in _SQLITE_UNUSABLE or (opening and code == sqlite3.SQLITE_CANTOPEN):
            return StoreRefused(
                f"store {store_name(engine)} can not be used: {reason}; "
                "name a SQLite file of headrace, or a new file in a folder this user may write to"
            )
        away = code in _SQLITE_AWAY
    else:
        away = _is_away(error)
    kind = StoreBusy if code in _SQLITE_BUSY else StoreUnavailable
    return kind(f"store {store_name(engine)} is not available: {reason}") if away else None


def _one_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())


def _is_away(error: DBAPIError) -> bool:
    """Whether PostgreSQL could not be reached, or refused work that may be repeated later."""
    state = getattr(error.orig, "sqlstate", None)
    if error.connection_invalidated:
        return True
    if state is None:  # no server has answered
        return isinstance(error, OperationalError)
    return state in _POSTGRESQL_AWAY or state.startswith(_POSTGRESQL_AWAY_CLASSES)
