"""The part of the API that speaks of groups, workers and resources. Every call may be repeated."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from headrace.views import View, WorkerList, WorkerView
from headrace.views_groups import DrainView, GroupList, GroupView, ResourceLogs, ResourceView

LOG_LINES_SHOWN = 100

V = TypeVar("V", bound=View)


class GroupCalls:
    @abstractmethod
    def _call(self, view: type[V], method: str, path: str, *, json: Any = None) -> V: ...

    def groups(self) -> tuple[GroupView, ...]:
        return self._call(GroupList, "GET", "/v1/groups").groups

    def group(self, name: str) -> GroupView:
        return self._call(GroupView, "GET", _group(name))

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
        given = {
            "name": name,
            "container": container,
            "min_parallelism": min_parallelism,
            "memory_mb": memory_mb,
            "policy": policy,
            "properties": dict(properties or {}),
        }
        body = {key: value for key, value in given.items() if value is not None}
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
        """What is given is changed, the rest stays. None for the value of a property takes it
        away, and "" takes the policy away."""
        given = {
            "container": container,
            "min_parallelism": min_parallelism,
            "memory_mb": memory_mb,
            "policy": policy,
            "properties": properties,
        }
        body = {key: value for key, value in given.items() if value is not None}
        return self._call(GroupView, "PATCH", _group(name), json=body)

    def scale_group(self, name: str, *, threads: int, key: str | None = None) -> ResourceView:
        """Ask for a further resource, once, however often it is sent: the key becomes its id."""
        body = {"threads": threads, "key": key or uuid.uuid4().hex}
        return self._call(ResourceView, "POST", f"{_group(name)}/resources", json=body)

    def delete_group(self, name: str, *, force: bool = False) -> GroupView:
        return self._call(GroupView, "DELETE", _group(name) + ("?force=true" if force else ""))

    def workers(self) -> tuple[WorkerView, ...]:
        return self._call(WorkerList, "GET", "/v1/workers").workers

    def worker(self, worker: str) -> WorkerView:
        return self._call(WorkerView, "GET", f"/v1/workers/{quote(worker, safe='')}")

    def drain_worker(self, worker: str) -> DrainView:
        return self._call(DrainView, "POST", f"/v1/workers/{quote(worker, safe='')}/drain")

    def resume_worker(self, worker: str) -> DrainView:
        """Take a drain back."""
        return self._call(DrainView, "POST", f"/v1/workers/{quote(worker, safe='')}/resume")

    def resource(self, named: str) -> ResourceView:
        """By its own id, or by that of its worker."""
        return self._call(ResourceView, "GET", _resource(named))

    def release_resource(self, named: str) -> ResourceView:
        return self._call(ResourceView, "POST", f"{_resource(named)}/release")

    def resource_logs(self, named: str, *, lines: int = LOG_LINES_SHOWN) -> ResourceLogs:
        return self._call(ResourceLogs, "GET", f"{_resource(named)}/logs?lines={lines}")


def _group(name: str) -> str:
    return f"/v1/groups/{quote(name, safe='')}"


def _resource(named: str) -> str:
    return f"/v1/resources/{quote(named, safe='')}"
