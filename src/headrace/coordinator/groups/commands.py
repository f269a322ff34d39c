"""What a person may ask about groups, their workers and resources. As everywhere, a command writes
what is *wanted*, on any node, and says why it can't be had and what to do instead; the leader does
it. Each of them said twice is said once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.containers.launching import WorkerContainer
from headrace.containers.properties import check_name as check_resource
from headrace.coordinator.groups import checks, refusals
from headrace.coordinator.groups.known import known_group, known_resource, known_worker
from headrace.errors import Refused
from headrace.model.groups.capacity import Keeping
from headrace.model.groups.properties import launch_properties, table_defaults
from headrace.model.ids import Ids
from headrace.model.names import check_name
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.store import group_users, groups, lake_lists, leases, resources, wake, workers
from headrace.store.groups import EXTERNAL, Group
from headrace.store.resources import Resource
from headrace.store.tx import in_tx
from headrace.store.workers import Worker

FOR_USER = "user"
RESOURCES_MAX = 1000  # of one group


@dataclass(frozen=True, slots=True)
class NewGroup:
    name: str
    container: str = EXTERNAL
    min_parallelism: int = 0
    memory_mb: int = 0  # of each resource; 0: as its container has it
    policy: str | None = None  # None: as the coordinator was told
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be other than it was; the rest stays."""

    container: str | None = None
    min_parallelism: int | None = None
    memory_mb: int | None = None
    policy: str | None = None  # "" takes it away
    # A value of None takes the property away.
    properties: Mapping[str, str | None] = field(default_factory=dict[str, str | None])


@dataclass(frozen=True, slots=True)
class Drained:
    worker: Worker
    changed: bool  # False: it was so before


