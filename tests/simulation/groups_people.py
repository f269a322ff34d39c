"""A person who wants now more of a group and now less: by the product's own commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from sqlalchemy import Engine

from headrace.containers.container import WorkerContainer
from headrace.coordinator.groups.commands import GroupChange, GroupCommands, NewGroup
from headrace.errors import HeadraceError
from headrace.model.ids import Ids
from tests.simulation.groups_processes import Ground
from tests.simulation.groups_setting import HOUR_S, TICK_S
from tests.simulation.world import Process

EACH_S = 10 * HOUR_S  # between two wishes, on average
FLOORS = (0, 1, 2, 3, 4, 6, 8)
THREADS = (1, 2, 4)


class People:
    def __init__(
        self,
        ground: Ground,
        engine: Engine,
        ids: Ids,
        containers: Mapping[str, WorkerContainer],
        groups: Mapping[str, str],
        *,
        until_s: float,
    ) -> None:
        """`groups`: the container of each."""
        self._ground, self._books, self._engine, self._ids = ground, ground.books, engine, ids
        self._containers, self._groups, self._until_s = containers, groups, until_s

    def __call__(self, process: Process) -> None:
        commands = GroupCommands(self._engine, process, self._ids, containers=self._containers)
        for name in self._groups:
            self._create(commands, process, name)
        random = process.random
        while True:
            process.world.sleep(random.expovariate(1 / EACH_S))
            if process.monotonic_s() > self._until_s:
                return
            group = random.choice(sorted(self._groups))
            self._say(
                process, f"wishes of {group}", lambda g=group: self._wish(commands, g, process)
            )

    def _say(self, process: Process, what: str, command: Callable[[], object]) -> None:
        try:
            command()
        except HeadraceError as error:  # somebody else was faster, or the group is going
            process.world.tell(f"{what}: {error}")
        self._ground.said().ring(process.random.uniform(0.1, TICK_S))

    def _create(self, commands: GroupCommands, process: Process, name: str) -> None:
        floor = process.random.choice(FLOORS[2:])
        new = NewGroup(name, self._groups[name], floor)
        self._say(process, f"create {name}", lambda: commands.create(new))

    def _wish(self, commands: GroupCommands, group: str, process: Process) -> None:
        random, state = process.random, self._books.state
        if group not in state.groups:
            self._create(commands, process, group)
            return
        mine = sorted(each.id for each in state.of(group))
        registered = sorted(w.id for r, w in state.workers.items() if r in mine)
        wish = random.choice(["floor"] * 5 + ["scale", "drain", "release", "release", "remove"])
        process.world.tell(f"wants {group}: {wish}")
        self._books.happened[f"wished {wish}"] += 1
        match wish:
            case "floor":
                commands.change(group, GroupChange(min_parallelism=random.choice(FLOORS)))
            case "scale":
                commands.scale(group, random.choice(THREADS))
            case "drain" if registered:
                commands.drain(random.choice(registered))
            case "release" if mine:
                commands.release(random.choice(mine))
            case "remove":
                self._maybe_remove(commands, group, random)
            case _:
                pass

    def _maybe_remove(self, commands: GroupCommands, group: str, random: Random) -> None:
        if random.random() < 1 / 3:
            commands.remove(group, force=True)
