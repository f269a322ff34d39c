"""Names of things. New ones come from an `Ids`, so that a simulation can repeat them."""

from __future__ import annotations

import uuid
from typing import NewType, Protocol

JobId = NewType("JobId", str)
TaskId = NewType("TaskId", str)
WorkerId = NewType("WorkerId", str)


class Ids(Protocol):
    def new(self) -> str:
        """A name nobody has used before: 32 lower-case hex digits."""
        ...


class RandomIds:
    def new(self) -> str:
        return uuid.uuid4().hex
