"""What can't be restored, and who may: one, once, with words that help."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine

from headrace.coordinator.jobs.commands import Commands
from headrace.errors import NotFound, Refused, StoreUnavailable
from headrace.model.ids import RandomIds
from headrace.model.jobs.status import JobStatus
from headrace.seams import arm
from headrace.store.core import transactions
from tests.coordinator.jobs.streaming import (
    given_again,
    left_open,
    restored,
    running,
    stopped_with_savepoint,
    streaming,
)
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import failed, planned, spec, stopped
from tests.fakes import FakeClock

BOUND_S = 120.0  # for a state to come, also on a busy machine
RACERS = 4
FIRST_KEY = "key-1"  # as the desk numbers them


def test_a_file_that_lost_a_source_is_refused_and_changes_nothing(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    made = streaming()
    [pipeline] = made.pipelines
    source = pipeline.sources[0].model_copy(update={"name": "FakeSource-2"})
    other = made.model_copy(
        update={"pipelines": (pipeline.model_copy(update={"sources": (source,)}),)}
    )

    with pytest.raises(Refused, match=r"has lost source 'FakeSource-1' .* it has source 'Fake"):
        restored(desk, job, other)

    assert desk.status(job) is JobStatus.SAVEPOINT_DONE
    assert restored(desk, job) == []


def test_a_job_that_does_not_exist_is_named(desk: LeaderHarness) -> None:
    with pytest.raises(NotFound, match="there is no job 'nobody'"):
        restored(desk, "nobody")


def test_a_job_that_runs_is_to_be_stopped_first(desk: LeaderHarness) -> None:
    job, _ = running(desk)

    with pytest.raises(Refused) as refused:
        restored(desk, job)

    assert str(refused.value) == (
        f"job {job!r} is RUNNING: only a job that has ended can be restored; stop it with "
        f"`headrace job savepoint {job}` first"
    )


def test_a_canceled_job_left_nothing_to_restore(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.commands.cancel(job)
    desk.passes()
    desk.report("w1", stopped(claim))
    desk.passes()

    with pytest.raises(Refused) as refused:
        restored(desk, job)

    assert str(refused.value) == (
        f"job {job!r} is CANCELED and left no savepoint: a job that is canceled keeps none; run "
        "the file anew without --restore"
    )


def test_a_job_that_failed_at_once_left_nothing_to_restore(desk: LeaderHarness) -> None:
    job, claim = desk.given(streaming())
    desk.report("w1", failed(claim))
    desk.passes()

    with pytest.raises(Refused, match="is FAILED and left no savepoint: it failed before its fir"):
        restored(desk, job)


def test_the_same_key_restores_once(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    restored(desk, job)
    claim, payload = given_again(desk)
    restored(desk, job)

    assert desk.report("w1", planned(claim, payload.restore.epoch + 1), holds=[claim]).held
    with pytest.raises(Refused, match="is SCHEDULED: only a job that has ended can be restored"):
        restored(desk, job, key="another")


def test_the_key_of_another_job_is_refused(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    desk.commands.submit(spec(), submission_key="taken", job_id="other", group="default")

    with pytest.raises(Refused, match="the submission key belongs to job 'other'"):
        restored(desk, job, key="taken")


def test_a_submission_that_is_repeated_after_a_restore_is_still_the_same_job(
    desk: LeaderHarness,
) -> None:
    """A client that lost the answer, or a scheduler that tries again."""
    job = stopped_with_savepoint(desk)
    restored(desk, job, key="another")

    again = desk.commands.submit(streaming(), submission_key=FIRST_KEY, group="default")

    assert again.id == job


def test_a_restore_under_the_key_of_the_first_submission_is_refused(desk: LeaderHarness) -> None:
    """A scheduler that gives all it does for one job one key."""
    job = stopped_with_savepoint(desk)

    with pytest.raises(Refused, match=r"first submitted; give the restore a key of its own$"):
        restored(desk, job, key=FIRST_KEY)

    assert desk.status(job) is JobStatus.SAVEPOINT_DONE


def test_the_key_of_another_jobs_restore_is_refused(desk: LeaderHarness) -> None:
    one = stopped_with_savepoint(desk)
    restored(desk, one, key="taken")
    desk.commands.cancel(one)
    desk.passes()
    other = stopped_with_savepoint(desk)

    with pytest.raises(Refused, match=f"the submission key belongs to job '{one}'"):
        restored(desk, other, key="taken")


def test_a_restore_whose_answer_was_lost_finds_itself(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = stopped_with_savepoint(desk)
    monkeypatch.setattr(transactions, "PAUSES_S", (0.0,))
    answers = iter([StoreUnavailable("the answer was lost")])

    def lose() -> None:
        if lost := next(answers, None):
            raise lost

    arm("transaction committed", lose)

    restored(desk, job)
    assert desk.status(job) is JobStatus.CREATED


def test_of_many_who_restore_at_once_one_does(
    desk: LeaderHarness, store: Engine, clock: FakeClock
) -> None:
    job = stopped_with_savepoint(desk)
    start = Barrier(RACERS)
    commands = Commands(store, clock, RandomIds())

    def restore(number: int) -> str:
        start.wait(BOUND_S)
        try:
            commands.restore(streaming(), job_id=job, submission_key=f"key {number}")
        except Refused as error:
            return str(error)
        return "restored"

    with ThreadPoolExecutor(RACERS) as pool:
        said = list(pool.map(restore, range(RACERS)))
    assert said.count("restored") == 1
    assert sum("is CREATED: only a job that has ended" in text for text in said) == RACERS - 1


def test_an_epoch_that_could_not_be_settled_needs_the_sinks_it_had(desk: LeaderHarness) -> None:
    job = left_open(desk)
    made = spec()
    [pipeline] = made.pipelines
    sink = pipeline.sinks[0].model_copy(update={"name": "Console-2"})
    other = made.model_copy(update={"pipelines": (pipeline.model_copy(update={"sinks": (sink,)}),)})

    with pytest.raises(Refused, match=r"pipeline 1 .* has an epoch that could not be settled"):
        restored(desk, job, other)
