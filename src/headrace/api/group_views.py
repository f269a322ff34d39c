"""What people see of groups, resources and workers, each with what the keeper does next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import Connection

from headrace.containers.launching import Supports
from headrace.coordinator.groups import next as coming
from headrace.coordinator.groups.look import Look
from headrace.coordinator.options import Options
from headrace.logs import REDACTED
from headrace.model.redaction import blanked, sounds_secret
from headrace.store import claims, given_up, groups, workers
from headrace.store.groups import Group
from headrace.store.resources import Resource
from headrace.store.workers import Worker
from headrace.views import WorkerView
from headrace.views_groups import CapacityView, GivenUpView, GroupView, ResourceView


def group_view(
    conn: Connection, group: Group, options: Options, *, now_ms: int, whole: bool = True
) -> GroupView:
    """`whole`: with its resources, its workers and what was given up; a list does without."""
    look = Look.at(conn, group, options.groups, now_ms=now_ms)
    keeping = group.keeping
    said = coming.of_group(
        group,
        look.capacity,
        options.groups.keep,
        resources=len(look.decisions),
        supports=_supports(look, group.container),
        now_ms=now_ms,
    )
    orphans = [each for each, _ in look.decisions if each.id not in look.workers]
    gone = given_up.of(conn, group.name) if whole else ()
    return GroupView(
        name=group.name,
        container=group.container,
        min_parallelism=group.min_parallelism,
        effective_parallelism=(
            group.min_parallelism if keeping.effective is None else keeping.effective
        ),
        effective_reason=keeping.reason,
        memory_mb=group.memory_mb,
        policy=(group.policy or options.tables.policy).value,
        own_policy=group.policy is not None,
        properties=shown(group.properties),
        created_at_ms=group.created_at_ms,
        removing=group.wanted_removed,
        capacity=CapacityView(**asdict(look.capacity)),
        orphans=len(orphans),
        next=said.said,
        next_at_ms=said.at_ms,
        resources=tuple(_resources(look, options)) if whole else (),
        workers=tuple(worker_views(conn, options, of=group, now_ms=now_ms)) if whole else (),
        given_up=tuple(GivenUpView(**asdict(each)) for each in gone),
    )


def _supports(look: Look, container: str) -> Supports | None:
    found = look.container_of(container)
    return None if found is None else found.supports


def _resources(look: Look, options: Options) -> Sequence[ResourceView]:
    return [_resource_view(each, look, options) for each, _ in look.decisions]


def resource_view(
    conn: Connection, resource: Resource, options: Options, *, now_ms: int
) -> ResourceView:
    group = groups.get(conn, resource.group)
    assert group is not None, "a resource keeps its group from going"
    look = Look.at(conn, group, options.groups, now_ms=now_ms)
    return _resource_view(resource, look, options)


def _resource_view(resource: Resource, look: Look, options: Options) -> ResourceView:
    worker = look.workers.get(resource.id)
    said = _next_of(resource, look, options)
    return ResourceView(
        id=resource.id,
        group=resource.group,
        container=resource.container,
        threads=resource.threads,
        memory_mb=resource.memory_mb,
        properties=shown(resource.properties),
        made_for=resource.made_for,
        created_at_ms=resource.created_at_ms,
        launch=resource.launch,
        step=resource.step.value,
        started_at_ms=resource.started_at_ms,
        launched_at_ms=resource.launched_at_ms,
        orphaned_since_ms=resource.orphaned_since_ms,
        attempts=resource.attempts,
        releasing=resource.wanted_released,
        error=resource.error,
        worker=worker.id if worker else None,
        next=said.said,
        next_at_ms=said.at_ms,
    )


def _next_of(resource: Resource, look: Look, options: Options) -> coming.Next:
    return coming.of_resource(
        resource,
        look.known(resource),
        options.groups.auto_restart,
        worker=look.workers.get(resource.id),
        supports=_supports(look, resource.container),
        now_ms=look.now_ms,
    )


def worker_views(
    conn: Connection,
    options: Options,
    *,
    now_ms: int,
    of: Group | None = None,
    only: Worker | None = None,
) -> Sequence[WorkerView]:
    """Of a group, or all that are registered, or one."""
    found: Sequence[Worker] = [only] if only is not None else ()
    if only is None:
        found = workers.registered(conn) if of is None else workers.of_group(conn, of.name)
    held = claims.assigned_to(conn, [worker.id for worker in found])
    executions: dict[str, list[str]] = {}
    for task in held:
        executions.setdefault(task.worker_id or "", []).append(task.claim.execution)
    told = _told(conn, found, options, now_ms=now_ms)
    return [_worker_view(each, executions.get(each.id, ()), told) for each in found]


def _told(
    conn: Connection, found: Sequence[Worker], options: Options, *, now_ms: int
) -> Mapping[str, str]:
    """By resource: what comes next."""
    told: dict[str, str] = {}
    for name in sorted({each.group for each in found if each.resource_id}):
        group = groups.get(conn, name)
        if group is not None:
            look = Look.at(conn, group, options.groups, now_ms=now_ms)
            told |= {each.id: _next_of(each, look, options).said for each, _ in look.decisions}
    return told


def _worker_view(worker: Worker, executions: Sequence[str], told: Mapping[str, str]) -> WorkerView:
    said = told.get(worker.resource_id or "", "") if worker.resource_id else None
    return WorkerView(
        id=worker.id,
        group=worker.group,
        slots=worker.slots,
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        spark_application=worker.spark_application,
        registered_at_ms=worker.registered_at_ms,
        seen_at_ms=worker.seen_at_ms,
        executions=tuple(executions),
        resource=worker.resource_id,
        launch=worker.launch,
        memory_mb=worker.memory_mb,
        drain_since_ms=worker.drain_since_ms or None,
        next=coming.of_worker(worker).said if said is None else said,
    )


def shown(properties: Mapping[str, str]) -> dict[str, str]:
    """Without secrets, also those that an earlier version took."""
    return {
        key: REDACTED if sounds_secret(key) else blanked(value) for key, value in properties.items()
    }
