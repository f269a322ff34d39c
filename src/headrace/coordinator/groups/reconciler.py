"""The group controller and reconciler: restarts orphans and keeps each group's floor.

Restarts of resources without a worker, and requests for resources that the floor lacks, are decided
in one sum (R5). The reconciler decides and records; the launcher makes the calls to containers. A
new launch is stored as an intent with a number: the next leader finds it, and repeats the call. A
`GroupController` lives for one leader term.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import assert_never

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.context import GroupOptions, Metrics, run_once
from headrace.coordinator.groups.launcher import Launcher
from headrace.coordinator.groups.snapshot import (
    FOR_FLOOR,
    GroupSnapshot,
    is_within_grace,
    notice_of,
    text_of,
)
from headrace.model.groups import (
    Decision,
    Kept,
    OrphanVerdict,
    ResourceNotice,
    launch_properties,
    shares,
)
from headrace.model.ids import Ids
from headrace.model.text import span
from headrace.seams import seam
from headrace.store.core.engine import reading
from headrace.store.core.transactions import Term
from headrace.store.groups import groups, resources
from headrace.store.groups.groups import Group
from headrace.store.groups.resources import Resource
from headrace.store.tasks import workers

log = logging.getLogger(__name__)

KEEP_INTERVAL_S = 1.0  # between two passes over the groups

# Verdicts that must not be applied to a resource whose worker is registered.
ONLY_WITHOUT_WORKER = frozenset(
    {OrphanVerdict.RESTART, OrphanVerdict.REMOVE, OrphanVerdict.SURPLUS}
)


class GroupController:
    """One pass over all groups: decide, then call containers. Lives for one leader term."""

    def __init__(
        self,
        engine: Engine,
        term: Term,
        clock: Clock,
        ids: Ids,
        metrics: Metrics,
        options: GroupOptions,
        *,
        trusted: Callable[[], bool],
    ) -> None:
        self._engine, self._term, self._clock, self._metrics = engine, term, clock, metrics
        self._groups = GroupReconciler(clock, ids, options)
        self.launcher = Launcher(engine, term, clock, options, trusted=trusted, metrics=metrics)
        self._next_at_s = 0.0

    def run(self) -> None:
        """Decide first, then have containers called for what was decided."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_at_s:
            return
        self._next_at_s = now_s + KEEP_INTERVAL_S
        keys = self._groups.keys(self._engine)
        failed = run_once(self._engine, self._term, self._groups, keys).failed
        self._metrics.reconcile_failures.inc(len(failed))
        self.launcher.run()

    def stop(self) -> None:
        self.launcher.stop()


