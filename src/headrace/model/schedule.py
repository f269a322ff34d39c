"""What becomes of a job that can't have all its slots now."""

from __future__ import annotations

from enum import StrEnum


class ScheduleStrategy(StrEnum):
    """As SeaTunnel's `job-schedule-strategy` names them."""

    WAIT = "WAIT"  # it stands in the queue of its group
    REJECT = "REJECT"  # it is refused, or fails with that reason
