"""Progress gives retries back: errors and lost workers count only as long as nothing gets on (K8).

Who is lost, and whether it was an epoch's fault, is told by columns that survive every leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from headrace.api.job_views import view_of
from headrace.client.views import AttemptView
from headrace.model.jobs.epoch import Retention
from headrace.model.jobs.spec import LOST_WORKERS_MAX, JobSpec
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import POISON_WORKERS, Claim, FailureCause, Lane, TaskKind, TaskStatus
from headrace.protocol.messages import EpochCompleted, Progress
from headrace.store.core.engine import reading
from headrace.store.tasks import claims
from tests.coordinator.jobs.streaming import (
    done,
    epoch,
    given_again,
    restored,
    running,
    stopped_with_savepoint,
    streaming,
)
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness
from tests.coordinator.specs import failed, planned, prepared, settled, spec

CONTROL = {Lane.CONTROL: 1}
RETRIES = 2
HOUR_S = 3600.0


def a_stream(*, retry_times: int = RETRIES, lost_workers_max: int = LOST_WORKERS_MAX) -> JobSpec:
    made = streaming(retry_times=retry_times)
    env = made.env.model_copy(update={"lost_workers_max": lost_workers_max})
    return made.model_copy(update={"env": env})


def empty(claim: Claim, number: int) -> EpochCompleted:
    return done(claim, number).model_copy(update={"rows_in": 0, "rows_out": 0, "commits": {}})


def complete(
    desk: LeaderHarness, claim: Claim, number: int, worker: str, *, rows: bool = True
) -> None:
    end = done(claim, number) if rows else empty(claim, number)
    for report in (planned(claim, number), prepared(claim, number, ready=()), end):
        assert desk.report(worker, report, holds=[claim]).held


def lose(
    desk: LeaderHarness, claim: Claim, worker: str, *steps: int, prepare: Iterable[int] = ()
) -> None:
    """`worker` says that it plans these epochs, and that some are prepared; then it is gone."""
    for number in steps:
        assert desk.report(worker, planned(claim, number), holds=[claim]).held
        if number in prepare:
            assert desk.report(worker, prepared(claim, number, ready=()), holds=[claim]).held
    desk.clock.advance(TIMEOUT_S + 1)
    desk.passes()


def next_worker(desk: LeaderHarness, name: str) -> Claim:
    desk.register(name)
    claim, _ = given_again(desk, name)
    return claim


def counted(desk: LeaderHarness, claim: Claim) -> tuple[int, int]:
    task = desk.task(claim.task)
    return task.failures, task.losses


# -- errors ------------------------------------------------------------------------------


@pytest.mark.req("K8")
def test_an_epoch_with_rows_gives_back_what_errors_took(desk: LeaderHarness) -> None:
    job, claim = running(desk, a_stream())
    for number in range(2, 8):
        for _ in range(RETRIES):
            desk.report("w1", failed(claim))
            claim, _ = given_again(desk)
        assert counted(desk, claim) == (RETRIES, 0)
        complete(desk, claim, number, "w1")
        assert counted(desk, claim) == (0, 0)
    desk.passes()

    assert desk.status(job) is JobStatus.RUNNING


@pytest.mark.req("K8")
def test_an_epoch_without_rows_gives_no_error_back(desk: LeaderHarness) -> None:
    """A stream completes one each interval, also while what it fails at is in the next one."""
    job, claim = running(desk, a_stream())
    for number in range(2, 2 + RETRIES):
        desk.report("w1", failed(claim))
        claim, _ = given_again(desk)
        complete(desk, claim, number, "w1", rows=False)
    desk.report("w1", failed(claim, "disk full"))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    assert desk.job(job).error == "disk full"


@pytest.mark.req("K8")
def test_rows_that_were_read_by_the_attempt_before_and_all_filtered_out_are_progress(
    desk: LeaderHarness,
) -> None:
    """Whoever completes an epoch that another attempt prepared has read and written nothing."""
    _, first = running(desk, a_stream())
    assert desk.report("w1", planned(first, 2), holds=[first]).held
    read = prepared(first, 2, ready=(), read={"FakeSource-1": 100})
    assert desk.report("w1", read, holds=[first]).held
    desk.report("w1", failed(first))
    claim, _ = given_again(desk)
    assert counted(desk, claim) == (1, 0)

    assert desk.report("w1", empty(claim, 2), holds=[claim]).held

    assert counted(desk, claim) == (0, 0)


@pytest.mark.req("K8")
def test_time_alone_gives_nothing_back_and_neither_does_a_change_of_leader(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given(a_stream())
    for _ in range(RETRIES):
        desk.report("w1", failed(claim))
        desk.clock.advance(2 * HOUR_S)
        desk.take_over()
        claim, _ = given_again(desk)
    desk.report("w1", failed(claim, "disk full"))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILED


@pytest.mark.req("K8")
def test_an_epoch_that_is_said_together_with_the_error_after_it_counts_first(
    desk: LeaderHarness,
) -> None:
    job, claim = running(desk, a_stream(retry_times=1))
    desk.report("w1", failed(claim))
    claim, _ = given_again(desk)
    said = [planned(claim, 2), prepared(claim, 2, ready=()), done(claim, 2), failed(claim)]
    desk.sync("w1", holds=[claim], reports=said, free={})
    desk.passes()

    assert counted(desk, claim) == (1, 0)
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED


@pytest.mark.req("K8")
def test_what_an_attempt_says_after_it_was_given_up_gives_nothing_back(desk: LeaderHarness) -> None:
    _, first = running(desk, a_stream())
    desk.report("w1", planned(first, 2), holds=[first])
    desk.report("w1", prepared(first, 2, ready=()), holds=[first])
    desk.report("w1", failed(first))
    late = done(first, 2)
    assert not desk.report("w1", late).held

    assert counted(desk, first) == (1, 0)
    claim, _ = given_again(desk)
    assert desk.report("w1", done(claim, 2), holds=[claim]).held
    desk.report("w1", failed(claim))
    assert desk.report("w1", done(claim, 2)).held is False
    assert counted(desk, claim) == (1, 0)


# -- lost workers ------------------------------------------------------------------------


@pytest.mark.req("K8")
def test_workers_are_lost_without_end_as_long_as_epochs_are_completed(desk: LeaderHarness) -> None:
    job, claim = running(desk, a_stream(retry_times=1, lost_workers_max=3))
    for life in range(2, 12):
        lose(desk, claim, f"w{life - 1}")
        assert counted(desk, claim) == (0, 1)
        claim = next_worker(desk, f"w{life}")
        complete(desk, claim, life, f"w{life}", rows=life % 2 == 0)  # an empty one does, too
        assert counted(desk, claim) == (0, 0)
    desk.passes()

    assert desk.status(job) is JobStatus.RUNNING


@pytest.mark.req("K8")
def test_so_many_workers_lost_in_a_row_end_the_job_and_not_one_fewer(desk: LeaderHarness) -> None:
    """Errors in between are counted apart, and a change of leader changes nothing."""
    job, claim = running(desk, a_stream(retry_times=1))
    for life in range(1, LOST_WORKERS_MAX):
        lose(desk, claim, f"w{life}")
        assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
        desk.take_over()
        claim = next_worker(desk, f"w{life + 1}")
        if life == 1:
            desk.report("w2", failed(claim))
            claim, _ = given_again(desk, "w2")
    assert counted(desk, claim) == (1, LOST_WORKERS_MAX - 1)
    lose(desk, claim, f"w{LOST_WORKERS_MAX}")

    assert desk.status(job) is JobStatus.FAILED
    error = desk.job(job).error or ""
    assert error.startswith(f"worker w{LOST_WORKERS_MAX} is gone (no word from it for ")
    assert "10 workers in a row were lost without a completed epoch" in error
    assert "job.lost-workers.max is 10" in error


@pytest.mark.req("C8", "K8")
@pytest.mark.parametrize("cause", [FailureCause.LOST, FailureCause.OUT_OF_MEMORY])
def test_a_job_without_retries_has_no_second_attempt_whatever_the_cause(
    desk: LeaderHarness, cause: FailureCause
) -> None:
    job, claim = running(desk, a_stream(retry_times=0))
    if cause is FailureCause.LOST:
        lose(desk, claim, "w1")
    else:
        desk.report("w1", failed(claim).model_copy(update={"cause": cause}))
        desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    assert desk.task(claim.task).failure_cause is cause


def test_a_lost_worker_that_is_forgiven_leaves_the_errors_before_it_to_be_shown(
    desk: LeaderHarness,
) -> None:
    job, claim = running(desk, a_stream(retry_times=3))
    for _ in range(3):
        desk.report("w1", failed(claim, "disk full"))
        claim, _ = given_again(desk)
    lose(desk, claim, "w1")
    lost = attempt_of(desk, job)
    assert (lost.number, lost.most, lost.lost) == (2, LOST_WORKERS_MAX, True)

    complete(desk, next_worker(desk, "w2"), 2, "w2", rows=False)

    shown = attempt_of(desk, job)
    assert (shown.number, shown.most, shown.lost, shown.error) == (4, 4, False, None)


def attempt_of(desk: LeaderHarness, job: str) -> AttemptView:
    with reading(desk.store) as conn:
        (pipeline,) = view_of(conn, desk.job(job), Retention()).pipelines
    assert pipeline.attempt is not None
    return pipeline.attempt


def test_what_is_left_to_be_tried_can_be_read(desk: LeaderHarness) -> None:
    job, claim = running(desk, spec(retry_times=3, retry_interval_s=30))
    desk.report("w1", failed(claim, "disk full"))
    with reading(desk.store) as conn:
        execution = claims.latest_attempts_of(conn, job)[claim.task]

    now_ms = desk.clock.wall_ms()
    assert (execution.attempt, execution.status) == (1, TaskStatus.PLANNED)
    assert (execution.error, execution.failure_cause) == ("disk full", FailureCause.ERROR)
    assert (execution.failures, execution.retry_times) == (1, 3)
    assert (execution.losses, execution.lost_workers_max) == (0, LOST_WORKERS_MAX)
    assert (execution.failed_at_ms, execution.not_before_ms) == (now_ms, now_ms + 30_000)


def test_a_worker_is_told_nothing_of_it_that_one_of_an_older_version_would_refuse(
    desk: LeaderHarness,
) -> None:
    desk.submit(a_stream(lost_workers_max=5))
    desk.register("w1")
    desk.passes()
    [given] = desk.sync("w1").assignments

    assert isinstance(given.payload["env"], dict)
    assert "lost_workers_max" not in given.payload["env"]


# -- an epoch that takes its workers along -----------------------------------------------


def poisoned(
    desk: LeaderHarness, *, steps: Sequence[int] = (2,), prepare: Iterable[int] = ()
) -> str:
    """A job whose epoch was running on three workers as each was lost."""
    job, claim = running(desk, a_stream())
    for life in range(1, POISON_WORKERS + 1):
        assert desk.pipeline_status(job) in {PipelineStatus.RUNNING, PipelineStatus.INITIALIZING}
        ran, last = steps if life == 1 else steps[:1], life == POISON_WORKERS
        lose(desk, claim, f"w{life}", *ran, prepare=prepare if last else ())
        if life < POISON_WORKERS:
            desk.take_over()
            claim = next_worker(desk, f"w{life + 1}")
    desk.passes()
    return job


@pytest.mark.req("K8")
def test_an_epoch_that_ran_on_three_workers_as_each_was_lost_is_poison(desk: LeaderHarness) -> None:
    job = poisoned(desk)

    assert desk.pipeline_status(job) is PipelineStatus.FAILING
    error = desk.pipeline(job).error or ""
    assert "epoch 2 was running on 3 workers as each was lost: w1, w2, w3" in error
    desk.register("w9")
    [settle] = desk.sync("w9", free=CONTROL).assignments
    desk.report("w9", settled(settle.claim, 2))
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED
    assert desk.job(job).error == error


def test_an_epoch_that_was_only_granted_ahead_is_not_to_blame(desk: LeaderHarness) -> None:
    """It is granted while the one before it runs; here that one takes the workers along."""
    error = desk.pipeline(poisoned(desk, steps=(2, 3))).error or ""

    assert error.startswith("epoch 2 was running on 3 workers")


@pytest.mark.parametrize("other", ["epoch", "worker", "unbegun"])
def test_losses_that_one_epoch_is_not_to_blame_for_make_it_no_poison(
    desk: LeaderHarness, other: str
) -> None:
    job, claim = running(desk, a_stream())
    for life in range(1, 2 * POISON_WORKERS):
        name = "w1" if other == "worker" else f"w{life}"
        if other == "epoch":  # each is completed by the next worker, which dies in the one after
            if life > 1:
                complete(desk, claim, life, name)
            lose(desk, claim, name, life + 1)
        elif other == "unbegun" and life > 1:
            lose(desk, claim, name)  # before it was granted what the first one had planned
        else:
            lose(desk, claim, name, 2)
        desk.take_over()
        claim = next_worker(desk, "w1" if other == "worker" else f"w{life + 1}")
    desk.passes()

    assert desk.status(job) is JobStatus.RUNNING
    assert desk.pipeline_status(job) is not PipelineStatus.FAILING


def test_a_commit_that_takes_its_workers_along_is_poison_too(desk: LeaderHarness) -> None:
    """Whoever goes on with a prepared epoch says that it commits it, and nothing else of it."""
    job, claim = running(desk, a_stream())
    lose(desk, claim, "w1", 2, prepare=[2])
    for life in range(2, POISON_WORKERS + 1):
        claim = next_worker(desk, f"w{life}")
        says = {claim: Progress(step="waiting", epoch=2, committing=2)}
        desk.answer(desk.say(f"w{life}", holds=[claim], free={}, progress=says))
        lose(desk, claim, f"w{life}")

    assert (desk.pipeline(job).error or "").startswith("epoch 2 was running on 3 workers")
    assert desk.epochs(job)[-1] == (2, "CHECKPOINT", "PREPARED")


def test_memory_that_ran_out_counts_as_a_lost_worker_and_is_told(desk: LeaderHarness) -> None:
    job, claim = running(desk, a_stream(retry_times=1))
    causes = (FailureCause.OUT_OF_MEMORY, FailureCause.KILLED, FailureCause.OUT_OF_MEMORY)
    for life, cause in enumerate(causes, start=1):
        assert desk.report(f"w{life}", planned(claim, 2), holds=[claim]).held
        desk.report(f"w{life}", failed(claim, "no memory").model_copy(update={"cause": cause}))
        assert counted(desk, claim) == (0, life if life < POISON_WORKERS else life - 1)
        if life < POISON_WORKERS:
            desk.sync(f"w{life}", free={})
            desk.register(f"w{life + 1}")
            claim, _ = given_again(desk, f"w{life + 1}")
    desk.passes()

    error = desk.pipeline(job).error or ""
    assert "epoch 2 was running on 3 workers as each was lost: w1 (its JVM ran out of" in error
    assert "w2 (its JVM was killed by SIGKILL, as the kernel does when memory runs out)" in error
    assert error.endswith("no memory")


def test_a_restored_job_begins_with_all_its_retries(desk: LeaderHarness) -> None:
    """Also with an epoch that was poison when it ended: somebody gave the workers more memory."""
    job = poisoned(desk, prepare=[2])
    for _ in range(40):  # nobody settles it, until the job ends without that
        desk.clock.advance(60)
        desk.passes()
    assert desk.status(job) is JobStatus.FAILED
    restored(desk, job, a_stream())
    claim = next_worker(desk, "v1")
    says = {claim: Progress(step="waiting", epoch=2, committing=2)}
    desk.answer(desk.say("v1", holds=[claim], free={}, progress=says))
    lose(desk, claim, "v1")

    assert counted(desk, claim) == (0, 1)
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED


# -- errors that would happen again --------------------------------------------------------


def test_a_permanent_error_before_the_first_epoch_ends_the_job_at_once(desk: LeaderHarness) -> None:
    job, claim = desk.given(a_stream())
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", failed(claim, "no such schema", retry=False))
    desk.passes()

    assert desk.pipeline_status(job) is PipelineStatus.FAILING  # its plan is aborted first
    [settle] = desk.sync("w1", free=CONTROL).assignments
    desk.report("w1", settled(settle.claim, 1))
    desk.passes()
    assert (desk.status(job), desk.job(job).error) == (JobStatus.FAILED, "no such schema")


@pytest.mark.req("D3")
def test_with_a_prepared_epoch_a_permanent_error_leaves_the_job_failing(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given(a_stream())
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", prepared(claim, ready=()), holds=[claim])
    desk.report("w1", failed(claim, "permission denied", retry=False))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILING
    [settle] = desk.sync("w1", free=CONTROL).assignments
    assert settle.kind is TaskKind.SETTLE
    desk.report("w1", settled(settle.claim, completed=[done(settle.claim, 1)]))
    desk.passes()
    assert (desk.status(job), desk.job(job).error) == (JobStatus.FAILED, "permission denied")
    assert desk.epochs(job) == [(1, "CHECKPOINT", "COMPLETED")]


@pytest.mark.req("K8")
def test_after_a_completed_epoch_a_permanent_error_counts_as_any_other(desk: LeaderHarness) -> None:
    job, claim = running(desk, a_stream())
    for _ in range(RETRIES):
        desk.report("w1", failed(claim, "permission denied", retry=False))
        claim, _ = given_again(desk)
    desk.report("w1", failed(claim, "permission denied", retry=False))
    desk.passes()

    assert desk.task(claim.task).attempt == 1 + RETRIES
    assert (desk.status(job), desk.job(job).error) == (JobStatus.FAILED, "permission denied")


@pytest.mark.req("E7")
def test_what_no_progress_speaks_against_is_not_tried_again(desk: LeaderHarness) -> None:
    """Else a job whose store is older than its targets would be tried again, and told late."""
    job, claim = running(desk, a_stream())
    desk.report(
        "w1", failed(claim, "the store is older", retry=False, cause=FailureCause.STORE_OLDER)
    )
    desk.passes()

    assert desk.task(claim.task).attempt == 1
    assert (desk.status(job), desk.job(job).error) == (JobStatus.FAILED, "the store is older")


def test_what_a_job_completed_before_it_was_restored_counts_as_well(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    restored(desk, job, a_stream())
    claim, _ = given_again(desk)
    desk.report("w1", failed(claim, "permission denied", retry=False))
    desk.passes()

    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
    claim, _ = given_again(desk)
    epoch(desk, claim, desk.pipeline(job).epoch + 1)
    assert counted(desk, claim) == (0, 0)


def test_an_opening_of_sinks_is_no_epoch_that_worked(desk: LeaderHarness) -> None:
    """Save modes are done in epoch 0, before any row; what is wrong with the first is no news."""
    made = a_stream()
    sink = made.pipelines[0].sinks[0]
    options = {"path": "/out", "file_format_type": "json", "data_save_mode": "DROP_DATA"}
    opening = sink.model_copy(update={"plugin": "LocalFile", "options": options})
    first = made.pipelines[0].model_copy(update={"sinks": (opening,)})
    job, claim = desk.given(made.model_copy(update={"pipelines": (first,)}))
    assert desk.pipeline(job).epoch == -1
    complete(desk, claim, 0, "w1", rows=False)
    assert desk.pipeline(job).epoch == 0
    desk.report("w1", failed(claim, "bad data", retry=False))
    desk.passes()

    assert (desk.status(job), desk.job(job).error) == (JobStatus.FAILED, "bad data")
