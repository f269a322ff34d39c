"""Workers that are only thought of: each boots, asks to be registered, works, hangs, and ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from headrace.containers.container import Launch, Supports
from tests.simulation.groups_ledger import GroupLedger
from tests.simulation.groups_setting import (
    ASK_AGAIN_S,
    BOOT_S,
    HEARTBEAT_TIMEOUT_S,
    HOUR_S,
    MINUTE_S,
    MUTE_S,
    SLOW_BOOT_S,
    TICK_S,
)
from tests.simulation.world import World

Key = tuple[str, int]  # of a launch: its resource and its number
TAKEN, REFUSED = "taken", "refused"
LIFE_S = 9 * HOUR_S  # of a worker, on average
SHORT_S = (5.0, HEARTBEAT_TIMEOUT_S * 0.8)  # of standing still, unnoticed
LONG_S = (2 * MINUTE_S, 40 * MINUTE_S)
LAST_WORDS_S = (0.1, 3.0)


class Rough:
    """How rough the world is: 1 as it is drawn, 0 for quiet time."""

    def __init__(self, *, on_edge: bool = False) -> None:
        """`on_edge`: many a start takes as long as the grace period, and leaders dawdle then."""
        self.by, self.on_edge = 1.0, on_edge

    def of(self, random: Random, chances: Mapping[str, float], otherwise: str) -> str:
        """One of the chances, or what is normal. Draws once, so that quiet changes nothing else."""
        drawn, so_far = random.random(), 0.0
        for what, chance in chances.items():
            so_far += chance * self.by
            if drawn < so_far:
                return what
        return otherwise


class Leaders(Protocol):
    def ask(self, verb: str, process: Simulated, answer: Callable[[str | None], None]) -> None:
        """Say something to who leads. The answer is TAKEN, REFUSED, or None: there is none."""
        ...

    def hear(self, process: Simulated) -> None:
        """A sign of life."""
        ...

    def ring(self, seconds: float) -> None:
        """Have the leader look, so much later."""
        ...


class ContainerOfProcess(Protocol):
    """The container of a process."""

    @property
    def supports(self) -> Supports: ...

    def ended(self, process: Simulated) -> None: ...


class Simulated:
    """One process."""

    def __init__(self, ground: Ground, yard: ContainerOfProcess, launch: Launch, name: str) -> None:
        self._ground, self._yard = ground, yard
        self.launch, self.name = launch, name
        self.ended = self.asks = self.registered = False
        self._hangs_until_s = 0.0
        self._turn = 0  # of what it waits for; an answer to an older question is void

    @property
    def speaks(self) -> bool:
        return not self.ended and self._ground.world.now_s >= self._hangs_until_s

    def _later(self, seconds: float, what: str, random: Random) -> None:
        """Once it does not hang any more, and unless it has ended."""
        world, turn = self._ground.world, self._turn

        def run() -> None:
            if self.ended or turn != self._turn:
                return
            if not self.speaks:
                self._later(self._hangs_until_s - world.now_s, what, random)
            else:
                getattr(self, what)(random)

        world.later(seconds, run)

    def boot(self, random: Random) -> None:
        can = self._yard.supports
        mute = 0.02 if can.stop and can.restart else 0.0
        slow = 0.5 if self._ground.rough.on_edge else 0.05
        fates = {"fails": 0.06, "slow": slow, "mute": mute}
        fate = self._ground.rough.of(random, fates, "well")
        boot_s = random.uniform(*BOOT_S)
        if fate == "slow":
            boot_s = random.uniform(*SLOW_BOOT_S)
        self._ground.world.tell(f"begins, {fate}, {boot_s:.0f} s", self.name)
        if fate != "well":
            self._ground.books.note(f"boot {fate}", self.launch.resource)
        if fate == "mute":
            self._later(MUTE_S, "ask", random)
        else:
            self._later(boot_s, "die" if fate == "fails" else "ask", random)

    def ask(self, random: Random) -> None:
        """To be registered, again and again until there is an answer."""
        self._turn += 1
        self.asks, turn = True, self._turn

        def answer(told: str | None) -> None:
            if told is None or self.ended or turn != self._turn:
                return
            self._turn += 1
            self.asks = False
            if told == TAKEN:
                self._work(random)
            else:
                self._ground.world.tell("refused, ends", self.name)
                self._end()

        self._later(random.uniform(*ASK_AGAIN_S), "ask", random)
        self._ground.said().ask("register", self, answer)

    def _work(self, random: Random) -> None:
        self.registered = True
        self._later(random.expovariate(1 / LIFE_S), "meet", random)

    def meet(self, random: Random) -> None:
        """What becomes of it."""
        can = self._yard.supports
        long, ever = (0.2 if can.stop else 0.0), (0.05 if can.stop and can.restart else 0.0)
        fates = {"killed": 0.65, "hangs long": long, "hangs for ever": ever}
        fate = self._ground.rough.of(random, fates, "hangs")
        match fate:
            case "killed":
                self.die(random)
            case "hangs":
                self._hang(random.uniform(*SHORT_S), random)
            case _:
                lasts_s = random.uniform(*LONG_S) if fate == "hangs long" else MUTE_S
                self._ground.books.note(f"worker {fate}", self.launch.resource)
                self._hang(lasts_s, random)

    def _hang(self, seconds: float, random: Random) -> None:
        self._ground.said().hear(self)
        self._ground.said().ring(HEARTBEAT_TIMEOUT_S + random.uniform(0.1, TICK_S))
        self._hangs_until_s = self._ground.world.now_s + seconds
        self._ground.world.tell(f"hangs for {seconds:.0f} s", self.name)
        self._later(seconds, "go_on", random)

    def hear_soon(self, random: Random) -> None:
        """With its next heartbeat it is told that nobody knows it any more."""
        if self.registered and self.speaks:
            self._later(random.uniform(*ASK_AGAIN_S), "go_on", random)

    def go_on(self, random: Random) -> None:
        """It speaks again, and may find that it was given up."""
        self._ground.said().hear(self)
        worker = self._ground.books.state.workers.get(self.launch.resource)
        if worker is not None and worker.id == self.name:
            self._work(random)
        else:
            self.registered = False
            self.ask(random)

    def die(self, random: Random) -> None:
        """Without a word."""
        self._ground.said().hear(self)
        self._ground.books.note("process died", self.launch.resource)
        self._ground.said().ring(HEARTBEAT_TIMEOUT_S + random.uniform(0.1, TICK_S))
        self._ground.world.tell("dies", self.name)
        self._end()

    def leave(self) -> None:
        """It was told to end. One that hangs is killed, another one says so before."""
        self._ground.world.tell("is ended", self.name)
        if self.registered and self.speaks:
            self._ground.said().ask("goodbye", self, lambda _: None)
        self._end()

    def _end(self) -> None:
        self.ended = True
        self.registered = False
        self._yard.ended(self)


@dataclass(slots=True)
class Ground:
    """What containers and their processes share."""

    world: World
    books: GroupLedger
    rough: Rough
    leaders: Leaders | None = None
    live: dict[Key, Simulated] = field(default_factory=dict[Key, Simulated])

    def silent(self) -> bool:
        """Whether somebody is registered who does not say a word."""
        speak = {each.name for each in self.live.values() if each.speaks}
        return any(each.id not in speak for each in self.books.state.workers.values())

    def said(self) -> Leaders:
        assert self.leaders is not None
        return self.leaders
