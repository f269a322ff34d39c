"""Processes for each test of this folder: ended, and seen to be gone, when it is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.cluster import Cluster, cluster
from tests.crash.database import Database
from tests.crash.stand import Stand
from tests.postgresql import PostgreSQL


@pytest.fixture
def made(tmp_path: Path, store_url: str) -> Iterator[Cluster]:
    with cluster(tmp_path, store_url) as running:
        yield running


@pytest.fixture
def stand(made: Cluster) -> Stand:
    return Stand(made)


@pytest.fixture
def database(postgresql: PostgreSQL) -> Iterator[Database]:
    """One that jobs read and write, whatever their coordinators' store is."""
    base = Database(postgresql)
    yield base
    base.close()
