"""A savepoint ends a job that runs, at a place from which it can go on."""

from __future__ import annotations

import pytest

from headrace.coordinator.jobs.reconciler import STOPPING_LOOK_MS
from headrace.errors import NotFound, Refused
from headrace.model.jobs.epoch import EpochKind
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import Claim
from headrace.protocol.messages import PipelinePayload
from headrace.store.core.engine import reading
from headrace.store.jobs import due_jobs
from tests.coordinator.jobs.streaming import epoch, running, saved, savepoint_of, streaming
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import ROWS, failed, planned, spec, stopped, succeeded


def payload_of(desk: LeaderHarness, worker: str) -> tuple[Claim, PipelinePayload]:
    [assignment] = desk.sync(worker).assignments
    return assignment.claim, PipelinePayload.model_validate(assignment.payload)


def test_no_worker_hears_of_a_savepoint_that_nobody_asked_for(desk: LeaderHarness) -> None:
    _, claim = running(desk)

    assert desk.sync("w1", holds=[claim], free={}).savepoint == ()


@pytest.mark.req("K7")
def test_a_savepoint_ends_the_job_and_says_where_it_can_go_on(desk: LeaderHarness) -> None:
    job, claim = running(desk, epochs=2)
    desk.commands.savepoint(job)
    desk.passes()

    assert desk.status(job) is JobStatus.DOING_SAVEPOINT
    assert desk.rung == ["w1"]
    answers = [desk.sync("w1", holds=[claim], free={}) for _ in range(2)]
    assert [answer.savepoint for answer in answers] == [(claim,), (claim,)], "it may be lost"
    assert [answer.stop for answer in answers] == [(), ()]

    epoch(desk, claim, 3)  # what was open is finished
    desk.report("w1", saved(claim))
    desk.passes()

    assert desk.status(job) is JobStatus.SAVEPOINT_DONE
    assert desk.pipeline_status(job) is PipelineStatus.FINISHED
    assert desk.epochs(job)[-1] == (4, "SAVEPOINT", "COMPLETED")
    made = savepoint_of(desk, job)
    assert made is not None
    assert (made.kind, made.epoch) == (EpochKind.SAVEPOINT, 4)
    assert made.positions == {"FakeSource-1": 3 * ROWS}
    assert made.written == {"Console-1": 3 * ROWS}
    assert made.made_at_ms == desk.clock.wall_ms()


