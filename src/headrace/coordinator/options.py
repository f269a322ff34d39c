"""What a coordinator was told at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.containers.launching import WorkerContainer
from headrace.coordinator.activity import EXECUTE_TIMEOUT_S, STALL_TIMEOUT_S
from headrace.coordinator.roster import ACK_TIMEOUT_S
from headrace.model.cleanup import Retention
from headrace.model.groups.capacity import KeepSetting
from headrace.model.groups.orphans import AutoRestart
from headrace.model.schedule import ScheduleStrategy
from headrace.model.tables.refresh import BASE_INTERVAL_MS, DISCOVER_INTERVAL_MS
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.store.keyring import KeySource


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How often lake tables are looked at, and how they share the slots of their group."""

    policy: SchedulingPolicy = SchedulingPolicy.QUOTA
    break_quota: bool = True  # by slots that nobody could use within his
    refresh_ms: int = BASE_INTERVAL_MS  # between two looks at a table
    discover_ms: int = DISCOVER_INTERVAL_MS  # between two looks into a catalog for tables


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How groups come by their workers."""

    auto_restart: AutoRestart = field(default_factory=AutoRestart)
    keep: KeepSetting = field(default_factory=KeepSetting)
    containers: Mapping[str, WorkerContainer] = field(default_factory=dict[str, WorkerContainer])
    coordinators: tuple[str, ...] = ()  # where the workers that we start find us


@dataclass(frozen=True, slots=True)
class Options:
    store_url: str
    address: str  # where others reach this coordinator
    ttl_s: float = 3.0
    heartbeat_timeout_s: float = 60.0
    stall_timeout_s: float = STALL_TIMEOUT_S
    ack_timeout_s: float = ACK_TIMEOUT_S
    execute_timeout_s: float = EXECUTE_TIMEOUT_S
    retention: Retention = field(default_factory=Retention)
    schedule: ScheduleStrategy = ScheduleStrategy.WAIT
    tables: TableOptions = field(default_factory=TableOptions)
    groups: GroupOptions = field(default_factory=GroupOptions)
    secret_keys: KeySource | None = None  # of the store's secrets, when they are not beside it
