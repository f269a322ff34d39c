"""What a group's workers can run, and what is said when none of them can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.coordinator.tables import obstacles
from headrace.coordinator.workforce import Hand, Workforce
from headrace.model.jobs.needs import text_of
from headrace.model.task import TaskKind
from headrace.protocol import versions
from headrace.protocol.messages import PROTOCOL_VERSION
from headrace.store.tasks.workers import Worker
from tests.coordinator.tables.snapshots import standing
from tests.protocol.test_versions import NEXT, next_version

WORKER = Worker("w1", "g", 2, 1, "0", "host", 1, "app", 1, 1)
A, B, C = "source A", "sink B", "sink C"


def workforce(*plugins: frozenset[str], protocol: int = PROTOCOL_VERSION) -> Workforce:
    return Workforce(
        Hand(replace(WORKER, id=f"w{number}", protocol=protocol), has)
        for number, has in enumerate(plugins)
    )


def test_what_every_worker_lacks_is_named_and_how_to_install_it() -> None:
    team = workforce(frozenset({A, B}), frozenset({A}))

    said = team.lacks("g", text_of([A, B, C]))

    assert said is not None
    assert said.startswith("a worker with sink C; group 'g' has none among its 2 workers: ")
    assert "pip install" in said
    assert "restart" in said


def test_where_each_lacks_something_else_the_nearest_one_is_meant() -> None:
    team = workforce(frozenset({A, B}), frozenset({C}))

    assert (team.lacks("g", text_of([A, B, C])) or "").startswith("a worker with sink C; ")


@pytest.mark.parametrize(("group", "needs"), [("g", text_of([A])), ("g", None), ("other", None)])
def test_nothing_is_lacking_where_somebody_can_or_where_there_is_nobody_at_all(
    group: str, needs: str | None
) -> None:
    assert workforce(frozenset({A})).lacks(group, needs) is None


def test_workers_that_do_not_know_a_kind_are_to_be_upgraded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = TaskKind.EVALUATE
    monkeypatch.setattr(versions, "SPOKEN", next_version(kinds={kind: NEXT}))
    team = workforce(frozenset(), frozenset())

    said = team.lacks("g", None, kind)

    assert said == (
        f"a worker that speaks protocol {NEXT}, with which EVALUATE tasks came; group 'g' has none "
        f"among its 2 workers, which speak {PROTOCOL_VERSION}: upgrade one of them"
    )
    assert team.lacks("g", None) is None, "they can run jobs"
    table = standing()
    [finding] = obstacles.group(replace(table, too_old={table.table.group: said}), 1)
    assert finding.verdict is obstacles.FindingVerdict.BLOCKS
    assert finding.way_out == "upgrade one of them"
    assert f"speaks protocol {NEXT}" in finding.text
