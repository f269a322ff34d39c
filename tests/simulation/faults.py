"""What is done to a history: faults that are named, not numbered, so that shrinking keeps them.

crash   the process is killed, and started again soon
die     it is not started again, while others of its kind can do its work
pause   all of the process stands still, then goes on; stall: one thread of it
fail    a call of the store, of the target or of the lake fails, before its effect or after it
away    the store does not answer the process; cut: no message reaches or leaves it
jump    its wall clock jumps
drop, delay, repeat: one message

A *point* is a place an actor passes: a seam of the product, a commit of the store, a message, a
call of the target or of the lake. A fault says what happens when an actor passes a point for the
nth time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from random import Random

from tests.simulation.world import Process, World

CRASH, DIE, PAUSE, STALL = "crash", "die", "pause", "stall"
FAIL, AWAY, CUT, JUMP = "fail", "away", "cut", "jump"
DROP, DELAY, REPEAT = "drop", "delay", "repeat"

# What may happen where. A seam inside a transaction can't be paused at: the store has one
# connection here. Real processes are, in tests/crash.
AT_SEAM = (CRASH, DIE, PAUSE, STALL, AWAY, CUT, JUMP)
AT_STORE = (CRASH, FAIL)
AT_STORED = (CRASH, FAIL, PAUSE)
AT_TARGET = (CRASH, FAIL, PAUSE)
AT_LAKE = (CRASH, FAIL, PAUSE, STALL)
AT_MESSAGE = (DROP, DELAY, REPEAT)

# Short, past the lease, past the heartbeat timeout.
LENGTHS_S = (0.4, 4.0, 9.0)
HARSH = 0.5  # of random faults: without any length
JUMPS_S = (-3600.0, -5.0, 5.0, 3600.0)
JUMP_LONGEST_S = 5 * 86_400.0  # of histories with nothing but jumps: from 5 s up to that


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    kind: str
    actor: str
    point: str
    nth: int
    seconds: float = 0.0

    def __str__(self) -> str:
        length = f"~{self.seconds:g}" if self.seconds else ""
        return f"{self.kind}{length}@{self.actor}/{self.point}#{self.nth}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        verb, _, place = text.partition("@")
        kind, _, seconds = verb.partition("~")
        actor, _, rest = place.partition("/")
        point, _, nth = rest.rpartition("#")
        if not (kind and actor and point and nth.isdecimal()):
            raise ValueError(f"{text!r} is not of the form KIND[~SECONDS]@ACTOR/POINT#NTH")
        return cls(kind, actor, point, int(nth), float(seconds or 0))

    def shorter(self) -> Fault:
        return replace(self, seconds=self.seconds / 2)


@dataclass(frozen=True, slots=True)
class Point:
    """A place that was passed, and what may be done there."""

    actor: str
    point: str
    nth: int
    kinds: tuple[str, ...]

    def faults(self, *, lengths_s: Iterable[float] = LENGTHS_S) -> list[Fault]:
        return [
            Fault(kind, self.actor, self.point, self.nth, seconds)
            for kind in self.kinds
            for seconds in _lengths(kind, lengths_s)
        ]


def _lengths(kind: str, lengths_s: Iterable[float]) -> Iterable[float]:
    if kind == JUMP:
        return JUMPS_S
    return lengths_s if kind in {PAUSE, STALL, AWAY, CUT, DELAY} else (0.0,)


class Faults:
    """The plan of one history, and what of it came to pass."""

    def __init__(self, world: World, plan: Collection[Fault]) -> None:
        self._world = world
        self._plan = {(f.actor, f.point, f.nth): f for f in plan}
        self._passes: Counter[tuple[str, str]] = Counter()
        self.points: list[Point] = []
        self.happened: list[Fault] = []
        self.gone: set[str] = set()  # actors that are never started again

    def at(self, point: str, kinds: tuple[str, ...], actor: str) -> Fault | None:
        """Note that `actor` passes here, and say what is to happen to it."""
        self._passes[actor, point] += 1
        nth = self._passes[actor, point]
        self.points.append(Point(actor, point, nth, kinds))
        fault = self._plan.get((actor, point, nth))
        if fault is None or fault.kind not in kinds:
            return None
        self.happened.append(fault)
        self._world.tell(f"** {fault}", actor)
        return fault

    def _can_spare(self, actor: str) -> bool:
        alike = {a for a in self._world.processes if a[0] == actor[0] and a != "client"}
        return len(alike - self.gone) > 1

    def meet(self, point: str, kinds: tuple[str, ...]) -> bool:
        """The process that runs passes here: do to it what is planned. True: its call fails."""
        world = self._world
        process = world.process
        assert process is not None
        fault = self.at(point, kinds, process.actor)
        if fault is None or fault.kind == FAIL:
            return fault is not None
        self._strike(process, fault)
        world.sleep(0)
        return False

    def _strike(self, process: Process, fault: Fault) -> None:
        world, until_s = self._world, self._world.now_s + fault.seconds
        match fault.kind:
            case "crash" | "die":
                if fault.kind == DIE and self._can_spare(process.actor):
                    self.gone.add(process.actor)
                world.kill(process)
            case "pause":
                process.frozen_until_s = until_s
            case "stall":
                world.sleep(fault.seconds)
            case "away":
                process.storeless_until_s = until_s
            case "cut":
                process.cut_until_s = until_s
            case "jump":
                world.jumps_ms[process.actor] += round(fault.seconds * 1000)
            case kind:
                raise AssertionError(f"no process is struck by {kind}")


def draw(random: Random, points: Collection[Point], *, most: int) -> list[Fault]:
    """Some faults at points that a quiet history passed."""
    by_place: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points:
        by_place[point.actor, point.point].append(point)
    places = sorted(by_place)
    chosen: dict[tuple[str, str, int], Fault] = {}
    for _ in range(random.randint(1, most) if places else 0):
        point = random.choice(by_place[random.choice(places)])  # rare places as often as others
        harsh = [kind for kind in point.kinds if kind in {CRASH, FAIL, DROP}]
        faults = point.faults()
        if harsh and random.random() < HARSH:
            faults = [fault for fault in faults if fault.kind in harsh]
        chosen.setdefault((point.actor, point.point, point.nth), random.choice(faults))
    return list(chosen.values())


def draw_jumps(random: Random, points: Collection[Point], *, most: int) -> list[Fault]:
    """Wall clocks that are set, back or ahead, by any size: as many small ones as large ones."""
    places = [point for point in points if JUMP in point.kinds]
    chosen: dict[tuple[str, str, int], Fault] = {}
    for _ in range(random.randint(1, most) if places else 0):
        point = random.choice(places)
        size_s = 5.0 * (JUMP_LONGEST_S / 5.0) ** random.random()
        jump = Fault(
            JUMP, point.actor, point.point, point.nth, round(random.choice((-1, 1)) * size_s, 1)
        )
        chosen.setdefault((point.actor, point.point, point.nth), jump)
    return list(chosen.values())
