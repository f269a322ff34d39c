"""A place that starts workers, and a leader that looks after one group."""

from __future__ import annotations

import pytest

from tests.coordinator.groups.group_harness import FakeContainer, GroupHarness
from tests.coordinator.leader_harness import LeaderHarness


@pytest.fixture
def place() -> FakeContainer:
    return FakeContainer()


@pytest.fixture
def care(desk: LeaderHarness, place: FakeContainer) -> GroupHarness:
    made = GroupHarness(desk, place)
    made.group()
    return made
