"""A job that has ended goes on from its savepoint: every row once, ids only grow."""

from __future__ import annotations

import pytest
from sqlalchemy import insert

from headrace.model.jobs.epoch import EpochKind
from headrace.model.jobs.spec import PluginSpec
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim
from headrace.protocol.messages import SettleResult, TaskEnded
from headrace.store.core.engine import writing
from headrace.store.jobs.schema import ready_sources
from tests.coordinator.jobs.streaming import (
    done,
    epoch,
    given_again,
    left_open,
    ready_rows,
    restored,
    running,
    saved,
    savepoint_of,
    stopped_with_savepoint,
    streaming,
    with_source,
)
from tests.coordinator.jobs.test_commands import with_secret
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import (
    ROWS,
    SECRET,
    failed,
    planned,
    prepared,
    spec,
    stopped,
    succeeded,
)

BOUND_S = 120.0  # for a state to come, also on a busy machine
RACERS = 4


@pytest.mark.req("K7")
def test_a_restored_job_goes_on_where_it_was_and_its_ids_grow(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk, epochs=2)
    before = desk.job(job)
    desk.clock.advance(60)

    assert restored(desk, job) == []

    after = desk.job(job)
    assert (after.id, after.incarnation) == (before.id, before.incarnation)
    assert (after.status, after.wanted_savepoint, after.error) == (JobStatus.CREATED, False, None)
    assert (after.created_at_ms, after.ended_at_ms) == (desk.clock.wall_ms(), None)
    claim, payload = given_again(desk)
    assert payload.incarnation == before.incarnation
    assert payload.restore.epoch == 3
    assert payload.restore.positions == {"FakeSource-1": 2 * ROWS}
    assert payload.restore.written == {"Console-1": 2 * ROWS}
    assert not payload.restore.savepoint
    assert not desk.report("w1", planned(claim, 3), holds=[claim]).held
    epoch(desk, claim, 4)
    desk.passes()
    assert desk.status(job) is JobStatus.RUNNING
    assert [number for number, _, _ in desk.epochs(job)] == [1, 2, 3, 4]
    assert desk.pipeline(job).rows_out == 3 * ROWS, "counters go on, too"
    assert desk.pipeline(job).read == {"FakeSource-1": 3 * ROWS}


@pytest.mark.req("K7")
def test_a_job_can_be_saved_and_restored_again_and_again(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk, epochs=1)
    for turn in range(2, 5):
        restored(desk, job, key=f"turn-{turn}")
        claim, payload = given_again(desk)
        epoch(desk, claim, payload.restore.epoch + 1)
        desk.passes()
        desk.commands.savepoint(job)
        desk.passes()
        desk.report("w1", saved(claim))
        desk.passes()
        assert desk.status(job) is JobStatus.SAVEPOINT_DONE

    assert [number for number, _, _ in desk.epochs(job)] == list(range(1, 9))


@pytest.mark.req("K7")
def test_a_failed_job_goes_on_above_an_epoch_that_was_aborted(desk: LeaderHarness) -> None:
    job, claim = running(desk, epochs=2)
    desk.report("w1", planned(claim, 3), holds=[claim])
    desk.report("w1", failed(claim))
    desk.passes()
    settle = desk.claimed("w1")
    desk.report("w1", _aborted(settle, 3))
    desk.passes()
    assert desk.epochs(job)[-1] == (3, "CHECKPOINT", "ABORTED")

    restored(desk, job)

    claim, payload = given_again(desk)
    assert payload.restore.epoch == 3, "its token is spent"
    assert payload.restore.positions == {"FakeSource-1": 2 * ROWS}
    assert desk.report("w1", planned(claim, 4), holds=[claim]).held


def _aborted(settle: Claim, number: int) -> TaskEnded:
    settled = SettleResult(completed=(), aborted=(number,))
    return succeeded(settle, result=settled.model_dump(mode="json"))


def test_every_pipeline_goes_on_above_the_highest_epoch_of_any(desk: LeaderHarness) -> None:
    job = desk.submit(streaming(pipelines=2))
    desk.register("w1")
    desk.passes()
    one, two = sorted(a.claim for a in desk.sync("w1").assignments)
    desk.sync("w1", holds=[one, two], free={})
    for claim, pipeline, last in ((one, 1, 5), (two, 2, 2)):
        for number in range(1, last + 1):
            for report in (planned(claim, number), prepared(claim, number, ready=())):
                desk.report("w1", report, holds=[one, two])
            desk.report("w1", done(claim, number, pipeline=pipeline), holds=[one, two])
    desk.passes()
    desk.commands.savepoint(job)
    desk.passes()
    desk.report("w1", saved(one), holds=[two])
    desk.report("w1", saved(two))
    desk.passes()

    other = streaming(pipelines=2)  # the same pipelines, the other way round
    turned = [
        p.model_copy(update={"number": number})
        for number, p in enumerate(reversed(other.pipelines), start=1)
    ]
    restored(desk, job, other.model_copy(update={"pipelines": tuple(turned)}))

    assert [desk.pipeline(job, n).epoch for n in (1, 2)] == [6, 6]
    assert desk.pipeline(job, 1).positions == {"FakeSource-2": 2 * ROWS}
    assert desk.pipeline(job, 2).positions == {"FakeSource-1": 5 * ROWS}
    assert desk.pipeline(job, 1).rows_out == 2 * ROWS


