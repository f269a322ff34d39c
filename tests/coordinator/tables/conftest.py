"""One table, one worker, one leader."""

from __future__ import annotations

import pytest

from tests.coordinator.desk import Desk
from tests.coordinator.tables.stand import Bench


@pytest.fixture
def bench(desk: Desk) -> Bench:
    return Bench(desk)
