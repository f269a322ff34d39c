"""Restores of jobs that failed half way: in an epoch that was planned, or before epoch 0."""

from __future__ import annotations

import pytest

from headrace.coordinator.jobs.reconciler import SETTLE_DEADLINE_S
from headrace.errors import Refused
from headrace.model.jobs.epoch import EpochStatus
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim
from headrace.protocol.messages import ForgetPayload
from tests.coordinator.jobs.ended import at_its_targets, rows, wait_and_clean
from tests.coordinator.jobs.streaming import done, epoch, given_again, restored, running, streaming
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import ROWS, failed, planned, prepared


def _unsettled(desk: LeaderHarness, job: str, claim: Claim) -> None:
    """It fails; a settle task takes over what is open, and is not heard of again."""
    desk.report("w1", failed(claim))
    desk.passes()
    settle = desk.claimed("w1")
    desk.sync("w1", holds=[settle], free={})  # from here on it spends tokens
    desk.clock.advance(SETTLE_DEADLINE_S + 1)
    desk.passes()  # the worker is lost
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED


@pytest.mark.req("E2", "E6")
def test_a_planned_epoch_that_a_settle_task_may_have_aborted_is_not_run_by_a_restore(
    desk: LeaderHarness,
) -> None:
    """It aborted the epoch at one sink or at all of them; a zombie of it may do so at any time.
    Whoever runs this epoch can never commit it."""
    job, claim = running(desk, epochs=2)
    desk.report("w1", planned(claim, 3), holds=[claim])
    _unsettled(desk, job, claim)
    assert desk.epochs(job)[-1] == (3, "CHECKPOINT", "PLANNED")

    restored(desk, job)

    assert desk.epochs(job)[-1] == (3, "CHECKPOINT", "ABORTED")
    desk.register("w2")
    again, payload = given_again(desk, "w2")
    assert payload.restore.open == ()
    assert payload.restore.epoch == 3
    assert payload.restore.completed == 2, "rows that a target holds in 3 are unknown here (E7)"
    assert payload.restore.aborted == (3,)
    assert payload.restore.positions == {"FakeSource-1": 2 * ROWS}
    assert not desk.report("w2", planned(again, 3), holds=[again]).held
    epoch(desk, again, 4, worker="w2")
    assert desk.pipeline(job).really_completed == 4


@pytest.mark.req("E7")
@pytest.mark.parametrize("cleaned", [False, True], ids=["at once", "after its rows are gone"])
def test_each_restore_remembers_what_was_really_completed(
    desk: LeaderHarness, *, cleaned: bool
) -> None:
    """A target that holds epoch 3 with rows stops the restored job; the next restore, too, must
    not take 3 for known."""
    job, claim = running(desk, epochs=2)
    desk.report("w1", planned(claim, 3), holds=[claim])
    _unsettled(desk, job, claim)
    desk.register("w2")
    for key in ("once", "twice"):
        restored(desk, job, key=key)
        again, payload = given_again(desk, "w2")
        assert (payload.restore.epoch, payload.restore.completed) == (3, 2)
        assert payload.restore.positions == {"FakeSource-1": 2 * ROWS}
        desk.report("w2", failed(again, "it is older", retry=False))
        desk.passes()
        assert desk.status(job) is JobStatus.FAILED
        if cleaned:
            wait_and_clean(desk)
            assert rows(desk) == {}
            desk.register("w2")


@pytest.mark.req("E7")
def test_whoever_forgets_the_marks_is_told_what_was_really_completed(desk: LeaderHarness) -> None:
    job, claim = running(desk, epochs=2)
    desk.report("w1", planned(claim, 3), holds=[claim])
    _unsettled(desk, job, claim)
    restored(desk, job)
    desk.register("w1")
    again, _ = given_again(desk)
    desk.report("w1", failed(again, "it is older", retry=False))
    desk.passes()
    incarnation = desk.job(job).incarnation
    wait_and_clean(desk)

    payload = ForgetPayload.model_validate(at_its_targets(desk, incarnation).payload)

    assert (payload.up_to, payload.completed) == (3, {1: 2})


@pytest.mark.req("E7")
def test_a_pipeline_that_skips_ids_of_another_remembers_its_own(desk: LeaderHarness) -> None:
    made = streaming(pipelines=2)
    job = desk.submit(made)
    desk.register("w1")
    desk.passes()
    one, two = sorted(a.claim for a in desk.sync("w1").assignments)
    both = [one, two]
    desk.sync("w1", holds=both, free={})
    for number in range(1, 6):
        for report in (planned(one, number), prepared(one, number, ready=()), done(one, number)):
            assert desk.report("w1", report, holds=both).held
    for claim in both:
        desk.report("w1", failed(claim, retry=False), holds=[])
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED

    restored(desk, job, made)

    assert [desk.pipeline(job, n).epoch for n in (1, 2)] == [5, 5]
    assert [desk.pipeline(job, n).really_completed for n in (1, 2)] == [5, 0]