def test_a_changed_parallelism_changes_nothing_else(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    made = streaming()
    wider = made.model_copy(update={"env": made.env.model_copy(update={"parallelism": 7})})

    assert restored(desk, job, wider) == []
    _, payload = given_again(desk)
    assert (payload.env.parallelism, payload.restore.epoch) == (7, 3)


def test_a_source_that_was_gained_begins_at_its_beginning_and_is_told(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)

    notes = restored(desk, job, with_source(streaming(), "FakeSource-9"))

    assert notes == ["source 'FakeSource-9' is new: it is read from its beginning"]
    _, payload = given_again(desk)
    assert payload.restore.positions == {"FakeSource-1": 2 * ROWS}


def test_a_report_of_the_time_before_changes_nothing(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.commands.savepoint(job)
    desk.passes()
    desk.report("w1", saved(claim))
    desk.passes()
    restored(desk, job)
    given_again(desk)

    assert not desk.report("w1", planned(claim, 3)).held
    assert not desk.report("w1", saved(claim)).held
    assert desk.status(job) is JobStatus.SCHEDULED


def test_the_secrets_of_the_new_file_are_delivered(desk: LeaderHarness) -> None:
    job, claim = desk.given(with_secret())
    epoch(desk, claim, 1)
    desk.report("w1", failed(claim))
    desk.passes()
    desk.clock.advance(60)
    desk.clean()
    desk.register("w1")

    restored(desk, job, with_secret())

    _, payload = given_again(desk)
    assert SECRET in payload.secrets.values()


@pytest.mark.req("K3")
def test_a_source_that_had_read_everything_does_not_read_again(desk: LeaderHarness) -> None:
    made = with_source(spec(), "FakeSource-2")
    job, claim = desk.given(made)
    epoch(desk, claim, 1, ready=("FakeSource-2",))
    desk.passes()
    desk.commands.savepoint(job)
    desk.passes()
    desk.report("w1", saved(claim))
    desk.passes()
    with writing(desk.store) as conn:  # of an epoch after the savepoint
        later = {"pipeline": 1, "source": "FakeSource-1", "epoch": 9}
        incarnation = desk.job(job).incarnation
        conn.execute(insert(ready_sources).values(incarnation=incarnation, **later))

    restored(desk, job, made)

    assert ready_rows(desk) == [(1, "FakeSource-2", 2)]
    _, payload = given_again(desk)
    assert payload.restore.ready == ("FakeSource-2",)


def test_a_restored_job_that_is_canceled_while_it_waits_keeps_its_savepoint(
    desk: LeaderHarness,
) -> None:
    job = stopped_with_savepoint(desk)
    restored(desk, job)
    desk.commands.cancel(job)
    desk.passes()
    assert desk.status(job) is JobStatus.CANCELED

    restored(desk, job, key="once more")
    _, payload = given_again(desk)
    assert payload.restore.epoch == 3


def test_a_restored_job_that_is_canceled_later_leaves_none(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    restored(desk, job)
    claim, _ = given_again(desk)
    desk.commands.cancel(job)
    desk.passes()
    desk.report("w1", stopped(claim))
    desk.passes()

    assert desk.status(job) is JobStatus.CANCELED
    assert savepoint_of(desk, job) is None


def test_a_restored_job_that_fails_at_once_can_be_restored_again(desk: LeaderHarness) -> None:
    job = stopped_with_savepoint(desk)
    restored(desk, job)
    claim, _ = given_again(desk)
    desk.report("w1", failed(claim))
    desk.passes()

    made = savepoint_of(desk, job)
    assert made is not None
    assert (made.kind, made.epoch) == (EpochKind.CHECKPOINT, 3)
    assert made.positions == {"FakeSource-1": 2 * ROWS}


@pytest.mark.req("K3")
def test_an_epoch_that_could_not_be_settled_is_finished_by_the_restored_job(
    desk: LeaderHarness,
) -> None:
    job = left_open(desk)
    made = savepoint_of(desk, job)
    assert made is not None
    assert (made.epoch, made.ready) == (1, [])

    restored(desk, job, spec())

    desk.register("w2")
    _, payload = given_again(desk, "w2")
    assert payload.restore.epoch == 1
    assert [(left.epoch, left.status) for left in payload.restore.open] == [(2, "PREPARED")]
    assert payload.restore.ready == ("FakeSource-1",), "its last slice is in that epoch"


def test_a_job_begins_with_its_save_modes_and_a_restored_one_does_not(desk: LeaderHarness) -> None:
    made = spec()
    [pipeline] = made.pipelines
    sink = PluginSpec(
        name="LocalFile-1",
        plugin="LocalFile",
        options={"path": "/out", "file_format_type": "json", "data_save_mode": "DROP_DATA"},
        inputs=pipeline.sinks[0].inputs,
    )
    pipeline = pipeline.model_copy(update={"sinks": (sink,)})
    opening = made.model_copy(update={"pipelines": (pipeline,)})
    assert desk.pipeline(desk.submit()).epoch == 0

    job = desk.submit(opening)

    assert desk.pipeline(job).epoch == -1
    desk.register("w1", slots=9)
    desk.passes()
    [claim] = [a.claim for a in desk.sync("w1").assignments if a.payload["job"] == job]
    for number in (0, 1):
        epoch(desk, claim, number)
    desk.report("w1", failed(claim))
    desk.passes()
    assert desk.epochs(job)[0] == (0, "OPENING", "COMPLETED")

    restored(desk, job, opening)
    assert desk.pipeline(job).epoch == 1
