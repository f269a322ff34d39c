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
IN_A_COMMIT = b"ON CONFLICT (incarnation"  # the statement that raises a mark


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that was done: to whom, how it ends, and whether it came about at all."""

    whom: str
    ends_after_s: float = 0.0
    end: Callable[[], None] = lambda: None
    took_place: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class Fault:
    """`strike` returns None when there is nobody to be hit just now."""

    kind: str
    strike: Callable[[World, random.Random], Struck | None]


def _kill_leader(world: World, _: random.Random) -> Struck | None:
    if (leader := world.leader()) is None:
        return None
    world.kill(leader)
    return Struck(leader.name)


def _kill_coordinator(world: World, rng: random.Random) -> Struck:
    victim = rng.choice(world.coordinators())
    world.kill(victim)
    return Struck(victim.name)


def _kill_worker(world: World, rng: random.Random) -> Struck:
    victim = rng.choice(world.workers)
    world.kill(victim)
    return Struck(victim.name)


def _kill_all_workers(world: World, _: random.Random) -> Struck:
    for worker in world.workers:
        world.kill(worker)
    return Struck(", ".join(worker.name for worker in world.workers))


def _stop_leader(world: World, rng: random.Random) -> Struck | None:
    leader = world.leader()
    return leader and _stop(world, leader, rng.choice(SHORT_STOPS_S))


def _stop_worker(world: World, rng: random.Random) -> Struck:
    return _stop(world, rng.choice(world.workers), rng.choice(SHORT_STOPS_S))


def _make_zombie(world: World, rng: random.Random) -> Struck:
    return _stop(world, rng.choice(world.workers), ZOMBIE_STOP_S)


def _crash_database(world: World, rng: random.Random) -> Struck:
    world.server.crash()
    outage_s = rng.choice(OUTAGES_S)
    return Struck(f"for {outage_s:g} s", outage_s, world.server.start_again)


def _lose_answers(world: World, rng: random.Random) -> Struck:
    count, before = rng.randint(1, ANSWERS_MAX), world.answers_lost()
    for place in world.places:
        place.wire.lose_answers(count)
    whom = f"{count} of each coordinator"
    return Struck(whom, took_place=lambda: world.answers_lost() > before)


def _lose_commit(world: World, _: random.Random) -> Struck:
    database = world.database
    before = database.answers_lost
    database.lose_commit_answer(IN_A_COMMIT)
    return Struck("the next one", took_place=lambda: database.answers_lost > before)


def _stop(world: World, victim: Process, for_s: float) -> Struck:
    world.stop(victim)
    return Struck(f"{victim.name} for {for_s:g} s", for_s, lambda: world.go_on(victim))


KILL_LEADER = Fault("kill the leader", _kill_leader)
KILL_WORKER = Fault("kill a worker", _kill_worker)
CRASH_DATABASE = Fault("crash PostgreSQL", _crash_database)
LOSE_ANSWERS = Fault("lose answers", _lose_answers)
LOSE_COMMIT = Fault("lose the answer of a COMMIT at the target", _lose_commit)

KINDS: Sequence[Fault] = (
    KILL_LEADER,
    Fault("kill a coordinator", _kill_coordinator),
    KILL_WORKER,
    Fault("kill all workers", _kill_all_workers),
    Fault("stop the leader", _stop_leader),
    Fault("stop a worker", _stop_worker),
    Fault("stop a worker until it is given up", _make_zombie),
    CRASH_DATABASE,
    LOSE_ANSWERS,
    LOSE_COMMIT,
)
# How often each kind comes, before all begin anew; in any order.
DECK = (*KINDS, KILL_LEADER, KILL_WORKER, CRASH_DATABASE, LOSE_ANSWERS, LOSE_COMMIT)
