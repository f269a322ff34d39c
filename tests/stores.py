"""Stores as tests open them: with the key that every store of the tests is encrypted under.

Processes that a test starts find the same key in their environment.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Engine, update

from headrace.store.core import engine
from headrace.store.core.engine import keyring_of, with_keyring
from headrace.store.core.keyring import GivenKeys, KeyFile, Keyring, SecretKey
from headrace.store.groups.groups import groups, resources
from headrace.store.tables.schema import catalogs, lake_tables, processes

KEY = SecretKey(bytes(range(32)))
KEYS = GivenKeys([KEY])

open_store = partial(engine.open_store, keys=KEYS)


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
