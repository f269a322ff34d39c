"""Only what is in the table counts as optimized, whoever tells and however late."""

from __future__ import annotations

import pytest

from headrace.coordinator.tables import process_tasks
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.task import TaskKind, TaskStatus
from headrace.store.core.engine import writing
from headrace.store.tasks.tasks import OfTable
from tests.coordinator.tables.lake_rows import a_plan, rewritten
from tests.coordinator.tables.process_harness import ProcessHarness
from tests.stores import given_table

T, P, S = TableStatus, ProcessStatus, TaskStatus
POISON = "f-3-0.parquet"  # of bin 3


@pytest.mark.req("T1")
@pytest.mark.parametrize("bins", [(0, 1, 2), None])
def test_a_commit_found_later_counts_only_the_bins_that_are_in_it(
    bench: ProcessHarness, bins: tuple[int, ...] | None
) -> None:
    process = bench.plan()
    with writing(bench.desk.store) as conn:
        given_table(conn, bench.table, file_failures={POISON: 2})
    bench.rewrite()
    bench.restart()

    bench.commit(already=True, bins=bins)

    assert bench.lakes.read_process(process).status is P.SUCCESS
    assert bench.lakes.column(bench.table, "clocks") == {}, "one bin of it conflicted"
    assert bench.lakes.column(bench.table, "file_failures") == {POISON: 2}
    assert bench.status().pointer is None


@pytest.mark.req("T1")
def test_a_commit_found_later_with_every_bin_moves_the_clocks(bench: ProcessHarness) -> None:
    bench.plan()
    bench.rewrite()
    bench.restart()

    bench.commit(already=True, bins=(0, 1, 2, 3))

    assert set(bench.lakes.column(bench.table, "clocks")) == {"0/"}


@pytest.mark.parametrize("said", [None, {"rewritten": []}, rewritten(a_plan().tasks[0][:1])])
def test_a_rewrite_that_says_nothing_of_a_bin_is_tried_again(
    bench: ProcessHarness, said: dict[str, object] | None
) -> None:
    bench.plan(tasks_wanted=1)
    [given] = bench.take()

    bench.end(given, said)

    task = bench.desk.task(given.claim.task)
    assert (task.status, task.failures) == (S.PLANNED, 1)
    assert "bins" in (task.error or "")
    assert bench.status().status is T.MINOR_OPTIMIZING


def test_a_commit_too_large_to_be_told_fails_and_is_not_read(
    bench: ProcessHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = bench.plan()
    bench.rewrite()
    monkeypatch.setattr(process_tasks, "COMMIT_BYTES_MAX", 100)

    assert bench.take() == []
    bench.look()

    found = bench.lakes.read_process(process)
    assert found.status is P.FAILED
    assert "write.metadata.metrics" in (found.error or "")
    assert bench.status().status is T.IDLE


@pytest.mark.req("T6")
def test_a_reset_takes_no_evaluation_away_from_other_tables(bench: ProcessHarness) -> None:
    bench.plan()
    bench.rewrite()
    bench.lakes.task("evaluation", TaskKind.EVALUATE, S.ACKED, OfTable())
    with writing(bench.desk.store) as conn:
        given_table(conn, bench.table, task_id="evaluation")

    bench.restart()

    assert bench.status().status is T.IDLE
    assert bench.status().task_id is None
    assert bench.desk.task("evaluation").status is S.ACKED
