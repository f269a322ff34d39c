"""What a source learns reaches whoever commits, and it is told of commits at least once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import JsonValue

from headrace.model.jobs.epoch import EpochStatus
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import (
    Assignment,
    EpochCompleted,
    EpochPlan,
    EpochPrepared,
    OpenEpoch,
    Restore,
    Slice,
)
from headrace.worker.execution import Execution
from headrace.worker.sources import UNTOLD_MAX, SourceGroup
from tests.worker.flow import Flow, Lists, Numbers

Told = tuple[JsonValue, JsonValue]


@dataclass
class Receipts(Numbers):
    """Learns a receipt of each slice, and gives it back when the slice is committed."""

    learns: bool = True
    broken: int = 0  # how often it can't be told
    told: list[Told] = field(default_factory=list[Told])
    closed: int = 0
    _last: JsonValue = None

    def read(self, session: object, part: Slice) -> Any:
        self._last = {"receipt": part.data}
        return super().read(session, part)

    def learned(self) -> JsonValue:
        return self._last if self.learns else None

    def committed(self, session: object, position: JsonValue, *, learned: JsonValue) -> None:
        if self.broken:
            self.broken -= 1
            raise OSError("the queue is away")
        self.told.append((position, learned))

    def close(self) -> None:
        self.closed += 1
        if self.name == "clumsy":
            raise OSError("closed before")


def prepared(epoch: int, handles: dict[str, Any]) -> OpenEpoch:
    plan = EpochPlan(slices={"source": Slice(data=[1, 2], after=2, rows=1)}, now_ms=0)
    return OpenEpoch(epoch=epoch, status=EpochStatus.PREPARED, plan=plan, handles=handles)


def execution_of_nothing() -> Execution:
    task = Assignment(claim=Claim("t", 1), kind=TaskKind.PIPELINE, lane=Lane.SLOT, payload={})
    return Execution(task, cast("Any", None), cast("Any", None))


def test_a_source_is_told_of_each_epoch_with_what_it_learned_after_that_is_completed(
    tmp_path: Path,
) -> None:
    source, sink = Receipts(total=3), Lists()
    flow = Flow(tmp_path, [source], [sink], checkpoint_interval_ms=1)
    done: list[int] = []
    sink.look = lambda step, _epoch: done.append(len(source.told)) if step == "commit" else None

    assert flow.run().outcome == "SUCCESS"

    assert source.told == [(n, {"receipt": [n - 1, n]}) for n in (1, 2, 3)]
    assert done == [0, 1, 2], "never before the epoch is committed"
    handles = [report.handles for report in flow.of(EpochPrepared)]
    assert handles[0]["source"] == {"handle": None, "rows": 0, "learned": {"receipt": [0, 1]}}
    assert [report.rows_out for report in flow.of(EpochCompleted)] == [1, 1, 1]
    assert (source.closed, sink.closed, sink.finished) == (1, 1, 3)


def test_a_source_that_learns_nothing_adds_nothing(tmp_path: Path) -> None:
    source = Receipts(total=1, learns=False)
    flow = Flow(tmp_path, [source], [Lists()])

    assert flow.run().outcome == "SUCCESS"
    assert [list(report.handles) for report in flow.of(EpochPrepared)] == [["sink"]]
    assert source.told == [(1, None)]


def test_a_successor_tells_the_restored_position_first(tmp_path: Path) -> None:
    """Whoever completed that epoch may have died before it told the source."""
    source, sink = Receipts(total=2), Lists()
    sink.look = lambda step, _epoch: source.told.append(step) if step == "stage" else None  # type: ignore[arg-type]

    restore = Restore(epoch=1, positions={"source": 1}, written={"sink": 1})
    assert Flow(tmp_path, [source], [sink]).run(restore).outcome == "SUCCESS"

    assert source.told == [(1, None), "stage", (2, {"receipt": [1, 2]})]


@pytest.mark.parametrize("settle", [False, True], ids=["adopted", "settled"])
def test_a_successor_that_commits_a_prepared_epoch_tells_what_was_learned_then(
    tmp_path: Path, *, settle: bool
) -> None:
    source, sink = Receipts(total=2), Lists()
    handles = {
        "sink": {"handle": [1], "rows": 1},
        "source": {"handle": None, "rows": 0, "learned": "from another life"},
    }
    restore = Restore(
        epoch=1,
        highest=2,
        positions={"source": 1},
        open=(prepared(2, handles),),
        written={"sink": 1},
    )

    assert Flow(tmp_path, [source], [sink]).run(restore, settle=settle).outcome == "SUCCESS"

    assert source.told == [(1, None), (2, "from another life")]
    assert sink.rows == [1]
    assert (source.closed, sink.closed) == (1, 1)


def test_a_source_that_cant_be_told_fails_no_job_and_is_told_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, sink = Receipts(total=3, broken=2), Lists()

    assert Flow(tmp_path, [source], [sink], checkpoint_interval_ms=1).run().outcome == "SUCCESS"

    assert source.told == [(n, {"receipt": [n - 1, n]}) for n in (1, 2, 3)], "nothing is lost"
    assert sink.rows == [0, 1, 2]
    assert sum(r.message == "source not told of its commit" for r in caplog.records) == 2


@dataclass
class Standing(Receipts):
    """Hands out what is there, and has no position to speak of."""

    where: JsonValue = None
    slices: int = 0

    def plan(
        self, session: object, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        self.slices += 1
        first, last = self.slices - 1, self.slices == self.total
        return Slice(data=[first, self.slices], after=self.where, rows=1, last=last)


@pytest.mark.parametrize("where", [None, "here"])
def test_a_source_whose_position_stays_the_same_is_told_of_each_epoch(
    tmp_path: Path, where: JsonValue
) -> None:
    source = Standing(total=3, where=where)

    flow = Flow(tmp_path, [source], [Lists()], checkpoint_interval_ms=1)
    assert flow.run().outcome == "SUCCESS"

    assert source.told == [(where, {"receipt": [n - 1, n]}) for n in (1, 2, 3)]


def test_a_source_that_learned_nothing_is_told_of_the_last_position_only(tmp_path: Path) -> None:
    source = Receipts(total=3, broken=2, learns=False)

    flow = Flow(tmp_path, [source], [Lists()], checkpoint_interval_ms=1)
    assert flow.run().outcome == "SUCCESS"
    assert source.told == [(3, None)]


def test_what_could_not_be_told_is_kept_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    source = Receipts(broken=UNTOLD_MAX + 2)
    group = SourceGroup([source], cast("Any", None), execution_of_nothing())

    for n in range(UNTOLD_MAX + 2):
        plan = EpochPlan(slices={"source": Slice(data=n, after=n)}, now_ms=0)
        group.tell_committed(plan, {"source": {"learned": f"of {n}"}})
    assert source.told == []
    group.tell_again()

    assert source.told == [(n, f"of {n}") for n in range(2, UNTOLD_MAX + 2)]
    assert caplog.messages.count("source never told of an old commit") == 2


def test_each_epoch_that_is_told_is_a_sign_of_life_and_a_stop_is_heard_in_between() -> None:
    execution, signs = execution_of_nothing(), list[int]()

    class Slow(Receipts):
        def committed(self, session: object, position: JsonValue, *, learned: JsonValue) -> None:
            super().committed(session, position, learned=learned)
            signs.append(execution.activity)
            if position == 3:
                execution.stop()

    source = Slow(broken=4)
    group = SourceGroup([source], cast("Any", None), execution)
    for n in range(1, 5):
        plan = EpochPlan(slices={"source": Slice(data=n, after=n)}, now_ms=0)
        group.tell_committed(plan, {"source": {"learned": n}})
    group.tell_again()

    assert source.told == [(1, 1), (2, 2), (3, 3)]
    assert len(set(signs)) == 3


def test_an_epoch_is_told_also_when_the_next_one_cant_be_planned(tmp_path: Path) -> None:
    class Stubborn(Receipts):
        completed = False

        def plan(
            self, session: object, position: JsonValue, *, rows_max: int | None = None
        ) -> Slice | None:
            if self.completed:
                raise OSError("the queue is away")
            return super().plan(session, position, rows_max=rows_max)

    source, sink = Stubborn(total=9), Lists()
    flow = Flow(tmp_path, [source], [sink], checkpoint_interval_ms=1)

    def look(step: str, _epoch: int) -> None:
        if step == "commit":
            source.completed = True

    sink.look = look

    assert flow.run().outcome == "FAILED"
    assert [epoch for step, epoch in sink.did if step == "commit"] == [1]
    assert source.told == [(1, {"receipt": [0, 1]})]


def test_the_last_epoch_is_tried_once_more_before_the_end(tmp_path: Path) -> None:
    source = Receipts(total=1, broken=1)

    assert Flow(tmp_path, [source], [Lists()]).run().outcome == "SUCCESS"
    assert source.told == [(1, {"receipt": [0, 1]})]


def test_all_are_closed_after_a_failure_too_and_one_that_cant_be_keeps_no_other_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(step: str, _epoch: int) -> None:
        if step == "commit":
            raise OSError("the disk is away")

    clumsy, other, sink = Receipts(name="clumsy"), Receipts(name="other"), Lists(look=fails)

    assert Flow(tmp_path, [clumsy, other], [sink]).run().outcome == "FAILED"

    assert (clumsy.closed, other.closed, sink.closed) == (1, 1, 1)
    assert clumsy.told == []
    assert "source not closed" in caplog.messages
