"""Epochs of a pipeline: their order, what overlaps, how it ends and how it goes on."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from headrace.errors import Refused
from headrace.model.jobs.epoch import EpochStatus
from headrace.model.jobs.spec import PipelineSpec, PluginSpec
from headrace.protocol.messages import (
    EpochCompleted,
    EpochPlan,
    EpochPlanned,
    EpochPrepared,
    OpenEpoch,
    Restore,
    SettleResult,
    Slice,
)
from headrace.worker.execution import Execution
from headrace.worker.pipeline import writes_what_it_reads
from tests.worker.flow import Counted, Flow, Lists, Numbers
from tests.worker.leader import BOUND_S, eventually


def left(epoch: int, status: EpochStatus, first: int, end: int) -> OpenEpoch:
    """An epoch that an execution before this one left open."""
    part = Slice(data=[first, end], after=end, rows=end - first, last=end == 3)
    staged: Any = {"sink": {"handle": list(range(first, end)), "rows": end - first}}
    handles = staged if status is EpochStatus.PREPARED else None
    return OpenEpoch(
        epoch=epoch,
        status=status,
        plan=EpochPlan(slices={"source": part}, now_ms=0),
        handles=handles,
    )


def committed(sink: Lists) -> list[int]:
    return [epoch for step, epoch in sink.did if step == "commit"]


@pytest.mark.req("K1")
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
    assert sink.finished == 3


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([Numbers()], [1, 2, 3]),
        ([Numbers(known=False)], [None, None, None]),
        ([Numbers("a"), Numbers("b")], [None, None, None]),
    ],
)
def test_rows_are_expected_only_where_as_many_are_written_as_are_read(
    tmp_path: Path, sources: list[Numbers], expected: list[int | None]
) -> None:
    told: list[int | None] = []
    begun: list[Execution] = []

    def look(step: str, _epoch: int) -> None:
        eventually(lambda: bool(begun))
        if step == "stage":
            told.append(begun[0].progress.rows_expected)

    flow = Flow(tmp_path, sources, [Lists(look=look)])
    begun.append(flow.begin())
    flow.end(begun[0])

    assert told == expected


class Selecting:
    has_conditions = True


class Renaming:
    has_conditions = False


@pytest.mark.parametrize(
    ("transforms", "inputs", "foreseen"),
    [
        ((), ("t",), True),
        ((Renaming(),), ("u0",), True),
        ((Selecting(),), ("u0",), False),
        ((Renaming(), Selecting()), ("u1",), False),
        ((Renaming(),), ("t", "u0"), False),
    ],
)
def test_a_transform_that_may_change_the_number_of_rows_leaves_none_to_expect(
    transforms: tuple[Any, ...],
    inputs: tuple[str, ...],
    foreseen: bool,  # noqa: FBT001
) -> None:
    pipeline = PipelineSpec(
        number=1,
        sources=(PluginSpec(name="s", plugin="FakeSource", output="t"),),
        transforms=tuple(
            PluginSpec(name=f"t{n}", plugin="Sql", inputs=("t",), output=f"u{n}")
            for n, _ in enumerate(transforms)
        ),
        sinks=(PluginSpec(name="sink", plugin="Console", inputs=inputs),),
    )

    assert writes_what_it_reads(pipeline, transforms) is foreseen


@pytest.mark.parametrize("known", [True, False])
def test_what_is_read_is_told_by_source_when_an_epoch_is_prepared(
    tmp_path: Path,
    known: bool,  # noqa: FBT001  pytest passes it by name
) -> None:
    """Also when two sinks read the same rows; whoever completes it need not know."""
    sources = [Numbers("a", known=known), Numbers("b", total=5, per_slice=3, known=known)]
    flow = Flow(tmp_path, sources, [Lists("one"), Lists("two")])

    assert flow.run().outcome == "SUCCESS"

    told = [r.read for r in flow.of(EpochPrepared)]
    assert told == [{"a": 1, "b": 3}, {"a": 1, "b": 2}, {"a": 1}]
    assert [(r.rows_in, r.rows_out) for r in flow.of(EpochCompleted)] == [(4, 8), (3, 6), (1, 2)]


def test_a_count_that_never_comes_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Counted, "tells", False)
    flow = Flow(tmp_path, [Numbers(known=False)], [Lists()])

    assert flow.run().outcome == "SUCCESS"

    assert [r.read for r in flow.of(EpochPrepared)] == [{}, {}, {}]
    assert caplog.text.count("rows read are not counted") == 1


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


@pytest.mark.req("E2")
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
    assert sink.finished == 3
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

    settled = SettleResult.model_validate(end.result)
    assert [(done.epoch, done.positions) for done in settled.completed] == [(2, {"source": 2})]
    assert settled.aborted == (3,)
    assert sink.did == [("commit", 2), ("sweep", 2), ("abort", 3)]


@pytest.mark.req("E6")
@pytest.mark.parametrize("leaving", [False, True])
def test_who_is_stopped_while_it_stages_sweeps_after_itself_unless_its_worker_leaves(
    tmp_path: Path, *, leaving: bool
) -> None:
    """It may have been asleep while another completed the epoch, and swept it."""
    sink, stopped = Lists(), threading.Event()
    flow = Flow(tmp_path, [Numbers()], [sink])
    staging = threading.Event()

    def look(step: str, epoch: int) -> None:
        if (step, epoch) == ("stage", 2):
            staging.set()
            assert stopped.wait(BOUND_S)

    sink.look = look
    execution = flow.begin(Restore(epoch=1, positions={"source": 1}))
    assert staging.wait(BOUND_S)
    execution.stop(leaving=leaving)
    stopped.set()
    assert execution.ended.wait(BOUND_S)

    assert sink.did[-1] == (("stage", 2) if leaving else ("sweep", 2))


@dataclass
class Breaking(Numbers):
    """Refuses to plan behind a position, as a folder does in which a file was changed."""

    breaks_at: int = 1

    def plan(
        self, session: object, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        if position == self.breaks_at:
            raise Refused("f was changed after it was read")
        return super().plan(session, position, rows_max=rows_max)


def test_what_was_staged_for_a_completed_epoch_is_swept_though_the_next_plan_is_refused(
    tmp_path: Path,
) -> None:
    """Epoch 1 is committed while epoch 2 is staged; the plan of 3 is made in the tail's thread."""
    sink = Lists()
    flow = Flow(tmp_path, [Breaking(total=9, breaks_at=2)], [sink])

    def look(step: str, epoch: int) -> None:
        if (step, epoch) == ("stage", 2):
            eventually(lambda: len(flow.of(EpochCompleted)) == 1)

    sink.look = look
    end = flow.run()

    assert (end.outcome, end.retry) == ("FAILED", False)
    completed = [report.epoch for report in flow.of(EpochCompleted)]
    swept = [epoch for step, epoch in sink.did if step == "sweep"]
    assert swept == completed, "nobody else sweeps an epoch of a job that has failed for good"


