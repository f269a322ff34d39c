"""A desk on each store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from headrace.store.fence import Term
from tests.coordinator.desk import Desk
from tests.fakes import FakeClock


@pytest.fixture
def desk(store: Engine, clock: FakeClock, term: Term) -> Iterator[Desk]:
    made = Desk(store, clock, term)
    with made.ending:
        yield made
