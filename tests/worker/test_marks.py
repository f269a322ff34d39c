"""A target that is ahead of the store, because the store was restored from a backup (E7)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import Refused, StoreOlderThanTarget, Unavailable
from headrace.exactly_once.operations import check_given_up, check_spender
from headrace.exactly_once.target import Mark
from headrace.model.jobs.epoch import EpochAt, EpochStatus
from headrace.model.task import FailureCause
from headrace.protocol.messages import (
    EpochCompleted,
    EpochPlan,
    EpochPlanned,
    OpenEpoch,
    Restore,
    SettleResult,
    Slice,
)
from headrace.worker.sinks import failure_of
from tests.worker.flow import Flow, Lists, Numbers

DATA_3, ABORT_3 = Mark(3, aborted=False), Mark(3, aborted=True)
PREPARED, PLANNED = EpochStatus.PREPARED, EpochStatus.PLANNED


def left(epoch: int, status: EpochStatus) -> OpenEpoch:
    part = Slice(data=[epoch - 1, epoch], after=epoch, rows=1)
    handles: Any = {"sink": {"handle": [epoch - 1], "rows": 1}} if status is PREPARED else None
    return OpenEpoch(
        epoch=epoch,
        status=status,
        plan=EpochPlan(slices={"source": part}, now_ms=0),
        handles=handles,
    )


def after(epoch: int, *was_open: OpenEpoch, aborted: tuple[int, ...] | None = ()) -> Restore:
    ids = [epoch, *(one.epoch for one in was_open), *(aborted or ())]
    return Restore(
        epoch=epoch,
        highest=max(ids),
        positions={"source": epoch},
        open=was_open,
        aborted=aborted,
    )


def test_a_job_with_nothing_left_to_write_needs_no_target(tmp_path: Path) -> None:
    """Its last epoch is completed; who says the end did not come to it before it died."""
    sink = Away("sink")
    flow = Flow(tmp_path, [Numbers()], [sink])

    end = flow.run(Restore(epoch=3, positions={"source": 3}, ready=("source",)))

    assert end.outcome == "SUCCESS"
    assert flow.of(EpochPlanned) == []


class Away(Lists):
    def read_mark(self, session: object, at: EpochAt) -> Mark | None:
        raise Unavailable("the target is away")


@pytest.mark.req("E7")
@pytest.mark.parametrize(
    ("mark", "restore", "known"),
    [
        (DATA_3, Restore(), 0),
        (DATA_3, after(2), 2),
        (DATA_3, after(2, left(3, PLANNED)), 2),
        (DATA_3, after(1, left(2, PLANNED)), 1),
        (ABORT_3, after(2), 2),
        (ABORT_3, after(2, left(3, PLANNED)), 2),
        (ABORT_3, after(2, aborted=None), 2),
    ],
    ids=["new", "completed", "same id planned", "planned", "given up", "given up, planned", "old"],
)
def test_a_mark_that_the_store_does_not_know_stops_the_job_before_anything_is_planned(
    tmp_path: Path, mark: Mark, restore: Restore, known: int
) -> None:
    first, second = Lists("first"), Lists("sink", mark=mark)
    flow = Flow(tmp_path, [Numbers(total=9)], [first, second])

    end = flow.run(restore)

    assert (end.outcome, end.retry) == ("FAILED", False)
    assert end.error is not None
    assert "sink sink" in end.error
    assert "epoch 3" in end.error
    assert f"this store knows to be committed is {known}:" in end.error
    assert "restore a newer copy of the store" in end.error
    assert "submit the job file as a new job" in end.error
    assert flow.of(EpochPlanned) == []
    assert {step for step, _ in first.did + second.did} <= {"sweep"}


@pytest.mark.req("E7")
def test_rows_of_an_epoch_that_the_store_gave_up_stop_the_job(tmp_path: Path) -> None:
    """They would be read again, and come twice."""
    sink = Lists(mark=DATA_3)

    end = Flow(tmp_path, [Numbers(total=9)], [sink]).run(after(2, aborted=(3,)))

    assert (end.outcome, end.retry) == ("FAILED", False)
    assert "holds epoch 3, and this store has given epoch 3 up" in (end.error or "")


def skipping(completed: int, epoch: int, *aborted: int) -> Restore:
    """After a restore that put a pipeline above ids that are used."""
    return Restore(
        epoch=epoch,
        completed=completed,
        highest=max((*aborted, -1)),
        positions={"source": completed},
        aborted=aborted,
    )


@pytest.mark.req("E7")
@pytest.mark.parametrize(
    "restore", [skipping(2, 3, 3), skipping(2, 10, 3), skipping(2, 10), skipping(0, 10)]
)
def test_a_restore_does_not_step_over_rows_that_the_store_does_not_know(
    tmp_path: Path, restore: Restore
) -> None:
    """It begins above the epoch that the target holds, with positions from below it."""
    sink = Lists(mark=DATA_3)

    end = Flow(tmp_path, [Numbers(total=9)], [sink]).run(restore)

    assert (end.outcome, end.retry, end.cause) == ("FAILED", False, FailureCause.STORE_OLDER)
    assert "holds epoch 3, and" in (end.error or "")
    assert {step for step, _ in sink.did} <= {"sweep"}


@pytest.mark.req("E7")
@pytest.mark.parametrize(
    ("mark", "restore"),
    [
        (Mark(2, aborted=False), skipping(2, 10, 3)),
        (ABORT_3, skipping(2, 10, 3)),
        (ABORT_3, skipping(2, 10)),
    ],
    ids=["completed", "given up", "given up and cleaned"],
)
def test_a_restore_goes_on_over_ids_without_rows(
    tmp_path: Path, mark: Mark, restore: Restore
) -> None:
    sink = Lists(mark=mark)

    end = Flow(tmp_path, [Numbers(total=5)], [sink]).run(restore)

    assert end.outcome == "SUCCESS"
    assert sink.rows == [2, 3, 4]


@pytest.mark.req("E7")
@pytest.mark.parametrize("other", [Unavailable("it is away"), Refused("it says no")])
def test_an_older_store_is_never_tried_again_whatever_other_sinks_say(other: Exception) -> None:
    older = StoreOlderThanTarget("table t", "holds epoch 3", "the last one is 2")

    error = failure_of("epoch 3 is committed at no sink", {"a": other, "b": older})

    assert isinstance(error, StoreOlderThanTarget), "its execution ends for good"
    assert str(other) in str(error)
    assert "b: table t holds epoch 3, and the last one is 2: the store is older" in str(error)


@pytest.mark.req("E7")
def test_what_is_prepared_is_finished_before_a_higher_mark_stops_the_job(tmp_path: Path) -> None:
    """It was only ever committed from these handles, by whomever."""
    sink = Lists(mark=DATA_3)
    flow = Flow(tmp_path, [Numbers(total=9)], [sink])

    end = flow.run(after(1, left(2, PREPARED)))

    assert (end.outcome, end.retry) == ("FAILED", False)
    assert "known" not in (end.error or "")
    assert "to be committed is 2:" in (end.error or "")
    assert [done.epoch for done in flow.of(EpochCompleted)] == [2]
    assert flow.of(EpochPlanned) == []


@pytest.mark.req("E7")
@pytest.mark.parametrize(
    ("mark", "restore"),
    [
        (None, after(2)),
        (DATA_3, after(3)),
        (DATA_3, after(2, left(3, PREPARED))),
        (ABORT_3, after(2, aborted=(3,))),
        (ABORT_3, after(2, aborted=None).model_copy(update={"highest": 3})),
    ],
    ids=["no mark", "completed", "prepared", "given up", "given up, says an older coordinator"],
)
def test_a_mark_that_the_store_knows_stops_nobody(
    tmp_path: Path, mark: Mark | None, restore: Restore
) -> None:
    sink = Lists(mark=mark)
    total = 5

    end = Flow(tmp_path, [Numbers(total=total)], [sink]).run(restore)

    assert end.outcome == "SUCCESS"
    assert sink.rows == list(range(restore.epoch, total))


@dataclass
class Seen(Lists):
    """Says when it is asked for its mark, too."""

    away: bool = False

    def read_mark(self, session: object, at: EpochAt) -> Mark | None:
        self.did.append(("read_mark", at.epoch))
        if self.away:
            raise Unavailable("the target is away")
        return self.mark


@pytest.mark.req("E1")
@pytest.mark.parametrize("settle", [False, True])
def test_a_target_is_seen_before_what_a_former_execution_left_is_committed(
    tmp_path: Path, *, settle: bool
) -> None:
    """One that is away keeps no other from its rows."""
    away, sink = Seen("away", away=True), Seen()

    Flow(tmp_path, [Numbers()], [away, sink]).run(after(2, left(3, PREPARED)), settle=settle)

    steps = [step for step, _ in sink.did if step != "sweep"]
    assert steps[:2] == ["read_mark", "commit"]


@pytest.mark.req("E7")
def test_settling_gives_no_epoch_up_whose_rows_are_there(tmp_path: Path) -> None:
    sink = Lists(mark=DATA_3)

    end = Flow(tmp_path, [Numbers()], [sink]).run(after(2, left(3, PLANNED)), settle=True)

    assert (end.outcome, end.retry) == ("FAILED", False)
    assert "holds epoch 3" in (end.error or "")
    assert sink.did == []


@pytest.mark.req("E7")
@pytest.mark.parametrize("mark", [Mark(7, aborted=False), Mark(7, aborted=True)])
def test_settling_gives_no_epoch_up_at_a_target_that_knows_more(tmp_path: Path, mark: Mark) -> None:
    """What became of epoch 3 there is not for this store to say."""
    sink = Lists(mark=mark)

    end = Flow(tmp_path, [Numbers()], [sink]).run(after(2, left(3, PLANNED)), settle=True)

    assert (end.outcome, end.retry, end.cause) == ("FAILED", False, FailureCause.STORE_OLDER)
    assert sink.did == []


@pytest.mark.req("E7")
def test_settling_gives_no_epoch_up_whose_rows_are_below_an_abort(tmp_path: Path) -> None:
    """The highest mark is an abort that this store knows to be possible; the sink, asked to give
    the epoch below it up, finds rows."""

    def look(step: str, epoch: int) -> None:
        if step == "abort":
            check_given_up("table t", EpochAt("i", 1, epoch, "t.1"), holds_rows=epoch == 3)

    sink = Lists(mark=Mark(4, aborted=True), look=look)
    was_open = (left(3, PLANNED), left(4, PLANNED))

    end = Flow(tmp_path, [Numbers()], [sink]).run(after(2, *was_open), settle=True)

    assert (end.outcome, end.retry, end.cause) == ("FAILED", False, FailureCause.STORE_OLDER)
    assert "table t holds epoch 3 with rows" in (end.error or "")
    assert sink.did == [("abort", 3)]


@pytest.mark.parametrize("mark", [None, ABORT_3])
def test_settling_goes_on_where_nothing_can_be_spent_twice(
    tmp_path: Path, mark: Mark | None
) -> None:
    """A settle task that was not heard of may have aborted it."""
    sink = Lists(mark=mark)
    was_open = (left(2, PREPARED), left(3, PLANNED))

    end = Flow(tmp_path, [Numbers()], [sink]).run(after(1, *was_open), settle=True)

    settled = SettleResult.model_validate(end.result)
    assert [done.epoch for done in settled.completed] == [2]
    assert settled.aborted == (3,)


@pytest.mark.req("E7")
def test_a_token_held_by_the_rows_of_another_execution_is_not_ours() -> None:
    at = EpochAt("i", 1, 6, "t.3")
    check_spender("table t", at, staged="t.2", held="t.2")
    check_spender("table t", at, staged="t.2", held=None)  # its snapshot was expired
    with pytest.raises(StoreOlderThanTarget, match=r"table t holds epoch 6 .* execution other\.1"):
        check_spender("table t", at, staged="t.2", held="other.1")
