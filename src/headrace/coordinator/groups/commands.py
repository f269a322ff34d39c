"""Commands about groups, their workers and their resources, and the validation of what they write.

As everywhere, a command writes what is *wanted*, on any node; the leader acts on it. A command that
can't be carried out says why, and what to do instead. Everything that can be checked is checked
before anything is written, and a name that is not known is answered with the one that was probably
meant. Every command is idempotent.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.containers.container import WorkerContainer
from headrace.containers.container import check_name as check_resource
from headrace.coordinator.tables.catalog_commands import check_defaults
from headrace.errors import BadSetting, NotFound, Refused
from headrace.model.groups import THREADS_MAX, Keeping, launch_properties, table_defaults
from headrace.model.ids import Ids, check_name
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.model.tables.settings import property_of
from headrace.model.text import count, hint, secret_places, sounds_secret, utc
from headrace.store import lookups
from headrace.store.core import leases, notifications
from headrace.store.core.transactions import in_tx
from headrace.store.groups import groups, resources
from headrace.store.groups.groups import EXTERNAL, Group
from headrace.store.groups.resources import Resource
from headrace.store.lookups import GroupUsers
from headrace.store.tables import table_changes
from headrace.store.tasks import workers
from headrace.store.tasks.workers import Worker

FOR_USER = "user"
RESOURCES_MAX = 1000  # of one group
PARALLELISM_MAX = 100_000  # threads of a group
MEMORY_MB_MAX = 16_000_000
PROPERTIES_MAX = 100  # of one group
VALUE_MAX = 4000  # characters


@dataclass(frozen=True, slots=True)
class NewGroup:
    name: str
    container: str = EXTERNAL
    min_parallelism: int = 0
    memory_mb: int = 0  # of each resource; 0: the default of its container
    policy: str | None = None  # None: the coordinator's
    properties: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class GroupChange:
    """What is to change; whatever is not given stays as it is."""

    container: str | None = None
    min_parallelism: int | None = None
    memory_mb: int | None = None
    policy: str | None = None  # "" removes it
    # A value of None removes the property.
    properties: Mapping[str, str | None] = field(default_factory=dict[str, str | None])


@dataclass(frozen=True, slots=True)
class Drained:
    worker: Worker
    changed: bool  # False: it was so already


class GroupCommands:
    """Commands that any node may run: they write what is wanted, and the leader acts on it."""

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
        """This node's wall clock, for views that show durations relative to it."""
        return self._clock.wall_ms()

    def create(self, new: NewGroup) -> Group:
        check_name("group", new.name)
        policy = policy_of(new.name, new.policy) if new.policy else None
        check_container(new.name, new.container, self._containers)
        check_numbers(new.name, min_parallelism=new.min_parallelism, memory_mb=new.memory_mb)
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
            elif table_defaults(new.properties):  # tables may have named it before it existed
                self._evaluate_again(conn, new.name)
            notifications.notify(conn)
            return known_group(conn, new.name)

        return in_tx(self._engine, work, stop=self._stopping)

    def change(self, name: str, change: GroupChange) -> Group:
        """Change a group. Existing resources keep their settings; only later requests use the new
        ones."""

        def work(conn: Connection) -> Group:
            before = _locked(conn, name)
            after = self._changed(before, change)
            if after != before:
                groups.configure(
                    conn,
                    name,
                    container=after.container,
                    min_parallelism=after.min_parallelism,
                    memory_mb=after.memory_mb,
                    policy=after.policy,
                    properties=after.properties,
                )
                if table_defaults(after.properties) != table_defaults(before.properties):
                    self._evaluate_again(conn, name)
                # A person asked for it now: the back-off after failures is skipped.
                groups.note_keeping(conn, name, Keeping())
                notifications.notify(conn)
            return known_group(conn, name)

        return in_tx(self._engine, work, stop=self._stopping)

    def _changed(self, before: Group, change: GroupChange) -> Group:
        """The group as it is wanted, checked."""
        name = before.name
        merged = {**before.properties, **change.properties}
        properties = {key: value for key, value in merged.items() if value is not None}
        container = change.container or before.container
        floor = before.min_parallelism if change.min_parallelism is None else change.min_parallelism
        memory_mb = before.memory_mb if change.memory_mb is None else change.memory_mb
        policy = before.policy
        if change.policy is not None:
            policy = policy_of(name, change.policy) if change.policy else None
        check_numbers(name, min_parallelism=floor, memory_mb=memory_mb)
        # What stays the same is no reason to refuse a change of something else: the container may
        # no longer be configured, or accept less than it did.
        if container != before.container:
            check_container(name, container, self._containers)
        old_place, new_place = (before.container, before.memory_mb), (container, memory_mb)
        if old_place != new_place or properties != before.properties:
            self._check_properties(name, container, properties, memory_mb)
        return replace(
            before,
            container=container,
            min_parallelism=floor,
            memory_mb=memory_mb,
            policy=policy,
            properties=properties,
        )

    def scale(self, name: str, threads: int, *, key: str | None = None) -> Resource:
        """Request a further resource. `key` becomes its id, so that a request repeated with the
        same key returns the same resource."""
        check_threads(name, threads)
        resource_id = key or self._ids.new()
        check_resource("resource id", resource_id)  # containers use it in names of folders and pods

        def work(conn: Connection) -> Resource:
            group = _locked(conn, name)
            before = resources.get(conn, resource_id)
            if before is not None:
                return _same_request(before, name, threads)
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
            notifications.notify(conn)
            return known_resource(conn, resource_id)

        return in_tx(self._engine, work, stop=self._stopping)

    def _check_room(self, conn: Connection, group: Group) -> None:
        check_container(group.name, group.container, self._containers)
        if len(resources.of_group(conn, group.name)) >= RESOURCES_MAX:
            raise Refused(
                f"group {group.name!r} has {RESOURCES_MAX} resources, the most that there may be; "
                "ask for larger ones, or release some with `headrace worker release`"
            )

    def remove(self, name: str, *, force: bool = False) -> Group:
        """Have the group's resources released, and the group removed when none is left."""

        def work(conn: Connection) -> Group:
            group = known_group(conn, name)
            users = lookups.users_of(conn, name)
            if users and not force and not group.wanted_removed:
                raise in_use(name, users)
            groups.want_removed(conn, name)
            if table_defaults(group.properties):
                self._evaluate_again(conn, name)
            notifications.notify(conn)
            return known_group(conn, name)

        return in_tx(self._engine, work, stop=self._stopping)

    def drain(self, worker_id: str) -> Drained:
        """Give a worker no more tasks. It finishes those that it holds."""

        def work(conn: Connection) -> Drained:
            known_worker(conn, worker_id)
            since_ms = leases.lasts_from_ms(conn, now_ms=self._clock.wall_ms())
            changed = workers.drain(conn, worker_id, now_ms=since_ms)
            return Drained(known_worker(conn, worker_id), changed)

        return in_tx(self._engine, work, stop=self._stopping)

    def resume(self, worker_id: str) -> Drained:
        """Undo a drain: a worker that is still registered gets tasks again."""

        def work(conn: Connection) -> Drained:
            worker = known_worker(conn, worker_id)
            resource = resources.get(conn, worker.resource_id) if worker.resource_id else None
            if resource is not None and resource.wanted_released:
                raise being_released(worker_id, resource)
            changed = workers.resume(conn, worker_id)
            notifications.notify(conn)
            return Drained(known_worker(conn, worker_id), changed)

        return in_tx(self._engine, work, stop=self._stopping)

    def release(self, named: str) -> Resource:
        """Have a resource, named by its own or its worker's id, stopped and dropped once it holds
        no task."""

        def work(conn: Connection) -> Resource:
            resource = known_resource(conn, named)
            resources.want_released(conn, resource.id)
            notifications.notify(conn)
            return known_resource(conn, resource.id)

        return in_tx(self._engine, work, stop=self._stopping)

    def _evaluate_again(self, conn: Connection, name: str) -> None:
        """The tables of the group have other defaults from now on: have them evaluated."""
        at_once_ms = leases.at_once_ms(conn, now_ms=self._clock.wall_ms())
        table_changes.evaluate_again(conn, group=name, now_ms=at_once_ms)

    def _check_properties(
        self, name: str, container: str, properties: Mapping[str, str], memory_mb: int
    ) -> None:
        check_properties(name, properties)
        check_table_defaults(name, table_defaults(properties))
        if (place := self._containers.get(container)) is not None:
            place.check(name, launch_properties(properties), memory_mb=memory_mb)


