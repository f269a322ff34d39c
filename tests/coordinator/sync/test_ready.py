"""Ready to close: kept one by one, before anybody is told, and asked at the end (K1, K2, K4)."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import Connection, insert, select, update

from headrace.model.jobs.spec import JobSpec, PluginSpec
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import Claim
from headrace.protocol.messages import Acknowledged, PipelinePayload, Report
from headrace.store.core.engine import reading, writing
from headrace.store.jobs import epochs as ready_store
from headrace.store.jobs.schema import ready_sources
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import ROWS, completed, failed, planned, prepared, spec, succeeded
from tests.coordinator.writer_harness import BOUND_S, opened


def two_sources() -> JobSpec:
    plain = spec(retry_times=3)
    first = plain.pipelines[0]
    more = PluginSpec(
        name="FakeSource-2", plugin="FakeSource", options=first.sources[0].options, output="more"
    )
    pipeline = first.model_copy(update={"sources": (*first.sources, more)})
    return plain.model_copy(update={"pipelines": (pipeline,)})


def rows(desk: LeaderHarness) -> list[tuple[str, int]]:
    with reading(desk.store) as conn:
        found = conn.execute(
            select(ready_sources.c.source, ready_sources.c.epoch).order_by("source")
        )
        return [(source, epoch) for source, epoch in found]


def epoch(desk: LeaderHarness, claim: Claim, number: int, *ready: str) -> None:
    for report in (
        planned(claim, number),
        prepared(claim, number, ready=ready),
        completed(claim, number),
    ):
        assert desk.report("w1", report, holds=[claim]).held


@pytest.mark.req("K1")
def test_a_single_source_that_is_ready_is_kept_before_it_is_acknowledged(
    desk: LeaderHarness,
) -> None:
    _, claim = desk.given(two_sources())
    desk.report("w1", planned(claim), holds=[claim])
    assert rows(desk) == []
    acknowledged = desk.report("w1", prepared(claim, ready=("FakeSource-2",)), holds=[claim])
    assert acknowledged.held
    assert rows(desk) == [("FakeSource-2", 1)]


@pytest.mark.req("K1", "K2")
def test_the_next_execution_is_told_who_was_ready_under_the_next_leader_too(
    desk: LeaderHarness,
) -> None:
    _, claim = desk.given(two_sources())
    epoch(desk, claim, 1, "FakeSource-2")
    desk.take_over()
    desk.report("w1", failed(claim), holds=[])
    desk.clock.advance(10)
    desk.passes()
    [assignment] = desk.sync("w1").assignments
    payload = PipelinePayload.model_validate(assignment.payload)
    assert payload.restore.ready == ("FakeSource-2",)
    assert payload.restore.epoch == 1


@pytest.mark.req("K1", "K2", "K6")
def test_a_pipeline_does_not_end_while_one_of_its_sources_is_not_ready(desk: LeaderHarness) -> None:
    job, claim = desk.given(two_sources())
    epoch(desk, claim, 1, "FakeSource-2")
    desk.report("w1", succeeded(claim))
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
    assert "not all is read of FakeSource-1" in str(desk.tasks(job)[0].error)
    assert ("COMPLETED" in {kind for _, kind, _ in desk.epochs(job)}) is False


@pytest.mark.req("K2")
def test_with_a_full_set_the_completed_point_ends_it(desk: LeaderHarness) -> None:
    job, claim = desk.given(two_sources())
    epoch(desk, claim, 1, "FakeSource-2")
    epoch(desk, claim, 2, "FakeSource-1")
    assert rows(desk) == [("FakeSource-1", 2), ("FakeSource-2", 1)]
    desk.report("w1", succeeded(claim))
    desk.passes()
    assert desk.status(job) is JobStatus.FINISHED
    assert desk.epochs(job)[-1] == (3, "COMPLETED", "COMPLETED")


@pytest.mark.req("K1")
def test_said_twice_the_first_epoch_stands(desk: LeaderHarness) -> None:
    _, claim = desk.given(two_sources())
    report = prepared(claim, ready=("FakeSource-2",))
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", report, holds=[claim])
    desk.report("w1", report, holds=[claim])
    assert rows(desk) == [("FakeSource-2", 1)]


@pytest.mark.req("K4")
def test_a_name_that_is_no_source_of_the_pipeline_is_ignored_with_a_warning(
    desk: LeaderHarness, caplog: pytest.LogCaptureFixture
) -> None:
    job, claim = desk.given(two_sources())
    with writing(desk.store) as conn:
        conn.execute(
            insert(ready_sources).values(
                incarnation=desk.job(job).incarnation, pipeline=1, source="stranger", epoch=1
            )
        )
    epoch(desk, claim, 1, "FakeSource-1", "FakeSource-2")
    with caplog.at_level(logging.WARNING):
        desk.report("w1", succeeded(claim))
    desk.passes()
    assert desk.status(job) is JobStatus.FINISHED
    assert any(getattr(record, "source", None) == "stranger" for record in caplog.records)


@pytest.mark.req("K2")
def test_restoring_twice_changes_nothing(desk: LeaderHarness) -> None:
    job, claim = desk.given(two_sources())
    epoch(desk, claim, 1, "FakeSource-2")
    told: list[object] = []
    for _ in range(2):
        desk.take_over()
        desk.report("w1", failed(claim), holds=[])
        desk.clock.advance(10)
        desk.passes()
        [assignment] = desk.sync("w1").assignments
        claim = assignment.claim
        told.append(assignment.payload["restore"])
    assert told[0] == told[1]
    assert rows(desk) == [("FakeSource-2", 1)]
    assert desk.epochs(job) == [(1, "CHECKPOINT", "COMPLETED")]


@pytest.mark.req("K4")
def test_without_a_set_a_pipeline_begins_with_an_empty_one(desk: LeaderHarness) -> None:
    desk.register("w1")
    desk.submit(two_sources())
    desk.passes()
    [assignment] = desk.sync("w1").assignments
    assert PipelinePayload.model_validate(assignment.payload).restore.ready == ()


@pytest.mark.req("K4")
def test_a_set_that_can_not_be_true_fails_the_job_with_the_reason(desk: LeaderHarness) -> None:
    job, claim = desk.given(two_sources())
    epoch(desk, claim, 1)
    with writing(desk.store) as conn:
        conn.execute(
            insert(ready_sources).values(
                incarnation=desk.job(job).incarnation, pipeline=1, source="FakeSource-1", epoch=77
            )
        )
    desk.report("w1", failed(claim), holds=[])
    desk.clock.advance(10)
    desk.passes()
    assert not desk.sync("w1").assignments
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED
    assert "source 'FakeSource-1' is ready to close since epoch 77" in str(desk.job(job).error)


def say(desk: LeaderHarness, report: Report, claim: Claim) -> Acknowledged:
    """As the writer takes it: one report that can't be recorded is set apart from the others."""
    with opened(desk) as office:
        [asked] = office.batch(office.sync("w1", holds=[claim], reports=[report], free={}))
        [acknowledged] = asked.result(BOUND_S).acknowledged
    return acknowledged