@pytest.mark.req("E2", "E6")
def test_a_prepared_epoch_is_finished_and_the_planned_one_behind_it_is_skipped(
    desk: LeaderHarness,
) -> None:
    job, claim = running(desk, epochs=2)
    for report in (planned(claim, 3), prepared(claim, 3, ready=()), planned(claim, 4)):
        assert desk.report("w1", report, holds=[claim]).held
    _unsettled(desk, job, claim)

    restored(desk, job)

    desk.register("w2")
    again, payload = given_again(desk, "w2")
    left = [(each.epoch, each.status) for each in payload.restore.open]
    assert left == [(3, EpochStatus.PREPARED)]
    assert payload.restore.epoch == 2
    assert payload.restore.aborted == (4,), "an abort at a target is nothing new (E7)"
    assert desk.report("w2", done(again, 3), holds=[again]).held
    assert not desk.report("w2", planned(again, 4), holds=[again]).held, "it may be spent"
    epoch(desk, again, 5, worker="w2")
    assert desk.pipeline(job).epoch == 5


def _careful(made: JobSpec, *, mode: str = "ERROR_WHEN_DATA_EXISTS") -> JobSpec:
    """Its second pipeline has a sink that must not meet old rows."""
    first, second = made.pipelines
    options = {"path": "/nowhere", "file_format_type": "json", "data_save_mode": mode}
    sink = second.sinks[0].model_copy(update={"plugin": "LocalFile", "options": options})
    second = second.model_copy(update={"sinks": (sink,)})
    return made.model_copy(update={"pipelines": (first, second)})


def _never_opened(desk: LeaderHarness, *, reported: int = 0) -> tuple[str, JobSpec]:
    """Pipeline 1 has a checkpoint. Pipeline 2 failed; of its epoch 0 it had `reported` none of
    planned and prepared, or the first, or both."""
    made = _careful(streaming(pipelines=2))
    job = desk.submit(made)
    desk.register("w1")
    desk.passes()
    one, two = sorted(a.claim for a in desk.sync("w1").assignments)
    desk.sync("w1", holds=[one, two], free={})
    for report in (planned(one, 1), prepared(one, 1, ready=()), done(one, 1)):
        assert desk.report("w1", report, holds=[one, two]).held
    for report in (planned(two, 0), prepared(two, 0, ready=()))[:reported]:
        assert desk.report("w1", report, holds=[one, two]).held
    desk.report("w1", failed(two, "the folder holds files", retry=False), holds=[one])
    desk.passes()
    desk.report("w1", failed(one))
    desk.passes()
    if reported:  # whoever settles it is not heard of in time
        desk.clock.advance(SETTLE_DEADLINE_S + 1)
        desk.passes()
    assert desk.status(job) is JobStatus.FAILED
    assert desk.pipeline(job, 2).epoch == -1, "epoch 0 is to come"
    return job, made


@pytest.mark.req("E1")
def test_a_restore_does_not_step_over_save_modes_that_were_never_carried_out(
    desk: LeaderHarness,
) -> None:
    job, made = _never_opened(desk)

    restored(desk, job, made)

    assert desk.pipeline(job, 1).epoch == 1
    assert desk.pipeline(job, 2).epoch == -1, "rows would be appended to those that are there"
    desk.passes()
    one, two = sorted(a.claim for a in desk.sync("w1").assignments)
    for number in (0, 1):
        for report in (planned(two, number), prepared(two, number, ready=())):
            assert desk.report("w1", report, holds=[one, two]).held
        assert desk.report("w1", done(two, number, pipeline=2), holds=[one, two]).held


def test_a_file_that_asks_for_no_save_mode_any_more_has_none_carried_out(
    desk: LeaderHarness,
) -> None:
    job, made = _never_opened(desk)

    restored(desk, job, _careful(made, mode="APPEND_DATA"))

    assert desk.pipeline(job, 2).epoch == 1


@pytest.mark.req("E1")
def test_save_modes_that_were_begun_and_not_ended_are_not_carried_out_again(
    desk: LeaderHarness,
) -> None:
    """A settle task may have spent the token of epoch 0, or may do so yet."""
    job, made = _never_opened(desk, reported=1)

    with pytest.raises(Refused) as refused:
        restored(desk, job, made)

    assert str(refused.value) == (
        f"pipeline 2 of job {job!r} stopped while it did what the save modes of its sink "
        "'Console-2' ask for: its epoch 0 was begun, and is not run twice. Run the file anew "
        "without --restore"
    )
    assert desk.status(job) is JobStatus.FAILED


def test_save_modes_that_were_prepared_are_finished_by_the_restored_job(
    desk: LeaderHarness,
) -> None:
    job, made = _never_opened(desk, reported=2)

    restored(desk, job, made)

    assert desk.pipeline(job, 2).epoch == -1
    assert (0, "OPENING", "PREPARED") in desk.epochs(job)


@pytest.mark.req("E1")
def test_a_pipeline_that_was_never_opened_keeps_its_number(desk: LeaderHarness) -> None:
    """The pipeline that takes its number would drop rows of its own."""
    job, made = _never_opened(desk)
    turned = tuple(
        p.model_copy(update={"number": number})
        for number, p in enumerate(reversed(made.pipelines), start=1)
    )

    with pytest.raises(Refused, match=r"must stay pipeline 2, with sink 'Console-2' as before"):
        restored(desk, job, made.model_copy(update={"pipelines": turned}))