def test_asked_for_twice_it_is_made_once(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.commands.savepoint(job)
    desk.commands.savepoint(job)
    desk.passes()
    assert desk.commands.savepoint(job).status is JobStatus.DOING_SAVEPOINT
    desk.report("w1", saved(claim))
    desk.passes()

    assert desk.commands.savepoint(job).status is JobStatus.SAVEPOINT_DONE, "its answer was lost"
    assert [kind for _, kind, _ in desk.epochs(job)] == ["CHECKPOINT", "SAVEPOINT"]


def test_a_job_that_is_not_admitted_has_nothing_to_save(desk: LeaderHarness) -> None:
    job = desk.submit(streaming())
    for status in (JobStatus.CREATED, JobStatus.PENDING):
        with pytest.raises(Refused) as refused:
            desk.commands.savepoint(job)
        assert str(refused.value) == (
            f"job {job!r} is {status}: it has not begun, so there is nothing to save; wait until "
            f"it is RUNNING, or cancel it with `headrace job cancel {job}`"
        )
        desk.passes()


def test_a_job_that_has_ended_otherwise_can_not_be_saved(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.commands.cancel(job)
    with pytest.raises(Refused, match="is RUNNING and is being canceled: that beats a savepoint"):
        desk.commands.savepoint(job)
    desk.passes()
    desk.report("w1", stopped(claim))
    desk.passes()

    with pytest.raises(Refused, match="is CANCELED: it has ended, and nothing of it is left"):
        desk.commands.savepoint(job)


def test_a_failed_job_is_sent_to_its_checkpoint(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.report("w1", failed(claim))
    desk.passes()

    with pytest.raises(Refused, match=f"is FAILED: .* `headrace job show {job}` says how to go on"):
        desk.commands.savepoint(job)


def test_a_job_that_does_not_exist_is_named(desk: LeaderHarness) -> None:
    with pytest.raises(NotFound, match="there is no job 'nobody'"):
        desk.commands.savepoint("nobody")


def test_a_scheduled_job_is_asked_once_it_runs(desk: LeaderHarness) -> None:
    job, claim = desk.given(streaming())
    desk.commands.savepoint(job)
    desk.passes()
    assert desk.status(job) is JobStatus.SCHEDULED
    assert desk.sync("w1", holds=[claim], free={}).savepoint == ()

    desk.report("w1", planned(claim), holds=[claim])
    desk.passes()
    assert desk.status(job) is JobStatus.DOING_SAVEPOINT


def test_a_leader_hears_of_it_though_another_node_took_the_command(desk: LeaderHarness) -> None:
    job, _ = running(desk)
    desk.passes()
    with reading(desk.store) as conn:
        assert not desk.job_passes.any_due(conn)

    desk.commands.savepoint(job)

    with reading(desk.store) as conn:
        marked = due_jobs.marked(conn, now_ms=0, most=1)
        assert [*marked] == [job], "whatever the clock of that node says"
    desk.passes()
    with reading(desk.store) as conn:
        assert not desk.job_passes.any_due(conn)


@pytest.mark.req("K7")
def test_a_savepoint_survives_a_change_of_leader_at_every_step(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.commands.savepoint(job)
    desk.take_over()
    desk.passes()
    desk.take_over()
    assert desk.sync("w1", holds=[claim], free={}).savepoint == (claim,)
    desk.report("w1", saved(claim))
    desk.take_over()
    desk.passes()

    assert desk.status(job) is JobStatus.SAVEPOINT_DONE
    assert savepoint_of(desk, job) is not None


def test_a_pipeline_that_lost_its_worker_is_saved_by_another(desk: LeaderHarness) -> None:
    job, claim = running(desk, streaming(retry_times=3))
    desk.commands.savepoint(job)
    desk.passes()
    desk.report("w1", failed(claim))
    desk.passes()
    desk.register("w2")

    claim, payload = payload_of(desk, "w2")
    assert payload.restore.savepoint
    assert payload.restore.epoch == 1
    assert desk.sync("w2", holds=[claim], free={}).savepoint == (claim,), "also a later attempt"
    desk.report("w2", saved(claim))
    desk.passes()
    assert desk.status(job) is JobStatus.SAVEPOINT_DONE


def test_a_savepoint_without_a_worker_says_what_it_waits_for(desk: LeaderHarness) -> None:
    job, _ = running(desk, streaming(retry_times=3))
    desk.commands.savepoint(job)
    desk.passes()
    assert desk.job(job).waits_for is None
    desk.clock.advance(61)
    desk.passes()

    assert desk.status(job) is JobStatus.DOING_SAVEPOINT
    assert desk.job(job).waits_for == (
        "a worker in group 'default' to finish pipeline 1 for its savepoint"
    )
    desk.register("w2")
    desk.clock.advance(STOPPING_LOOK_MS / 1000)
    desk.passes()
    assert desk.job(job).waits_for is None


def test_a_cancel_beats_a_savepoint(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.commands.savepoint(job)
    desk.passes()
    desk.commands.cancel(job)
    desk.passes()
    assert desk.status(job) is JobStatus.CANCELING
    assert desk.sync("w1", holds=[claim], free={}).stop == (claim,)
    desk.report("w1", stopped(claim))
    desk.passes()

    assert desk.status(job) is JobStatus.CANCELED
    assert savepoint_of(desk, job) is None


def test_a_cancel_that_comes_with_the_last_pipeline_beats_it_still(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.commands.savepoint(job)
    desk.passes()
    desk.report("w1", saved(claim))
    desk.commands.cancel(job)
    desk.passes()

    assert desk.status(job) is JobStatus.CANCELED
    assert savepoint_of(desk, job) is None


def test_a_job_that_reads_its_last_row_first_is_finished(desk: LeaderHarness) -> None:
    job, claim = desk.given(spec())
    epoch(desk, claim, 1, ready=("FakeSource-1",))
    desk.passes()
    desk.commands.savepoint(job)
    desk.passes()
    desk.report("w1", succeeded(claim))
    desk.passes()

    assert desk.status(job) is JobStatus.FINISHED
    assert savepoint_of(desk, job) is None
    assert desk.commands.savepoint(job).status is JobStatus.FINISHED