def _locked(conn: Connection, name: str) -> Group:
    group = groups.lock(conn, name) or known_group(conn, name)
    if group.wanted_removed:
        raise being_removed(name)
    return group


def _check_same(existing: Group, new: NewGroup, policy: SchedulingPolicy | None) -> None:
    """Check that the existing group of this name is the one requested: the command was repeated."""
    if existing.wanted_removed:
        raise being_removed(existing.name)
    known_values = (
        existing.container,
        existing.min_parallelism,
        existing.memory_mb,
        existing.policy,
    )
    new_values = (new.container, new.min_parallelism, new.memory_mb, policy)
    if known_values != new_values or dict(existing.properties) != dict(new.properties):
        raise another_one(existing)


def _same_request(before: Resource, group: str, threads: int) -> Resource:
    """The resource of an earlier request with the same id, if that asked for the same."""
    if (before.group, before.threads) != (group, threads):
        raise id_taken(before)
    return before


def known_group(conn: Connection, name: str) -> Group:
    group = groups.get(conn, name)
    if group is None:
        names = [each.name for each in groups.all_of_them(conn)]
        raise NotFound("group", name, way_out=hint(name, names, noun="groups"))
    return group


def known_worker(conn: Connection, worker_id: str) -> Worker:
    worker = next((each for each in workers.registered(conn) if each.id == worker_id), None)
    if worker is None:
        raise NotFound(
            "worker",
            worker_id,
            way_out="`headrace worker list` shows those that are registered; one that died or "
            "said goodbye is not",
        )
    return worker


