"""Workers that do as they are told, or don't, while the time goes by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from headrace.model.jobs.status import JOB_ENDED, JobStatus
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import Assignment, Progress
from tests.coordinator.leader_harness import LeaderHarness
from tests.coordinator.specs import completed, failed, settled, stopped

TICK_S = 5.0  # between two syncs of a worker; well below the heartbeat timeout
TICKS_MAX = 2000

Settles = Callable[["LiveWorker", LeaderHarness, Assignment], None]


def settles_it(hand: LiveWorker, desk: LeaderHarness, given: Assignment) -> None:
    """As a worker does: what is prepared is committed, what is planned is aborted (E6)."""
    job = desk.task(given.claim.task).job_id
    assert job is not None
    done = [completed(given.claim, n) for n, _, s in desk.epochs(job) if s == "PREPARED"]
    aborted = [n for n, _, s in desk.epochs(job) if s == "PLANNED"]
    desk.report(hand.name, settled(given.claim, *aborted, completed=done), holds=hand.holds)


def finds_the_sink_away(hand: LiveWorker, desk: LeaderHarness, given: Assignment) -> None:
    desk.report(hand.name, failed(given.claim, "the catalog is away"), holds=hand.holds)


def never_gets_it_done(hand: LiveWorker, desk: LeaderHarness, given: Assignment) -> None:
    hand.holds.append(given.claim)


@dataclass(slots=True)
class LiveWorker:
    """A worker that lives. `obeys`: whether what it is told to stop does stop."""

    name: str = "w1"
    holds: list[Claim] = field(default_factory=list[Claim])
    obeys: bool = True
    settles: Settles = settles_it
    _signs: count[int] = field(default_factory=lambda: count(1))

    def work(self, desk: LeaderHarness) -> None:
        """One sync, and what comes of it. Whatever it holds shows signs of life."""
        alive = {
            claim: Progress(step="running", activity=next(self._signs)) for claim in self.holds
        }
        said = desk.say(self.name, holds=self.holds, free={Lane.CONTROL: 1}, progress=alive)
        [answer] = desk.answer(said)
        if self.obeys:
            for claim in answer.stop:
                self.holds = [held for held in self.holds if held != claim]
                desk.report(self.name, stopped(claim), holds=self.holds)
        for given in answer.assignments:
            if given.kind is TaskKind.SETTLE:
                self.settles(self, desk, given)
            else:  # its answer was lost, and it is said again
                self.holds.append(given.claim)


def until_it_ends(desk: LeaderHarness, job: str, *crew: LiveWorker) -> tuple[JobStatus, float]:
    """How it ended, and after how many seconds."""
    began_s = desk.clock.monotonic_s()
    for _ in range(TICKS_MAX):
        desk.passes()
        for hand in crew:
            hand.work(desk)
        desk.passes()
        if (status := desk.status(job)) in JOB_ENDED:
            return status, desk.clock.monotonic_s() - began_s
        desk.clock.advance(TICK_S)
    raise AssertionError(f"job {job} is {desk.status(job)} after {TICKS_MAX * TICK_S:g} s")
