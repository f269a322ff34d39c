"""One table, one worker, one leader."""

from __future__ import annotations

import pytest

from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.tables.process_harness import ProcessHarness


@pytest.fixture
def bench(desk: LeaderHarness) -> ProcessHarness:
    return ProcessHarness(desk)
