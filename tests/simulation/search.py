"""Which histories are run: every single fault first, then several at random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from tests.simulation.faults import Fault, Point, draw
from tests.simulation.history import Result, Simulator
from tests.simulation.scenario import SHAPES, Scenario

FAULTS_MAX = 4  # in one random history
QUIET_SEED = 0  # of the histories whose points are known


class Search:
    """Knows the points of each shape: those that a history without faults passes."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._points: dict[tuple[Scenario, tuple[Fault, ...]], list[Point]] = {}

    def points(self, scenario: Scenario, before: Sequence[Fault] = ()) -> list[Point]:
        """Those that a history passes without any fault, or with these."""
        known = (scenario, tuple(before))
        if known not in self._points:
            quiet = self._simulator.run(QUIET_SEED, scenario, before)
            assert not quiet.failed, f"without any fault: {quiet.problems}"
            self._points[known] = quiet.points
        return self._points[known]

    def all_single(self, scenario: Scenario) -> list[Fault]:
        """Point x kind: each alone, at every pass of every actor."""
        return [fault for point in self.points(scenario) for fault in point.faults()]

    def single(self, scenario: Scenario, number: int) -> Result:
        fault = self.all_single(scenario)[number]
        return self._simulator.run(QUIET_SEED, scenario, [fault])

    def random(self, seed: int, shape: int | None = None) -> Result:
        return self._simulator.run(seed, *self.drawn(seed, shape))

    def drawn(self, seed: int, shape: int | None = None) -> tuple[Scenario, list[Fault]]:
        chosen = Random(f"{seed}/plan")
        scenario = chosen.choice(SHAPES) if shape is None else SHAPES[shape]
        return scenario, draw(chosen, self.points(scenario), most=FAULTS_MAX)


@dataclass(slots=True)
class Tally:
    """What many histories achieved: idle ones prove nothing."""

    histories: int = 0
    seconds: float = 0.0
    transactions: int = 0
    epochs: int = 0
    commits: int = 0
    terms: int = 0
    jobs: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[str] = field(default_factory=Counter[str])
    crashes: Counter[str] = field(default_factory=Counter[str])
    failed: list[Result] = field(default_factory=list[Result])

    def add(self, result: Result) -> None:
        self.histories += 1
        self.seconds += result.seconds
        self.transactions += result.transactions
        self.epochs += result.epochs
        self.commits += result.commits
        self.terms += result.terms
        self.jobs.update(result.jobs)
        self.faults.update(fault.kind for fault in result.happened)
        self.crashes.update(result.crashes)
        if result.failed:
            self.failed.append(result)

    def too_little(self) -> list[str]:
        """What too few of these histories did: idle ones prove nothing."""
        share = {
            "faults": (sum(self.faults.values()), 0.9),
            "crashes": (sum(self.crashes.values()), 0.1),
            "epochs completed": (self.epochs, 1.5),
            "sink commits": (self.commits, 1.0),
            "terms": (self.terms, 1.02),
            "jobs finished": (self.jobs["FINISHED"], 0.5),
            "jobs cancelled": (self.jobs["CANCELED"], 0.02),
        }
        return [
            f"{count} {what} in {self.histories} histories, at least {least:g} a history expected"
            for what, (count, least) in share.items()
            if count < least * self.histories
        ]

    def join(self, other: Tally) -> None:
        for name in ("histories", "seconds", "transactions", "epochs", "commits", "terms"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("jobs", "faults", "crashes"):
            getattr(self, name).update(getattr(other, name))
        self.failed += other.failed
