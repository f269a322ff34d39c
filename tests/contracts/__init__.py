"""What every implementation of a kind promises, as classes of tests that it is given to."""

from __future__ import annotations

import pytest

# They are no test modules, and their asserts are to be told as well as those of one.
pytest.register_assert_rewrite(
    "tests.contracts.container",
    "tests.contracts.sink_commits",
    "tests.contracts.sink_deletions",
    "tests.contracts.sink_openings",
    "tests.contracts.source",
    "tests.contracts.table_format",
)