@pytest.mark.req("K4")
def test_an_end_that_meets_a_corrupt_set_fails_the_job_and_does_not_hang(
    desk: LeaderHarness,
) -> None:
    job, claim = desk.given(two_sources())
    epoch(desk, claim, 1, "FakeSource-1")
    with writing(desk.store) as conn:
        conn.execute(update(ready_sources).values(epoch=-5))
    assert not say(desk, succeeded(claim), claim).held
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED
    assert "ready to close since epoch -5" in str(desk.job(job).error)


@pytest.mark.req("K4")
def test_a_set_that_can_not_be_written_fails_the_job_with_the_reason(
    desk: LeaderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, claim = desk.given(two_sources())
    desk.report("w1", planned(claim), holds=[claim])

    def refused(conn: Connection, at: object, sources: object) -> None:
        conn.execute(insert(ready_sources).values(incarnation=None, pipeline=1, source="", epoch=1))

    monkeypatch.setattr(ready_store, "add_ready", refused)
    assert not say(desk, prepared(claim, ready=("FakeSource-1",)), claim).held
    desk.passes()
    assert "report EPOCH_PREPARED can't be recorded" in str(desk.pipeline(job).error)
    assert desk.epochs(job) == [(1, "CHECKPOINT", "PLANNED")]
    assert rows(desk) == []


@pytest.mark.req("K5")
def test_an_execution_that_takes_over_goes_on_after_the_last_completed_epoch(
    desk: LeaderHarness,
) -> None:
    _, claim = desk.given(spec(retry_times=3))
    for report in (planned(claim), prepared(claim, ready=()), completed(claim)):
        desk.report("w1", report, holds=[claim])
    desk.take_over()
    desk.report("w1", failed(claim))

    [assignment] = desk.sync("w1").assignments

    restore = PipelinePayload.model_validate(assignment.payload).restore
    assert (restore.epoch, restore.open) == (1, ())
    assert restore.positions == {"FakeSource-1": ROWS}
