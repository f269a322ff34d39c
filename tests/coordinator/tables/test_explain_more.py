"""What is told of a table beside what stands in its way: its quota, and a commit under way."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from headrace.coordinator.tables.explain import explain
from headrace.coordinator.tables.obstacles import TableSnapshot
from headrace.model.tables.status import TableStatus
from headrace.store.tables.lake_tables import Blocker
from tests.coordinator.tables.snapshots import MINUTE, NOW, SUMMARY, process, standing, table


@pytest.mark.parametrize(
    "seen",
    [
        standing(table(TableStatus.COMMITTING, process_id="p4"), process=process()),
        standing(process=process(settling_since_ms=NOW)),
    ],
)
def test_a_commit_that_began_before_a_blocker_is_said_to_be_able_to_land(
    seen: TableSnapshot,
) -> None:
    blocker = Blocker("t1", "load", "nightly load", NOW, NOW + MINUTE)
    blocked = replace(seen, blockers=[blocker])

    said = [each.text for each in explain(blocked, NOW).findings if each.about == "blocker"]

    assert said[1].startswith("process 4 had begun to commit before")
    assert said[1].endswith("it may still land")
    assert not [each for each in explain(seen, NOW).findings if each.about == "blocker"]


@pytest.mark.parametrize(
    ("quota", "set_by", "said"),
    [
        (0.5, None, "up to 2 of 4 slots of group 'default'.*quota is 0.5, which nobody has set"),
        (3.0, "table", "up to 3 of 4 slots.* is 3, set by the table"),
        (0.25, "catalog", "up to 1 of 4 slots.*a default of catalog 'lake'"),
        (9.0, "group", "up to 4 of 4 slots.*a default of group 'default'"),
    ],
)
def test_the_quota_is_told_with_who_has_set_it(quota: float, set_by: str | None, said: str) -> None:
    told = {"self-optimizing.quota": set_by} if set_by else {}
    seen = standing(table(quota=quota), summary=SUMMARY.model_copy(update={"set_by": told}))

    [found] = [each for each in explain(seen, NOW).findings if each.about == "quota"]
    assert re.match(said, found.text)
