"""Ids and keys of jobs that have ended: refused, free again, or the same job (C6)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from headrace.errors import NotFound, Refused
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim
from headrace.protocol.messages import ForgetPayload
from headrace.store.core.engine import reading
from headrace.store.jobs.history import EndedRun
from headrace.store.jobs.savepoints import of_incarnation as savepoint_of_incarnation
from headrace.store.jobs.schema import history
from tests.coordinator.jobs.ended import (
    DELAY_S,
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
    epoch,
    given_again,
    left_open,
    restored,
    running,
    savepoint_of,
    stopped_with_savepoint,
    streaming,
)
from tests.coordinator.jobs.test_commands import with_secret
from tests.coordinator.leader_harness import RETENTION, LeaderHarness
from tests.coordinator.specs import ROWS, failed, planned, spec, succeeded

BOUND_S = 120.0  # for a state to come, also on a busy machine
RACERS = 4


@pytest.mark.req("C6")
def test_an_id_that_awaits_cleanup_is_refused_with_the_way_out(desk: LeaderHarness) -> None:
    finished(desk, job_id="mine")
    with pytest.raises(
        Refused,
        match=r"job 'mine' is FINISHED and awaits its cleanup, due at .*Z; submit again after",
    ):
        desk.submit(job_id="mine")

    wait_and_clean(desk)
    assert finished(desk, job_id="mine") == "mine"
    with reading(desk.store) as conn:
        runs = conn.execute(history.select()).all()
    assert len({run.incarnation for run in runs}) == len(runs) == 2


@pytest.mark.req("C6")
def test_the_refusal_names_the_savepoint_one_could_go_on_from(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    with pytest.raises(Refused, match=f"go on with it by --restore {job}"):
        desk.submit(job_id=job)


@pytest.mark.req("C6")
def test_the_same_key_gives_the_same_job_until_its_history_expires(desk: LeaderHarness) -> None:
    def submit() -> tuple[str, JobStatus]:
        known = desk.commands.submit(spec(), submission_key="k", group="default")
        return known.id, known.status

    first, _ = submit()
    desk.register("w1")
    desk.passes()
    desk.finish("w1", desk.claimed("w1"))
    desk.passes()
    wait_and_clean(desk)

    assert submit() == (first, JobStatus.FINISHED)
    assert rows(desk) == {}, "nothing was submitted"
    desk.clock.advance(RETENTION.history_expire_ms / 1000)
    desk.clean()
    again, status = submit()
    assert (again != first, status) == (True, JobStatus.CREATED)


@pytest.mark.req("C6")
def test_a_restore_takes_over_the_rows_and_drops_the_cleanup(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    incarnation = desk.job(job).incarnation
    assert cleanup_of(desk, incarnation) is not None
    restored(desk, job)

    assert cleanup_of(desk, incarnation) is None
    desk.clock.advance(DELAY_S * 10)
    desk.clean()
    assert (desk.job(job).incarnation, desk.job(job).run) == (incarnation, 2)


@pytest.mark.req("C6", "K7")
def test_a_job_is_restored_from_its_savepoint_alone_once_its_rows_are_gone(
    desk: LeaderHarness,
) -> None:
    job = stopped_with_savepoint(desk, epochs=2)
    incarnation = desk.job(job).incarnation
    wait_and_clean(desk)
    assert rows(desk) == {}

    assert restored(desk, job) == []

    desk.register("w1")
    after = desk.job(job)
    assert (after.incarnation, after.run, after.status) == (incarnation, 2, JobStatus.CREATED)
    assert cleanup_of(desk, incarnation) is None
    claim, payload = given_again(desk)
    assert payload.restore.epoch == 3, "above the savepoint's own id"
    assert payload.restore.positions == {"FakeSource-1": 2 * ROWS}
    assert payload.restore.written == {"Console-1": 2 * ROWS}
    epoch(desk, claim, 4)
    assert (desk.pipeline(job).rows_in, desk.pipeline(job).epoch) == (3 * ROWS, 4)


@pytest.mark.req("C6", "K7")
def test_ids_that_an_abort_spent_are_not_used_again_after_the_cleanup(desk: LeaderHarness) -> None:
    job, claim = running(desk, epochs=1)
    desk.report("w1", planned(claim, 2), holds=[claim])
    desk.report("w1", failed(claim))
    desk.passes()
    [assignment] = desk.sync("w1").assignments
    _settle(desk, assignment.claim, 2)
    assert desk.status(job) is JobStatus.FAILED
    wait_and_clean(desk)
    restored(desk, job)
    desk.register("w1")

    _, payload = given_again(desk)
    assert payload.restore.epoch == 2


def _settle(desk: LeaderHarness, claim: Claim, aborted: int) -> None:
    hold(desk, claim)
    desk.report("w1", succeeded(claim, result={"completed": [], "aborted": [aborted]}))
    desk.passes()


@pytest.mark.req("C6")
def test_a_restore_while_its_targets_are_cleaned_goes_on_above_what_is_forgotten(
    desk: LeaderHarness,
) -> None:
    job = stopped_with_savepoint(desk, epochs=2)
    incarnation = desk.job(job).incarnation
    wait_and_clean(desk)
    assignment = at_its_targets(desk, incarnation)
    hold(desk, assignment.claim)

    restored(desk, job)

    answer = desk.sync("w1", holds=[assignment.claim], free={})
    assert answer.stop == (assignment.claim,)
    assert not desk.report("w1", succeeded(assignment.claim)).held, "late news"
    assert desk.status(job) is JobStatus.CREATED
    _, payload = given_again(desk)
    assert payload.restore.epoch >= int(str(assignment.payload["up_to"]))


@pytest.mark.req("C6")
def test_a_restore_that_lost_its_answer_is_answered_from_history_too(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    restored(desk, job, key="again")
    claim, _ = given_again(desk)
    desk.passes()
    desk.report("w1", failed(claim))
    desk.passes()
    wait_and_clean(desk)

    known = desk.commands.restore(streaming(), job_id=job, submission_key="again").job

    assert isinstance(known, EndedRun)
    assert (known.run, known.status) == (2, JobStatus.FAILED)
    assert rows(desk) == {}


@pytest.mark.req("C6")
def test_many_restores_of_a_cleaned_job_at_once_are_one(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    wait_and_clean(desk)
    start = Barrier(RACERS)

    def restore(number: int) -> str:
        start.wait(BOUND_S)
        try:
            found = desk.commands.restore(streaming(), job_id=job, submission_key=f"r{number % 2}")
        except Refused:
            return "refused"
        return found.job.id

    with ThreadPoolExecutor(RACERS) as pool:
        said = list(pool.map(restore, range(RACERS)))
    assert sorted(said) == sorted([job, job, "refused", "refused"])
    assert rows(desk, "jobs") == {"jobs": 1}
    assert desk.job(job).run == 2


@pytest.mark.req("C6")
def test_another_job_under_the_id_does_not_take_the_savepoint_of_the_first(
    desk: LeaderHarness,
) -> None:
    job = stopped_with_savepoint(desk)
    first = desk.job(job).incarnation
    wait_and_clean(desk)
    desk.register("w1")
    finished(desk, job_id=job)
    with pytest.raises(Refused, match="left no savepoint: all of it was read"):
        restored(desk, job)

    with reading(desk.store) as conn:
        assert savepoint_of_incarnation(conn, first) is not None, "it expires, as it would"


def test_a_savepoint_is_deleted_on_purpose(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    desk.commands.delete_savepoint(job)

    assert savepoint_of(desk, job) is None
    with pytest.raises(NotFound, match="savepoint of job"):
        desk.commands.delete_savepoint(job)
    with pytest.raises(Refused, match="it was deleted, or has expired"):
        restored(desk, job)
    wait_and_clean(desk)
    with pytest.raises(Refused, match="it was deleted, or has expired"):
        restored(desk, job)
    with pytest.raises(NotFound, match="job 'nobody'"):
        desk.commands.delete_savepoint("nobody")


@pytest.mark.parametrize("how", [JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED])
def test_canceling_what_is_cleaned_is_a_polite_no_op(desk: LeaderHarness, how: JobStatus) -> None:
    job = ended(desk, how)
    wait_and_clean(desk)

    assert desk.commands.cancel(job).status is how
    assert rows(desk) == {}


def test_a_failed_job_with_something_left_open_can_be_restored_instead_of_settled(
    desk: LeaderHarness,
) -> None:
    job = left_open(desk)
    desk.clock.advance(DELAY_S)
    desk.clean()
    restored(desk, job, spec())
    desk.register("w1")
    claim, payload = given_again(desk)

    assert [left.epoch for left in payload.restore.open] == [2]
    assert desk.task(claim.task).pipeline == 1
    assert told(desk, job) is not None


@pytest.mark.req("C2", "C6")
@pytest.mark.parametrize("cleaned", [False, True])
def test_what_is_left_at_a_sink_that_a_restored_job_has_no_longer_is_forgotten(
    desk: LeaderHarness, *, cleaned: bool
) -> None:
    made = with_secret()
    job, claim = desk.given(made)
    epoch(desk, claim, 1)
    desk.report("w1", failed(claim))
    desk.passes()
    incarnation = desk.job(job).incarnation
    if cleaned:
        wait_and_clean(desk)
    restored(desk, job, spec())
    assert cleanup_of(desk, incarnation) is None, "the job goes on"

    assignment = at_its_targets(desk, f"{incarnation}#1")

    payload = ForgetPayload.model_validate(assignment.payload)
    assert (payload.incarnation, payload.up_to) == (incarnation, 1)
    assert [sink.name for p in payload.pipelines for sink in p.sinks] == ["Iceberg-1"]
    assert payload.secrets == made.secrets
    desk.report("w1", succeeded(assignment.claim))
    assert rows(desk, "cleanups") == {}
    assert desk.status(job) is not JobStatus.FAILED
