"""What a coordinator shows of groups, resources and workers, and what a client reads."""

from __future__ import annotations

from pydantic import Field

from headrace.views import View, WorkerView


class ResourceView(View):
    """What was asked of a container."""

    id: str
    group: str
    container: str
    threads: int
    memory_mb: int = 0  # 0: as its container has it
    properties: dict[str, str] = Field(default_factory=dict[str, str])  # secrets are redacted
    made_for: str  # floor, or user
    created_at_ms: int
    launch: int  # how often it was started, or is being started now
    step: str  # of the latest launch: INTENDED, STARTED, FAILED
    started_at_ms: int | None = None  # the first time
    launched_at_ms: int | None = None  # the latest time
    orphaned_since_ms: int | None = None  # since when it has no worker; None: it has
    attempts: int = 0  # restarts since then
    releasing: bool = False
    error: str | None = None  # why its latest start failed, or how its latest worker ended
    worker: str | None = None  # that registered for it
    next: str = ""  # what the keeper does about it
    next_at_ms: int | None = None  # and when, if it is a matter of time


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

    registered: int = 0  # that work
    draining: int = 0
    booting: int = 0
    restarting: int = 0


class GroupView(View):
    name: str
    container: str
    min_parallelism: int  # as it was asked for
    effective_parallelism: int  # what is kept; another than the former when that was given up
    effective_reason: str | None = None
    memory_mb: int = 0  # of each resource; 0: as its container has it
    policy: str  # how its tables take turns
    own_policy: bool = False  # False: it is the coordinator's
    properties: dict[str, str] = Field(default_factory=dict[str, str])
    created_at_ms: int
    removing: bool = False
    capacity: CapacityView = CapacityView()
    orphans: int = 0  # resources without a worker
    next: str = ""  # what the keeper does about its floor
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
    changed: bool = True  # False: it was so before
