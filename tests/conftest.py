"""Stores, clocks and terms for every test.

A test that takes `store` or `store_url` runs on a SQLite file or on a real PostgreSQL server, or
on both (tests/turns.py). Each test has a store of its own, cloned from one that was migrated once.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from headrace import seams
from headrace.store.core import leases
from headrace.store.core.engine import writing
from headrace.store.core.keyring import own_file
from headrace.store.core.transactions import Term
from headrace.store.migrate import prepare_store
from tests.fakes import FakeClock
from tests.memory import fast_folder
from tests.postgresql import PostgreSQL
from tests.stores import KEY, open_store
from tests.turns import STORES

# A store ends transactions that stand still for a share of it, as a busy machine's tests may do.
PATIENT_TTL_S = 30.0

HOLDER, ADDRESS = "host-1:101:1.00", "http://127.0.0.1:1"

os.environ["HEADRACE_SECRET_KEY"] = KEY.text  # for processes that a test starts
# Each of them would compile all that it imports, for seconds, where the environment forbids to
# keep what was compiled; and so would this one.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A PostgreSQL server, started when the first test asks for it."""
    server = PostgreSQL()
    yield server
    server.close()


@pytest.fixture(scope="session")
def stores_folder() -> Iterator[Path]:
    """Where SQLite stores lie, each in a folder of its own."""
    with fast_folder("stores") as folder:
        yield folder


@pytest.fixture(scope="session")
def sqlite_template(stores_folder: Path) -> Path:
    path = stores_folder / "template" / "store.db"
    path.parent.mkdir()
    own_file(path).write([KEY])
    engine = open_store(f"sqlite:///{path}")
    prepare_store(engine)
    engine.dispose()  # the last connection folds the WAL into the file
    return path


@pytest.fixture
def store_folder(stores_folder: Path) -> Iterator[Path]:
    """Where a SQLite store of this test lies."""
    folder = Path(tempfile.mkdtemp(dir=stores_folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # a process that a test left may still write there


@pytest.fixture
def sqlite_url(sqlite_template: Path, store_folder: Path) -> str:
    """The URL of a prepared SQLite store."""
    path = store_folder / "store.db"
    shutil.copyfile(sqlite_template, path)
    own_file(path).write([KEY])
    return f"sqlite:///{path}"


@pytest.fixture
def postgresql_url(postgresql: PostgreSQL) -> Iterator[str]:
    """The URL of a prepared PostgreSQL store."""
    name = postgresql.create_database()
    yield postgresql.url(name)
    postgresql.drop_database(name)


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a prepared store, once for each database; for processes a test starts."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def store(store_url: str) -> Iterator[Engine]:
    """An opened, prepared, empty store, once for each database."""
    engine = open_store(store_url, ttl_s=PATIENT_TTL_S)
    yield engine
    engine.dispose()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def term(store: Engine) -> Term:
    """The term of a coordinator that was just elected on `store`."""
    with writing(store) as conn:
        elected = leases.take(conn, leases.read(conn), holder=HOLDER, address=ADDRESS)
    assert elected is not None
    return elected


@pytest.fixture(autouse=True)
def disarmed_seams() -> Iterator[None]:
    """No seam that one test armed stays armed for the next."""
    yield
    seams.disarm_all()


@pytest.fixture(autouse=True)
def heard_warnings(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Warnings are heard in each test, whatever the one before it made of the levels."""
    for handler in logging.root.handlers:
        # pyspark gives every handler of the root a formatter of its own, which asks errors for
        # their text: some tests have errors that can't say it.
        if type(handler.formatter).__module__.startswith("pyspark"):
            handler.setFormatter(None)
    for name, product in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "headrace" and isinstance(product, logging.Logger):
            if product.level != logging.NOTSET:  # to set one makes all loggers forget theirs
                product.setLevel(logging.NOTSET)
            product.propagate, product.disabled = True, False
    with caplog.at_level(logging.WARNING):
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Format log records as pytest does. It hands its handlers to loggers that don't propagate, and
    those of pyspark, made at the first error of a query, set a formatter of their own for good."""
    plugin: Any = item.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (plugin.caplog_handler, plugin.report_handler) if plugin else ():
        handler.setFormatter(plugin.formatter)
