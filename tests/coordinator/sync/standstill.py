"""Workers that speak of an execution again and again, while the leader's clock runs."""

from __future__ import annotations

from headrace.model.jobs.spec import JobSpec
from headrace.model.task import Claim, TaskStatus
from headrace.protocol.messages import Progress
from tests.coordinator.leader_harness import TIMEOUT_S, LeaderHarness

STEP_S = 30.0  # between two words of a worker: it is far from silent
assert STEP_S < TIMEOUT_S


def says(
    desk: LeaderHarness,
    claim: Claim,
    activity: int,
    *,
    step: str = "running",
    committing: int | None = None,
    epoch: int = 1,
    worker: str = "w1",
) -> tuple[Claim, ...]:
    """One sync of a worker that holds `claim`; what it is told to stop."""
    said = Progress(step=step, epoch=epoch, committing=committing, activity=activity)
    [answer] = desk.answer(desk.say(worker, holds=[claim], free={}, progress={claim: said}))
    return answer.stop


def stands_still(
    desk: LeaderHarness,
    claim: Claim,
    seconds: float,
    activity: int,
    *,
    committing: int | None = None,
) -> None:
    """It says the same again and again, until so much time has gone."""
    says(desk, claim, activity, committing=committing)
    left_s = seconds
    while left_s > 0:
        desk.clock.advance(min(left_s, STEP_S))
        left_s -= STEP_S
        says(desk, claim, activity, committing=committing)


def hurried(spec: JobSpec, *, checkpoint_timeout_ms: int) -> JobSpec:
    env = spec.env.model_copy(update={"checkpoint_timeout_ms": checkpoint_timeout_ms})
    return spec.model_copy(update={"env": env})


def is_current(desk: LeaderHarness, claim: Claim) -> bool:
    task = desk.task(claim.task)
    return task.claim == claim and task.status is TaskStatus.ACKED
