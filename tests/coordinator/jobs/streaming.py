"""A job that reads without an end, epoch by epoch, as its executions report it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from sqlalchemy import select

from headrace.coordinator.jobs.reconciler import SETTLE_DEADLINE_S
from headrace.model.jobs.spec import JobSpec, PluginSpec
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim, TaskKind
from headrace.protocol.messages import EpochCompleted, PipelinePayload, TaskEnded
from headrace.store.core.engine import reading
from headrace.store.jobs import savepoints
from headrace.store.jobs.savepoints import Savepoint
from headrace.store.jobs.schema import ready_sources
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import ROWS, completed, failed, planned, prepared, spec

_numbers = count(10_000)


def streaming(*, pipelines: int = 1, retry_times: int = 0) -> JobSpec:
    made = spec(pipelines=pipelines, retry_times=retry_times)
    return made.model_copy(update={"env": made.env.model_copy(update={"job_mode": "STREAMING"})})


def done(claim: Claim, epoch: int, *, pipeline: int = 1) -> EpochCompleted:
    """Each epoch adds ROWS to what its source read and its sink has."""
    rows = ROWS * epoch
    return completed(claim, epoch).model_copy(
        update={
            "positions": {f"FakeSource-{pipeline}": rows},
            "commits": {f"Console-{pipeline}": {"rows": ROWS}},
            "written": {f"Console-{pipeline}": rows},
        }
    )


def epoch(
    desk: LeaderHarness,
    claim: Claim,
    number: int,
    *,
    pipeline: int = 1,
    ready: tuple[str, ...] = (),
    worker: str = "w1",
) -> None:
    for report in (
        planned(claim, number),
        prepared(claim, number, ready=ready, read={f"FakeSource-{pipeline}": ROWS}),
        done(claim, number, pipeline=pipeline),
    ):
        assert desk.report(worker, report, holds=[claim]).held


def saved(claim: Claim) -> TaskEnded:
    return TaskEnded(seq=next(_numbers), claim=claim, outcome="SAVEPOINT")


def running(
    desk: LeaderHarness, made: JobSpec | None = None, *, epochs: int = 1
) -> tuple[str, Claim]:
    """A job that has completed some epochs."""
    job, claim = desk.given(made or streaming())
    for number in range(1, epochs + 1):
        epoch(desk, claim, number)
    desk.passes()
    assert desk.status(job) is JobStatus.RUNNING
    return job, claim


def stopped_with_savepoint(desk: LeaderHarness, *, epochs: int = 2) -> str:
    job, claim = running(desk, epochs=epochs)
    desk.commands.savepoint(job)
    desk.passes()
    desk.report("w1", saved(claim))
    desk.passes()
    assert desk.status(job) is JobStatus.SAVEPOINT_DONE
    return job


def savepoint_of(desk: LeaderHarness, job: str) -> Savepoint | None:
    with reading(desk.store) as conn:
        return savepoints.get(conn, job)


def ready_rows(desk: LeaderHarness) -> list[tuple[int, str, int]]:
    row = ready_sources.c
    with reading(desk.store) as conn:
        found = conn.execute(select(row.pipeline, row.source, row.epoch).order_by(row.source))
        return [(pipeline, source, at) for pipeline, source, at in found]


def restored(
    desk: LeaderHarness, job: str, made: JobSpec | None = None, key: str = "again"
) -> Sequence[str]:
    """The notes of a restore under the same file, or another."""
    found = desk.commands.restore(made or streaming(), job_id=job, submission_key=key)
    assert found.job.id == job
    return found.notes


def given_again(desk: LeaderHarness, worker: str = "w1") -> tuple[Claim, PipelinePayload]:
    desk.passes()
    [assignment] = desk.sync(worker).assignments
    desk.sync(worker, holds=[assignment.claim], free={})
    return assignment.claim, PipelinePayload.model_validate(assignment.payload)


def with_source(made: JobSpec, name: str) -> JobSpec:
    """One more source in its first pipeline."""
    first, *rest = made.pipelines
    more = PluginSpec(
        name=name, plugin="FakeSource", options=first.sources[0].options, output=f"of-{name}"
    )
    first = first.model_copy(update={"sources": (*first.sources, more)})
    return made.model_copy(update={"pipelines": (first, *rest)})


def left_open(desk: LeaderHarness) -> str:
    """A failed job with a prepared epoch that nobody settled in time."""
    job, claim = running(desk, spec())
    desk.report("w1", planned(claim, 2), holds=[claim])
    desk.report("w1", prepared(claim, 2, ready=("FakeSource-1",)), holds=[claim])
    desk.report("w1", failed(claim))
    desk.passes()
    assert len(desk.tasks(job, TaskKind.SETTLE)) == 1
    desk.clock.advance(SETTLE_DEADLINE_S + 1)
    desk.passes()
    assert desk.status(job) is JobStatus.FAILED
    return job
