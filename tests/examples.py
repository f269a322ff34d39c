"""How many examples a property is tried with.

HYPOTHESIS_PROFILE says it: `quick` for the inner loop, `ci` (the default) for `make test`, both of
which try the same examples each time, and `thorough`, which looks for new ones. No example has a
deadline, and none may fail because it was slow to draw: that would measure the machine.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from hypothesis import HealthCheck, Phase, settings

SHARES = {"quick": 0.25, "ci": 1.0, "thorough": 20.0}  # of what a test says is usual
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or "ci"


def examples(
    usual: int = 100, *, shares_a_store: bool = False, phases: Collection[Phase] = tuple(Phase)
) -> settings:
    """`usual`: how many `make test` tries. `shares_a_store`: fixtures are the same for all."""
    suppressed = [HealthCheck.too_slow]
    if shares_a_store:
        suppressed.append(HealthCheck.function_scoped_fixture)
    return settings(
        max_examples=max(1, round(usual * SHARES[PROFILE])),
        deadline=None,
        derandomize=PROFILE != "thorough",
        database=None,
        phases=phases,
        suppress_health_check=suppressed,
    )
