"""A prepared epoch goes to every sink that can be reached; who has it and who does not is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Refused, Unavailable
from headrace.model.jobs.epoch import EpochAt, EpochStatus, Moment
from headrace.protocol.messages import (
    EpochCompleted,
    EpochPlan,
    EpochPrepared,
    OpenEpoch,
    Restore,
    Slice,
)
from tests.worker.flow import CLOCK, Flow, Lists, Numbers
from tests.worker.leader import eventually


def left(epoch: int, *sinks: str) -> OpenEpoch:
    """Prepared by an execution that is gone."""
    part = Slice(data=[0, 1], after=1, rows=1)
    handles: Any = {name: {"handle": [epoch], "rows": 1} for name in sinks}
    plan = EpochPlan(slices={"source": part}, now_ms=0)
    return OpenEpoch(epoch=epoch, status=EpochStatus.PREPARED, plan=plan, handles=handles)


def fails(with_: Exception, *, step: str = "commit") -> Callable[[str, int], None]:
    def look(did: str, _epoch: int) -> None:
        if did == step:
            raise with_

    return look


def three(*failing: tuple[str, Exception]) -> list[Lists]:
    sinks = [Lists(name="A"), Lists(name="B"), Lists(name="C")]
    for sink in sinks:
        for name, error in failing:
            if sink.name == name:
                sink.look = fails(error)
    return sinks


@pytest.mark.req("E2")
def test_a_sink_that_is_away_does_not_keep_the_others_from_their_rows(tmp_path: Path) -> None:
    sinks = three(("B", Unavailable("the database is away")))
    flow = Flow(tmp_path, [Numbers()], sinks)

    end = flow.run(Restore(open=(left(5, "A", "B", "C"), left(6, "A", "B", "C"))), settle=True)

    assert (end.outcome, end.retry) == ("FAILED", True)
    assert end.error == "epoch 5 is committed at A, C, and not at B: B: the database is away"
    assert [sink.rows for sink in sinks] == [[5], [], [5]], "and epoch 6 is nowhere before it"


def test_what_no_sink_will_ever_take_is_not_tried_again(tmp_path: Path) -> None:
    sinks = three(("A", Refused("no such column")), ("C", Refused("no such table")))
    end = Flow(tmp_path, [Numbers()], sinks).run(
        Restore(open=(left(5, "A", "B", "C"),)), settle=True
    )

    assert (end.outcome, end.retry) == ("FAILED", False)
    assert end.error == (
        "epoch 5 is committed at B, and not at A, C: A: no such column; C: no such table"
    )


def test_it_is_tried_again_as_long_as_that_helps_one_of_them(tmp_path: Path) -> None:
    sinks = three(("A", Refused("no such column")), ("B", OSError("disk full")))
    end = Flow(tmp_path, [Numbers()], sinks).run(Restore(open=(left(5, "A", "B"),)), settle=True)

    assert (end.outcome, end.retry) == ("FAILED", True)
    assert end.error == (
        "epoch 5 is committed at no sink, and not at A, B: A: no such column; B: OSError: disk full"
    )


def test_a_running_pipeline_says_it_too(tmp_path: Path) -> None:
    sinks = three(("A", Unavailable("the catalog is away")))
    flow = Flow(tmp_path, [Numbers(total=1)], sinks)

    end = flow.run()

    assert end.error == "epoch 1 is committed at B, C, and not at A: A: the catalog is away"
    assert flow.of(EpochCompleted) == []


class Dated(Lists):
    """Remembers since when its committer was known to be the right one."""

    def __init__(self) -> None:
        super().__init__()
        self.since: list[Moment | None] = []

    def _does(self, step: str, at: EpochAt) -> None:
        if step in {"commit", "abort"}:
            self.since.append(at.since)
        super()._does(step, at)


@pytest.mark.req("C2", "E1")
def test_the_time_to_commit_runs_from_before_the_prepare_was_granted(tmp_path: Path) -> None:
    """However long a process sleeps between the two: marks may be gone when it wakes."""
    sink = Dated()
    flow = Flow(tmp_path, [Numbers(total=1)], [sink])
    flow.hold = lambda report: isinstance(report, EpochPrepared)
    execution = flow.begin()
    eventually(lambda: bool(flow.of(EpochPrepared)))
    granted_s = CLOCK.monotonic_s()
    flow.release()
    assert flow.end(execution).outcome == "SUCCESS"

    [since] = sink.since
    assert since is not None
    assert since.monotonic_s <= granted_s


@pytest.mark.req("C2", "E1")
def test_of_an_epoch_left_open_it_runs_from_when_the_task_was_asked_for(tmp_path: Path) -> None:
    sink, asked = Dated(), Moment(monotonic_s=7.0, wall_ms=7000)
    planned = left(6).model_copy(update={"status": EpochStatus.PLANNED, "handles": None})
    flow = Flow(tmp_path, [Numbers()], [sink])

    flow.run(Restore(open=(left(5, "sink"), planned)), settle=True, since=asked)

    assert sink.since == [asked, asked]
