"""What a container is to be asked about a resource, at one moment of a term, if anything.

A start that nobody waits for any more may still come up: one of the leader before, or one that
broke off. It is not stopped before its time is over, since a stop that comes first finds nothing to
end, and then no record is left of what comes up.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.containers.launching import WorkerContainer
from headrace.coordinator.groups.asking import What
from headrace.coordinator.options import GroupOptions
from headrace.model.groups.resource import LaunchStep
from headrace.store import claims, workers
from headrace.store.resources import Resource

DRAIN_MAX_MS = 15 * 60_000  # so long a released worker may finish what it has
LOOK_INTERVAL_S = 10.0  # between two questions how the worker of an orphan ended, and at least
LOOKS_PER_GRACE = 3  # so many before it is started again, or given up: that needs the answer
LANDS_MAX_S = 60.0  # after that no start comes up that nobody waits for


class Due:
    """Of one term."""

    def __init__(self, clock: Clock, options: GroupOptions) -> None:
        self._clock, self._options = clock, options
        grace_s = options.auto_restart.grace_ms / 1000
        self._look_every_s = min(LOOK_INTERVAL_S, grace_s / LOOKS_PER_GRACE)
        self._look_at_s: dict[str, float] = {}
        self._drains_seen_ms: dict[str, int] = {}  # by resource: when it was first found draining
        self._lands_until_s: dict[str, float] | None = None

    def of(self, conn: Connection, found: Sequence[Resource]) -> list[tuple[Resource, What]]:
        """`found`: all that there are."""
        self._remember(found)
        asked = [(each, self._what(conn, each)) for each in found]
        return [(each, what) for each, what in asked if what is not None]

    def broke_off(self, resource: str) -> None:
        """Its start, of which nobody knows whether it comes up."""
        assert self._lands_until_s is not None, "nothing is asked before the first look"
        self._lands_until_s[resource] = self._clock.monotonic_s() + LANDS_MAX_S

    def _remember(self, found: Sequence[Resource]) -> None:
        known = {each.id for each in found}
        if self._lands_until_s is None:  # whoever led before may have asked for any of these
            until_s = self._clock.monotonic_s() + LANDS_MAX_S
            self._lands_until_s = dict.fromkeys(known, until_s)
        for times in (self._look_at_s, self._lands_until_s, self._drains_seen_ms):
            for gone in set(times) - known:
                del times[gone]

    def _what(self, conn: Connection, resource: Resource) -> What | None:
        container = self._options.containers.get(resource.container)
        if resource.wanted_released:
            return self._ending(conn, resource, container)
        if container is None:
            return None
        if resource.step is LaunchStep.INTENDED:
            return What.START
        # What heals itself may be held up by one thing after the other.
        unexplained = resource.error is None or not container.supports.restart
        orphaned = resource.orphaned_since_ms is not None and unexplained
        return What.LOOK if orphaned and self._may_look(resource) else None

    def _ending(
        self, conn: Connection, resource: Resource, container: WorkerContainer | None
    ) -> What | None:
        if not self._is_to_go(conn, resource):
            return None
        if container is None:
            return What.DROP
        return None if container.supports.stop and self.may_land(resource) else What.STOP

    def _is_to_go(self, conn: Connection, resource: Resource) -> bool:
        """Its worker is gone, holds nothing any more, or had its time to finish."""
        worker = workers.of_resource(conn, resource.id)
        if worker is None:
            return True
        if worker.drain_since_ms == 0:
            self._drains_seen_ms.pop(resource.id, None)
            return False
        # A node may have been asked for it whose clock is ahead: it began when we saw it, at least.
        now_ms = self._clock.wall_ms()
        seen_ms = self._drains_seen_ms.setdefault(resource.id, now_ms)
        late = now_ms - min(worker.drain_since_ms, seen_ms) > DRAIN_MAX_MS
        return late or not claims.held_by(conn, worker.id)

    def may_land(self, resource: Resource) -> bool:
        """Whether a start of it, that nobody waits for, can still come up."""
        if resource.step is LaunchStep.STARTED:
            return False
        return self._clock.monotonic_s() < (self._lands_until_s or {}).get(resource.id, 0)

    def _may_look(self, resource: Resource) -> bool:
        """Whether the container is to be asked how it is; not at each pass."""
        now_s = self._clock.monotonic_s()
        if resource.step is not LaunchStep.STARTED or now_s < self._look_at_s.get(resource.id, 0):
            return False
        self._look_at_s[resource.id] = now_s + self._look_every_s
        return True
