"""/v1/groups, /v1/workers, /v1/resources: groups of workers, and what becomes of them next.

Any coordinator answers. The forecast of what comes next uses the options of the coordinator that is
asked; every coordinator of a store should have the same.

A resource is what was asked of a container. It is named by its own id or by that of its worker. Its
logs are read by any coordinator that has the container configured; when they are on another
machine, the answer says so.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from headrace.api.errors import (
    Body,
)
from headrace.api.group_views import group_view, resource_view, worker_views
from headrace.api.routes.jobs import Served
from headrace.client.groups import (
    LOG_LINES_SHOWN,
    DrainView,
    GroupList,
    GroupView,
    ResourceLogs,
    ResourceView,
)
from headrace.client.views import WorkerList, WorkerView
from headrace.coordinator.groups.commands import (
    Drained,
    GroupChange,
    NewGroup,
    known_group,
    known_resource,
    known_worker,
)
from headrace.coordinator.groups.launcher import launch_of
from headrace.coordinator.service import Coordinator
from headrace.errors import (
    NotFound,
    Refused,
)
from headrace.model.jobs.spec import WholeNumber
from headrace.model.text import Text, redacted_to
from headrace.store.core.engine import reading
from headrace.store.groups import groups
from headrace.store.groups.groups import Group
from headrace.store.groups.resources import Resource


class CreateGroup(Body):
    name: str
    container: str = "external"
    min_parallelism: WholeNumber = 0
    memory_mb: WholeNumber = 0
    policy: str | None = None
    properties: dict[str, str] = Field(default_factory=dict[str, str])


class ChangeGroup(Body):
    """What is given is changed. None for a value takes a property away, "" takes the policy."""

    container: str | None = None
    min_parallelism: WholeNumber | None = None
    memory_mb: WholeNumber | None = None
    policy: str | None = None
    properties: dict[str, str | None] = Field(default_factory=dict[str, str | None])


class ScaleGroup(Body):
    threads: WholeNumber
    key: Annotated[str, Field(min_length=1, max_length=100)] | None = None


LINES_MAX = 1000  # in one answer
LINE_CHARS_MAX = 2000

router = APIRouter(prefix="/v1", tags=["groups"])
resources_router = APIRouter(prefix="/v1/resources", tags=["groups"])


@router.get("/groups")
def listed(coordinator: Coordinator = Served) -> GroupList:
    """Without their resources and workers: `GET /v1/groups/NAME` has them."""
    now_ms, options = coordinator.groups.now_ms(), coordinator.options
    with reading(coordinator.engine) as conn:
        rows = groups.all_of_them(conn)
        views = [group_view(conn, each, options, now_ms=now_ms, whole=False) for each in rows]
    return GroupList(groups=tuple(views))


@router.post("/groups", status_code=201)
def create(body: CreateGroup, coordinator: Coordinator = Served) -> GroupView:
    new = NewGroup(
        name=body.name,
        container=body.container,
        min_parallelism=body.min_parallelism,
        memory_mb=body.memory_mb,
        policy=body.policy,
        properties=body.properties,
    )
    return _group_view(coordinator, coordinator.groups.create(new))


@router.get("/groups/{name}")
def show(name: str, coordinator: Coordinator = Served) -> GroupView:
    with reading(coordinator.engine) as conn:
        group = known_group(conn, name)
    return _group_view(coordinator, group)


@router.patch("/groups/{name}")
def change(name: str, body: ChangeGroup, coordinator: Coordinator = Served) -> GroupView:
    wanted = GroupChange(
        container=body.container,
        min_parallelism=body.min_parallelism,
        memory_mb=body.memory_mb,
        policy=body.policy,
        properties=body.properties,
    )
    return _group_view(coordinator, coordinator.groups.change(name, wanted))


@router.delete("/groups/{name}")
def remove(name: str, coordinator: Coordinator = Served, *, force: bool = False) -> GroupView:
    """It is shown as `removing` until its resources are released, and is gone then."""
    return _group_view(coordinator, coordinator.groups.remove(name, force=force))


@router.post("/groups/{name}/resources", status_code=201)
def scale(name: str, body: ScaleGroup, coordinator: Coordinator = Served) -> ResourceView:
    """Ask for a further resource. The key becomes its id: sent twice, it is asked for once."""
    resource = coordinator.groups.scale(name, body.threads, key=body.key)
    with reading(coordinator.engine) as conn:
        now_ms = coordinator.groups.now_ms()
        return resource_view(conn, resource, coordinator.options, now_ms=now_ms)


@router.get("/workers")
def list_workers(coordinator: Coordinator = Served) -> WorkerList:
    now_ms = coordinator.groups.now_ms()
    with reading(coordinator.engine) as conn:
        return WorkerList(workers=tuple(worker_views(conn, coordinator.options, now_ms=now_ms)))


@router.get("/workers/{worker}")
def show_worker(worker: str, coordinator: Coordinator = Served) -> WorkerView:
    now_ms = coordinator.groups.now_ms()
    with reading(coordinator.engine) as conn:
        row = known_worker(conn, worker)
        views = worker_views(conn, coordinator.options, now_ms=now_ms, only=row)
    return views[0]


@router.post("/workers/{worker}/resume")
def resume(worker: str, coordinator: Coordinator = Served) -> DrainView:
    """Take a drain back: it is given work again."""
    return _drain_view(coordinator, coordinator.groups.resume(worker))


@router.post("/workers/{worker}/drain")
def drain(worker: str, coordinator: Coordinator = Served) -> DrainView:
    """What it holds it finishes; nothing is given to it any more."""
    return _drain_view(coordinator, coordinator.groups.drain(worker))


def _drain_view(coordinator: Coordinator, drained: Drained) -> DrainView:
    now_ms = coordinator.groups.now_ms()
    with reading(coordinator.engine) as conn:
        views = worker_views(conn, coordinator.options, now_ms=now_ms, only=drained.worker)
    return DrainView(worker=views[0], changed=drained.changed)


def _group_view(coordinator: Coordinator, group: Group) -> GroupView:
    now_ms = coordinator.groups.now_ms()
    with reading(coordinator.engine) as conn:
        return group_view(conn, group, coordinator.options, now_ms=now_ms)


@resources_router.get("/{named}", name="show")
def show_resource(named: Text, coordinator: Coordinator = Served) -> ResourceView:
    with reading(coordinator.engine) as conn:
        resource = known_resource(conn, named)
    return _resource_view(coordinator, resource)


@resources_router.post("/{named}/release")
def release(named: Text, coordinator: Coordinator = Served) -> ResourceView:
    """Its worker is given nothing more, and it is stopped when that holds nothing any more."""
    return _resource_view(coordinator, coordinator.groups.release(named))


@resources_router.get("/{named}/logs")
def logs(
    named: Text,
    coordinator: Coordinator = Served,
    *,
    lines: Annotated[int, Query(ge=1, le=LINES_MAX)] = LOG_LINES_SHOWN,
) -> ResourceLogs:
    """The last lines of the latest launch, as its container has them, with secrets redacted."""
    with reading(coordinator.engine) as conn:
        resource = known_resource(conn, named)
    options = coordinator.options.groups
    container = options.containers.get(resource.container)
    if container is None:
        raise NotFound(
            "container",
            resource.container,
            way_out=f"it is not configured at this coordinator ({coordinator.options.address}), "
            "which so can't be asked for logs of it; ask another one",
        )
    if not container.supports.logs:
        raise Refused(
            f"container {resource.container!r} has no logs of resource {resource.id!r}; they are "
            "where it was started"
        )
    written = container.logs(launch_of(resource, options), lines=lines)
    return ResourceLogs(
        resource=resource.id,
        launch=resource.launch,
        container=resource.container,
        lines=tuple(redacted_to(LINE_CHARS_MAX, line) for line in list(written)[-lines:]),
        note=None if written else _no_lines_note(resource),
    )


def _no_lines_note(resource: Resource) -> str:
    host = resource.properties.get("host")
    there = f"; it was started on host {host}, so ask a coordinator there" if host else ""
    return f"launch {resource.launch} has written nothing that is found here{there}"


def _resource_view(coordinator: Coordinator, resource: Resource) -> ResourceView:
    now_ms = coordinator.groups.now_ms()
    with reading(coordinator.engine) as conn:
        return resource_view(conn, resource, coordinator.options, now_ms=now_ms)
