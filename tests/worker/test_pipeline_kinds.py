"""Pipelines that stream, save, begin with save modes, and end in other ways than the usual one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Refused
from headrace.model.jobs.epoch import EpochStatus
from headrace.protocol.messages import (
    EpochCompleted,
    EpochPlan,
    EpochPlanned,
    EpochPrepared,
    OpenEpoch,
    Restore,
)
from tests.worker.flow import Flow, Frame, Lists, Numbers
from tests.worker.leader import eventually
from tests.worker.test_pipeline import left


def test_save_modes_are_done_before_any_epoch_is_planned(tmp_path: Path) -> None:
    opening, other = Lists("opening", opens=True), Lists("other")
    flow = Flow(tmp_path, [Numbers()], [opening, other])

    def look(step: str, _epoch: int) -> None:
        if step in {"survey", "open"}:
            assert [r.epoch for r in flow.of(EpochPlanned)] == [0]

    opening.look = look
    opening.rows = [99]
    assert flow.run(Restore(epoch=-1)).outcome == "SUCCESS"

    assert opening.did[:2] == [("survey", 0), ("open", 0)]
    assert opening.rows == other.rows == [0, 1, 2]
    assert {epoch for _, epoch in other.did} == {1, 2, 3}
    assert [r.epoch for r in flow.of(EpochCompleted)] == [0, 1, 2, 3]


def test_save_modes_that_were_surveyed_are_done_from_what_was_recorded(tmp_path: Path) -> None:
    sink = Lists(opens=True)
    handles: Any = {"sink": {"handle": "surveyed", "rows": 0}}
    plan = EpochPlan(slices={}, now_ms=0)
    was_open = OpenEpoch(epoch=0, status=EpochStatus.PREPARED, plan=plan, handles=handles)

    end = Flow(tmp_path, [Numbers()], [sink]).run(Restore(epoch=-1, open=(was_open,)))

    assert end.outcome == "SUCCESS"
    assert sink.did[0] == ("open", 0)
    assert ("survey", 0) not in sink.did


@pytest.mark.req("E2")
def test_a_sink_that_only_did_its_save_modes_is_not_said_to_have_written(tmp_path: Path) -> None:
    """Else whoever takes over takes its missing table for a dropped one, and never makes it."""
    sink = Lists(opens=True)
    flow = Flow(tmp_path, [Numbers()], [sink])
    flow.run(Restore(epoch=-1))

    written = [report.written for report in flow.of(EpochCompleted)]
    assert written == [{}, {"sink": 1}, {"sink": 2}, {"sink": 3}]


@pytest.mark.req("E2")
def test_tables_of_a_source_without_rows_are_made_also_by_who_takes_over_after_save_modes(
    tmp_path: Path,
) -> None:
    first, second = Lists("first", opens=True), Lists("second")
    [opened, _] = _completed(Flow(tmp_path / "1", [Numbers(total=0)], [first, second]))
    restore = Restore(epoch=0, positions=opened.positions, written=opened.written)
    later = Lists("first", opens=True), Lists("second")

    assert Flow(tmp_path / "2", [Numbers(total=0)], later).run(restore).outcome == "SUCCESS"

    assert [("commit", 1) in sink.did for sink in (first, second, *later)] == [True] * 4


def _completed(flow: Flow) -> list[EpochCompleted]:
    assert flow.run(Restore(epoch=-1)).outcome == "SUCCESS"
    return flow.of(EpochCompleted)


@pytest.mark.req("K7")
def test_a_streaming_pipeline_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    sink, source = Lists(), Numbers(total=2, bounded=False)
    flow = Flow(tmp_path, [source], [sink], job_mode="STREAMING", checkpoint_interval_ms=20)
    execution = flow.begin()
    # Epochs without rows take an id, too, and ask nothing of any sink.
    eventually(lambda: len(flow.of(EpochCompleted)) > 4)
    source.total = 3
    eventually(lambda: sink.rows == [0, 1, 2])
    execution.stop()

    assert flow.end(execution).outcome == "CANCELED"
    ids = [r.epoch for r in flow.of(EpochCompleted)]
    assert ids == list(range(1, len(ids) + 1))
    with_rows = {epoch for step, epoch in sink.did if step == "stage"}
    assert len(with_rows) == 3


@pytest.mark.req("K7")
def test_a_savepoint_ends_a_streaming_pipeline_with_nothing_open(tmp_path: Path) -> None:
    sink = Lists()
    source = Numbers(total=2, bounded=False)
    flow = Flow(tmp_path, [source], [sink], job_mode="STREAMING", checkpoint_interval_ms=600_000)
    execution = flow.begin()
    eventually(lambda: len(flow.of(EpochCompleted)) == 1)

    execution.savepoint()  # it rests, and need not wait for the next interval

    assert flow.end(execution).outcome == "SAVEPOINT"
    assert len(flow.of(EpochPlanned)) == len(flow.of(EpochCompleted)) == 1
    assert sink.finished is None


def test_a_savepoint_of_a_batch_job_that_has_read_everything_is_its_end(tmp_path: Path) -> None:
    flow = Flow(tmp_path, [Numbers()], [Lists()])

    assert flow.run(Restore(savepoint=True, epoch=3, ready=("source",))).outcome == "SUCCESS"
    flow.said.clear()
    assert flow.run(Restore(savepoint=True, epoch=1, positions={"source": 1})).outcome == (
        "SAVEPOINT"
    )
    assert flow.of(EpochPlanned) == []


@pytest.mark.req("E2")
def test_sinks_are_given_what_was_read_once_where_reading_again_could_differ(
    tmp_path: Path,
) -> None:
    kept: list[int] = []
    first, second = Lists("first"), Lists("second")
    first.look = second.look = lambda step, _epoch: kept.append(Frame.kept)
    Flow(tmp_path / "a", [Numbers(total=1, repeatable=False)], [first, second]).run()
    assert kept[:2] == [1, 1]
    assert Frame.kept == 0

    kept.clear()
    Flow(tmp_path / "b", [Numbers(total=1)], [first, second]).run()
    assert kept[:2] == [0, 0]


def test_a_paced_source_makes_its_epoch_last(tmp_path: Path) -> None:
    sink = Lists()
    flow = Flow(tmp_path, [Numbers(total=1, lasts_ms=60_000)], [sink])
    execution = flow.begin()
    eventually(lambda: ("stage", 1) in sink.did)
    assert not execution.ended.wait(0.5)
    assert flow.of(EpochPrepared) == []

    execution.stop()
    assert flow.end(execution).outcome == "CANCELED"


def test_a_sink_that_finds_too_few_rows_at_the_end_fails_the_job(tmp_path: Path) -> None:
    class Strict(Lists):
        def finish(self, rows: int) -> None:
            raise Refused(f"{rows} rows, and 4 were asked for")

    end = Flow(tmp_path, [Numbers()], [Strict()]).run()

    assert (end.outcome, end.retry, end.error) == ("FAILED", False, "3 rows, and 4 were asked for")


def test_a_stream_that_has_nothing_yet_asks_nothing_of_its_sinks(tmp_path: Path) -> None:
    """Of a folder without files nobody knows the columns."""
    sink = Lists()
    source = Numbers(total=0, bounded=False)
    flow = Flow(tmp_path, [source], [sink], job_mode="STREAMING", checkpoint_interval_ms=20)
    execution = flow.begin()
    eventually(lambda: len(flow.of(EpochCompleted)) > 2)
    execution.stop()
    flow.end(execution)
    assert sink.did == []


def test_a_restored_batch_job_without_rows_makes_its_tables_all_the_same(tmp_path: Path) -> None:
    sink = Lists()
    flow = Flow(tmp_path, [Numbers(total=0)], [sink])
    assert flow.run(Restore(epoch=1)).outcome == "SUCCESS"
    assert ("stage", 2) in sink.did


def test_ids_that_an_abort_spent_are_not_used_again(tmp_path: Path) -> None:
    flow = Flow(tmp_path, [Numbers(total=1)], [Lists()])
    flow.run(Restore(epoch=2, highest=4))
    assert [report.epoch for report in flow.of(EpochPlanned)] == [5]


def test_with_a_pause_between_epochs_none_begins_before_the_last_is_complete(
    tmp_path: Path,
) -> None:
    sink = Lists()
    flow = Flow(
        tmp_path,
        [Numbers(total=50, bounded=False)],
        [sink],
        job_mode="STREAMING",
        checkpoint_interval_ms=10,
        checkpoint_min_pause_ms=10,
    )

    def look(step: str, epoch: int) -> None:
        if step == "commit":
            threading.Event().wait(0.05)
            assert len(flow.of(EpochPlanned)) == epoch

    sink.look = look
    execution = flow.begin()
    eventually(lambda: len(flow.of(EpochCompleted)) > 3)
    execution.stop()
    assert flow.end(execution).outcome == "CANCELED"


@pytest.mark.req("E6")
@pytest.mark.parametrize(("leaves", "swept"), [(True, [1, 2, 3]), (False, [1, 2])])
def test_what_only_this_execution_staged_is_swept_where_a_commit_leaves_something(
    tmp_path: Path, *, leaves: bool, swept: list[int]
) -> None:
    """Epoch 1 was completed and epoch 2 begun by another: it may have left anything anywhere."""
    sink = Lists(leaves_stage=leaves)
    flow = Flow(tmp_path, [Numbers()], [sink])
    was_open = (left(2, EpochStatus.PLANNED, 1, 2),)

    end = flow.run(Restore(epoch=1, positions={"source": 1}, written={"sink": 1}, open=was_open))

    assert end.outcome == "SUCCESS"
    assert [epoch for step, epoch in sink.did if step == "sweep"] == swept
