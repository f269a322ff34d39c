"""Stores as tests open them: with the key that every store of the tests is encrypted under.

Processes that a test starts find the same key in their environment.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Dialect, Engine, update

from headrace.store.core import engine
from headrace.store.core.engine import keyring_of, with_keyring
from headrace.store.core.keyring import GivenKeys, KeyFile, Keyring, KeySource, SecretKey
from headrace.store.groups.groups import groups, resources
from headrace.store.tables.schema import catalogs, lake_tables, processes

KEY = SecretKey(bytes(range(32)))
KEYS = GivenKeys([KEY])

_dialects: dict[str, Dialect] = {}
_compiled: dict[Any, Any] = {}


def open_store(url: str, *, ttl_s: float = engine.TTL_S, keys: KeySource | None = KEYS) -> Engine:
    """Open a store as the product does.

    SQLAlchemy compiles each statement once for a dialect, and each engine has one of its own. Here
    all that speak to a kind of database share one: to compile the same again for the store of each
    test takes longer than most tests.
    """
    store = engine.open_store(url, ttl_s=ttl_s, keys=keys)
    store.dialect = _dialects.setdefault(store.dialect.name, store.dialect)
    store.update_execution_options(compiled_cache=_compiled)
    return store


@contextmanager
def key_away(store: Engine) -> Generator[None]:
    """The key was not read yet, and its file can't be read for a while."""
    held = keyring_of(store)
    with_keyring(store, Keyring(KeyFile(Path("/dev/null/no.key"))))
    try:
        yield
    finally:
        with_keyring(store, held)


def _given(conn: Connection, key: Column[Any], value: str, columns: dict[str, Any]) -> None:
    """Write columns of a row past every rule, as what a test begins with."""
    assert conn.execute(update(key.table).where(key == value).values(columns)).rowcount == 1


def given_table(conn: Connection, table_id: str, **columns: Any) -> None:
    _given(conn, lake_tables.c.id, table_id, columns)


def given_process(conn: Connection, process_id: str, **columns: Any) -> None:
    _given(conn, processes.c.id, process_id, columns)


def given_catalog(conn: Connection, name: str, **columns: Any) -> None:
    _given(conn, catalogs.c.name, name, columns)


def given_group(conn: Connection, name: str, **columns: Any) -> None:
    _given(conn, groups.c.name, name, columns)


def given_resource(conn: Connection, resource_id: str, **columns: Any) -> None:
    _given(conn, resources.c.id, resource_id, columns)
