"""A desk on each store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from headrace.store.core.transactions import Term
from tests.coordinator.leader_harness import LeaderHarness
from tests.fakes import FakeClock


@pytest.fixture
def desk(store: Engine, clock: FakeClock, term: Term) -> Iterator[LeaderHarness]:
    made = LeaderHarness(store, clock, term)
    with made.ending:
        yield made