@pytest.mark.req("D5")
def test_a_commit_that_may_take_an_hour_is_no_standstill_after_ten_minutes(tmp_path: Path) -> None:
    """How long a commit may take is said by checkpoint.timeout. While the execution waits for its
    last one, nothing else moves: execution.stall-timeout must not strike instead."""
    sink = Lists()
    committing, go_on = threading.Event(), threading.Event()

    def look(step: str, epoch: int) -> None:
        if step == "commit":
            committing.set()
            assert go_on.wait(BOUND_S)

    sink.look = look
    flow = Flow(tmp_path, [Numbers(total=1)], [sink], checkpoint_timeout_ms=3_600_000)
    execution = flow.begin()
    assert committing.wait(BOUND_S)
    eventually(lambda: execution.progress.step == "committing")
    before = execution.activity
    eventually(lambda: execution.activity > before)  # it waits on purpose, and is seen to
    go_on.set()
    flow.end(execution)


def test_a_cancel_during_a_commit_plans_nothing_more(tmp_path: Path) -> None:
    sink = Lists()
    flow = Flow(tmp_path, [Numbers(total=9)], [sink])
    planned: list[int] = []
    begun: list[Execution] = []

    def look(step: str, epoch: int) -> None:
        if (step, epoch) == ("commit", 2):
            eventually(lambda: bool(begun))  # it may be so far before `begin` has returned
            begun[0].stop()
            planned.append(len(flow.of(EpochPlanned)))

    sink.look = look
    begun.append(flow.begin())
    assert flow.end(begun[0]).outcome == "CANCELED"
    assert len(flow.of(EpochPlanned)) == planned[0]
