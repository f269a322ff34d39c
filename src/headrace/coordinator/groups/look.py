"""What there is of one group, at one moment, and what is to be done about it.

The leader acts on a look, and people are told of the same look what comes next (`next.py`): there
is no second truth for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from headrace.containers.launching import WorkerContainer
from headrace.coordinator.options import GroupOptions
from headrace.model.groups.capacity import Capacity, Kept, Threads, keep, surplus
from headrace.model.groups.orphans import Decision, Known, Verdict, decide
from headrace.model.groups.resource import LaunchStep
from headrace.store import resources, workers
from headrace.store.groups import Group
from headrace.store.resources import Resource
from headrace.store.workers import Worker

FOR_FLOOR = "floor"  # why a resource was made
SAID_ONCE = frozenset({Verdict.OPTED_OUT, Verdict.ISOLATED})
COMES_BACK = frozenset({Verdict.RESTART, Verdict.WAIT, Verdict.NOTICE})
ARRIVAL_MAX_MS = 60_000  # so long workers have to find a leader that took over
START_MAX_MS = 10 * 60_000  # a container that has not answered by then never does
GAVE_UP = "gave up"  # so begins what is told of a resource that no restart brought back
NOT_NEEDED = "it was made for the floor of its group, which needs it no more"


class Look:
    def __init__(
        self,
        group: Group,
        found: Sequence[Resource],
        registered: Sequence[Worker],
        options: GroupOptions,
        *,
        now_ms: int,
        led_since_ms: int = 0,
    ) -> None:
        self.group, self.now_ms, self._options = group, now_ms, options
        self._led_since_ms = led_since_ms
        self.workers: Mapping[str, Worker] = {
            each.resource_id: each for each in registered if each.resource_id
        }
        by_hand = [
            Threads(each.slots, registered=True, draining=each.drain_since_ms > 0)
            for each in registered
            if not each.resource_id
        ]
        self._surplus: frozenset[str] = frozenset()
        self._surplus = self._not_needed([(each, self._decide(each)) for each in found], by_hand)
        self.decisions = [(each, self._decide(each)) for each in found]
        self.capacity = Capacity.of([self._threads(*each) for each in self.decisions] + by_hand)

    @classmethod
    def at(
        cls,
        conn: Connection,
        group: Group,
        options: GroupOptions,
        *,
        now_ms: int,
        led_since_ms: int = 0,
    ) -> Look:
        return cls(
            group,
            resources.of_group(conn, group.name),
            workers.of_group(conn, group.name),
            options,
            now_ms=now_ms,
            led_since_ms=led_since_ms,
        )

    @property
    def to_drain(self) -> Sequence[Worker]:
        """Workers whose resource is wanted gone, and who do not know it yet."""
        released = [each.id for each, _ in self.decisions if each.wanted_released]
        found = [self.workers[each] for each in released if each in self.workers]
        return [worker for worker in found if not worker.drain_since_ms]

    @property
    def kept(self) -> Kept | None:
        """What keeping the floor asks for. None: nobody could be asked, so nothing is counted."""
        container = self.container_of(self.group.container)
        if container is None or not container.supports.start:
            return None
        group, setting = self.group, self._options.keep
        return keep(
            group.min_parallelism, self.capacity, group.keeping, setting, now_ms=self.now_ms
        )

    @property
    def changes(self) -> bool:
        """Whether anything is to be written."""
        if self.to_drain or any(self._is_news(*each) for each in self.decisions):
            return True
        kept = self.kept
        return kept is not None and (kept.keeping != self.group.keeping or kept.request > 0)

    def _is_news(self, resource: Resource, found: Decision) -> bool:
        if found.verdict in SAID_ONCE:
            container = self.container_of(resource.container)
            return resource.told != why_left_alone(resource, found.verdict, container)
        return found.verdict not in {Verdict.NOTHING, Verdict.WAIT}

    def container_of(self, name: str) -> WorkerContainer | None:
        return self._options.containers.get(name)

    def known(self, resource: Resource) -> Known:
        container = self.container_of(resource.container)
        return Known(
            alive=resource.id in self.workers,
            released=resource.wanted_released,
            orphaned_since_ms=self._believed(resource.orphaned_since_ms),
            started_at_ms=self._started_at_ms(resource),
            judged_from_ms=self._judged_from_ms(resource),
            attempts=resource.attempts,
            configured=container is not None,
            restartable=container is not None and container.supports.restart,
            needed=resource.id not in self._surplus,
        )

    def _believed(self, at_ms: int | None) -> int | None:
        """A moment that is further ahead than a grace period was written by a leader whose clock
        was wrong; waiting for it may take years. A little ahead is any other leader's."""
        ahead = at_ms is not None and at_ms > self.now_ms + self._options.auto_restart.grace_ms
        return None if ahead else at_ms

    def _started_at_ms(self, resource: Resource) -> int | None:
        """From when its grace period counts. A start that waits for its turn, or for an answer of
        its container, is not replaced by the next one: that would count attempts nobody made."""
        asked_at_ms = self._believed(resource.launched_at_ms)
        if asked_at_ms is None or resource.step is not LaunchStep.INTENDED:
            return asked_at_ms
        return min(self.now_ms, asked_at_ms + START_MAX_MS)

    def _judged_from_ms(self, resource: Resource) -> int:
        """Not at once after a take-over: while nobody led no worker could register, and nobody
        asked for what was intended. Both have their time first."""
        if self.now_ms < self._led_since_ms:  # the wall clock was set back
            return 0
        arrival_ms = min(self._options.auto_restart.grace_ms, ARRIVAL_MAX_MS)
        intended = resource.step is LaunchStep.INTENDED
        return self._led_since_ms + (START_MAX_MS if intended else arrival_ms)

    def _decide(self, resource: Resource) -> Decision:
        known, setting = self.known(resource), self._options.auto_restart
        return decide(known, setting, leads=True, now_ms=self.now_ms)

    def _not_needed(
        self, found: Sequence[tuple[Resource, Decision]], by_hand: Sequence[Threads]
    ) -> frozenset[str]:
        """Of earlier requests for the floor, which has others by now: auto-restart was off, or the
        floor higher. What a user asked for is always needed."""
        parts = [(*each, self._threads(*each)) for each in found]
        mine = [each for each in parts if each[0].made_for == FOR_FLOOR and self._restarts(*each)]
        ids = {resource.id for resource, _, _ in mine}
        others = [threads for resource, _, threads in parts if resource.id not in ids]
        mine.sort(key=lambda each: self._comes_back_at(*each))
        return surplus(
            self.group.min_parallelism,
            Capacity.of([*others, *by_hand]).asked_for,
            [(resource.id, resource.threads) for resource, _, _ in mine],
        )

    def _restarts(self, resource: Resource, _: Decision, threads: Threads) -> bool:
        """Whether it is us who start it again."""
        return threads.restarting and self.known(resource).restartable

    def _comes_back_at(
        self, resource: Resource, found: Decision, threads: Threads
    ) -> tuple[bool, int, str]:
        """To be compared: what is under way comes before what is still to be started again."""
        intended = resource.step is LaunchStep.INTENDED
        under_way = threads.booting or resource.attempts > 0 or intended
        noticed = found.verdict is Verdict.NOTICE
        grace_ms = self._options.auto_restart.grace_ms if noticed else 0
        return not under_way, found.until_ms or self.now_ms + grace_ms, resource.id

    def _threads(self, resource: Resource, found: Decision) -> Threads:
        worker = self.workers.get(resource.id)
        if worker is not None:
            draining = worker.drain_since_ms > 0 or resource.wanted_released
            return Threads(worker.slots, registered=True, draining=draining)
        if resource.wanted_released:
            return Threads(0)
        setting = self._options.auto_restart
        young = is_young(resource, setting.grace_ms, now_ms=self.now_ms)
        booting = young and resource.step is not LaunchStep.FAILED
        waits = found.verdict in COMES_BACK and setting.enabled
        comes_back = (waits and self.known(resource).restartable) or self._is_healed(resource)
        return Threads(resource.threads, booting=booting, restarting=comes_back)

    def _is_healed(self, resource: Resource) -> bool:
        """Whether its container brings it up, however long that takes: nobody asks for another."""
        container = self.container_of(resource.container)
        if container is None or not container.supports.start or container.supports.restart:
            return False
        return resource.step is not LaunchStep.FAILED


def is_young(resource: Resource, grace_ms: int, *, now_ms: int) -> bool:
    """Whether it was started so lately that its worker may still boot."""
    at_ms = resource.launched_at_ms or 0
    return at_ms - grace_ms <= now_ms < at_ms + grace_ms


def is_given_up(resource: Resource) -> bool:
    return resource.wanted_released and (resource.told or "").startswith(GAVE_UP)


def why_left_alone(resource: Resource, verdict: Verdict, container: WorkerContainer | None) -> str:
    by_user = container is not None and not container.supports.start
    return left_alone(verdict, resource.container, by_user=by_user)


def left_alone(verdict: Verdict, container: str, *, by_user: bool = False) -> str:
    """Why a resource without a worker is left alone (R6, R7)."""
    if verdict is Verdict.ISOLATED:
        return (
            f"its container {container!r} is no longer configured, so nobody can start it; "
            "configure the container again, or release the resource"
        )
    if by_user:
        return f"its container {container!r} leaves starting to you; nobody else starts it"
    return (
        f"its container {container!r} does not have it started again by us; release the "
        "resource if it does not come back"
    )
