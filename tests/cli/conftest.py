"""Marks the tests whose `commands` start coordinators and workers: each of them takes seconds."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    if "commands" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.processes)
