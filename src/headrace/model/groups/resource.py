"""How far the latest launch of a resource has got."""

from __future__ import annotations

from enum import StrEnum


class LaunchStep(StrEnum):
    INTENDED = "INTENDED"  # recorded; the container may or may not have been asked
    STARTED = "STARTED"  # the container said so, and what it found out is recorded
    FAILED = "FAILED"  # the container raised: it counts as an attempt (R4)
