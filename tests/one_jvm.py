"""Spreads tests over processes, with all that need Spark in one: a JVM costs a gigabyte.

What takes long is given out first, so that a run does not end with one process at work and the
others idle: the Spark room as a whole, then the rooms that start processes or play histories.

xdist's own groups (`--dist loadgroup`) rely on renaming collected items, which pytest 9.2 does
not let it do any more.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs]

SPARK = "tests/spark/"
LONG_FIRST = (SPARK, "tests/crash/", "tests/simulation/")


class OneJvm(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        """Tests of one scope go to one process; any other test is a scope of its own."""
        return SPARK if nodeid.startswith(SPARK) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneJvm:
    return OneJvm(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whatever order they were shuffled into: the same in each process, as xdist demands."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(LONG_FIRST))
