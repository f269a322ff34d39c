"""Containers that start processes which are only thought of, and those processes.

As every container must, one starts a launch once, whoever asks for it and how often, and one that
was stopped can't begin any more. The rest is the world's: a start takes its time, is refused,
hangs, or lands though its caller is told that it failed, or is dead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from headrace.containers.container import Launch, Launched, LaunchState, LaunchStatus, Supports
from headrace.errors import Unavailable
from tests.simulation.groups_processes import Ground, Key, Simulated
from tests.simulation.groups_setting import CALL_S, HEALS_S, HUNG_CALL_S

LOST = "the answer of the container got lost; see whether it can be reached"


class SimulatedContainer:
    """One container, of which all coordinators know."""

    def __init__(self, ground: Ground, name: str, supports: Supports) -> None:
        self._ground, self._name, self._supports = ground, name, supports
        self._withdrawn: set[Key] = set()
        self._landed: set[Key] = set()
        self._lives = 0
        self.away_until_s = 0.0

    @property
    def name(self) -> str:
        return self._name

    @property
    def supports(self) -> Supports:
        return self._supports

    @property
    def _random(self) -> Random:
        return self._ground.world.random_of(f"yard {self._name}")

    def check(self, group: str, properties: Mapping[str, str], *, memory_mb: int) -> None:
        """Whatever it is told, it can be told."""

    def start(self, launch: Launch) -> Launched:
        ground, random, key = self._ground, self._random, (launch.resource, launch.number)
        known = ground.books.launch_of(launch.resource)
        if known is not None and known < launch.number:
            told = (
                f"launch {launch.number} of {launch.resource} is started, {known} is in the store"
            )
            ground.world.problem("intent_before_start", told)
        call_s, fate = random.uniform(*CALL_S), self._fate(random)
        if fate == "hangs":
            call_s = random.uniform(*HUNG_CALL_S)
        if fate != "refused":  # by itself: it lands though its caller may be dead by then
            ground.world.later(call_s * random.random(), lambda: self._land(launch))
        ground.world.tell(f"asked to start {key}: {fate}, {call_s:.0f} s", self._name)
        ground.world.sleep(call_s)
        if fate in {"refused", "lost"}:
            ground.books.note(f"start {fate}", launch.resource)
            raise Unavailable(LOST if fate == "lost" else "no room; see who else takes it")
        if fate == "hangs":
            ground.books.note("start hung")
        if key in self._withdrawn:
            raise Unavailable(f"launch {launch.number} was stopped before it had begun")
        ground.said().ring(random.uniform(0.5, 5.0))
        return Launched({"pid": f"{launch.resource}.{launch.number}"})

    def _fate(self, random: Random) -> str:
        if self.away_until_s > self._ground.world.now_s:
            return random.choice(["refused", "refused", "lost"])
        hangs = "well" if not self._supports.stop else "hangs"  # nobody could withdraw it
        return self._ground.rough.of(random, {"refused": 0.07, "lost": 0.04, hangs: 0.04}, "well")

    def _land(self, launch: Launch) -> None:
        key = (launch.resource, launch.number)
        if key in self._withdrawn or key in self._landed:
            return
        self._landed.add(key)
        self._begin(launch)

    def _begin(self, launch: Launch) -> None:
        self._lives += 1
        process = Simulated(
            self._ground, self, launch, f"{launch.resource}-{launch.number}-{self._lives}"
        )
        key = (launch.resource, launch.number)
        assert key not in self._ground.live, f"{key} lives"
        self._ground.live[key] = process
        process.boot(self._random)
        self._check(launch)

    def _check(self, launch: Launch) -> None:
        """That there is no more than is wanted."""
        mine = [p for (name, _), p in self._ground.live.items() if name == launch.resource]
        beside = 0 if self._supports.stop else 1
        if not self._supports.stop:  # one that asks is told to go as soon as anybody leads
            mine = [each for each in mine if not each.asks]
        if len(mine) > 1 + beside:
            names = sorted(each.name for each in mine)
            told = f"{names} live, of a resource that wants one"
            self._ground.world.problem("no_more_than_wanted", told)

    def ended(self, process: Simulated) -> None:
        """Of a process: what becomes of its launch."""
        key = (process.launch.resource, process.launch.number)
        del self._ground.live[key]
        if not self._supports.restart and key not in self._withdrawn:
            heals_s = self._random.uniform(*HEALS_S)
            self._ground.world.later(heals_s, lambda: self._heal(process.launch))

    def _heal(self, launch: Launch) -> None:
        if (launch.resource, launch.number) not in self._withdrawn:
            self._begin(launch)

    def stop(self, launch: Launch, *, grace_s: float) -> None:
        ground, random, key = self._ground, self._random, (launch.resource, launch.number)
        seconds = random.uniform(0.1, grace_s)
        away = self.away_until_s > ground.world.now_s
        fate = ground.rough.of(random, {"refused": 1.0 if away else 0.05, "lost": 0.02}, "well")
        ground.world.tell(f"asked to stop {key}: {fate}", self._name)
        if fate != "refused":
            self._withdrawn.add(key)
        ground.world.sleep(seconds)
        if fate != "refused" and key in ground.live:
            ground.live[key].leave()
        if fate != "well":
            ground.books.note(f"stop {fate}", launch.resource)
            raise Unavailable(LOST)
        ground.said().ring(random.uniform(0.5, 5.0))

    def status(self, launch: Launch) -> LaunchStatus:
        if self.away_until_s > self._ground.world.now_s:
            raise Unavailable(LOST)
        key = (launch.resource, launch.number)
        if key in self._ground.live:
            return LaunchStatus(LaunchState.RUNNING)
        if key in self._landed and not self._supports.restart and key not in self._withdrawn:
            return LaunchStatus(LaunchState.RUNNING, said="Killed, and started again")
        if key in self._landed:
            return LaunchStatus(LaunchState.ENDED, -9, "Killed")
        return LaunchStatus(LaunchState.UNKNOWN)

    def logs(self, launch: Launch, *, lines: int) -> Sequence[str]:
        del launch, lines
        return ()
