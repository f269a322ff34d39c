"""A worker registers: of the current launch of its resource, or of none.

A launch that is not the current one was replaced while it booted: its worker is refused, and ends
itself. One that came up anew, as a pod does, waits until its forerunner is known to be gone. The
resource's row is locked meanwhile, so it can't be given up in the same instant (R4).
"""

from __future__ import annotations

from sqlalchemy import Connection

from headrace.errors import LaunchOver, LaunchTaken
from headrace.model.groups.resource import LaunchStep
from headrace.model.names import check_name
from headrace.store import groups, resources, workers
from headrace.store.workers import Worker


def register(conn: Connection, worker: Worker, *, now_ms: int) -> None:
    """Add a worker, and its group if nobody has made it."""
    check_name("group", worker.group)
    groups.add(conn, worker.group, now_ms=now_ms)
    if worker.resource_id is not None:
        _check_launch(conn, worker, worker.resource_id)
    workers.register(conn, worker)


def _check_launch(conn: Connection, worker: Worker, resource_id: str) -> None:
    resource = resources.lock(conn, resource_id)
    told = f"worker {worker.id} is launch {worker.launch} of resource {resource_id!r}"
    if resource is None or resource.wanted_released:
        raise LaunchOver(f"{told}, which is released; nothing is to be done for it here")
    if worker.group != resource.group:
        raise LaunchOver(f"{told}, which is of group {resource.group!r}, not {worker.group!r}")
    if worker.launch != resource.launch:
        raise LaunchOver(f"{told}, and launch {resource.launch} is the current one; it ends")
    other = workers.of_resource(conn, resource_id)
    if other is not None and other.id != worker.id and other.launch == worker.launch:
        raise LaunchTaken(f"{told}, and worker {other.id} is registered for that")
    failed = resource.step is LaunchStep.FAILED  # and somebody has brought it up all the same
    resources.note(
        conn,
        resource,
        step=LaunchStep.STARTED if failed else resource.step,
        orphaned_since_ms=None,
        attempts=0,
        told=None,
        error=None,
    )
