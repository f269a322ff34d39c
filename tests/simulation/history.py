"""One history: a scenario, a seed and a plan of faults give the same events each time."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.actors import RESTART_S, CoordinatorActor, Stage, WorkerActor
from tests.simulation.at_the_end import at_the_end, last_runs
from tests.simulation.client import ClientActor
from tests.simulation.database import Database
from tests.simulation.faults import CRASH, Fault, Faults, Point
from tests.simulation.invariants import AfterCommit
from tests.simulation.network import Network
from tests.simulation.scenario import Scenario
from tests.simulation.stand_ins import arm_seams, forget, installed
from tests.simulation.target import Target
from tests.simulation.world import Process, TooLong, World, set_world

STUCK_S = 120.0  # after the last fault is over, every job has ended
QUIET_S = 1.0  # after the last job has ended, and between two looks at what is left behind
LEFT_S = 30.0  # after which nothing may be left behind: those who woke late have been told
AWAKE_S = 1.0  # between two looks at which actors must be started again
EXPECTED_ERRORS = frozenset({"execution failed", "not committed", "staged files not swept"})

# Seconds that the product waits at most between two looks. Longer here, where a look costs as
# much as an event; every one of them is also woken.
CONSTANTS: Mapping[str, float] = {
    "headrace.coordinator.service.CAMPAIGN_INTERVAL_S": 0.5,
    "headrace.coordinator.term.PASS_INTERVAL_S": 1.0,
    "headrace.coordinator.term.WAKE_TIMEOUT_S": 2.0,
    "headrace.coordinator.reconcile.cleaning.LOOK_AGAIN_MS": 5000,
    "headrace.model.cleanup.RETRY_PAUSE_MS": 1000,
    "headrace.coordinator.writer.LOOK_INTERVAL_S": 2.0,
    "tests.simulation.actors.ANSWER_TIMEOUT_S": 2.0,
    "headrace.worker.host.WAIT_TIMEOUT_S": 4.0,
    "headrace.worker.outbox.LOOK_INTERVAL_S": 1.0,
    "headrace.worker.execution.LOOK_INTERVAL_S": 1.0,
    "headrace.worker.tending.TEND_INTERVAL_S": 5.0,
}


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
        self._database = Database()
        self._ready = False

    @contextmanager
    def ready(self) -> Generator[Simulator]:
        """With the stand-ins in place. May be entered again inside of itself."""
        if self._ready:
            yield self
            return
        self._ready = True
        try:
            with installed(self._database, CONSTANTS):
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
        with tempfile.TemporaryDirectory(dir=_memory()) as folder, _errors_heard(world, tell=tell):
            history = _History(world, self._database, scenario, tuple(plan), Path(folder))
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
        self._looks = AfterCommit(world, database.wire, scenario)
        database.reset(self._faults, self._looks)
        arm_seams(self._faults, database)
        self._target = Target(self._faults)
        self._stage = Stage(world, Network(self._faults), self._target, scenario, folder)
        self._client = ClientActor(self._stage)
        self._coordinators = {n: CoordinatorActor(self._stage, n) for n in scenario.coordinators}
        self._workers = {n: WorkerActor(self._stage, n) for n in scenario.workers}
        self._actors = {**self._coordinators, **self._workers}
        self._ended_at_s: float | None = None
        self._look_at_s = 0.0
        self._awaited: list[Process] = []  # dead ones whose next life is on its way

    def play(self) -> None:
        for name, actor in self._actors.items():
            self._world.start(name, actor)
        self._world.start("client", self._client)
        self._world.later(AWAKE_S, self._keep_awake)
        while True:
            limit_s = self._last_fault_s() + STUCK_S
            if self._world.run(until_s=limit_s, done=self._is_over) or self._world.problems:
                break
            if self._last_fault_s() + STUCK_S <= limit_s:
                self._world.problem("nothing_stuck", self._what_is_stuck())
                break
        if not self._world.problems:
            leftovers = self._leftovers()
            wire, problem = self._database.wire, self._world.problem
            at_the_end(wire, self._target, self._scenario, self._looks, leftovers, problem)
            self._is_enough()

    def _is_enough(self) -> None:
        """A history in which nothing happened proves nothing."""
        result, scenario = self.result(0), self._scenario
        pipelines = result.jobs["FINISHED"] * scenario.pipelines
        least = {
            "jobs ended": (sum(result.jobs.values()), scenario.incarnations - self._client.put_off),
            "terms won": (result.terms, 1),
            "epochs completed": (result.epochs, pipelines * 2),  # the completed point is one
            "sink commits": (result.commits, pipelines * scenario.sinks),
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
        return max(max(p.frozen_until_s, p.cut_until_s, p.storeless_until_s) for p in processes)

    def _is_over(self) -> bool:
        if self._looks.open_jobs or len(self._client.accepted) < self._scenario.jobs:
            self._ended_at_s = None
            return False
        if self._ended_at_s is None:
            self._ended_at_s = self._world.now_s
        if self._world.processes["client"].fibers or self._world.now_s < self._look_at_s:
            return False
        quiet_s = self._world.now_s - max(self._ended_at_s, self._last_fault_s())
        self._look_at_s = self._world.now_s + QUIET_S
        if self._scenario.cleans and self._cleans():
            self._ended_at_s = None
            return False
        return quiet_s > LEFT_S or (quiet_s > QUIET_S and not self._leftovers())

    def _cleans(self) -> bool:
        """Whether a cleanup is due. A clock that jumped back may have put it off for an hour."""
        wire = self._database.wire
        [(due_ms,)] = wire.look("SELECT min(due_at_ms) FROM cleanups")
        if due_ms is None:
            return False
        [(holder,)] = wire.look("SELECT holder FROM leases")
        leader = self._world.processes.get(str(holder).split(".")[0])
        return leader is None or due_ms < leader.wall_ms() + STUCK_S * 1000

    def _what_is_stuck(self) -> str:
        wire = self._database.wire
        jobs = wire.look("SELECT id, status, waits_for FROM jobs")
        tasks = wire.look("SELECT id, kind, status, attempt, worker_id, error FROM tasks")
        left = wire.look("SELECT incarnation, step, due_at_ms, failures, error FROM cleanups")
        return f"jobs {jobs}, tasks {tasks}, cleanups {left}, at {self._world.now_s:.0f} s"

    def _leftovers(self) -> list[str]:
        left: list[str] = []
        for name, worker in self._workers.items():
            if worker.host is not None and not self._world.processes[name].dead:
                held = worker.host._active  # pyright: ignore[reportPrivateUsage]
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
            timeline=self._world.timeline,
        )


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


class _Ear(logging.Handler):
    """The product's log: part of the timeline, and errors that nobody foresaw are problems."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        facts = {k: v for k, v in record.__dict__.items() if k not in _PLAIN}
        self._world.tell(f"{message} {facts or ''}")
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.ERROR and error and message not in EXPECTED_ERRORS:
            self._world.broken(message, error)


_PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "taskName"}


@contextmanager
def _errors_heard(world: World, *, tell: bool) -> Generator[None]:
    log = logging.getLogger("headrace")
    before = log.level, log.propagate, list(log.handlers)
    log.handlers[:] = [_Ear(world)]
    log.setLevel(logging.INFO if tell else logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.level, log.propagate = before[:2]
        log.handlers[:] = before[2]
        log.setLevel(before[0])
