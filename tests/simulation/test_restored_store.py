"""The store is restored from a backup: a job goes on with every row once, or its targets stop it.

At the end of such a history a job has FAILED with E7's words, or its rows are as they should be.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.simulation.at_the_end import last_runs
from tests.simulation.campaign import ready
from tests.simulation.faults import draw
from tests.simulation.scenario import REWOUND
from tests.simulation.search import FAULTS_MAX, Search, Tally
from tests.simulation.shrink import shrink, told

QUIET_SEEDS = range(24)
FAULTY_SEEDS = range(100, 116)

pytestmark = [pytest.mark.timeout(900), pytest.mark.req("E7")]


def test_no_row_is_skipped_in_silence_whenever_the_backup_was_taken() -> None:
    ends: Counter[str] = Counter()
    with ready() as simulator:
        for seed in QUIET_SEEDS:
            result = simulator.run(seed, REWOUND)
            if result.failed:
                pytest.fail(told(shrink(simulator, result)), pytrace=False)
            ends.update(ended.status for ended in last_runs(simulator.database.wire))
    assert ends["FAILED"] >= len(QUIET_SEEDS) // 4, "targets were ahead of the store"
    assert ends["FINISHED"] >= len(QUIET_SEEDS) // 4, "the backup knew all that they hold"


def test_nor_when_processes_and_wires_break_at_the_same_time() -> None:
    tally = Tally()
    with ready() as simulator:
        points = Search(simulator).points(REWOUND)
        for seed in FAULTY_SEEDS:
            plan = draw(Random(f"{seed}/plan"), points, most=FAULTS_MAX)
            tally.add(simulator.run(seed, REWOUND, plan))
        if tally.failed:
            pytest.fail(told(shrink(simulator, tally.failed[0])), pytrace=False)
    assert sum(tally.faults.values()) > 0
