"""A desk on each store."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from headrace.store.fence import Term
from tests.coordinator.desk import Desk
from tests.fakes import FakeClock


@pytest.fixture
def desk(store: Engine, clock: FakeClock, term: Term) -> Desk:
    return Desk(store, clock, term)
