"""What has ended is cleaned up: after its delay, once, by whoever leads (C2 to C5)."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, update

from headrace.model.jobs.epoch import DAY_MS, CleanupStep, Retention
from headrace.model.jobs.status import JOB_ENDED, JobStatus
from headrace.store.core import leases
from headrace.store.core.engine import reading, writing
from headrace.store.jobs.schema import cleanups, history, jobs, savepoints
from tests.coordinator.jobs.ended import (
    DELAY_S,
    OF_JOBS,
    at_its_targets,
    cleanup_of,
    ended,
    finished,
    hold,
    rows,
    told,
    wait_and_clean,
)
from tests.coordinator.jobs.streaming import (
    done,
    running,
    saved,
    savepoint_of,
    stopped_with_savepoint,
    streaming,
)
from tests.coordinator.jobs.test_commands import everything
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import failed, succeeded

ENDS = [JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED]


@pytest.mark.req("C2", "C3")
@pytest.mark.parametrize("how", ENDS)
def test_state_is_readable_for_its_delay_and_then_gone_with_all_its_rows(
    desk: LeaderHarness, how: JobStatus
) -> None:
    job = ended(desk, how)
    incarnation = desk.job(job).incarnation
    desk.clock.advance(DELAY_S - 0.001)
    assert desk.clean().done == []
    assert desk.status(job) is how
    assert rows(desk, "jobs", "pipelines", "cleanups") == {"jobs": 1, "pipelines": 1, "cleanups": 1}

    desk.clock.advance(0.001)
    desk.clean()

    assert rows(desk) == {}
    after = told(desk, job)
    assert after is not None
    assert (after.status, after.incarnation, after.run) == (how, incarnation, 1)
    assert [p["rows_out"] for p in after.pipelines] == [7]


@pytest.mark.req("C2", "C3")
@pytest.mark.parametrize("how", ENDS)
def test_the_end_its_history_and_its_cleanup_are_one_transaction(
    desk: LeaderHarness, how: JobStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dead(BaseException):
        pass

    def die(name: str) -> None:
        if name == "job ended, in transaction":
            raise Dead

    monkeypatch.setattr("headrace.coordinator.jobs.reconciler.seam", die)
    with pytest.raises(Dead):
        ended(desk, how)
    with reading(desk.store) as conn:
        statuses = {
            JobStatus(status)
            for (status,) in conn.execute(jobs.select().with_only_columns(jobs.c.status))
        }
    assert not statuses & JOB_ENDED
    assert rows(desk, "history", "cleanups", "savepoints") == {}

    monkeypatch.undo()
    desk.take_over()
    desk.passes()

    assert rows(desk, "history", "cleanups") == {"history": 1, "cleanups": 1}


@pytest.mark.req("C3")
def test_the_delay_runs_through_any_number_of_failovers(desk: LeaderHarness) -> None:
    finished(desk)
    for _ in range(5):
        desk.clock.advance(DELAY_S / 5 - 0.1)
        desk.take_over()
        desk.passes()
        assert desk.clean().done == []
    desk.clock.advance(0.5)
    desk.take_over()
    desk.clean()

    assert rows(desk) == {}


@pytest.mark.req("C4")
def test_a_cleaner_that_dies_in_the_middle_leaves_everything_to_the_next(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dead(BaseException):
        pass

    def die(name: str) -> None:
        if name == "state deleted, in transaction":
            raise Dead

    job = finished(desk)
    monkeypatch.setattr("headrace.coordinator.jobs.cleanup.seam", die)
    desk.clock.advance(DELAY_S)
    with pytest.raises(Dead):
        desk.clean()
    assert desk.status(job) is JobStatus.FINISHED

    monkeypatch.undo()
    desk.take_over()
    desk.clean()
    assert rows(desk) == {}


@pytest.mark.req("C4")
def test_a_record_whose_id_belongs_to_another_job_deletes_nothing_of_it(
    desk: LeaderHarness,
) -> None:
    job = finished(desk, job_id="mine")
    with writing(desk.store) as conn:  # as if another incarnation held the id
        conn.execute(update(jobs).values(incarnation="other"))
        conn.execute(delete(history))
    desk.clock.advance(DELAY_S)
    desk.clean()

    assert desk.job(job).incarnation == "other"
    assert rows(desk, "pipelines", "epochs") == {"pipelines": 1, "epochs": 2}


@pytest.mark.req("C4")
def test_a_job_that_goes_on_is_never_cleaned(desk: LeaderHarness) -> None:
    job, _ = running(desk)
    owner = desk.job(job)
    with writing(desk.store) as conn:  # a record that a restore should have dropped
        conn.execute(
            cleanups.insert().values(
                incarnation=owner.incarnation,
                job_id=job,
                group_name="default",
                step=CleanupStep.STATE,
                made_at_ms=0,
                due_at_ms=0,
                targets_due_at_ms=0,
            )
        )
    desk.clean()

    assert desk.status(job) is JobStatus.RUNNING
    assert cleanup_of(desk, owner.incarnation) is None


@pytest.mark.req("C5")
def test_an_ended_job_without_a_record_gets_one_and_is_swept(desk: LeaderHarness) -> None:
    job = finished(desk)
    with writing(desk.store) as conn:
        conn.execute(delete(cleanups))
        conn.execute(delete(history))
    desk.take_over()
    desk.clean()
    assert rows(desk, "history", "cleanups") == {"history": 1, "cleanups": 1}
    assert desk.status(job) is JobStatus.FINISHED

    wait_and_clean(desk)
    assert rows(desk) == {}


@pytest.mark.req("C5")
def test_a_terminal_job_is_not_restored_at_a_failover(desk: LeaderHarness) -> None:
    job = finished(desk)
    before = everything(desk.store)
    desk.take_over()
    desk.passes()

    assert desk.sync("w1").assignments == ()
    assert desk.status(job) is JobStatus.FINISHED
    assert rows(desk, "tasks") == {"tasks": 1}
    assert before.count(job) == everything(desk.store).count(job)


@pytest.mark.req("C2")
def test_a_savepoint_outlives_the_state_and_expires_after_seven_days(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    wait_and_clean(desk)
    assert rows(desk) == {}
    made = savepoint_of(desk, job)
    assert made is not None
    desk.clock.advance(7 * DAY_MS / 1000 - DELAY_S - 1)
    desk.clean()
    assert savepoint_of(desk, job) == made

    desk.clock.advance(1)
    desk.clean()

    assert savepoint_of(desk, job) is None


@pytest.mark.req("C2")
def test_history_expires_and_nothing_of_the_job_is_left(desk: LeaderHarness) -> None:
    job = finished(desk)
    wait_and_clean(desk)
    claim = at_its_targets(desk, _incarnation(desk, job)).claim
    hold(desk, claim)
    assert desk.report("w1", succeeded(claim)).held
    assert rows(desk, "cleanups", "tasks", "history") == {"history": 1}

    desk.clock.advance(7 * DAY_MS / 1000)
    desk.clean()

    assert rows(desk, *OF_JOBS, "history", "cleanups", "savepoints", "job_logs") == {}


@pytest.mark.req("L5")
def test_history_is_not_expired_because_a_clock_was_set_ahead(desk: LeaderHarness) -> None:
    finished(desk)
    wait_and_clean(desk)
    desk.clock.advance(7 * DAY_MS / 1000)  # by its wall clock; somebody has just set it
    with writing(desk.store) as conn:
        leases.note_set_ahead(conn, desk.term, at_ms=desk.clock.wall_ms())
    desk.clean()
    assert rows(desk, "history") == {"history": 1}

    desk.clock.advance(7 * DAY_MS / 1000)
    desk.clean()

    assert rows(desk, "history") == {}


def _incarnation(desk: LeaderHarness, job: str) -> str:
    after = told(desk, job)
    assert after is not None
    return after.incarnation


def test_no_delay_means_at_once(desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk.jobs, "_retention", Retention(state_cleanup_delay_ms=0))
    finished(desk)
    desk.clean()

    assert rows(desk) == {}


def test_a_savepoint_of_a_job_that_runs_again_does_not_expire_under_it(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    desk.commands.restore(streaming(), job_id=job, submission_key="again")
    desk.clock.advance(8 * DAY_MS / 1000)
    desk.clean()

    with reading(desk.store) as conn:
        assert len(conn.execute(savepoints.select()).all()) == 1


@pytest.mark.req("C1")
def test_late_news_of_a_cleaned_job_changes_nothing(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.commands.cancel(job)
    desk.passes()
    desk.report("w1", failed(claim))
    desk.passes()
    wait_and_clean(desk)
    desk.sync("w1", holds=[claim], free={})  # its row says when it was last seen
    before = everything(desk.store)

    for report in (done(claim, 2), saved(claim), succeeded(claim), failed(claim)):
        assert not desk.report("w1", report, holds=[claim]).held
    assert everything(desk.store) == before
