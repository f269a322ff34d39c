"""What is proved here depends on the dialect: each test runs on each store."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.both_stores)