class GroupReconciler:
    """Keys are group names."""

    name = "groups"

    def __init__(self, clock: Clock, ids: Ids, options: GroupOptions) -> None:
        self._clock, self._ids, self._options = clock, ids, options
        self._led_since_ms = clock.wall_ms()

    def keys(self, engine: Engine) -> Sequence[str]:
        """Groups that have resources or want some. A group of external workers has neither."""
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
        snapshot = self._snapshot(conn, group)
        return group.wanted_removed or snapshot.changes

    def reconcile(self, conn: Connection, key: str) -> None:
        group = groups.lock(conn, key)
        if group is None:
            return
        if group.wanted_removed:
            self._remove(conn, group)
            return
        snapshot = self._snapshot(conn, group)
        for resource, decision in snapshot.decisions:
            if decision.verdict not in ONLY_WITHOUT_WORKER or self._is_lost(conn, resource):
                self._apply(conn, resource, decision)
        for worker in snapshot.to_drain:
            workers.drain(conn, worker.id, now_ms=self._clock.wall_ms())
        if snapshot.kept is not None:
            self._keep(conn, group, snapshot.kept)

    def _snapshot(self, conn: Connection, group: Group) -> GroupSnapshot:
        now_ms, led_since_ms = self._clock.wall_ms(), self._led_since_ms
        return GroupSnapshot.at(
            conn, group, self._options, now_ms=now_ms, led_since_ms=led_since_ms
        )

    def _is_lost(self, conn: Connection, resource: Resource) -> bool:
        """Check again with the row locked, as a registration locks it: either the registration
        comes first and the resource stays as it is, or the worker finds what is decided here
        (R4)."""
        seam("resource found lost, before it is locked")
        current = resources.lock(conn, resource.id)
        if current is None or current.launch != resource.launch or current.wanted_released:
            return False
        return workers.of_resource(conn, resource.id) is None

    def _apply(self, conn: Connection, resource: Resource, decision: Decision) -> None:
        now_ms, facts = self._clock.wall_ms(), {"resource": resource.id, "group": resource.group}
        match decision.verdict:
            case OrphanVerdict.NOTHING | OrphanVerdict.WAIT:
                pass
            case OrphanVerdict.NOTICE:
                resources.note_orphaned(conn, resource, now_ms=now_ms)
                grace_ms = self._options.auto_restart.grace_ms
                young = is_within_grace(resource, grace_ms, now_ms=now_ms)
                level = logging.INFO if young else logging.WARNING
                log.log(level, "resource has no worker", extra=facts)
            case OrphanVerdict.RECOVERED:
                resources.note_recovered(conn, resource)
                log.info("resource has its worker again", extra=facts)
            case OrphanVerdict.RESTART:
                attempt = decision.attempt
                resources.intend(conn, resource, attempts=attempt, now_ms=now_ms)
                log.warning("resource is started again", extra={**facts, "attempt": attempt})
                seam("restart intended, in transaction")
            case OrphanVerdict.REMOVE:
                self._give_up(conn, resource)
            case OrphanVerdict.SURPLUS:
                reason = self._release(conn, resource, ResourceNotice.NOT_NEEDED)
                log.info("resource released", extra={**facts, "reason": reason})
            case OrphanVerdict.OPTED_OUT | OrphanVerdict.ISOLATED:
                self._note_once(conn, resource, decision.verdict)
            case _:
                assert_never(decision.verdict)

    def _give_up(self, conn: Connection, resource: Resource) -> None:
        """Release it: its container ends whatever is left, then its record is dropped (R3)."""
        grace = span(self._options.auto_restart.grace_ms)
        reason = resource.error or (
            f"its worker had not registered {grace} after its start; `headrace coordinator "
            "--auto-restart-grace-period` gives it longer"
        )
        message = f"{text_of(ResourceNotice.GAVE_UP, resource)}: {reason}"
        resources.release(conn, resource, ResourceNotice.GAVE_UP, told=message)
        resources.add_given_up(conn, resource, reason=reason, now_ms=self._clock.wall_ms())
        log.error("resource given up", extra={"resource": resource.id, "reason": message})

    def _note_once(self, conn: Connection, resource: Resource, verdict: OrphanVerdict) -> None:
        """Record and log why a resource is left alone, unless that is recorded already."""
        notice = notice_of(verdict, self._options.containers.get(resource.container))
        if notice is not None and resource.notice is not notice:
            message = text_of(notice, resource)
            resources.note_left_alone(conn, resource, notice, told=message)
            log.warning("resource left alone", extra={"resource": resource.id, "reason": message})

    def _release(self, conn: Connection, resource: Resource, notice: ResourceNotice) -> str:
        """Have a resource released; return why, for people."""
        message = text_of(notice, resource)
        resources.release(conn, resource, notice, told=message)
        return message

    def _keep(self, conn: Connection, group: Group, kept: Kept) -> None:
        """Record how the floor is kept, and add the resources that it needs."""
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
        """Release the group's resources; the group is dropped with the last of them."""
        left = resources.of_group(conn, group.name)
        for resource in left:
            if not resource.wanted_released:
                self._release(conn, resource, ResourceNotice.GROUP_REMOVED)
            # As with every release, the worker is drained before its resource is stopped.
            worker = workers.of_resource(conn, resource.id)
            if worker is not None:
                workers.drain(conn, worker.id, now_ms=self._clock.wall_ms())
        if not left:
            resources.forget_given_up(conn, group.name)
            groups.drop(conn, group.name)
            log.info("group removed", extra={"group": group.name})
