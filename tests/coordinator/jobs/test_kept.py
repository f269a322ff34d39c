"""What is kept of a job that ended, to be restored, and what is forgotten (K3)."""

from __future__ import annotations

import pytest

from headrace.model.jobs.epoch import EpochKind
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim
from tests.coordinator.jobs.streaming import (
    done,
    epoch,
    ready_rows,
    running,
    saved,
    savepoint_of,
    streaming,
)
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import ROWS, failed, planned, prepared, spec, stopped, succeeded


def test_the_last_checkpoint_of_a_failed_job_is_kept(desk: LeaderHarness) -> None:
    job, claim = running(desk, epochs=3)
    desk.report("w1", failed(claim))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    made = savepoint_of(desk, job)
    assert made is not None
    assert (made.kind, made.epoch) == (EpochKind.CHECKPOINT, 3)
    assert made.positions == {"FakeSource-1": 3 * ROWS}


def test_a_job_that_failed_before_its_first_checkpoint_keeps_none(desk: LeaderHarness) -> None:
    job, claim = desk.given(streaming())
    desk.report("w1", failed(claim))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    assert savepoint_of(desk, job) is None


def test_a_pipeline_that_fails_for_good_fails_the_savepoint(desk: LeaderHarness) -> None:
    job, claim = running(desk)
    desk.commands.savepoint(job)
    desk.passes()
    desk.report("w1", failed(claim))
    desk.passes()

    assert desk.status(job) is JobStatus.FAILED
    made = savepoint_of(desk, job)
    assert made is not None
    assert made.kind is EpochKind.CHECKPOINT


@pytest.mark.req("K3")
def test_a_job_of_which_one_pipeline_had_read_everything_is_saved_as_a_whole(
    desk: LeaderHarness,
) -> None:
    job = desk.submit(spec(pipelines=2))
    desk.register("w1")
    desk.passes()
    one, two = sorted(a.claim for a in desk.sync("w1").assignments)
    desk.sync("w1", holds=[one, two], free={})
    for claim, pipeline in ((one, 1), (two, 2)):
        desk.report("w1", planned(claim), holds=[one, two])
        ready = ("FakeSource-1",) if pipeline == 1 else ()
        desk.report("w1", prepared(claim, ready=ready), holds=[one, two])
    desk.passes()
    _complete(desk, one, two)
    desk.report("w1", succeeded(one), holds=[two])
    desk.passes()
    desk.commands.savepoint(job)
    desk.passes()
    assert desk.sync("w1", holds=[two], free={}).savepoint == (two,)
    assert ready_rows(desk) == [(1, "FakeSource-1", 1)]
    desk.report("w1", saved(two))
    desk.passes()

    assert desk.status(job) is JobStatus.SAVEPOINT_DONE
    made = savepoint_of(desk, job)
    assert made is not None
    assert (made.ready, sorted(made.positions)) == (
        ["FakeSource-1"],
        ["FakeSource-1", "FakeSource-2"],
    )
    assert ready_rows(desk) == [], "it is in the savepoint, and nowhere else"


def _complete(desk: LeaderHarness, one: Claim, two: Claim) -> None:
    for claim, pipeline in ((one, 1), (two, 2)):
        desk.report("w1", done(claim, 1, pipeline=pipeline), holds=[one, two])


@pytest.mark.req("K3")
@pytest.mark.parametrize("end", ["finish", "fail", "cancel"])
def test_who_was_ready_is_forgotten_at_the_true_end_and_not_before(
    desk: LeaderHarness, end: str
) -> None:
    job, claim = desk.given(spec())
    epoch(desk, claim, 1, ready=("FakeSource-1",))
    desk.passes()
    desk.take_over()
    desk.passes()
    assert ready_rows(desk) == [(1, "FakeSource-1", 1)]
    if end == "cancel":
        desk.commands.cancel(job)
        desk.passes()
        assert ready_rows(desk) == [(1, "FakeSource-1", 1)], "it is only on its way"
    ends = {"finish": succeeded(claim), "fail": failed(claim), "cancel": stopped(claim)}
    desk.report("w1", ends[end])
    desk.passes()

    assert ready_rows(desk) == []
