"""What every sink promises that is exactly once: a class of tests, and the harness that it needs.

A sink proves itself with one `SinkHarness` and one subclass of `SinkContract` that gives it:

    class TestMySink(SinkContract):
        @pytest.fixture
        def harness(self, session, tmp_path) -> SinkHarness:
            return MyHarness(session, tmp_path)

The tests see a target as a stranger does: its rows, and what lies staged. What happens inside a
commit is tried through `SinkHarness.target_class`: its `attempt` is the one atomic step, and tests
pause, lose, deny and fake it.
"""

from __future__ import annotations

from tests.contracts.sink_commits import CommitContract
from tests.contracts.sink_deletions import DeletionContract, ForgettingContract
from tests.contracts.sink_harness import SinkHarness
from tests.contracts.sink_openings import MarkContract, OpeningContract

__all__ = ["SinkContract", "SinkHarness"]


class SinkContract(
    CommitContract, DeletionContract, OpeningContract, MarkContract, ForgettingContract
):
    """All of it."""
