"""What a coordinator was told at its start."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.coordinator.activity import STALL_TIMEOUT_S
from headrace.model.cleanup import Retention
from headrace.model.schedule import ScheduleStrategy


@dataclass(frozen=True, slots=True)
class Options:
    store_url: str
    address: str  # where others reach this coordinator
    ttl_s: float = 3.0
    heartbeat_timeout_s: float = 60.0
    stall_timeout_s: float = STALL_TIMEOUT_S
    retention: Retention = field(default_factory=Retention)
    schedule: ScheduleStrategy = ScheduleStrategy.WAIT
