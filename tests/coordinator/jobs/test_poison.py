"""Rows and reports that can't be read or recorded: they end what they belong to, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, select, update

from headrace.coordinator.sync import reports
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim
from headrace.protocol.messages import Register, Report
from headrace.store.core.engine import reading, writing
from headrace.store.jobs import jobs
from headrace.store.jobs.schema import epochs, pipelines
from headrace.store.jobs.schema import jobs as job_rows
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import failed, planned, prepared, spec
from tests.coordinator.writer_harness import BOUND_S, WriterHarness, opened


@pytest.fixture
def office(desk: LeaderHarness) -> Iterator[WriterHarness]:
    with opened(desk) as office:
        yield office


def write_spec(store: Engine, job: str, change: dict[str, Any]) -> None:
    with writing(store) as conn:
        stored = conn.scalars(select(job_rows.c.spec).where(job_rows.c.id == job)).one()
        conn.execute(update(job_rows).where(job_rows.c.id == job).values(spec=stored | change))


def test_fields_that_a_newer_program_wrote_into_a_spec_are_ignored(desk: LeaderHarness) -> None:
    job = desk.submit()
    env = spec().env.model_dump(mode="json") | {"savepoint_dir": "x"}
    write_spec(desk.store, job, {"env": env, "from_the_future": 1})

    with reading(desk.store) as conn:
        assert jobs.spec_of(conn, job) == spec()


def test_a_job_that_can_not_be_read_fails_and_stops_no_sync(desk: LeaderHarness) -> None:
    healthy, claim = desk.given()
    broken = desk.submit()
    desk.passes()
    write_spec(desk.store, broken, {"pipelines": "of another shape"})

    answer = desk.sync("w1", holds=[claim], reports=[planned(claim)])
    desk.passes()

    assert answer.assignments == ()
    assert desk.epochs(healthy) == [(1, "CHECKPOINT", "PLANNED")]
    assert desk.status(broken) is JobStatus.FAILED
    error = desk.job(broken).error or ""
    assert f"job {broken!r} can't be read: pipelines: " in error
    assert "upgrade the coordinators" in error


@pytest.mark.parametrize("waits_first", [False, True])
def test_a_job_that_can_not_be_read_at_its_admission_fails_with_the_reason(
    desk: LeaderHarness, *, waits_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    broken, healthy = desk.submit(), desk.submit()
    if waits_first:
        desk.passes()
        assert desk.status(broken) is JobStatus.PENDING
    write_spec(desk.store, broken, {"env": {"retry_times": "many, as 'secret' says"}})
    desk.register("w1")

    desk.passes()

    assert desk.status(broken) is JobStatus.FAILED
    error = desk.job(broken).error or ""
    assert f"what the store holds of job {broken!r} can't be read: env.retry_times: " in error
    assert "was it written by a newer headrace? upgrade the coordinators" in error
    assert "secret" not in error
    assert desk.status(healthy) is JobStatus.SCHEDULED
    assert "reconcile failed" not in caplog.text


def test_an_assignment_that_became_unreadable_is_not_said_again(desk: LeaderHarness) -> None:
    job = desk.submit()
    desk.register("w1")
    desk.passes()
    [given] = desk.sync("w1", lost=True).assignments
    with writing(desk.store) as conn:
        at = {"incarnation": "x", "pipeline": 1, "epoch": 1, "execution": given.claim.execution}
        incarnation = desk.job(job).incarnation
        row = at | {"incarnation": incarnation, "job_id": job, "kind": "CHECKPOINT"}
        conn.execute(
            epochs.insert().values(**row, status="PLANNED", plan={"slices": 7}, planned_at_ms=1)
        )

    assert desk.sync("w1").assignments == ()
    desk.passes()
    assert desk.status(job) is JobStatus.FAILING


def test_an_error_that_quotes_a_nul_is_recorded_without_it(desk: LeaderHarness) -> None:
    job, claim = desk.given()

    desk.report("w1", failed(claim, "the value 'a\0b' of STRING"))
    desk.passes()

    assert desk.job(job).error == "the value 'ab' of STRING"


def test_names_have_no_nul(desk: LeaderHarness) -> None:
    said = Register(
        worker="w\0",
        group="g\0",
        slots=1,
        control_slots=1,
        version="0",
        host="h\0",
        pid=1,
        spark_application="\0",
    )

    assert (said.worker, said.group, said.host, said.spark_application) == ("w", "g", "h", "")
    assert spec(name="de\0mo").name == "demo"
    assert desk.submit(spec(name="de\0mo"))


def test_a_report_that_can_not_be_recorded_fails_its_task_and_is_acknowledged(
    office: WriterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker would say it for ever, and all else that it says would be lost with it."""
    desk = office.desk
    desk.register("w1")
    sick, healthy = desk.submit(spec(retry_times=3)), desk.submit()
    desk.passes()
    claims = [given.claim for given in desk.sync("w1").assignments]
    by_job = {desk.task(claim.task).job_id: claim for claim in claims}
    desk.sync("w1", holds=claims, free={})
    really = reports.apply_epoch

    def break_one(conn: Any, report: Any, **named: Any) -> Any:
        if report.claim == by_job[sick]:
            conn.execute(update(pipelines).values(status="no such status"))
        return really(conn, report, **named)

    monkeypatch.setattr(reports, "apply_epoch", break_one)
    said: list[Report] = [planned(by_job[sick]), planned(by_job[healthy])]
    [asked] = office.batch(office.sync("w1", holds=claims, reports=said, free={}))
    answer = asked.result(BOUND_S)

    assert [(a.seq, a.held) for a in answer.acknowledged] == [
        (said[0].seq, False),
        (said[1].seq, True),
    ]
    assert answer.stop == (by_job[sick],)
    assert desk.epochs(healthy) == [(1, "CHECKPOINT", "PLANNED")]
    desk.passes()
    assert desk.status(sick) is JobStatus.FAILED
    assert "report EPOCH_PLANNED can't be recorded" in (desk.job(sick).error or "")


def test_a_handle_with_a_nul_comes_back_as_it_was(desk: LeaderHarness) -> None:
    job, claim = desk.given()
    desk.report("w1", planned(claim), holds=[claim])

    assert desk.report("w1", prepared(claim, handle="a\0b"), holds=[claim]).held
    with reading(desk.store) as conn:
        handles = conn.scalars(select(epochs.c.handles).where(epochs.c.job_id == job)).one()
    assert handles["Console-1"]["handle"] == "a\0b"


def test_an_unknown_claim_harms_nobody(desk: LeaderHarness) -> None:
    desk.register("w1")

    assert not desk.report("w1", failed(Claim("nobody's", 1))).held
