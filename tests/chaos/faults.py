"""What can happen to an installation. Each fault is done by `strike`, and may end later."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.chaos.world import World
from tests.crash.cluster import Process

SHORT_STOPS_S = (1.0, 4.0, 12.0)
ZOMBIE_STOP_S = 75.0  # longer than the heartbeat timeout: it wakes when others have its work
OUTAGES_S = (0.0, 2.0, 8.0)  # of the database
ANSWERS_MAX = 20  # that are lost in a row


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that was done: what it was, to whom, and how it ends."""

    kind: str
    whom: str
    ends_after_s: float = 0.0
    end: Callable[[], None] = lambda: None


def kill_leader(world: World, _: random.Random) -> Struck | None:
    if (leader := world.leader()) is None:
        return None
    world.kill(leader)
    return Struck("kill the leader", leader.name)


def kill_coordinator(world: World, rng: random.Random) -> Struck:
    victim = rng.choice(world.coordinators())
    world.kill(victim)
    return Struck("kill a coordinator", victim.name)


def kill_worker(world: World, rng: random.Random) -> Struck:
    victim = rng.choice(world.workers)
    world.kill(victim)
    return Struck("kill a worker", victim.name)


def kill_all_workers(world: World, _: random.Random) -> Struck:
    for worker in world.workers:
        world.kill(worker)
    return Struck("kill all workers", ", ".join(worker.name for worker in world.workers))


def stop_leader(world: World, rng: random.Random) -> Struck | None:
    leader = world.leader()
    return leader and _stop(world, "stop the leader", leader, rng.choice(SHORT_STOPS_S))


def stop_worker(world: World, rng: random.Random) -> Struck:
    victim = rng.choice(world.workers)
    return _stop(world, "stop a worker", victim, rng.choice(SHORT_STOPS_S))


def make_zombie(world: World, rng: random.Random) -> Struck:
    victim = rng.choice(world.workers)
    return _stop(world, "stop a worker until it is given up", victim, ZOMBIE_STOP_S)


def crash_database(world: World, rng: random.Random) -> Struck:
    world.server.crash()
    outage_s = rng.choice(OUTAGES_S)
    return Struck("crash PostgreSQL", f"for {outage_s:g} s", outage_s, world.server.start_again)


def lose_answers(world: World, rng: random.Random) -> Struck:
    count = rng.randint(1, ANSWERS_MAX)
    for place in world.places:
        place.wire.lose_answers(count)
    return Struck("lose answers", f"{count} of each coordinator")


def _stop(world: World, kind: str, victim: Process, for_s: float) -> Struck:
    world.stop(victim)
    return Struck(kind, f"{victim.name} for {for_s:g} s", for_s, lambda: world.go_on(victim))


# How often each kind comes, before all begin anew; in any order.
DECK: Sequence[Callable[[World, random.Random], Struck | None]] = (
    kill_leader,
    kill_leader,
    kill_coordinator,
    kill_worker,
    kill_worker,
    kill_all_workers,
    stop_leader,
    stop_worker,
    make_zombie,
    crash_database,
    crash_database,
    lose_answers,
    lose_answers,
)
