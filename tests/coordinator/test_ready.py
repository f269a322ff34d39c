"""Ready to close: kept one by one, before anybody is told, and asked at the end (K1, K2, K4)."""

from __future__ import annotations

import logging

import pytest
from sqlalchemy import insert, select

from headrace.model.job import JobStatus, PipelineStatus
from headrace.model.jobspec import JobSpec, PluginSpec
from headrace.model.task import Claim
from headrace.protocol.payloads import PipelinePayload
from headrace.store.engine import reading, writing
from headrace.store.schema import ready_sources
from tests.coordinator.desk import Desk
from tests.coordinator.specs import completed, failed, planned, prepared, spec, succeeded


def two_sources() -> JobSpec:
    plain = spec(retry_times=3)
    first = plain.pipelines[0]
    more = PluginSpec(
        name="FakeSource-2", plugin="FakeSource", options=first.sources[0].options, output="more"
    )
    pipeline = first.model_copy(update={"sources": (*first.sources, more)})
    return plain.model_copy(update={"pipelines": (pipeline,)})


def rows(desk: Desk) -> list[tuple[str, int]]:
    with reading(desk.store) as conn:
        found = conn.execute(
            select(ready_sources.c.source, ready_sources.c.epoch).order_by("source")
        )
        return [(source, epoch) for source, epoch in found]


def epoch(desk: Desk, claim: Claim, number: int, *ready: str) -> None:
    for report in (
        planned(claim, number),
        prepared(claim, number, ready=ready),
        completed(claim, number),
    ):
        assert desk.report("w1", report, holds=[claim]).held


def test_a_single_source_that_is_ready_is_kept_before_it_is_acknowledged(desk: Desk) -> None:
    _, claim = desk.given(two_sources())
    desk.report("w1", planned(claim), holds=[claim])
    assert rows(desk) == []
    acknowledged = desk.report("w1", prepared(claim, ready=("FakeSource-2",)), holds=[claim])
    assert acknowledged.held
    assert rows(desk) == [("FakeSource-2", 1)]


def test_the_next_execution_is_told_who_was_ready_under_the_next_leader_too(desk: Desk) -> None:
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


def test_a_pipeline_does_not_end_while_one_of_its_sources_is_not_ready(desk: Desk) -> None:
    job, claim = desk.given(two_sources())
    epoch(desk, claim, 1, "FakeSource-2")
    desk.report("w1", succeeded(claim))
    assert desk.pipeline_status(job) is PipelineStatus.SCHEDULED
    assert "not all is read of FakeSource-1" in str(desk.tasks(job)[0].error)
    assert ("COMPLETED" in {kind for _, kind, _ in desk.epochs(job)}) is False


def test_with_a_full_set_the_completed_point_ends_it(desk: Desk) -> None:
    job, claim = desk.given(two_sources())
    epoch(desk, claim, 1, "FakeSource-2")
    epoch(desk, claim, 2, "FakeSource-1")
    assert rows(desk) == [("FakeSource-1", 2), ("FakeSource-2", 1)]
    desk.report("w1", succeeded(claim))
    desk.passes()
    assert desk.status(job) is JobStatus.FINISHED
    assert desk.epochs(job)[-1] == (3, "COMPLETED", "COMPLETED")


def test_said_twice_the_first_epoch_stands(desk: Desk) -> None:
    _, claim = desk.given(two_sources())
    report = prepared(claim, ready=("FakeSource-2",))
    desk.report("w1", planned(claim), holds=[claim])
    desk.report("w1", report, holds=[claim])
    desk.report("w1", report, holds=[claim])
    assert rows(desk) == [("FakeSource-2", 1)]


def test_a_name_that_is_no_source_of_the_pipeline_is_ignored_with_a_warning(
    desk: Desk, caplog: pytest.LogCaptureFixture
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
