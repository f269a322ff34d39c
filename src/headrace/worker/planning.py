"""What comes next: the slice of each source, and where the pipeline stands once it is read.

A plan is made from where the epochs planned before it will end, not from where they are now: the
next one is planned and granted while the current one runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from headrace.clock import Clock
from headrace.connectors.connector import Source
from headrace.protocol.payloads import Plan, Restore, Slice


@dataclass(frozen=True, slots=True)
class Work:
    """One epoch to run."""

    epoch: int
    plan: Plan
    positions: Mapping[str, JsonValue]  # of all sources, once it is completed
    ready: Sequence[str]  # sources that have read everything once it is prepared, and not before
    read: Mapping[str, int] | None = None  # rows by source name, once they are staged

    @property
    def rows(self) -> int | None:
        """How many it reads; None: not all of its sources know beforehand."""
        known = [part.rows for part in self.plan.slices.values() if part.rows is not None]
        return sum(known) if len(known) == len(self.plan.slices) else None

    @property
    def rows_of_largest(self) -> int | None:
        """Of the source that reads most; None: one of them does not know."""
        known = [part.rows for part in self.plan.slices.values() if part.rows is not None]
        return max(known, default=0) if len(known) == len(self.plan.slices) else None

    @property
    def lasts_s(self) -> float:
        return max((part.lasts_ms for part in self.plan.slices.values()), default=0) / 1000


class Planner:
    def __init__(self, sources: Sequence[Source], restore: Restore, clock: Clock) -> None:
        self._sources, self._clock = sources, clock
        self._positions: dict[str, JsonValue] = dict(restore.positions)
        self._ready = set(restore.ready)
        self.epoch = max(restore.epoch, restore.highest)  # the last one planned

    @property
    def over(self) -> bool:
        """Whether every source has read everything, once what is planned is prepared."""
        return all(source.name in self._ready for source in self._sources)

    def opening(self) -> Work:
        """Epoch 0, in which nothing is read."""
        return self.resume(0, Plan(slices={}, now_ms=self._clock.wall_ms()))

    def propose(self, *, rows_max: int | None) -> Work:
        """The next epoch. One without slices is worth an id: it says that there was nothing."""
        slices: dict[str, Slice] = {}
        for source in self._sources:
            if source.name not in self._ready:
                position = self._positions.get(source.name)
                if (part := source.plan(position, rows_max=rows_max)) is not None:
                    slices[source.name] = part
        return self.resume(self.epoch + 1, Plan(slices=slices, now_ms=self._clock.wall_ms()))

    def resume(self, epoch: int, plan: Plan) -> Work:
        """Take a plan as made, by us or by an execution before us; the next one goes on from it."""
        if epoch > 0:
            ready = sorted(s.name for s in self._sources if self._has_read_all(s, plan))
        else:
            ready = []
        self._positions |= {name: part.after for name, part in plan.slices.items()}
        self._ready |= set(ready)
        self.epoch = max(self.epoch, epoch)
        return Work(epoch, plan, dict(self._positions), ready)

    def _has_read_all(self, source: Source, plan: Plan) -> bool:
        if not source.bounded or source.name in self._ready:
            return False
        part = plan.slices.get(source.name)
        return part is None or part.last
