"""Which histories are run: every single fault first, then several at random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.simulation.faults import CRASH, Fault, Point, draw, draw_jumps
from tests.simulation.history import Result, Simulator
from tests.simulation.scenario import OF_TABLES, SHAPES, Scenario
from tests.simulation.stand_ins import seam_names

_CRASHED = [Fault(CRASH, name, "epoch running", 1) for name in ("w1", "w2")]
_KEPT = [Fault(CRASH, name, "end kept", 1) for name in ("w1", "w2")]
_COMMITTING = [Fault(CRASH, name, "commit recorded, in transaction", 1) for name in ("c1", "c2")]
# Histories that reach every seam there is; some are reached only after another fault.
REACHING: Sequence[tuple[Scenario, Sequence[Fault]]] = [
    *((shape, ()) for shape in SHAPES),
    (Scenario(rows=2), _KEPT),  # a worker finds what its life before left unsaid
    (SHAPES[3], _CRASHED),  # a cancelled job has an epoch to abort
    (SHAPES[OF_TABLES], _COMMITTING),  # a leader finds a table whose commit is in doubt
]
QUIET_SEEDS = range(4)  # whose points random faults are drawn from
LANDED_LEAST = 1.0  # commits of a process in a history that has tables
FAULTS_MAX = 4  # in one random history
QUIET_SEED = 0  # of the histories whose points are known


class Search:
    """Knows the points of each shape: those that a history without faults passes."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._points: dict[tuple[Scenario, tuple[Fault, ...], int], list[Point]] = {}

    def points(
        self, scenario: Scenario, before: Sequence[Fault] = (), *, seed: int = QUIET_SEED
    ) -> list[Point]:
        """Those that a history passes without any fault, or with these."""
        known = (scenario, tuple(before), seed)
        if known not in self._points:
            quiet = self._simulator.run(seed, scenario, before)
            assert not quiet.failed, f"without any fault: {quiet.problems}"
            self._points[known] = quiet.points
        return self._points[known]

    def all_single(self, scenario: Scenario) -> list[Fault]:
        """Point x kind: each alone, at every pass of every actor."""
        return [fault for point in self.points(scenario) for fault in point.faults()]

    def single(self, scenario: Scenario, number: int) -> Result:
        fault = self.all_single(scenario)[number]
        return self._simulator.run(QUIET_SEED, scenario, [fault])

    def crashes(self, number: int) -> list[tuple[Scenario, list[Fault]]]:
        """A crash at each seam that a reaching history passes: each actor, the first time."""
        scenario, before = REACHING[number]
        found: dict[tuple[str, str], Fault] = {}
        for point in self.points(scenario, before):
            if point.point in seam_names() and CRASH in point.kinds:
                crash = Fault(CRASH, point.actor, point.point, point.nth)
                found.setdefault((point.actor, point.point), crash)
        return [(scenario, [*before, f]) for f in found.values() if f not in before]

    def crash(self, number: int) -> Iterator[Result]:
        for scenario, plan in self.crashes(number):
            yield self._simulator.run(QUIET_SEED, scenario, plan)

    def _drawable(self, scenario: Scenario) -> list[Point]:
        """Points of several quiet histories: what is reached in one only is drawn, too."""
        found: dict[tuple[str, str, int], Point] = {}
        for seed in QUIET_SEEDS:
            for point in self.points(scenario, seed=seed):
                found.setdefault((point.actor, point.point, point.nth), point)
        return list(found.values())

    def random(self, seed: int, shape: int | None = None) -> Result:
        return self._simulator.run(seed, *self.drawn(seed, shape))

    def jumps(self, seed: int, shape: int | None = None) -> Result:
        return self._simulator.run(seed, *self.drawn_jumps(seed, shape))

    def drawn_jumps(self, seed: int, shape: int | None = None) -> tuple[Scenario, list[Fault]]:
        """Nothing but wall clocks that are set."""
        chosen = Random(f"{seed}/jumps")
        scenario = chosen.choice(SHAPES) if shape is None else SHAPES[shape]
        return scenario, draw_jumps(chosen, self._drawable(scenario), most=FAULTS_MAX)

    def drawn(self, seed: int, shape: int | None = None) -> tuple[Scenario, list[Fault]]:
        chosen = Random(f"{seed}/plan")
        scenario = chosen.choice(SHAPES) if shape is None else SHAPES[shape]
        return scenario, draw(chosen, self._drawable(scenario), most=FAULTS_MAX)


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
    processes: Counter[str] = field(default_factory=Counter[str])
    landed: int = 0  # commits of processes
    of_tables: int = 0  # histories that had some
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
        self.processes.update(result.processes)
        self.landed += result.landed
        self.of_tables += result.scenario.tables > 0
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
        if self.landed < self.of_tables * LANDED_LEAST:
            share["commits of processes"] = (self.landed, LANDED_LEAST)
        return [
            f"{count} {what} in {self.histories} histories, at least {least:g} a history expected"
            for what, (count, least) in share.items()
            if count < least * self.histories
        ]

    def join(self, other: Tally) -> None:
        counts = ("histories", "seconds", "transactions", "epochs", "commits", "terms")
        for name in (*counts, "landed", "of_tables"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("jobs", "processes", "faults", "crashes"):
            getattr(self, name).update(getattr(other, name))
        self.failed += other.failed
