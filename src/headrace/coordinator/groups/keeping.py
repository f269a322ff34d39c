"""Groups: resources without a worker are started again, and the floor is kept, in one sum (R5).

Here is decided and recorded; who asks the containers is `launching`. A new launch is an intent with
a number: whoever leads next finds it, and asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import assert_never

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.groups.look import (
    FOR_FLOOR,
    GAVE_UP,
    NOT_NEEDED,
    Look,
    is_young,
    why_left_alone,
)
from headrace.coordinator.options import GroupOptions
from headrace.model.groups.capacity import Kept, shares
from headrace.model.groups.orphans import Decision, Verdict
from headrace.model.groups.properties import launch_properties
from headrace.model.ids import Ids
from headrace.model.measures import count, span
from headrace.seams import seam
from headrace.store import given_up, groups, resources, workers
from headrace.store.engine import reading
from headrace.store.groups import Group
from headrace.store.resources import Resource

log = logging.getLogger(__name__)

# Never of one that has its worker.
OF_THE_LOST = frozenset({Verdict.RESTART, Verdict.REMOVE, Verdict.SURPLUS})


class Groups:
    """Keys are the names of groups."""

    name = "groups"

    def __init__(self, clock: Clock, ids: Ids, options: GroupOptions) -> None:
        self._clock, self._ids, self._options = clock, ids, options
        self._led_since_ms = clock.wall_ms()

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
        return group.wanted_removed or found.changes

    def reconcile(self, conn: Connection, key: str) -> None:
        group = groups.lock(conn, key)
        if group is None:
            return
        if group.wanted_removed:
            self._remove(conn, group)
            return
        found = self._look(conn, group)
        for resource, decision in found.decisions:
            if decision.verdict not in OF_THE_LOST or self._is_lost(conn, resource):
                self._apply(conn, resource, decision)
        for worker in found.to_drain:
            workers.drain(conn, worker.id, now_ms=self._clock.wall_ms())
        if found.kept is not None:
            self._keep(conn, group, found.kept)

    def _look(self, conn: Connection, group: Group) -> Look:
        now_ms, led_since_ms = self._clock.wall_ms(), self._led_since_ms
        return Look.at(conn, group, self._options, now_ms=now_ms, led_since_ms=led_since_ms)

    def _is_lost(self, conn: Connection, resource: Resource) -> bool:
        """Looked at once more with its row locked, as a registration locks it: either that comes
        first, and the resource stays as it is, or its worker finds what is decided here (R4)."""
        seam("resource found lost, before it is locked")
        found = resources.lock(conn, resource.id)
        if found is None or found.launch != resource.launch or found.wanted_released:
            return False
        return workers.of_resource(conn, resource.id) is None

    def _apply(self, conn: Connection, resource: Resource, decision: Decision) -> None:
        now_ms, facts = self._clock.wall_ms(), {"resource": resource.id, "group": resource.group}
        match decision.verdict:
            case Verdict.NOTHING | Verdict.WAIT:
                pass
            case Verdict.NOTICE:
                resources.note(conn, resource, orphaned_since_ms=now_ms)
                grace_ms = self._options.auto_restart.grace_ms
                young = is_young(resource, grace_ms, now_ms=now_ms)
                level = logging.INFO if young else logging.WARNING
                log.log(level, "resource has no worker", extra=facts)
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
            case Verdict.SURPLUS:
                resources.note(conn, resource, wanted_released=1, told=NOT_NEEDED)
                log.info("resource released", extra={**facts, "reason": NOT_NEEDED})
            case Verdict.OPTED_OUT | Verdict.ISOLATED:
                self._say_once(conn, resource, decision.verdict)
            case _:
                assert_never(decision.verdict)

    def _give_up(self, conn: Connection, resource: Resource) -> None:
        """Its container is asked to end whatever is left of it, then its record goes (R3)."""
        grace = span(self._options.auto_restart.grace_ms)
        reason = resource.error or (
            f"its worker had not registered {grace} after its start; `headrace coordinator "
            "--auto-restart-grace-period` gives it longer"
        )
        told = f"{GAVE_UP} after {count(resource.attempts, 'attempt')}: {reason}"
        resources.note(conn, resource, wanted_released=1, told=told)
        given_up.add(conn, resource, reason=reason, now_ms=self._clock.wall_ms())
        log.error("resource given up", extra={"resource": resource.id, "reason": told})

    def _say_once(self, conn: Connection, resource: Resource, verdict: Verdict) -> None:
        container = self._options.containers.get(resource.container)
        told = why_left_alone(resource, verdict, container)
        if resource.told != told:
            resources.note(conn, resource, told=told)
            log.warning("resource left alone", extra={"resource": resource.id, "reason": told})

    def _keep(self, conn: Connection, group: Group, kept: Kept) -> None:
        now_ms = self._clock.wall_ms()
        if kept.keeping != group.keeping:
            groups.note_keeping(conn, group.name, kept.keeping)
            if kept.keeping.reason and kept.keeping.reason != group.keeping.reason:
                facts = {"group": group.name, "reason": kept.keeping.reason}
                log.warning("floor of the group given up", extra=facts)
        for threads in shares(kept.request):
            resources.add(
                conn,
                self._ids.new(),
                group=group.name,
                container=group.container,
                threads=threads,
                memory_mb=group.memory_mb,
                properties=launch_properties(group.properties),
                made_for=FOR_FLOOR,
                now_ms=now_ms,
            )
            facts = {"group": group.name, "threads": threads}
            log.info("resource asked for, to keep the floor", extra=facts)

    def _remove(self, conn: Connection, group: Group) -> None:
        """Release its resources; the group goes with the last of them."""
        left = resources.of_group(conn, group.name)
        for resource in left:
            if not resource.wanted_released:
                resources.note(conn, resource, wanted_released=1, told="its group is removed")
            # As everything that is released: nothing is stopped before it has been told.
            worker = workers.of_resource(conn, resource.id)
            if worker is not None:
                workers.drain(conn, worker.id, now_ms=self._clock.wall_ms())
        if not left:
            given_up.forget(conn, group.name)
            groups.drop(conn, group.name)
            log.info("group removed", extra={"group": group.name})
