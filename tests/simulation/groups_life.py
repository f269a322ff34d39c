"""A life of some groups: weeks of crashes, slow starts, changed floors and changes of leaders.

The rest is the simulation's: virtual time, fibers for threads, real statements on a real SQLite,
seams at which processes are killed or stand still. What is replaced is told in `groups_leaders`
(the election, the heartbeats) and `groups_yard` (containers and their processes).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from headrace.containers.container import Supports, WorkerContainer
from headrace.coordinator.context import GroupOptions
from headrace.model.groups import AutoRestart, KeepSetting
from tests.simulation.database import Database
from tests.simulation.groups_containers import SimulatedContainer
from tests.simulation.groups_invariants import Record
from tests.simulation.groups_leaders import Coordinator, Lease, Reached
from tests.simulation.groups_ledger import GroupLedger, Kinds
from tests.simulation.groups_people import People
from tests.simulation.groups_processes import Ground, Rough
from tests.simulation.groups_setting import COORDINATORS, DAY_S, HOUR_S, RESTART_S
from tests.simulation.groups_troubles import Troubles, outages
from tests.simulation.hearing import errors_heard
from tests.simulation.stand_ins import arm_seams, forget
from tests.simulation.world import TooLong, World, set_world

NAMES = ("c1", "c2")
KINDS = {
    "local": Supports(),
    "pods": Supports(restart=False),
    "loose": Supports(stop=False),
}
REST_S = 6 * HOUR_S  # of quiet, in which everything comes to rest
ON_EDGE_EACH = 4  # one life of so many has starts as long as the grace period
OFF_EACH = 6  # one life of so many has auto-restart off, as it is by default


@dataclass(slots=True)
class Life:
    """How it went."""

    seed: int
    days: float
    problems: list[tuple[str, str]]
    digest: str
    happened: Counter[str]
    crashes: Counter[str]
    transactions: int
    steps: int
    timeline: list[tuple[float, str, str]] | None = None


@dataclass(slots=True)
class _Ids:
    count: int = 0

    def new(self) -> str:
        self.count += 1
        return f"r{self.count:03}"


@dataclass(slots=True)
class _Stage:
    world: World
    database: Database
    seed: int
    days: float
    ids: _Ids = field(default_factory=_Ids)


def live(database: Database, seed: int, *, days: float, tell: bool = False) -> Life:
    """One life, with the stand-ins in place."""
    world = World(f"life {seed}")
    world.timeline = [] if tell else None
    set_world(world)
    forget()
    with database.engine.connect():  # what is asked only once is part of no life
        pass
    stage = _Stage(world, database, seed, days)
    with errors_heard(world, tell=tell):
        played = _Played(stage)
        try:
            played.play()
        except TooLong as error:
            world.problem("nothing_stuck", str(error))
        finally:
            world.end()
            set_world(None)
    wire, books = database.wire, played.books
    return Life(
        *(seed, days, world.problems, wire.digest.hexdigest()),
        *(books.happened, played.troubles.crashes, wire.commits, world.steps, world.timeline),
    )


class _Played:
    def __init__(self, stage: _Stage) -> None:
        self._stage = stage
        world, database = stage.world, stage.database
        random = Random(f"kinds {stage.seed}")
        self._groups = {"main": "local", "other": random.choice(sorted(KINDS))}
        enabled = stage.seed % OFF_EACH != 0
        kinds = Kinds(heals=frozenset({"pods"}), loose=frozenset({"loose"}))
        self.books = GroupLedger(world, database.wire, kinds, enabled)
        self._ground = Ground(world, self.books, Rough(on_edge=stage.seed % ON_EDGE_EACH == 1))
        self.troubles = Troubles(world, self._ground)
        database.reset(self.troubles, self.books.committed)
        arm_seams(self.troubles, database)
        self._yards = {
            name: SimulatedContainer(self._ground, name, can) for name, can in KINDS.items()
        }
        containers: dict[str, WorkerContainer] = {**self._yards}
        options = GroupOptions(
            AutoRestart(enabled=enabled), KeepSetting(), containers, coordinators=COORDINATORS
        )
        self.books.gone = self._gone
        self._lease = Lease(world)
        self._coordinators = {
            name: Coordinator(self._ground, database.engine, stage.ids, options, self._lease)
            for name in NAMES
        }
        reached = Reached(world, self._lease, self._coordinators)
        self._ground.leaders = self.troubles.reached = reached

    def play(self) -> None:
        world, end_s = self._stage.world, self._stage.days * DAY_S
        for name, coordinator in self._coordinators.items():
            self._start(name, coordinator)
        engine, ids = self._stage.database.engine, self._stage.ids
        people = People(self._ground, engine, ids, self._yards, self._groups, until_s=end_s)
        world.start("user", people)
        for yard in self._yards.values():
            outages(world, self._ground, yard)
        world.later(end_s, self._calm_down)
        world.run(until_s=end_s + REST_S, done=self.books.overdue)
        if not world.problems:
            self._at_the_end()

    def _start(self, name: str, coordinator: Coordinator) -> None:
        """Once it is killed, a supervisor starts it again."""
        world = self._stage.world

        def again() -> None:
            delay_s = world.random_of(f"supervisor of {name}").uniform(*RESTART_S)
            world.later(delay_s, lambda: self._start(name, coordinator))

        world.tell("starts", name)
        world.start(name, coordinator).at_death.append(again)

    def _gone(self, record: Record) -> None:
        living = [p for (name, _), p in self._ground.live.items() if name == record.id]
        left = sorted(process.name for process in living)
        if not KINDS[record.container].stop:
            for process in living:
                process.hear_soon(Random(f"gone {process.name}"))
        elif left:
            told = f"{left} live, and the record of {record.id} is gone"
            self._stage.world.problem("no_more_than_wanted", told)

    def _calm_down(self) -> None:
        """From now on nothing goes wrong."""
        self._stage.world.tell("quiet time begins")
        self.books.note("quiet")
        self.books.quiet, self._ground.rough.by = True, 0.0
        for yard in self._yards.values():
            yard.away_until_s = 0.0

    def _at_the_end(self) -> None:
        state, world = self.books.state, self._stage.world
        left: list[str] = []
        for group in state.groups.values():
            works = state.working(group.name)
            if works < group.floor or group.effective is not None or group.removed:
                left.append(f"{works} threads work in {group}")
        for record in state.records.values():
            ours = self.books.enabled and record.container not in self.books.kinds.heals
            absent = ours and record.id not in state.workers
            if record.released or record.step == "INTENDED" or absent:
                left.append(f"no worker of {record}")
        forgotten = {resource for resource, _ in self._ground.live} - state.records.keys()
        left += [f"{name} lives without a record" for name in sorted(forgotten)]
        if left:
            world.problem("comes_to_rest", "; ".join(left))
