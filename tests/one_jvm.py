"""Spreads tests over processes, with all that need Spark in one: a JVM costs a gigabyte.

xdist's own groups (`--dist loadgroup`) rely on renaming collected items, which pytest 9.2 does
not let it do any more.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs]

SPARK = "tests/spark/"


class OneJvm(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        """Tests of one scope go to one process; any other test is a scope of its own."""
        return SPARK if nodeid.startswith(SPARK) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneJvm:
    return OneJvm(config, log)
