"""A cancelled job ends CANCELED from every state, and within a bound that is known beforehand."""

from __future__ import annotations

import pytest

from headrace.coordinator.jobs.reconciler import (
    SETTLE_DEADLINE_S,
    SETTLE_HELD_DEADLINE_S,
    STOP_DEADLINE_S,
)
from headrace.model.jobs.status import JobStatus
from headrace.model.task import ASSIGNED, Lane, TaskStatus
from tests.coordinator.jobs.states import (
    HELD,
    NOT_HELD,
    At,
    Reach,
    committing,
    deploying,
    pausing,
    restored_with_an_open_epoch,
    staging,
)
from tests.coordinator.jobs.streaming import running, saved, savepoint_of, streaming
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.live_workers import (
    TICK_S,
    LiveWorker,
    finds_the_sink_away,
    never_gets_it_done,
    until_it_ends,
)
from tests.coordinator.specs import ROWS, failed, planned, succeeded, whole_run

CANCELED = JobStatus.CANCELED


def cancelled(desk: LeaderHarness, reach: Reach) -> At:
    job, held = reach(desk)
    desk.commands.cancel(job)
    return job, held


def check_nothing_is_left(desk: LeaderHarness, job: str) -> None:
    assert desk.job(job).waits_for is None
    assert not [task for task in desk.tasks(job) if task.status in ASSIGNED]
    assert not [task for task in desk.tasks(job) if task.status is TaskStatus.PLANNED]


@pytest.mark.parametrize("reach", [*NOT_HELD, *HELD])
def test_a_cancel_ends_within_a_few_syncs_when_somebody_does_as_told(
    desk: LeaderHarness, reach: Reach
) -> None:
    job, held = cancelled(desk, reach)

    status, after_s = until_it_ends(desk, job, LiveWorker(holds=held))

    assert (status, desk.status(job)) == (CANCELED, CANCELED)
    assert after_s <= 2 * TICK_S
    check_nothing_is_left(desk, job)
    assert desk.job(job).error is None
    assert not [e for e in desk.epochs(job) if e[2] in {"PLANNED", "PREPARED"}]


@pytest.mark.parametrize("reach", [deploying, *HELD])
def test_on_a_dead_worker_a_cancel_ends_once_that_is_known(
    desk: LeaderHarness, reach: Reach
) -> None:
    job, _ = cancelled(desk, reach)
    desk.register("w2")

    status, after_s = until_it_ends(desk, job, LiveWorker("w2"))

    assert status is CANCELED
    assert after_s <= TIMEOUT_S + 3 * TICK_S
    check_nothing_is_left(desk, job)
    assert desk.job(job).error is None


@pytest.mark.parametrize("reach", [deploying, pausing, *HELD])
def test_without_any_worker_left_a_cancel_ends_without_settling(
    desk: LeaderHarness, reach: Reach
) -> None:
    job, _ = cancelled(desk, reach)

    status, after_s = until_it_ends(desk, job)

    assert status is CANCELED
    assert after_s <= TIMEOUT_S + SETTLE_DEADLINE_S + 3 * TICK_S
    check_nothing_is_left(desk, job)


def test_what_could_not_be_settled_is_named_where_it_was_left(desk: LeaderHarness) -> None:
    job, held = cancelled(desk, committing)

    status, _ = until_it_ends(desk, job, LiveWorker(holds=held, settles=finds_the_sink_away))

    assert status is CANCELED
    assert desk.pipeline(job).error == (
        "epoch 2 is left open, it could not be settled: the catalog is away"
    )


@pytest.mark.parametrize("reach", [staging, committing])
def test_settling_that_always_fails_is_given_up(desk: LeaderHarness, reach: Reach) -> None:
    job, held = cancelled(desk, reach)

    status, after_s = until_it_ends(desk, job, LiveWorker(holds=held, settles=finds_the_sink_away))

    assert status is CANCELED
    assert after_s <= SETTLE_DEADLINE_S + 3 * TICK_S
    check_nothing_is_left(desk, job)


@pytest.mark.parametrize("reach", [staging, committing])
def test_settling_that_goes_on_for_ever_is_given_up(desk: LeaderHarness, reach: Reach) -> None:
    job, held = cancelled(desk, reach)

    status, after_s = until_it_ends(desk, job, LiveWorker(holds=held, settles=never_gets_it_done))

    assert status is CANCELED
    assert SETTLE_DEADLINE_S < after_s <= SETTLE_HELD_DEADLINE_S + 3 * TICK_S
    assert desk.pipeline(job).error == (
        "epoch 2 is left open, it could not be settled: worker w1 did not get it done in 3600 s"
    )
    check_nothing_is_left(desk, job)


