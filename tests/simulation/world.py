"""Virtual time, processes, and the fibers that run in them. One real thread, one seed.

A fiber stands for a thread of the product. It runs until it waits, so nothing ever happens
between two lines of it that do not wait; where the product's threads could be interrupted in a
way that matters, it has a seam, and a seam gives way.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from greenlet import getcurrent, greenlet

STEPS_MAX = 400_000  # of one history: more than any that ends has ever taken
WALL_START_MS = 1_700_000_000_000


class Crash(BaseException):
    """Unwinds a fiber whose process was killed. No handler of the product may stop it."""


class TooLong(Exception):
    """A history took more steps than it may: something spins."""


class Process:
    """One life of an actor: what it remembers is gone when it is killed."""

    def __init__(self, world: World, actor: str, life: int) -> None:
        self.world, self.actor, self.life = world, actor, life
        self.dead = False
        self.frozen_until_s = 0.0
        self.cut_until_s = 0.0  # no message goes in or out
        self.storeless_until_s = 0.0  # the store does not answer it
        self.fibers: list[Fiber] = []
        self.at_death: list[Callable[[], None]] = []

    def wall_ms(self) -> int:
        return WALL_START_MS + round(self.world.now_s * 1000) + self.world.jumps_ms[self.actor]

    def monotonic_s(self) -> float:
        return self.world.now_s

    def elapsed_s(self) -> float:
        return self.world.now_s

    @property
    def random(self) -> Random:
        return self.world.random_of(self.actor)


class Fiber(greenlet):
    def __init__(self, process: Process, run: Callable[[], object], name: str) -> None:
        super().__init__(self._main, process.world.hub)
        self.process, self.name, self._call = process, name, run
        self.term: int | None = None  # of a thread that works for a term
        self.turn = 0  # grows each time it waits; older calls to run it are void
        self.woken = False
        self.joined: list[Fiber] = []

    def _main(self) -> None:
        try:
            self._call()
        except Crash:
            pass  # its process is dead
        except BaseException as error:  # noqa: BLE001  whatever ends a thread is told
            self.process.world.broken(f"thread {self.name} ended", error)
        finally:
            if self in self.process.fibers:
                self.process.fibers.remove(self)
            for other in self.joined:
                self.process.world.wake(other)


@dataclass(order=True, slots=True)
class _Due:
    at_s: float
    tie: float
    number: int
    run: Callable[[], None] = field(compare=False)
    process: Process | None = field(compare=False)


class World:
    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.now_s = 0.0
        self.hub = getcurrent()
        self.jumps_ms: dict[str, int] = {}
        self.processes: dict[str, Process] = {}  # by actor: its latest life
        self.timeline: list[tuple[float, str, str]] | None = None
        self.problems: list[tuple[str, str]] = []  # (invariant, what)
        self._randoms: dict[str, Random] = {}
        self._due: list[_Due] = []
        self._count = 0
        self._dying: list[Process] = []
        self.steps = 0

    # -- what happened -------------------------------------------------------------------

    def tell(self, what: str, actor: str | None = None) -> None:
        if self.timeline is not None:
            self.timeline.append((self.now_s, actor or self.actor, what))

    def problem(self, invariant: str, what: str) -> None:
        self.tell(f"!! {invariant}: {what}")
        self.problems.append((invariant, what))

    def broken(self, what: str, error: BaseException) -> None:
        self.problem("nothing_unforeseen", f"{what}: {type(error).__name__}: {error}")

    # -- who runs ------------------------------------------------------------------------

    @property
    def fiber(self) -> Fiber:
        found = getcurrent()
        assert isinstance(found, Fiber), "only fibers wait"
        return found

    @property
    def process(self) -> Process | None:
        found = getcurrent()
        return found.process if isinstance(found, Fiber) else None

    @property
    def actor(self) -> str:
        process = self.process
        return process.actor if process is not None else "world"

    def random_of(self, actor: str) -> Random:
        """Each actor draws by itself, so that less of one changes nothing for the others."""
        if actor not in self._randoms:
            self._randoms[actor] = Random(f"{self.seed}/{actor}")
        return self._randoms[actor]

    # -- time ----------------------------------------------------------------------------

    def later(
        self, seconds: float, run: Callable[[], None], process: Process | None = None
    ) -> None:
        self._count += 1
        tie = self.random_of(process.actor if process else "world").random()
        heapq.heappush(self._due, _Due(self.now_s + seconds, tie, self._count, run, process))

    def spawn(self, process: Process, run: Callable[[], object], name: str) -> Fiber:
        fiber = Fiber(process, run, name)
        process.fibers.append(fiber)
        self._resume(fiber, 0.0)
        return fiber

    def _resume(self, fiber: Fiber, seconds: float) -> None:
        turn = fiber.turn

        def run() -> None:
            if fiber.turn == turn and not fiber.dead:
                fiber.turn += 1
                fiber.switch()

        self.later(seconds, run, fiber.process)

    def park(self, timeout_s: float | None) -> bool:
        """Wait until `wake`, or until the time is up. True: woken."""
        fiber = self.fiber
        if fiber.process.dead:
            raise Crash
        fiber.turn += 1
        fiber.woken = False
        if timeout_s is not None:
            self._resume(fiber, max(0.0, timeout_s))
        self.hub.switch()
        if fiber.process.dead:
            raise Crash
        return fiber.woken

    def wake(self, fiber: Fiber) -> None:
        if not fiber.woken and not fiber.process.dead and not fiber.dead:
            fiber.woken = True
            self._resume(fiber, 0.0)

    def sleep(self, seconds: float) -> None:
        self.park(seconds)

    # -- life and death ------------------------------------------------------------------

    def start(self, actor: str, main: Callable[[Process], object]) -> Process:
        before = self.processes.get(actor)
        assert before is None or before.dead, f"{actor} lives"
        self.jumps_ms.setdefault(actor, 0)
        process = Process(self, actor, before.life + 1 if before else 1)
        self.processes[actor] = process
        self.spawn(process, lambda: main(process), "main")
        return process

    def kill(self, process: Process) -> None:
        """All its memory is gone. What it had told others, they know."""
        self.tell("killed", process.actor)
        process.dead = True
        self._dying.append(process)
        if self.process is process:
            raise Crash

    def _bury(self) -> None:
        while self._dying:
            process = self._dying.pop()
            for fiber in list(process.fibers):
                if fiber:  # has begun and has not ended
                    fiber.throw(Crash)
            for call in process.at_death:
                call()
            process.fibers.clear()

    def run(self, *, until_s: float, done: Callable[[], bool]) -> bool:
        """Let everything happen, in order of time. Whether `done` came true before `until_s`."""
        while self._due and not self.problems:
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise TooLong(f"{STEPS_MAX} steps, at {self.now_s:.1f} s")
            due = heapq.heappop(self._due)
            if due.at_s > until_s:
                heapq.heappush(self._due, due)
                return False
            process = due.process
            if process is not None and process.dead:
                continue
            if process is not None and process.frozen_until_s > due.at_s:
                due.at_s = process.frozen_until_s
                heapq.heappush(self._due, due)
                continue
            self.now_s = max(self.now_s, due.at_s)
            due.run()
            self._bury()
            if done():
                return True
        return False

    def end(self) -> None:
        """Leave nothing that runs."""
        for process in self.processes.values():
            if not process.dead:
                process.dead = True
                self._dying.append(process)
        self._bury()


_world: list[World] = []


def the_world() -> World:
    return _world[-1]


def set_world(world: World | None) -> None:
    _world[:] = [world] if world is not None else []