def known_resource(conn: Connection, named: str) -> Resource:
    """The resource with this id, or of the worker with this id."""
    resource = resources.get(conn, named)
    if resource is not None:
        return resource
    worker = next((each for each in workers.registered(conn) if each.id == named), None)
    if worker is None:
        raise NotFound("resource or worker", named, way_out=_way_out(conn, named))
    mine = resources.get(conn, worker.resource_id) if worker.resource_id else None
    if mine is None:
        raise Refused(
            f"worker {named} has no resource: somebody started it by hand, so only he can stop it, "
            f"and has its log. `headrace worker drain {named}` gives it nothing more"
        )
    return mine


def _way_out(conn: Connection, named: str) -> str:
    for group in groups.all_of_them(conn):
        for gone in resources.given_up_of(conn, group.name):
            if gone.resource == named:
                tried = count(gone.attempts, "attempt")
                return f"it was given up at {utc(gone.at_ms)}, after {tried}: {gone.reason}"
    return "`headrace group show` has the resources of a group, `headrace worker list` the workers"


def check_container(group: str, container: str, known: Collection[str]) -> None:
    """Refuse an unknown container at once: otherwise a typing error would show only when no workers
    come."""
    names = sorted({*known, EXTERNAL})
    if container not in names:
        raise BadSetting(
            f"container {container!r} of group {group!r} is not configured at this coordinator; "
            f"{hint(container, names, noun='containers')}. The file that --containers names has "
            "them"
        )


