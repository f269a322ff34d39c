"""Jobs that have ended, and what is left of them."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import func, select

from headrace.model.jobs.epoch import CleanupStep
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus
from headrace.model.task import Claim, TaskKind
from headrace.protocol.messages import Assignment
from headrace.store.core.engine import reading
from headrace.store.core.schema import metadata
from headrace.store.jobs import cleanups, history
from headrace.store.jobs.cleanups import Cleanup
from headrace.store.jobs.history import EndedRun
from tests.coordinator.jobs.streaming import epoch
from tests.coordinator.leader_harness import RETENTION, LeaderHarness
from tests.coordinator.specs import failed, spec, stopped

DELAY_S = RETENTION.state_cleanup_delay_ms / 1000
MARKS_S = RETENTION.marks_kept_ms / 1000
# What a job is made of while there is one.
OF_JOBS = ("epochs", "job_secrets", "jobs", "pipelines", "ready_sources", "tasks")


def finished(desk: LeaderHarness, made: JobSpec | None = None, *, job_id: str | None = None) -> str:
    """A job that ran to its end."""
    job = desk.submit(made, job_id=job_id)
    if not desk.is_registered("w1"):
        desk.register("w1")
    desk.passes()
    desk.finish("w1", desk.claimed("w1"))
    desk.passes()
    assert desk.status(job) is JobStatus.FINISHED
    return job


def ended(desk: LeaderHarness, how: JobStatus) -> str:
    """A job that completed an epoch, and then ended so."""
    if how is JobStatus.FINISHED:
        return finished(desk)
    job, claim = desk.given(spec())
    epoch(desk, claim, 1)
    desk.passes()
    if how is JobStatus.CANCELED:
        desk.commands.cancel(job)
        desk.passes()
        desk.report("w1", stopped(claim))
    else:
        desk.report("w1", failed(claim))
    desk.passes()
    assert desk.status(job) is how
    return job


def rows(desk: LeaderHarness, *tables: str) -> Mapping[str, int]:
    """How many rows each has, without those that have none."""
    with reading(desk.store) as conn:
        counts = {
            name: conn.scalar(select(func.count()).select_from(metadata.tables[name])) or 0
            for name in tables or OF_JOBS
        }
    return {name: number for name, number in counts.items() if number}


def cleanup_of(desk: LeaderHarness, incarnation: str) -> Cleanup | None:
    with reading(desk.store) as conn:
        return cleanups.get(conn, incarnation)


def told(desk: LeaderHarness, job: str) -> EndedRun | None:
    with reading(desk.store) as conn:
        return history.latest(conn, job)


def wait_and_clean(desk: LeaderHarness) -> None:
    """The delay passes, and the state of everything that has ended goes."""
    desk.clock.advance(DELAY_S)
    assert desk.clean().failed == []


def at_its_targets(desk: LeaderHarness, incarnation: str) -> Assignment:
    """The FORGET task, given to w1 when it is due."""
    found = cleanup_of(desk, incarnation)
    assert found is not None
    assert found.step is CleanupStep.TARGETS
    wait_s = (found.due_at_ms - desk.clock.wall_ms()) / 1000
    desk.clock.advance(max(0.0, wait_s))
    desk.register("w1")
    desk.clean()
    [assignment] = desk.sync("w1").assignments
    assert assignment.kind is TaskKind.FORGET
    return assignment


def hold(desk: LeaderHarness, claim: Claim) -> None:
    desk.sync("w1", holds=[claim], free={})
