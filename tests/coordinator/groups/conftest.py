"""A place that starts workers, and a leader that looks after one group."""

from __future__ import annotations

import pytest

from tests.coordinator.desk import Desk
from tests.coordinator.groups.stand import Care, Place


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def care(desk: Desk, place: Place) -> Care:
    made = Care(desk, place)
    made.group()
    return made
