"""Views of groups, resources and workers, and the gauges of groups.

Each view has a forecast of what the reconciler does next. The gauges in /metrics show what the
store holds now; nothing is counted beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from prometheus_client import CollectorRegistry, Gauge
from sqlalchemy import Connection

from headrace.client.groups import CapacityView, GivenUpView, GroupView, ResourceView
from headrace.client.views import PluginVersionView, WorkerView
from headrace.containers.container import Supports
from headrace.coordinator.context import CoordinatorSettings
from headrace.coordinator.groups.snapshot import (
    Forecast,
    GroupSnapshot,
    group_forecast,
    resource_forecast,
    worker_forecast,
)
from headrace.coordinator.service import Coordinator
from headrace.coordinator.workforce import plugins_in
from headrace.logs import REDACTED
from headrace.model.text import blanked, sounds_secret
from headrace.protocol.versions import PLUGINS_OF_4
from headrace.store.groups import groups, resources
from headrace.store.groups.groups import Group
from headrace.store.groups.resources import Resource
from headrace.store.tasks import claims, workers
from headrace.store.tasks.workers import Worker


def group_view(
    conn: Connection, group: Group, options: CoordinatorSettings, *, now_ms: int, whole: bool = True
) -> GroupView:
    """`whole`: with its resources, its workers and what was given up; lists do without."""
    snapshot = GroupSnapshot.at(conn, group, options.groups, now_ms=now_ms)
    keeping = group.keeping
    forecast = group_forecast(
        group,
        snapshot.capacity,
        options.groups.keep,
        resources=len(snapshot.decisions),
        supports=_supports(snapshot, group.container),
        now_ms=now_ms,
    )
    orphans = [each for each, _ in snapshot.decisions if each.id not in snapshot.workers]
    given_up = resources.given_up_of(conn, group.name) if whole else ()
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
        properties=redacted_properties(group.properties),
        created_at_ms=group.created_at_ms,
        removing=group.wanted_removed,
        capacity=CapacityView(**asdict(snapshot.capacity)),
        orphans=len(orphans),
        next=forecast.text,
        next_at_ms=forecast.at_ms,
        resources=tuple(_resources(snapshot, options)) if whole else (),
        workers=tuple(worker_views(conn, options, of=group, now_ms=now_ms)) if whole else (),
        given_up=tuple(GivenUpView(**asdict(each)) for each in given_up),
    )


def _supports(snapshot: GroupSnapshot, container: str) -> Supports | None:
    configured = snapshot.container_of(container)
    return None if configured is None else configured.supports


def _resources(snapshot: GroupSnapshot, options: CoordinatorSettings) -> Sequence[ResourceView]:
    return [_resource_view(each, snapshot, options) for each, _ in snapshot.decisions]


def resource_view(
    conn: Connection, resource: Resource, options: CoordinatorSettings, *, now_ms: int
) -> ResourceView:
    group = groups.get(conn, resource.group)
    assert group is not None, "a resource keeps its group from going"
    snapshot = GroupSnapshot.at(conn, group, options.groups, now_ms=now_ms)
    return _resource_view(resource, snapshot, options)


def _resource_view(
    resource: Resource, snapshot: GroupSnapshot, options: CoordinatorSettings
) -> ResourceView:
    worker = snapshot.workers.get(resource.id)
    forecast = _forecast_of(resource, snapshot, options)
    return ResourceView(
        id=resource.id,
        group=resource.group,
        container=resource.container,
        threads=resource.threads,
        memory_mb=resource.memory_mb,
        properties=redacted_properties(resource.properties),
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
        next=forecast.text,
        next_at_ms=forecast.at_ms,
    )


def _forecast_of(
    resource: Resource, snapshot: GroupSnapshot, options: CoordinatorSettings
) -> Forecast:
    return resource_forecast(
        resource,
        snapshot.state_of(resource),
        options.groups.auto_restart,
        worker=snapshot.workers.get(resource.id),
        supports=_supports(snapshot, resource.container),
        now_ms=snapshot.now_ms,
    )


def worker_views(
    conn: Connection,
    options: CoordinatorSettings,
    *,
    now_ms: int,
    of: Group | None = None,
    only: Worker | None = None,
) -> Sequence[WorkerView]:
    """The workers of the group `of`, or `only` this one, or else all that are registered."""
    shown_workers: Sequence[Worker] = [only] if only is not None else ()
    if only is None:
        shown_workers = workers.registered(conn) if of is None else workers.of_group(conn, of.name)
    held = claims.assigned_to(conn, [worker.id for worker in shown_workers])
    executions: dict[str, list[str]] = {}
    for task in held:
        executions.setdefault(task.worker_id or "", []).append(task.claim.execution)
    forecasts = _forecasts(conn, shown_workers, options, now_ms=now_ms)
    digests = {each.plugins_digest for each in shown_workers}
    plugins = {digest: _plugins(conn, digest) for digest in digests}
    return [
        _worker_view(each, executions.get(each.id, ()), forecasts, plugins[each.plugins_digest])
        for each in shown_workers
    ]


def _plugins(conn: Connection, digest: str | None) -> tuple[PluginVersionView, ...]:
    """The plug-ins behind a digest. A worker of protocol 4 does not say what it has: the same."""
    if digest is None:
        needs = (need.partition(" ") for need in sorted(PLUGINS_OF_4))
        return tuple(PluginVersionView(role=role, name=name) for role, _, name in needs)
    text = workers.plugins_of(conn, digest)
    found = plugins_in(text) if text is not None else ()
    return tuple(PluginVersionView(**each.model_dump()) for each in found)


def _forecasts(
    conn: Connection, shown_workers: Sequence[Worker], options: CoordinatorSettings, *, now_ms: int
) -> Mapping[str, str]:
    """What comes next for each resource of these workers, by its id."""
    forecasts: dict[str, str] = {}
    for name in sorted({each.group for each in shown_workers if each.resource_id}):
        group = groups.get(conn, name)
        if group is not None:
            snapshot = GroupSnapshot.at(conn, group, options.groups, now_ms=now_ms)
            forecasts |= {
                each.id: _forecast_of(each, snapshot, options).text
                for each, _ in snapshot.decisions
            }
    return forecasts


def _worker_view(
    worker: Worker,
    executions: Sequence[str],
    forecasts: Mapping[str, str],
    plugins: tuple[PluginVersionView, ...],
) -> WorkerView:
    forecast = forecasts.get(worker.resource_id or "", "") if worker.resource_id else None
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
        protocol=worker.protocol,
        plugins=plugins,
        next=worker_forecast(worker).text if forecast is None else forecast,
    )


def redacted_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Without secrets, also those that an earlier version still accepted."""
    return {
        key: REDACTED if sounds_secret(key) else blanked(value) for key, value in properties.items()
    }


def count_groups(registry: CollectorRegistry, conn: Connection, coordinator: Coordinator) -> None:
    """Every state of every group, also those with a count of zero."""
    doc = "Threads of a group: wanted as its floor, effective, and by where each of them is"
    threads = Gauge("headrace_group_threads", doc, ["group", "state"], registry=registry)
    doc = "Resources of a group that have no worker"
    orphans = Gauge("headrace_group_orphans", doc, ["group"], registry=registry)
    now_ms = coordinator.groups.now_ms()
    for group in groups.all_of_them(conn):
        snapshot = GroupSnapshot.at(conn, group, coordinator.options.groups, now_ms=now_ms)
        floor, effective = group.min_parallelism, group.keeping.effective
        states = {"wanted": floor, "effective": floor if effective is None else effective}
        for state, count in {**states, **asdict(snapshot.capacity)}.items():
            threads.labels(group.name, state).set(count)
        orphaned = [each for each, _ in snapshot.decisions if each.id not in snapshot.workers]
        orphans.labels(group.name).set(len(orphaned))
