"""What must hold in the life of a group, looked at after every commit and every landed start.

    no_more_than_wanted     a resource has one live process; in a container that can't stop one, at
                            most one more that boots (the slow one, beside its replacement). A live
                            process has a record, where its container can stop it.
    nothing_twice           a resource for the floor is asked for only when all that works, boots or
                            comes back, with it, is no more than the floor (R5).
    intent_before_start     a container is asked only for a launch that stands in the store (R8).
    floor_comes_back        BACK_MAX_S after the last thing that went wrong with it, a resource that
                            may be restarted is registered, or given up; KEPT_MAX_S after the last
                            one in its group, the effective floor is reached (LOWERED_MAX_S, once
                            it was given up). Neither is asked of a container that can't start,
                            nor of one that heals itself, which takes the time it takes.
    attempts_grow           within one orphanhood attempts grow by one, with the launch, up to the
                            retries; they are 0 once the worker has registered, and not before (R2).
    no_start_in_grace       between two launches lies the grace period; nothing is started again
                            when auto-restart is off, or by us where the container heals itself.
    no_record_lost          a record goes only after it was wanted gone: by a person, with its
                            group, or, with no worker registered, when its retries are used up (R3)
                            or when it was made for a floor that others make up for.
    wanted_is_the_users     no coordinator writes what a person asked for (R5).
    newest_launch_registered a resource has one registered worker, of its current launch.
    comes_to_rest           after quiet time every floor is met and not lowered, every resource has
                            its worker, and no process is left without a record.

"Wanted" are the threads of all records that nobody wants gone. A draining, released or given up one
is the replaced, for as long as it is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.database import Wire
from tests.simulation.groups_setting import GRACE_S, MAX_RETRIES
from tests.simulation.world import World

INVARIANTS: Mapping[str, str] = {
    "no_more_than_wanted": "a resource has one live process, and a live process has a record",
    "nothing_twice": "what boots or comes back is not asked for again (R5)",
    "intent_before_start": "only a launch that stands in the store is started (R8)",
    "floor_comes_back": "an orphan is back, and a floor is reached, in bounded time (R1)",
    "attempts_grow": "attempts grow within one orphanhood, and go with it (R2)",
    "no_start_in_grace": "between two launches lies the grace period (R2)",
    "no_record_lost": "a record goes when somebody wants it gone, or retries are used up (R3)",
    "wanted_is_the_users": "keeping a floor edits nothing that a person asked for (R5)",
    "newest_launch_registered": "a resource has one worker, of its current launch (R8)",
    "comes_to_rest": "after quiet time floors are met and nothing is left behind",
}
SLACK_MS = 1000  # between looking at the clock and committing


class Record(NamedTuple):
    id: str
    group: str
    container: str
    threads: int
    made_for: str
    released: int
    launch: int
    step: str
    launched_at_ms: int
    orphaned_since_ms: int | None
    attempts: int


class Registered(NamedTuple):
    id: str
    resource: str | None
    launch: int
    slots: int
    drain_since_ms: int
    group: str


class Asked(NamedTuple):
    """A group."""

    name: str
    container: str
    floor: int
    removed: int
    next_at_ms: int
    effective: int | None


@dataclass(slots=True)
class State:
    records: dict[str, Record] = field(default_factory=dict[str, Record])
    workers: dict[str, Registered] = field(default_factory=dict[str, Registered])  # by resource
    groups: dict[str, Asked] = field(default_factory=dict[str, Asked])
    rows: int = 0  # of workers with a resource

    def working(self, group: str) -> int:
        """Threads that are registered, and do not drain."""
        mine = [self.workers.get(each.id) for each in self.of(group) if not each.released]
        return sum(each.slots for each in mine if each and not each.drain_since_ms)

    def of(self, group: str) -> list[Record]:
        return [each for each in self.records.values() if each.group == group]


def read(wire: Wire) -> State:
    found = State()
    for row in wire.look(
        "SELECT id, group_name, container, threads, made_for, wanted_released, launch, step,"
        " launched_at_ms, orphaned_since_ms, attempts FROM resources"
    ):
        found.records[row[0]] = Record(*row)
    for row in wire.look(
        "SELECT id, resource_id, launch, slots, drain_since_ms, group_name FROM workers"
    ):
        worker = Registered(*row)
        if worker.resource is not None:
            found.rows += 1
            found.workers[worker.resource] = worker
    for row in wire.look(
        "SELECT name, container, min_parallelism, wanted_removed, keep_next_at_ms,"
        " effective_parallelism FROM groups"
    ):
        found.groups[row[0]] = Asked(*row)
    return found


class AfterGroupCommit:
    """Compares what a commit found with what it left."""

    def __init__(self, world: World, *, enabled: bool, heals: frozenset[str]) -> None:
        self._world, self._enabled, self._heals = world, enabled, heals

    def judge(self, actor: str, before: State, after: State) -> None:
        if after.rows != len(after.workers):
            self._problem("newest_launch_registered", "two workers of one resource are registered")
        for each in after.workers.values():
            self._registered(each, after)
        for record in after.records.values():
            if record.id in before.records:
                self._changed(actor, before, after, record)
            elif record.made_for == "floor":
                self._asked_for(after, record)
        self._gone(actor, before, after)

    def _gone(self, actor: str, before: State, after: State) -> None:
        """Records that are no longer there, and wishes that are no longer what they were."""
        for name in before.records.keys() - after.records.keys():
            if not before.records[name].released:
                self._problem("no_record_lost", f"the record of {name} is gone: nobody wanted it")
        for name in before.groups.keys() & after.groups.keys():
            wanted = before.groups[name].floor, after.groups[name].floor
            if wanted[0] != wanted[1] and actor[0] == "c":
                told = f"{actor} made a floor of {wanted[1]} out of {wanted[0]}"
                self._problem("wanted_is_the_users", told)

    def _problem(self, invariant: str, what: str) -> None:
        self._world.problem(invariant, what)

    def _registered(self, worker: Registered, after: State) -> None:
        record = after.records.get(worker.resource or "")
        if record is None or record.launch != worker.launch:
            now = record.launch if record else "none"
            told = f"{worker.id} of launch {worker.launch} is registered, {now} is current"
            self._problem("newest_launch_registered", told)

    def _changed(self, actor: str, before: State, after: State, record: Record) -> None:
        old, name = before.records[record.id], record.id
        alive = name in after.workers
        grown = record.launch - old.launch
        if record.attempts < old.attempts and not (alive and record.attempts == 0):
            told = f"attempts of {name} fell from {old.attempts} to {record.attempts}"
            self._problem("attempts_grow", f"{told} without a worker")
        if record.attempts > old.attempts and (record.attempts - old.attempts, grown) != (1, 1):
            told = f"attempts of {name} grew to {record.attempts}, launches by {grown}"
            self._problem("attempts_grow", told)
        if grown and record.attempts == old.attempts:
            self._problem("attempts_grow", f"launch {record.launch} of {name} is no attempt")
        if record.attempts > MAX_RETRIES or (record.attempts and alive):
            worker = "with" if alive else "without"
            told = f"{name}, {worker} a worker, has {record.attempts} attempts"
            self._problem("attempts_grow", told)
        if grown:
            self._started_again(before, record, grown)
        if record.released and not old.released and actor[0] == "c":
            self._given_up(before, after, old)

    def _started_again(self, before: State, record: Record, grown: int) -> None:
        old, name = before.records[record.id], record.id
        since_ms = max(old.launched_at_ms, old.orphaned_since_ms or 0)
        waited_ms = record.launched_at_ms - since_ms
        if grown != 1 or waited_ms < GRACE_S * 1000 - SLACK_MS:
            told = f"launch {record.launch} of {name} follows {old.launch} after {waited_ms} ms"
            self._problem("no_start_in_grace", told)
        if not self._enabled or record.container in self._heals:
            told = f"launch {record.launch} of {name} is not ours to start"
            self._problem("no_start_in_grace", told)
        if name in before.workers:
            self._problem("no_start_in_grace", f"{name} is started again, and has its worker")

    def _given_up(self, before: State, after: State, old: Record) -> None:
        """A leader wants a record gone."""
        if after.groups[old.group].removed:
            return
        if old.id in before.workers or old.id in after.workers:
            self._problem("no_record_lost", f"{old.id} is given up, and its worker is registered")
        if self._enabled and old.container not in self._heals and self._is_surplus(after, old):
            return
        if old.attempts < MAX_RETRIES or not self._enabled or old.container in self._heals:
            told = f"{old.id} is given up after {old.attempts} of {MAX_RETRIES} attempts"
            self._problem("no_record_lost", told)

    def _is_surplus(self, after: State, old: Record) -> bool:
        """Whether it was made for a floor that is reached, or will be, without it."""
        others = [each for each in after.of(old.group) if self._counts(after, each, old)]
        floor = after.groups[old.group].floor
        return old.made_for == "floor" and sum(each.threads for each in others) >= floor

    def _asked_for(self, after: State, fresh: Record) -> None:
        floor = after.groups[fresh.group].floor
        there = [each for each in after.of(fresh.group) if self._counts(after, each, fresh)]
        counted = sum(each.threads for each in there)
        if counted > floor:
            told = f"{fresh.threads} threads for {fresh.group}: {counted} for a floor of {floor}"
            self._problem("nothing_twice", told)

    def _counts(self, state: State, record: Record, fresh: Record) -> bool:
        """Whether it works, boots or comes back, at the moment in which `fresh` was asked for."""
        worker = state.workers.get(record.id)
        if worker is not None:
            return not worker.drain_since_ms and not record.released
        if record.released:
            return False
        if record.container in self._heals:
            return record.step != "FAILED"
        if self._enabled:
            return True
        young = fresh.launched_at_ms < record.launched_at_ms + GRACE_S * 1000
        return young and record.step != "FAILED"