def check_numbers(group: str, *, min_parallelism: int, memory_mb: int) -> None:
    _check_range(f"min-parallelism of group {group!r}", min_parallelism, 0, PARALLELISM_MAX)
    _check_range(f"memory of group {group!r}, in MB,", memory_mb, 0, MEMORY_MB_MAX)


def check_threads(group: str, threads: int) -> None:
    _check_range(f"a resource of group {group!r}, in threads,", threads, 1, THREADS_MAX)


def _check_range(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadSetting(f"{what} can be {least} to {most}, and not {value}")


def check_properties(group: str, properties: Mapping[str, str]) -> None:
    if len(properties) > PROPERTIES_MAX:
        raise BadSetting(
            f"group {group!r} has {len(properties)} properties, and {PROPERTIES_MAX} is the most"
        )
    for name, value in properties.items():
        if not name or "\0" in name + value or max(len(name), len(value)) > VALUE_MAX:
            raise BadSetting(
                f"property {name[:100]!r} of group {group!r} can't be used; a name and a value "
                f"have up to {VALUE_MAX} characters, and none of them is NUL"
            )
        _check_no_secret(group, name, value)


def _check_no_secret(group: str, name: str, value: str) -> None:
    if sounds_secret(name):
        problem = "sounds secret"
    elif secret_places(value):
        problem = "has a secret inside of its value, such as the password of a URI"
    else:
        return
    raise BadSetting(
        f"property {name!r} of group {group!r} {problem}, and a group's properties are shown to "
        "everybody; set it for the container, in the file that --containers names"
    )


def check_table_defaults(group: str, defaults: Mapping[str, str]) -> None:
    named = property_of("group")
    if named in defaults:
        raise BadSetting(
            f"property {named!r} can't be a default of group {group!r}: which group a table is in "
            f"is said by the table, or by its catalog, `headrace catalog set … --default {named}="
            f"{group}`"
        )
    check_defaults(f"group {group!r}", defaults)


def policy_of(group: str, text: str) -> SchedulingPolicy:
    names = [policy.value for policy in SchedulingPolicy]
    if text.lower() not in names:
        raise BadSetting(
            f"scheduling policy {text!r} of group {group!r} does not exist; "
            f"{hint(text, names, noun='policies')}"
        )
    return SchedulingPolicy(text.lower())


def being_removed(name: str) -> Refused:
    return Refused(
        f"group {name!r} is being removed; when `headrace group list` no longer shows it, "
        f"`headrace group create {name}` makes it anew"
    )


def another_one(existing: Group) -> Refused:
    return Refused(
        f"there is a group {existing.name!r} already, of container {existing.container!r}, and it "
        f"is another than this (a worker that registers makes its group); change it with "
        f"`headrace group set {existing.name}`, or take another name"
    )


def id_taken(by: Resource) -> BadSetting:
    return BadSetting(
        f"resource id {by.id!r} is taken, by {count(by.threads, 'thread')} of group {by.group!r}; "
        "take another, or leave it out"
    )


def being_released(worker: str, resource: Resource) -> Refused:
    return Refused(
        f"worker {worker} can't be given work again: its resource {resource.id} is being released, "
        f"and it is stopped when it holds nothing. `headrace group scale {resource.group} "
        f"--threads {resource.threads}` asks for another one"
    )


def in_use(name: str, users: GroupUsers) -> Refused:
    uses: list[str] = []
    if users.jobs:
        uses.append(f"{count(users.jobs, 'job')} ({', '.join(users.named)})")
    if users.catalogs:
        uses.append(f"catalogs {', '.join(users.catalogs)}")
    if users.tables:
        uses.append(count(users.tables, "table"))
    if users.by_hand:
        uses.append(f"{count(users.by_hand, 'worker')} that you started yourself")
    return Refused(
        f"group {name!r} is used by {', '.join(uses)}; have them use another group first, or "
        f"delete it all the same with `headrace group delete {name} --force`: what needs its "
        "workers waits then"
    )