@pytest.mark.parametrize("reach", HELD)
def test_an_execution_that_does_not_stop_is_given_up(desk: LeaderHarness, reach: Reach) -> None:
    job, held = cancelled(desk, reach)

    status, after_s = until_it_ends(desk, job, LiveWorker(holds=held, obeys=False))

    assert status is CANCELED
    assert STOP_DEADLINE_S <= after_s <= STOP_DEADLINE_S + 3 * TICK_S
    check_nothing_is_left(desk, job)
    # It is told so for as long as it holds on, and what it says is late news.
    assert desk.sync("w1", holds=held, free={}).stop == tuple(held)
    assert not desk.report("w1", succeeded(held[0]), holds=held).held
    assert desk.status(job) is CANCELED


def test_a_stop_has_its_whole_time_again_under_a_new_leader(desk: LeaderHarness) -> None:
    job, held = cancelled(desk, staging)
    hand = LiveWorker(holds=held, obeys=False)
    for _ in range(int(STOP_DEADLINE_S / TICK_S) - 1):
        desk.passes()
        hand.work(desk)
        desk.clock.advance(TICK_S)
    desk.take_over()

    status, after_s = until_it_ends(desk, job, hand)

    assert status is CANCELED
    assert STOP_DEADLINE_S <= after_s <= STOP_DEADLINE_S + 3 * TICK_S


@pytest.mark.parametrize("reports", range(5))
def test_a_cancel_that_races_with_the_end_gives_one_of_the_two(
    desk: LeaderHarness, reports: int
) -> None:
    """Before the first word of the execution, after the last, and at every one between."""
    job, claim = desk.given()
    said = whole_run(claim)
    for report in said[:reports]:
        desk.report("w1", report, holds=[claim])
    desk.commands.cancel(job)
    ended = reports == len(said)
    if not ended:
        desk.passes()
    for report in said[reports:]:
        desk.report("w1", report, holds=[claim])

    status, _ = until_it_ends(desk, job, LiveWorker())

    assert status is (JobStatus.FINISHED if ended else CANCELED)
    assert desk.job(job).error is None
    desk.commands.cancel(job)
    desk.passes()
    assert desk.status(job) is status


def test_a_cancel_beats_a_savepoint_that_was_just_made(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.commands.savepoint(job)
    desk.passes()
    desk.report("w1", saved(claim))

    desk.commands.cancel(job)
    desk.passes()

    assert desk.status(job) is CANCELED
    assert savepoint_of(desk, job) is None


def test_a_savepoint_that_comes_after_the_cancel_changes_nothing(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.commands.savepoint(job)
    desk.passes()
    desk.commands.cancel(job)
    desk.passes()

    desk.report("w1", saved(claim))
    desk.passes()

    assert desk.status(job) is CANCELED
    assert savepoint_of(desk, job) is None


def test_a_failure_that_a_stop_brings_about_is_no_failure(desk: LeaderHarness) -> None:
    job, claim = desk.given(streaming(retry_times=0))
    desk.report("w1", planned(claim), holds=[claim])
    desk.commands.cancel(job)
    desk.passes()

    desk.report("w1", failed(claim, "the job was killed in the middle"))
    status, _ = until_it_ends(desk, job, LiveWorker())

    assert status is CANCELED
    assert desk.job(job).error is None


def test_cancelling_what_has_ended_writes_nothing(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.finish("w1", claim)
    desk.passes()
    before = desk.job(job)

    for _ in range(2):
        answered = desk.commands.cancel(job)
        assert (answered.status, desk.job(job)) == (JobStatus.FINISHED, before)
    assert not before.wanted_cancel
    assert not desk.pass_().done


def test_a_job_that_waits_to_be_cancelled_takes_no_slot(desk: LeaderHarness) -> None:
    desk.register("w1", slots=1)
    job, other = desk.submit(job_id="a"), desk.submit(job_id="b")
    desk.commands.cancel(job)

    desk.passes()

    assert (desk.status(job), desk.status(other)) == (CANCELED, JobStatus.SCHEDULED)
    [assignment] = desk.sync("w1", free={Lane.SLOT: 1}).assignments
    assert desk.task(assignment.claim.task).job_id == other


def test_rows_that_a_cancel_commits_are_not_read_again_by_the_next_restore(
    desk: LeaderHarness,
) -> None:
    """The job was restored with a prepared epoch, and cancelled before it began."""
    job, held = cancelled(desk, restored_with_an_open_epoch)
    until_it_ends(desk, job, LiveWorker(holds=held))
    assert desk.epochs(job)[-1][2] == "COMPLETED"

    kept = savepoint_of(desk, job)
    assert kept is not None
    assert kept.positions == desk.pipeline(job).positions == {"FakeSource-1": 2 * ROWS}
    assert kept.epoch == 2