class GroupCommands:
    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        *,
        containers: Mapping[str, WorkerContainer] | None = None,
        stopping: threading.Event | None = None,
    ) -> None:
        """`containers`: those that are configured, by name."""
        self._engine, self._clock, self._ids = engine, clock, ids
        self._containers = containers or {}
        self._stopping = stopping or threading.Event()

    def now_ms(self) -> int:
        """The time of this node, for whoever shows how far away another is."""
        return self._clock.wall_ms()

    def create(self, new: NewGroup) -> Group:
        check_name("group", new.name)
        policy = checks.policy_of(new.name, new.policy) if new.policy else None
        checks.check_container(new.name, new.container, self._containers)
        checks.check_numbers(new.name, min_parallelism=new.min_parallelism, memory_mb=new.memory_mb)
        self._check_properties(new.name, new.container, new.properties, new.memory_mb)

        def work(conn: Connection) -> Group:
            made = groups.add(
                conn,
                new.name,
                now_ms=self._clock.wall_ms(),
                container=new.container,
                min_parallelism=new.min_parallelism,
                memory_mb=new.memory_mb,
                policy=policy,
                properties=new.properties,
            )
            if not made:
                _check_same(known_group(conn, new.name), new, policy)
            elif table_defaults(new.properties):  # tables may have named it before it was there
                self._evaluate_again(conn, new.name)
            wake.notify(conn)
            return known_group(conn, new.name)

        return in_tx(self._engine, work, stop=self._stopping)

    def change(self, name: str, change: Change) -> Group:
        """Resources that are there stay as they were asked for; what is asked for next is so."""

        def work(conn: Connection) -> Group:
            before = _locked(conn, name)
            values = self._changed(before, change)
            if values:
                groups.change(conn, name, **values)
                if table_defaults(known_group(conn, name).properties) != table_defaults(
                    before.properties
                ):
                    self._evaluate_again(conn, name)
                # A person says now: what failed before is not waited for.
                groups.note_keeping(conn, name, Keeping())
                wake.notify(conn)
            return known_group(conn, name)

        return in_tx(self._engine, work, stop=self._stopping)

    def _changed(self, before: Group, change: Change) -> dict[str, object]:
        name = before.name
        merged = {**before.properties, **change.properties}
        properties = {key: value for key, value in merged.items() if value is not None}
        container = change.container or before.container
        floor = before.min_parallelism if change.min_parallelism is None else change.min_parallelism
        memory_mb = before.memory_mb if change.memory_mb is None else change.memory_mb
        policy = before.policy
        if change.policy is not None:
            policy = checks.policy_of(name, change.policy) if change.policy else None
        checks.check_numbers(name, min_parallelism=floor, memory_mb=memory_mb)
        # What is not changed is no reason to refuse a change of something else: its container may
        # no longer be configured, or know less than it did.
        if container != before.container:
            checks.check_container(name, container, self._containers)
        told, asked = (before.container, before.memory_mb), (container, memory_mb)
        if told != asked or properties != before.properties:
            self._check_properties(name, container, properties, memory_mb)
        after: dict[str, object] = {
            "container": container,
            "min_parallelism": floor,
            "memory_mb": memory_mb,
            "policy": policy,
            "properties": properties,
        }
        return {key: value for key, value in after.items() if value != getattr(before, key)}

    def scale(self, name: str, threads: int, *, key: str | None = None) -> Resource:
        """Ask for a further resource. `key` becomes its id: with the same one it is the same."""
        checks.check_threads(name, threads)
        resource_id = key or self._ids.new()
        check_resource("resource id", resource_id)  # containers name folders and pods by it

        def work(conn: Connection) -> Resource:
            group = _locked(conn, name)
            before = resources.get(conn, resource_id)
            if before is not None:
                return _asked_before(before, name, threads)
            self._check_room(conn, group)
            resources.add(
                conn,
                resource_id,
                group=name,
                container=group.container,
                threads=threads,
                memory_mb=group.memory_mb,
                properties=launch_properties(group.properties),
                made_for=FOR_USER,
                now_ms=self._clock.wall_ms(),
            )
            wake.notify(conn)
            return known_resource(conn, resource_id)

        return in_tx(self._engine, work, stop=self._stopping)

    def _check_room(self, conn: Connection, group: Group) -> None:
        checks.check_container(group.name, group.container, self._containers)
        if len(resources.of_group(conn, group.name)) >= RESOURCES_MAX:
            raise Refused(
                f"group {group.name!r} has {RESOURCES_MAX} resources, the most that there may be; "
                "ask for larger ones, or release some with `headrace worker release`"
            )

    def remove(self, name: str, *, force: bool = False) -> Group:
        """Have its resources released, and the group forgotten when they are."""

        def work(conn: Connection) -> Group:
            group = known_group(conn, name)
            users = group_users.of(conn, name)
            if users and not force and not group.wanted_removed:
                raise refusals.in_use(name, users)
            groups.change(conn, name, wanted_removed=1)
            if table_defaults(group.properties):
                self._evaluate_again(conn, name)
            wake.notify(conn)
            return known_group(conn, name)

        return in_tx(self._engine, work, stop=self._stopping)

    def drain(self, worker_id: str) -> Drained:
        """Give a worker nothing more. What it holds, it finishes."""

        def work(conn: Connection) -> Drained:
            known_worker(conn, worker_id)
            since_ms = leases.lasts_from_ms(conn, now_ms=self._clock.wall_ms())
            changed = workers.drain(conn, worker_id, now_ms=since_ms)
            return Drained(known_worker(conn, worker_id), changed)

        return in_tx(self._engine, work, stop=self._stopping)

    def resume(self, worker_id: str) -> Drained:
        """Take a drain back: the worker is given work again, as long as it is there."""

        def work(conn: Connection) -> Drained:
            worker = known_worker(conn, worker_id)
            resource = resources.get(conn, worker.resource_id) if worker.resource_id else None
            if resource is not None and resource.wanted_released:
                raise refusals.being_released(worker_id, resource)
            changed = workers.resume(conn, worker_id)
            wake.notify(conn)
            return Drained(known_worker(conn, worker_id), changed)

        return in_tx(self._engine, work, stop=self._stopping)

    def release(self, named: str) -> Resource:
        """Have a resource, or that of a worker, stopped and forgotten, once it holds nothing."""

        def work(conn: Connection) -> Resource:
            resource = known_resource(conn, named)
            resources.want_released(conn, resource.id)
            wake.notify(conn)
            return known_resource(conn, resource.id)

        return in_tx(self._engine, work, stop=self._stopping)

    def _evaluate_again(self, conn: Connection, name: str) -> None:
        """Its tables have other defaults from now on."""
        at_once_ms = leases.at_once_ms(conn, now_ms=self._clock.wall_ms())
        lake_lists.evaluate_again(conn, group=name, now_ms=at_once_ms)

    def _check_properties(
        self, name: str, container: str, properties: Mapping[str, str], memory_mb: int
    ) -> None:
        checks.check_properties(name, properties)
        checks.check_table_defaults(name, table_defaults(properties))
        if (place := self._containers.get(container)) is not None:
            place.check(name, launch_properties(properties), memory_mb=memory_mb)


def _locked(conn: Connection, name: str) -> Group:
    group = groups.lock(conn, name) or known_group(conn, name)
    if group.wanted_removed:
        raise refusals.being_removed(name)
    return group


def _check_same(there: Group, new: NewGroup, policy: SchedulingPolicy | None) -> None:
    """That the group of this name is the one that was asked for: somebody repeats himself."""
    if there.wanted_removed:
        raise refusals.being_removed(there.name)
    told = (there.container, there.min_parallelism, there.memory_mb, there.policy)
    asked = (new.container, new.min_parallelism, new.memory_mb, policy)
    if told != asked or dict(there.properties) != dict(new.properties):
        raise refusals.another_one(there)


def _asked_before(before: Resource, group: str, threads: int) -> Resource:
    if (before.group, before.threads) != (group, threads):
        raise refusals.id_taken(before)
    return before
