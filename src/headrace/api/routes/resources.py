"""/v1/resources: what was asked of containers. By a resource's id, or by that of its worker.

Any coordinator that has the container configured answers for its logs. What is on another machine
than this coordinator, it says so.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headrace.api.group_views import resource_view
from headrace.api.routes.jobs import Served
from headrace.client_groups import LOG_LINES_SHOWN
from headrace.coordinator.groups.known import known_resource
from headrace.coordinator.groups.launching import launch_of
from headrace.coordinator.service import Coordinator
from headrace.errors import NotFound, Refused
from headrace.model.redaction import redacted_to
from headrace.model.text import Text
from headrace.store.engine import reading
from headrace.store.resources import Resource
from headrace.views_groups import ResourceLogs, ResourceView

LINES_MAX = 1000  # in one answer
LINE_CHARS_MAX = 2000
router = APIRouter(prefix="/v1/resources", tags=["groups"])


@router.get("/{named}")
def show(named: Text, coordinator: Coordinator = Served) -> ResourceView:
    with reading(coordinator.engine) as conn:
        found = known_resource(conn, named)
    return _view(coordinator, found)


@router.post("/{named}/release")
def release(named: Text, coordinator: Coordinator = Served) -> ResourceView:
    """Its worker is given nothing more, and it is stopped when that holds nothing any more."""
    return _view(coordinator, coordinator.groups.release(named))


@router.get("/{named}/logs")
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
    found = container.logs(launch_of(resource, options), lines=lines)
    return ResourceLogs(
        resource=resource.id,
        launch=resource.launch,
        container=resource.container,
        lines=tuple(redacted_to(LINE_CHARS_MAX, line) for line in list(found)[-lines:]),
        note=None if found else _why_none(resource),
    )


def _why_none(resource: Resource) -> str:
    host = resource.properties.get("host")
    there = f"; it was started on host {host}, so ask a coordinator there" if host else ""
    return f"launch {resource.launch} has written nothing that is found here{there}"


def _view(coordinator: Coordinator, resource: Resource) -> ResourceView:
    now_ms = coordinator.groups.now_ms()
    with reading(coordinator.engine) as conn:
        return resource_view(conn, resource, coordinator.options, now_ms=now_ms)
