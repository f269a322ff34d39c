"""What a coordinator was told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.coordinator.activity import STALL_TIMEOUT_S
from headrace.model.cleanup import Retention
from headrace.model.schedule import ScheduleStrategy
from headrace.model.tables.schedule import SchedulingPolicy


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How tables share the slots of their group."""

    policy: SchedulingPolicy = SchedulingPolicy.QUOTA
    break_quota: bool = True  # by slots that nobody could use within his


@dataclass(frozen=True, slots=True)
class Options:
    store_url: str
    address: str  # where others reach this coordinator
    ttl_s: float = 3.0
    heartbeat_timeout_s: float = 60.0
    stall_timeout_s: float = STALL_TIMEOUT_S
    retention: Retention = field(default_factory=Retention)
    schedule: ScheduleStrategy = ScheduleStrategy.WAIT
    tables: TableOptions = field(default_factory=TableOptions)
