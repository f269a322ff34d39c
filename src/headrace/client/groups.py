"""Groups, resources and workers in the client: views and calls. Every call is idempotent."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import Field

from headrace.client.views import View, WorkerList, WorkerView

LOG_LINES_SHOWN = 100

V = TypeVar("V", bound=View)


class ResourceView(View):
    """What was asked of a container."""

    id: str
    group: str
    container: str
    threads: int
    memory_mb: int = 0  # 0: the default of its container
    properties: dict[str, str] = Field(default_factory=dict[str, str])  # secrets are redacted
    made_for: str  # floor, or user
    created_at_ms: int
    launch: int  # how often it was started, or is being started now
    step: str  # of the latest launch: INTENDED, STARTED or FAILED
    started_at_ms: int | None = None  # the first time
    launched_at_ms: int | None = None  # the latest time
    orphaned_since_ms: int | None = None  # since when it has no worker; None: it has one
    attempts: int = 0  # restarts since then
    releasing: bool = False
    error: str | None = None  # why its latest start failed, or how its latest worker ended
    worker: str | None = None  # the worker that is registered for it
    next: str = ""  # what the coordinator does about it next
    next_at_ms: int | None = None  # and when, if that depends on time


class GivenUpView(View):
    """A resource whose record is gone."""

    resource: str
    container: str
    threads: int
    attempts: int
    reason: str
    at_ms: int


class CapacityView(View):
    """Threads of a group, each counted once."""

    registered: int = 0  # those that work
    draining: int = 0
    booting: int = 0
    restarting: int = 0


class GroupView(View):
    name: str
    container: str
    min_parallelism: int  # the floor, as the user set it
    effective_parallelism: int  # what is kept; lower than the floor when that was given up
    effective_reason: str | None = None
    memory_mb: int = 0  # of each resource; 0: the default of its container
    policy: str  # in which order its tables are planned
    own_policy: bool = False  # False: it is the coordinator's default
    properties: dict[str, str] = Field(default_factory=dict[str, str])
    created_at_ms: int
    removing: bool = False
    capacity: CapacityView = CapacityView()
    orphans: int = 0  # resources without a worker
    next: str = ""  # what the coordinator does about its floor next
    next_at_ms: int | None = None
    resources: tuple[ResourceView, ...] = ()
    workers: tuple[WorkerView, ...] = ()
    given_up: tuple[GivenUpView, ...] = ()  # the latest first


class GroupList(View):
    groups: tuple[GroupView, ...]


class ResourceLogs(View):
    resource: str
    launch: int
    container: str
    lines: tuple[str, ...] = ()
    note: str | None = None  # why there are none


class DrainView(View):
    worker: WorkerView
    changed: bool = True  # False: nothing changed, it was so before


class GroupCalls:
    """The calls about groups, workers and resources; a mixin of `Client`."""

    @abstractmethod
    def _call(self, view: type[V], method: str, path: str, *, json: Any = None) -> V: ...

    def groups(self) -> tuple[GroupView, ...]:
        return self._call(GroupList, "GET", "/v1/groups").groups

    def group(self, name: str) -> GroupView:
        return self._call(GroupView, "GET", _group_path(name))

    def create_group(
        self,
        name: str,
        *,
        container: str | None = None,
        min_parallelism: int = 0,
        memory_mb: int = 0,
        policy: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> GroupView:
        fields = {
            "name": name,
            "container": container,
            "min_parallelism": min_parallelism,
            "memory_mb": memory_mb,
            "policy": policy,
            "properties": dict(properties or {}),
        }
        body = {key: value for key, value in fields.items() if value is not None}
        return self._call(GroupView, "POST", "/v1/groups", json=body)

    def change_group(
        self,
        name: str,
        *,
        container: str | None = None,
        min_parallelism: int | None = None,
        memory_mb: int | None = None,
        policy: str | None = None,
        properties: Mapping[str, str | None] | None = None,
    ) -> GroupView:
        """Change what is given, and keep the rest.

        None for the value of a property removes it; "" removes the group's own policy.
        """
        fields = {
            "container": container,
            "min_parallelism": min_parallelism,
            "memory_mb": memory_mb,
            "policy": policy,
            "properties": properties,
        }
        body = {key: value for key, value in fields.items() if value is not None}
        return self._call(GroupView, "PATCH", _group_path(name), json=body)

    def scale_group(self, name: str, *, threads: int, key: str | None = None) -> ResourceView:
        """Request a further resource. Idempotent: the key becomes its id."""
        body = {"threads": threads, "key": key or uuid.uuid4().hex}
        return self._call(ResourceView, "POST", f"{_group_path(name)}/resources", json=body)

    def delete_group(self, name: str, *, force: bool = False) -> GroupView:
        return self._call(GroupView, "DELETE", _group_path(name) + ("?force=true" if force else ""))

    def workers(self) -> tuple[WorkerView, ...]:
        return self._call(WorkerList, "GET", "/v1/workers").workers

    def worker(self, worker: str) -> WorkerView:
        return self._call(WorkerView, "GET", f"/v1/workers/{quote(worker, safe='')}")

    def drain_worker(self, worker: str) -> DrainView:
        return self._call(DrainView, "POST", f"/v1/workers/{quote(worker, safe='')}/drain")

    def resume_worker(self, worker: str) -> DrainView:
        """Take back a drain."""
        return self._call(DrainView, "POST", f"/v1/workers/{quote(worker, safe='')}/resume")

    def resource(self, named: str) -> ResourceView:
        """A resource, by its own id or by that of its worker."""
        return self._call(ResourceView, "GET", _resource_path(named))

    def release_resource(self, named: str) -> ResourceView:
        return self._call(ResourceView, "POST", f"{_resource_path(named)}/release")

    def resource_logs(self, named: str, *, lines: int = LOG_LINES_SHOWN) -> ResourceLogs:
        return self._call(ResourceLogs, "GET", f"{_resource_path(named)}/logs?lines={lines}")


def _group_path(name: str) -> str:
    return f"/v1/groups/{quote(name, safe='')}"


def _resource_path(named: str) -> str:
    return f"/v1/resources/{quote(named, safe='')}"
