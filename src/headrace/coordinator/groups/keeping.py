"""Groups: resources without a worker are started again, and the floor is kept, in one sum (R5).

Here is decided and recorded; who asks the containers is `launching`. A new launch is an intent with
a number: whoever leads next finds it, and asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import assert_never

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.options import GroupOptions
from headrace.model.groups.capacity import Capacity, Threads, keep
from headrace.model.groups.orphans import Decision, Known, Verdict, decide
from headrace.model.groups.resource import LaunchStep
from headrace.model.ids import Ids
from headrace.seams import seam
from headrace.store import groups, resources, workers
from headrace.store.engine import reading
from headrace.store.groups import Group
from headrace.store.resources import Resource
from headrace.store.workers import Worker

log = logging.getLogger(__name__)

FOR_FLOOR = "floor"


class Groups:
    """Keys are the names of groups."""

    name = "groups"

    def __init__(self, clock: Clock, ids: Ids, options: GroupOptions) -> None:
        self._clock, self._ids, self._options = clock, ids, options

    def keys(self, engine: Engine) -> Sequence[str]:
        """Those that have resources, or want some. A group of external workers has neither."""
        with reading(engine) as conn:
            held = {each.group for each in resources.all_of_them(conn)}
            return [
                group.name
                for group in groups.all_of_them(conn)
                if group.name in held or group.min_parallelism or group.wanted_removed
            ]

    def due(self, conn: Connection, key: str) -> bool:
        group = groups.get(conn, key)
        if group is None:
            return False
        found = self._look(conn, group)
        return found.changes(group) or group.wanted_removed

    def reconcile(self, conn: Connection, key: str) -> None:
        group = groups.lock(conn, key)
        if group is None:
            return
        if group.wanted_removed:
            self._remove(conn, group)
            return
        found = self._look(conn, group)
        for resource, decision in found.decisions:
            self._apply(conn, resource, decision)
        for worker in found.to_drain:
            workers.drain(conn, worker.id, now_ms=self._clock.wall_ms())
        self._keep(conn, group, found)

    def _look(self, conn: Connection, group: Group) -> _Look:
        live = {w.resource_id: w for w in workers.of_group(conn, group.name) if w.resource_id}
        by_hand = [w for w in workers.of_group(conn, group.name) if not w.resource_id]
        return _Look(
            resources.of_group(conn, group.name),
            live,
            by_hand,
            self._options,
            now_ms=self._clock.wall_ms(),
        )

    def _apply(self, conn: Connection, resource: Resource, decision: Decision) -> None:
        now_ms, facts = self._clock.wall_ms(), {"resource": resource.id, "group": resource.group}
        match decision.verdict:
            case Verdict.NOTHING | Verdict.WAIT:
                pass
            case Verdict.NOTICE:
                resources.note(conn, resource, orphaned_since_ms=now_ms)
                log.warning("resource has no worker", extra=facts)
            case Verdict.RECOVERED:
                resources.note(conn, resource, orphaned_since_ms=None, attempts=0, told=None)
                log.info("resource has its worker again", extra=facts)
            case Verdict.RESTART:
                attempt = decision.attempt
                resources.intend(conn, resource, attempts=attempt, now_ms=now_ms)
                log.warning("resource is started again", extra={**facts, "attempt": attempt})
                seam("restart intended, in transaction")
            case Verdict.REMOVE:
                self._give_up(conn, resource)
            case Verdict.OPTED_OUT | Verdict.ISOLATED:
                self._say_once(conn, resource, decision.verdict)
            case _:
                assert_never(decision.verdict)

    def _give_up(self, conn: Connection, resource: Resource) -> None:
        """Its container is asked to end whatever is left of it, then its record goes (R3)."""
        told = f"gave up after {resource.attempts} attempts: {resource.error or 'nobody said why'}"
        resources.note(conn, resource, wanted_released=1, told=told)
        log.error("resource given up", extra={"resource": resource.id, "reason": told})

    def _say_once(self, conn: Connection, resource: Resource, verdict: Verdict) -> None:
        told = _TOLD[verdict].format(container=resource.container)
        if resource.told != told:
            resources.note(conn, resource, told=told)
            log.warning("resource left alone", extra={"resource": resource.id, "reason": told})

    def _keep(self, conn: Connection, group: Group, found: _Look) -> None:
        now_ms = self._clock.wall_ms()
        kept = keep(
            group.min_parallelism, found.capacity, group.keeping, self._options.keep, now_ms=now_ms
        )
        if kept.keeping != group.keeping:
            groups.note_keeping(conn, group.name, kept.keeping)
            if kept.keeping.reason and kept.keeping.reason != group.keeping.reason:
                facts = {"group": group.name, "reason": kept.keeping.reason}
                log.warning("floor of the group given up", extra=facts)
        container = self._options.containers.get(group.container)
        if kept.request and container is not None and container.supports.start:
            resources.add(
                conn,
                self._ids.new(),
                group=group.name,
                container=group.container,
                threads=kept.request,
                memory_mb=group.memory_mb,
                properties=group.properties,
                made_for=FOR_FLOOR,
                now_ms=now_ms,
            )
            facts = {"group": group.name, "threads": kept.request}
            log.info("resource asked for, to keep the floor", extra=facts)

    def _remove(self, conn: Connection, group: Group) -> None:
        """Release its resources; the group goes with the last of them."""
        left = resources.of_group(conn, group.name)
        for resource in left:
            if not resource.wanted_released:
                resources.note(conn, resource, wanted_released=1, told="its group is removed")
        if not left:
            groups.drop(conn, group.name)
            log.info("group removed", extra={"group": group.name})


_TOLD = {
    Verdict.OPTED_OUT: (
        "its container {container!r} starts workers again by itself, so nobody else does; "
        "release the resource if it does not come back"
    ),
    Verdict.ISOLATED: (
        "its container {container!r} is no longer configured, so nobody can start it; configure "
        "the container again, or release the resource"
    ),
}


class _Look:
    """What there is of one group, at one moment, and what is to be done about it."""

    def __init__(
        self,
        found: Sequence[Resource],
        live: Mapping[str, Worker],
        by_hand: Sequence[Worker],
        options: GroupOptions,
        *,
        now_ms: int,
    ) -> None:
        self._options, self._now_ms, self._live = options, now_ms, live
        self.decisions = [(each, self._decide(each)) for each in found]
        parts = [self._threads(*each) for each in self.decisions]
        parts += [Threads(w.slots, registered=True, draining=w.drain_since_ms > 0) for w in by_hand]
        self.capacity = Capacity.of(parts)
        self.to_drain = [
            live[each.id]
            for each in found
            if each.wanted_released and each.id in live and not live[each.id].drain_since_ms
        ]

    def changes(self, group: Group) -> bool:
        said = {Verdict.OPTED_OUT, Verdict.ISOLATED}
        if self.to_drain or any(self._is_news(*each, said) for each in self.decisions):
            return True
        kept = keep(
            group.min_parallelism,
            self.capacity,
            group.keeping,
            self._options.keep,
            now_ms=self._now_ms,
        )
        return kept.keeping != group.keeping or kept.request > 0

    def _is_news(self, resource: Resource, found: Decision, said: set[Verdict]) -> bool:
        if found.verdict in said:
            return resource.told is None
        return found.verdict not in {Verdict.NOTHING, Verdict.WAIT}

    def _decide(self, resource: Resource) -> Decision:
        container = self._options.containers.get(resource.container)
        known = Known(
            alive=resource.id in self._live,
            released=resource.wanted_released,
            orphaned_since_ms=resource.orphaned_since_ms,
            started_at_ms=resource.launched_at_ms,
            attempts=resource.attempts,
            configured=container is not None,
            restartable=container is not None and container.supports.restart,
        )
        return decide(known, self._options.auto_restart, leads=True, now_ms=self._now_ms)

    def _threads(self, resource: Resource, found: Decision) -> Threads:
        worker = self._live.get(resource.id)
        if worker is not None:
            draining = worker.drain_since_ms > 0 or resource.wanted_released
            return Threads(resource.threads, registered=True, draining=draining)
        if resource.wanted_released or resource.step is LaunchStep.STOPPING:
            return Threads(0)
        young = self._now_ms < (resource.launched_at_ms or 0) + self._options.auto_restart.grace_ms
        booting = young and resource.step is not LaunchStep.FAILED
        waits = found.verdict in {Verdict.RESTART, Verdict.WAIT, Verdict.NOTICE}
        comes_back = waits and self._options.auto_restart.enabled and self._is_restartable(resource)
        return Threads(resource.threads, booting=booting, restarting=comes_back)

    def _is_restartable(self, resource: Resource) -> bool:
        container = self._options.containers.get(resource.container)
        return container is not None and container.supports.restart
