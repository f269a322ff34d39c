"""Epochs of a pipeline: their order, what overlaps, how it ends and how it goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Refused
from headrace.model.epoch import EpochStatus
from headrace.protocol.messages import EpochCompleted, EpochPlanned, EpochPrepared
from headrace.protocol.payloads import OpenEpoch, Plan, Restore, Settled, Slice
from tests.worker.flow import Flow, Frame, Lists, Numbers
from tests.worker.leader import BOUND_S, eventually


def left(epoch: int, status: EpochStatus, first: int, end: int) -> OpenEpoch:
    """An epoch that an execution before this one left open."""
    part = Slice(data=[first, end], after=end, rows=end - first, last=end == 3)
    staged: Any = {"sink": {"handle": list(range(first, end)), "rows": end - first}}
    handles = staged if status is EpochStatus.PREPARED else None
    return OpenEpoch(
        epoch=epoch, status=status, plan=Plan(slices={"source": part}, now_ms=0), handles=handles
    )


def committed(sink: Lists) -> list[int]:
    return [epoch for step, epoch in sink.did if step == "commit"]


def test_each_epoch_is_staged_prepared_committed_and_completed_in_order(tmp_path: Path) -> None:
    sink = Lists()
    flow = Flow(tmp_path, [Numbers()], [sink])

    assert flow.run().outcome == "SUCCESS"

    assert sink.rows == [0, 1, 2]
    assert committed(sink) == [1, 2, 3]
    assert [(r.epoch, dict(r.positions)) for r in flow.of(EpochCompleted)] == [
        (1, {"source": 1}),
        (2, {"source": 2}),
        (3, {"source": 3}),
    ]
    assert [r.ready for r in flow.of(EpochPrepared)] == [(), (), ("source",)]
    assert sink.closed == 3


def test_the_next_epoch_is_planned_while_the_current_one_runs(tmp_path: Path) -> None:
    """And not more than two are open, so it is the last completed one plus two at most."""
    sink = Lists()
    flow = Flow(tmp_path, [Numbers(total=5)], [sink])
    open_at: list[tuple[int, int]] = []

    def look(step: str, epoch: int) -> None:
        if step == "stage":
            if epoch < 5:
                eventually(lambda: len(flow.of(EpochPlanned)) > epoch)
            open_at.append((len(flow.of(EpochPlanned)), len(flow.of(EpochCompleted))))

    sink.look = look
    flow.run()

    assert len(open_at) == 5
    assert all(planned - completed <= 2 for planned, completed in open_at)
    assert sink.rows == [0, 1, 2, 3, 4]


def test_an_epoch_is_staged_while_the_one_before_it_is_committed(tmp_path: Path) -> None:
    sink = Lists()
    second_is_staged = threading.Event()

    def look(step: str, epoch: int) -> None:
        if (step, epoch) == ("stage", 2):
            second_is_staged.set()
        if (step, epoch) == ("commit", 1):
            assert second_is_staged.wait(BOUND_S), "the engine stood still during a commit"

    sink.look = look
    assert Flow(tmp_path, [Numbers()], [sink]).run().outcome == "SUCCESS"
    assert committed(sink) == [1, 2, 3]


def test_nothing_is_committed_before_its_prepare_is_acknowledged(tmp_path: Path) -> None:
    sink = Lists()
    flow = Flow(tmp_path, [Numbers(total=2)], [sink])
    flow.hold = lambda report: isinstance(report, EpochPrepared)
    execution = flow.begin()
    # A coordinator that is away delays commits; the epoch that was granted ahead is computed.
    eventually(lambda: ("stage", 2) in sink.did)

    assert committed(sink) == []
    flow.release()
    assert flow.end(execution).outcome == "SUCCESS"
    assert sink.rows == [0, 1]


def test_what_fails_beside_the_running_epoch_fails_the_execution(tmp_path: Path) -> None:
    sink = Lists()

    def look(step: str, epoch: int) -> None:
        if (step, epoch) == ("commit", 1):
            raise OSError("the catalog is away")

    sink.look = look
    end = Flow(tmp_path, [Numbers()], [sink]).run()

    assert (end.outcome, end.retry) == ("FAILED", True)
    assert end.error == "OSError: the catalog is away"
    assert committed(sink) == [1]


def test_an_execution_has_ended_only_when_its_commit_has(tmp_path: Path) -> None:
    sink = Lists()
    committing, go_on = threading.Event(), threading.Event()

    def look(step: str, epoch: int) -> None:
        if (step, epoch) == ("commit", 1):
            committing.set()
            assert go_on.wait(BOUND_S)

    sink.look = look
    flow = Flow(tmp_path, [Numbers()], [sink])
    execution = flow.begin()
    assert committing.wait(BOUND_S)
    execution.stop()
    assert not execution.ended.wait(0.5)
    go_on.set()
    assert flow.end(execution).outcome == "CANCELED"


@pytest.mark.req("K2")
def test_prepared_epochs_are_finished_first_and_planned_ones_run_on_the_same_slices(
    tmp_path: Path,
) -> None:
    sink = Lists()
    flow = Flow(tmp_path, [Numbers()], [sink])
    was_open = (left(2, EpochStatus.PREPARED, 1, 2), left(3, EpochStatus.PLANNED, 2, 3))

    end = flow.run(Restore(epoch=1, positions={"source": 1}, written={"sink": 1}, open=was_open))

    assert end.outcome == "SUCCESS"
    assert [step for step in sink.did if step[0] in {"stage", "commit"}] == [
        ("commit", 2),
        ("stage", 3),
        ("commit", 3),
    ] or [step for step in sink.did if step[0] == "commit"] == [("commit", 2), ("commit", 3)]
    assert ("stage", 2) not in sink.did
    assert sink.rows == [1, 2]
    assert sink.closed == 3
    assert [r.epoch for r in flow.of(EpochPlanned)] == [3]


@pytest.mark.req("K2")
def test_with_a_full_set_the_end_follows_the_last_prepared_epoch_at_once(tmp_path: Path) -> None:
    sink = Lists()
    flow = Flow(tmp_path, [Numbers()], [sink])
    was_open = (left(3, EpochStatus.PREPARED, 2, 3),)

    end = flow.run(Restore(epoch=2, positions={"source": 2}, ready=("source",), open=was_open))

    assert end.outcome == "SUCCESS"
    assert flow.of(EpochPlanned) == []
    assert sink.rows == [2]


def test_settling_finishes_what_is_prepared_and_aborts_what_is_planned(tmp_path: Path) -> None:
    sink = Lists()
    flow = Flow(tmp_path, [Numbers()], [sink])
    was_open = (left(2, EpochStatus.PREPARED, 1, 2), left(3, EpochStatus.PLANNED, 2, 3))

    end = flow.run(Restore(epoch=1, positions={"source": 1}, open=was_open), settle=True)

    settled = Settled.model_validate(end.result)
    assert [(done.epoch, done.positions) for done in settled.completed] == [(2, {"source": 2})]
    assert settled.aborted == (3,)
    assert sink.did == [("commit", 2), ("sweep", 2), ("abort", 3)]


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
    plan = Plan(slices={}, now_ms=0)
    was_open = OpenEpoch(epoch=0, status=EpochStatus.PREPARED, plan=plan, handles=handles)

    end = Flow(tmp_path, [Numbers()], [sink]).run(Restore(epoch=-1, open=(was_open,)))

    assert end.outcome == "SUCCESS"
    assert sink.did[0] == ("open", 0)
    assert ("survey", 0) not in sink.did


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
    assert sink.closed is None


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
        def close(self, rows: int) -> None:
            raise Refused(f"{rows} rows, and 4 were asked for")

    end = Flow(tmp_path, [Numbers()], [Strict()]).run()

    assert (end.outcome, end.retry, end.error) == ("FAILED", False, "3 rows, and 4 were asked for")
