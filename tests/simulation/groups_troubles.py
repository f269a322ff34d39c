"""What befalls coordinators and containers in a life: drawn whenever one passes a point.

Histories of the other kind have a plan of few faults, so that it can be shrunk. A month has
hundreds; the same seed draws the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.simulation.faults import AWAY, CRASH, FAIL, PAUSE, STALL, Fault, Faults
from tests.simulation.groups_containers import SimulatedContainer
from tests.simulation.groups_leaders import Reached
from tests.simulation.groups_processes import Ground
from tests.simulation.groups_setting import DAY_S, HOUR_S, MINUTE_S
from tests.simulation.world import World

LENGTHS_S: Sequence[float] = (0.5, 2.7, 10.0, 70.0, 400.0)
USED = (CRASH, PAUSE, STALL, AWAY, FAIL)
OUTAGE_EACH_S = 4 * DAY_S  # of a container, on average
OUTAGE_S = (5 * MINUTE_S, 5 * HOUR_S)
SELDOM = 0.0004  # a fault, of so many passes of a common point
# Where a leader has decided, or asked, and not yet written: rare, and what all of this is about.
OFTEN: Mapping[str, float] = {
    "resource found lost, before it is locked": 0.03,
    "restart intended, in transaction": 0.03,
    "before launch": 0.04,
    "launched, before it is recorded": 0.04,
}


DECIDED = "before fenced transaction"  # a leader has looked, and not yet locked what it changes
DAWDLES = 0.1


class Troubles(Faults):
    def __init__(self, world: World, ground: Ground) -> None:
        super().__init__(world, ())
        self._world, self._ground = world, ground
        self.reached: Reached | None = None
        self.crashes: Counter[str] = Counter()

    def meet(self, point: str, kinds: tuple[str, ...]) -> bool:
        process = self._world.process
        assert process is not None
        if process.actor[0] != "c" or self._ground.books.quiet:
            return False
        random = self._world.random_of(f"troubles of {process.actor}")
        dawdles = self._ground.rough.on_edge and point == DECIDED
        if random.random() >= (DAWDLES if dawdles else OFTEN.get(point, SELDOM)):
            return False
        kind = STALL if dawdles else random.choice([each for each in kinds if each in USED])
        seconds = random.choice(LENGTHS_S) if kind in {PAUSE, STALL, AWAY} else 0.0
        fault = Fault(kind, process.actor, point, 1, seconds)
        self._world.tell(f"** {fault}", process.actor)
        self._ground.books.note(f"leader {kind}")
        if kind == FAIL:
            return True
        self.crashes[point] += kind == CRASH
        if kind in {PAUSE, AWAY} and self.reached is not None:
            self.reached.out_of_touch(process, seconds)
            # Nothing is held against it before it is back.
            self._world.later(seconds, lambda: self._ground.books.note("leader back"))
        self._strike(process, fault)
        self._world.sleep(0)
        if kind == STALL:
            self._ground.books.note("leader back")
        return False


def outages(world: World, ground: Ground, yard: SimulatedContainer) -> None:
    """Now and then a container can't be reached."""
    random = world.random_of(f"outages of {yard.name}")

    def begin() -> None:
        if ground.books.quiet:
            return
        seconds = random.uniform(*OUTAGE_S)
        yard.away_until_s = world.now_s + seconds
        world.tell(f"away for {seconds:.0f} s", yard.name)
        world.later(seconds, lambda: ground.books.note("container back"))
        world.later(seconds + random.expovariate(1 / OUTAGE_EACH_S), begin)

    world.later(random.expovariate(1 / OUTAGE_EACH_S), begin)
