"""One history: a scenario, a seed and a plan of faults give the same events each time."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.memory import in_memory
from tests.simulation.actors import RESTART_S, CoordinatorActor, Stage, WorkerActor
from tests.simulation.at_the_end import at_the_end, last_runs
from tests.simulation.client import ClientActor
from tests.simulation.constants import CONSTANTS
from tests.simulation.database import Database
from tests.simulation.faults import CRASH, Fault, Faults, Point
from tests.simulation.hearing import errors_heard
from tests.simulation.invariants import AfterCommit
from tests.simulation.lake import Lake
from tests.simulation.lake_invariants import AfterTableCommit, Tables
from tests.simulation.lake_people import People, make_tables
from tests.simulation.network import Network
from tests.simulation.scenario import Scenario
from tests.simulation.stand_ins import arm_seams, forget, installed
from tests.simulation.target import Target
from tests.simulation.world import Process, TooLong, World, set_world

STUCK_S = 120.0  # after the last fault is over, every job has ended
QUIET_S = 1.0  # after the last job has ended, and between two looks at what is left behind
LEFT_S = 30.0  # after which nothing may be left behind: those who woke late have been told
AWAKE_S = 1.0  # between two looks at which actors must be started again


@dataclass(slots=True)
class Result:
    seed: int
    scenario: Scenario
    plan: tuple[Fault, ...]
    problems: list[tuple[str, str]]
    digest: str
    points: list[Point]
    happened: list[Fault]
    seconds: float
    jobs: Counter[str] = field(default_factory=Counter[str])
    epochs: int = 0
    commits: int = 0
    transactions: int = 0
    terms: int = 0
    processes: Counter[str] = field(default_factory=Counter[str])  # of tables, by status
    landed: int = 0
    timeline: list[tuple[float, str, str]] | None = None

    @property
    def failed(self) -> bool:
        return bool(self.problems)

    @property
    def crashes(self) -> Counter[str]:
        return Counter(fault.point for fault in self.happened if fault.kind == CRASH)


class Simulator:
    """Runs histories one after the other, on one database."""

    def __init__(self) -> None:
        self.database = Database()
        self._ready = False

    @contextmanager
    def ready(self) -> Generator[Simulator]:
        """With the stand-ins in place. May be entered again inside of itself."""
        if self._ready:
            yield self
            return
        self._ready = True
        try:
            with installed(self.database, CONSTANTS):
                yield self
        finally:
            self._ready = False

    def run(
        self, seed: int, scenario: Scenario, plan: Collection[Fault] = (), *, tell: bool = False
    ) -> Result:
        world = World(str(seed))
        world.timeline = [] if tell else None
        set_world(world)
        forget()
        with tempfile.TemporaryDirectory(dir=in_memory()) as folder, errors_heard(world, tell=tell):
            history = _History(world, self.database, scenario, tuple(plan), Path(folder))
            try:
                history.play()
            except TooLong as error:
                world.problem("nothing_stuck", str(error))
            finally:
                world.end()
                set_world(None)
            return history.result(seed)


class _History:
    def __init__(
        self,
        world: World,
        database: Database,
        scenario: Scenario,
        plan: tuple[Fault, ...],
        folder: Path,
    ) -> None:
        self._world, self._database, self._scenario, self._plan = world, database, scenario, plan
        self._faults = Faults(world, plan)
        self._lake = Lake(self._faults, world.problem, rewrite_s=scenario.rewrite_s)
        make_tables(self._lake, scenario, world.random_of("people"))
        self._tables = Tables(world, database.wire, self._lake)
        tables = AfterTableCommit(world, database.wire, self._lake, scenario)
        self._looks = AfterCommit(world, database.wire, scenario, tables)
        database.reset(self._faults, self._looks)
        arm_seams(self._faults, database)
        self._target = Target(self._faults)
        self._stage = Stage(
            world, Network(self._faults), self._target, self._lake, scenario, folder
        )
        self._stage.backup, self._stage.rewind = self._back_up, self._rewind
        self._client = ClientActor(self._stage)
        self._coordinators = {n: CoordinatorActor(self._stage, n) for n in scenario.coordinators}
        self._workers = {n: WorkerActor(self._stage, n) for n in scenario.workers}
        self._actors = {**self._coordinators, **self._workers}
        self._ended_at_s: float | None = None
        self._look_at_s = 0.0
        self._copy: sqlite3.Connection | None = None
        self._awaited: list[Process] = []  # dead ones whose next life is on its way

    def play(self) -> None:
        for name, actor in self._actors.items():
            self._world.start(name, actor)
        self._world.start("client", self._client)
        if self._scenario.tables:
            self._world.start("people", People(self._world, self._lake, self._scenario))
        self._world.later(AWAKE_S, self._keep_awake)
        # A job that its targets stopped is tried to be settled to the end, in vain.
        stuck_s = 3 * STUCK_S if self._scenario.rewinds else STUCK_S
        while True:
            limit_s = max(self._last_fault_s(), self._blocked_until_s()) + stuck_s
            if self._world.run(until_s=limit_s, done=self._is_over) or self._world.problems:
                break
            if max(self._last_fault_s(), self._blocked_until_s()) + stuck_s <= limit_s:
                self._world.problem("nothing_stuck", self._what_is_stuck())
                break
        if not self._world.problems:
            leftovers = self._leftovers()
            wire, problem = self._database.wire, self._world.problem
            at_the_end(wire, self._target, self._scenario, self._looks, leftovers, problem)
            if self._scenario.tables:
                self._tables.at_the_end(now_ms=self._leader_ms())
            self._is_enough()

    def _back_up(self) -> None:
        self._copy = self._database.backup()
        self._world.tell("** the store is backed up")

    def _rewind(self) -> None:
        """As the how-to says: everybody is stopped, then the store is replaced."""
        for name in self._actors:
            if not self._world.processes[name].dead:
                self._world.kill(self._world.processes[name])
        assert self._copy is not None
        self._database.rewind(self._copy)
        self._looks.rewound()
        self._world.tell("** the backup of the store is restored")

    def _is_enough(self) -> None:
        """A history in which nothing happened proves nothing."""
        result, scenario = self.result(0), self._scenario
        pipelines = result.jobs["FINISHED"] * scenario.pipelines
        least = {
            "jobs ended": (sum(result.jobs.values()), scenario.incarnations),
            "terms won": (result.terms, 1),
            "epochs completed": (result.epochs, pipelines * 2),  # the completed point is one
            "sink commits": (result.commits, pipelines * scenario.sinks),
            "commits of processes": (result.landed, scenario.landed_least),
        }
        for what, (count, expected) in least.items():
            if count < expected:
                self._world.problem("enough_happened", f"{count} {what}, {expected} expected")

    def _keep_awake(self) -> None:
        """A process that was killed is started again, as a supervisor does."""
        for name, actor in self._actors.items():
            process = self._world.processes[name]
            if process.dead and process not in self._awaited and name not in self._faults.gone:
                self._awaited.append(process)
                delay_s = self._world.random_of(name).uniform(*RESTART_S)
                self._world.later(delay_s, lambda n=name, a=actor: self._start(n, a))
        self._world.later(AWAKE_S, self._keep_awake)

    def _start(self, name: str, actor: CoordinatorActor | WorkerActor) -> None:
        self._world.start(name, actor)
        self._world.tell("started again", name)

    def _last_fault_s(self) -> float:
        """When the last fault is over, as far as is known."""
        processes = self._world.processes.values()
        over_s = max(max(p.frozen_until_s, p.cut_until_s, p.storeless_until_s) for p in processes)
        return max(over_s, self._lake.away_until_s)

    def _blocked_until_s(self) -> float:
        """When the last blocker ends, which people asked for through a node whose clock may have
        been ahead: it lasts longer by the difference (ADR 28), and nothing is stuck meanwhile."""
        [(end_ms,)] = self._database.wire.look("SELECT max(expires_at_ms) FROM blockers")
        if end_ms is None:
            return 0.0
        return self._world.now_s + max(0, int(str(end_ms)) - self._leader_ms()) / 1000

    def _is_over(self) -> bool:
        if self._looks.open_jobs or len(self._client.accepted) < self._scenario.jobs:
            self._ended_at_s = None
            return False
        if self._ended_at_s is None:
            self._ended_at_s = self._world.now_s
        if self._world.now_s < self._look_at_s or self._people_are_at_it():
            return False
        quiet_s = self._world.now_s - max(self._ended_at_s, self._last_fault_s())
        self._look_at_s = self._world.now_s + QUIET_S
        if self._scenario.cleans and self._cleans():
            self._ended_at_s = None
            return False
        if self._scenario.tables and self._unrest():
            self._ended_at_s = None
            return False
        return quiet_s > LEFT_S or (quiet_s > QUIET_S and not self._leftovers())

    def _cleans(self) -> bool:
        """Whether a cleanup is left to do, however far a clock that jumped would put it off."""
        return bool(self._database.wire.look("SELECT 1 FROM cleanups LIMIT 1"))

    def _leader_ms(self) -> int:
        """What the leader believes the time to be; without one, the latest that anybody does."""
        [(holder,)] = self._database.wire.look("SELECT holder FROM leases") or [("",)]
        leader = self._world.processes.get(str(holder).split(".")[0])
        everybody = self._world.processes.values()
        return leader.wall_ms() if leader else max(each.wall_ms() for each in everybody)

    def _people_are_at_it(self) -> bool:
        people = ("client", "people") if self._scenario.tables else ("client",)
        return any(self._world.processes[name].fibers for name in people)

    def _unrest(self) -> list[str]:
        return self._tables.unrest()

    def _what_is_stuck(self) -> str:
        wire = self._database.wire
        jobs = wire.look("SELECT id, status, waits_for FROM jobs")
        tasks = wire.look("SELECT id, kind, status, attempt, worker_id, error FROM tasks")
        left = wire.look("SELECT incarnation, step, due_at_ms, failures, error FROM cleanups")
        told = f"jobs {jobs}, tasks {tasks}, cleanups {left}, at {self._world.now_s:.0f} s"
        return f"{told}; {self._unrest()}" if self._scenario.tables else told

    def _leftovers(self) -> list[str]:
        left: list[str] = []
        for name, worker in self._workers.items():
            if worker.sync_loop is not None and not self._world.processes[name].dead:
                held = worker.sync_loop._active  # pyright: ignore[reportPrivateUsage]
                left += [f"execution {claim.execution} on {name}" for claim in held]
            if name not in self._faults.gone:  # nobody will ever say what a lost machine kept
                home = self._stage.folder / name
                left += [f"report {name}/{f.name}" for f in sorted(home.rglob("*.json"))]
        return left

    def result(self, seed: int) -> Result:
        wire = self._database.wire
        jobs = Counter(ended.status for ended in last_runs(wire))
        return Result(
            seed=seed,
            scenario=self._scenario,
            plan=self._plan,
            problems=self._world.problems,
            digest=wire.digest.hexdigest(),
            points=self._faults.points,
            happened=self._faults.happened,
            seconds=self._world.now_s,
            jobs=jobs,
            epochs=len(self._looks.completed),
            commits=self._target.commits,
            transactions=wire.commits,
            terms=sum(self._looks.terms.values()),
            processes=Counter(s for (s,) in wire.look("SELECT status FROM processes")),
            landed=self._lake.landed,
            timeline=self._world.timeline,
        )
