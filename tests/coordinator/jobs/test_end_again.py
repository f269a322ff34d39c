"""An end that comes twice: settled late, restored again, broken off half way (C2, C4, C6)."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection

from headrace.coordinator.jobs.reconciler import SETTLE_DEADLINE_S
from headrace.model.jobs.epoch import CleanupStep
from headrace.model.jobs.spec import JobSpec, PluginSpec
from headrace.model.jobs.status import JobStatus
from headrace.model.task import ENDED, Claim, TaskKind
from headrace.protocol.messages import ForgetPayload
from headrace.store.core.engine import reading, writing
from headrace.store.jobs import cleanups, history
from headrace.store.tasks import tasks
from tests.coordinator.jobs.ended import (
    DELAY_S,
    at_its_targets,
    cleanup_of,
    finished,
    hold,
    wait_and_clean,
)
from tests.coordinator.jobs.streaming import epoch, restored, stopped_with_savepoint, streaming
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import failed, planned


def _cancelled_before_it_began(desk: LeaderHarness, job: str, *, key: str) -> None:
    restored(desk, job, key=key)
    desk.commands.cancel(job)
    desk.passes()
    assert desk.status(job) is JobStatus.CANCELED


@pytest.mark.req("C6")
def test_each_run_has_its_number_and_its_key_also_one_that_never_began(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    wait_and_clean(desk)
    _cancelled_before_it_began(desk, job, key="second")
    wait_and_clean(desk)

    _cancelled_before_it_began(desk, job, key="third")

    with reading(desk.store) as conn:
        runs = [(run.run, run.submission_key) for run in history.of_job(conn, job, most=9)]
    assert runs[:2] == [(3, "third"), (2, "second")]
    assert len(runs) == 3


@pytest.mark.req("C6")
def test_a_restore_that_is_said_again_after_another_one_is_known_still(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    wait_and_clean(desk)
    _cancelled_before_it_began(desk, job, key="second")
    restored(desk, job, key="third")

    again = desk.commands.restore(streaming(), job_id=job, submission_key="second")

    assert not again.begun
    assert again.job.id == job


def _with_save_mode(made: JobSpec) -> JobSpec:
    """Its second pipeline begins with epoch 0."""
    first, second = made.pipelines
    sink = PluginSpec(
        name="LocalFile-2",
        plugin="LocalFile",
        options={"path": "/out", "file_format_type": "json", "data_save_mode": "DROP_DATA"},
        inputs=second.sinks[0].inputs,
    )
    return made.model_copy(
        update={"pipelines": (first, second.model_copy(update={"sinks": (sink,)}))}
    )


def _both_held(desk: LeaderHarness, made: JobSpec) -> tuple[str, Claim, Claim]:
    job = desk.submit(made)
    desk.register("w1")
    desk.passes()
    one, two = sorted(given.claim for given in desk.sync("w1").assignments)
    desk.sync("w1", holds=[one, two], free={})
    return job, one, two


def _both_failed(desk: LeaderHarness, job: str, one: Claim, two: Claim) -> None:
    desk.report("w1", failed(one), holds=[two])
    desk.passes()
    desk.report("w1", failed(two))
    desk.passes()
    assert desk.status(job) in {JobStatus.FAILING, JobStatus.FAILED}


@pytest.mark.req("C2", "C6")
def test_what_a_restored_run_does_in_epoch_0_is_not_what_is_forgotten(desk: LeaderHarness) -> None:
    """It is below the highest epoch of the other pipeline, and a worker may be at it just then."""
    made = _with_save_mode(streaming(pipelines=2))
    job, one, two = _both_held(desk, made)
    incarnation = desk.job(job).incarnation
    for number in (1, 2, 3):
        epoch(desk, one, number)
    _both_failed(desk, job, one, two)
    wait_and_clean(desk)

    assignment = at_its_targets(desk, incarnation)

    hold(desk, assignment.claim)
    restored(desk, job, made)
    assert desk.pipeline(job, 2).epoch == -1
    payload = ForgetPayload.model_validate(assignment.payload)
    assert payload.up_to == 3
    assert [pipeline.number for pipeline in payload.pipelines] == [1]


@pytest.mark.req("C4")
def test_a_pipeline_that_can_not_be_settled_holds_up_no_other(desk: LeaderHarness) -> None:
    job, one, two = _both_held(desk, streaming(pipelines=2))
    for claim in (one, two):
        desk.report("w1", planned(claim), holds=[one, two])
    _both_failed(desk, job, one, two)
    desk.clock.advance(SETTLE_DEADLINE_S + 1)
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED
    asked: list[int | None] = []
    for _ in range(2):
        desk.clock.advance(DELAY_S)
        desk.clean()
        [settling] = [t for t in desk.tasks(job, TaskKind.SETTLE) if t.status not in ENDED]
        asked.append(settling.pipeline)
        with writing(desk.store) as conn:
            tasks.fail_unclaimed(conn, settling.id, error="it is away", now_ms=1)
        desk.clock.advance(DELAY_S)
        desk.clean()

    assert asked == [1, 2]


@pytest.mark.req("C4")
def test_a_cleanup_that_is_broken_off_is_told_rests_and_is_done_later(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = finished(desk)
    incarnation = desk.job(job).incarnation

    def broken(conn: Connection, job_id: str, incarnation: str) -> None:
        raise ValueError("no such thing")

    desk.clock.advance(DELAY_S)
    with monkeypatch.context() as patch:
        patch.setattr(cleanups, "delete_rows", broken)
        assert desk.clean().failed == []
    found = cleanup_of(desk, incarnation)
    assert found is not None
    assert (found.step, found.failures) == (CleanupStep.STATE, 1)
    assert found.error == "ValueError('no such thing')"
    assert found.due_at_ms > desk.clock.wall_ms()
    assert desk.status(job) is JobStatus.FINISHED

    wait_and_clean(desk)

    found = cleanup_of(desk, incarnation)
    assert found is not None
    assert (found.step, found.failures, found.error) == (CleanupStep.TARGETS, 0, None)
