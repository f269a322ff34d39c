"""Wakes parked workers when there is something for them.

A `wait` of a worker carries no state: it may be abandoned, repeated or lost, because the sync
that follows says everything. Only as many workers are woken as there is new work, so that one
task does not make a hundred workers ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.task import Lane

WAITS_MAX = 10_000  # parked at one time; more are answered at once


@dataclass(slots=True, eq=False)
class _Wait:
    worker: str
    group: str
    free: frozenset[Lane]
    rung: asyncio.Event = field(default_factory=asyncio.Event)


class Bell:
    """Lives on the event loop; the `ring_*` functions may be called from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waits: dict[str, _Wait] = {}  # by worker: the newest one

    def groups(self) -> set[str]:
        """Whose workers are parked."""
        return {wait.group for wait in list(self._waits.values())}

    async def wait(
        self, worker: str, group: str, free: frozenset[Lane], *, timeout_s: float
    ) -> bool:
        """Park until there is news for this worker. True: there is, or there may be."""
        self._loop = asyncio.get_running_loop()
        if len(self._waits) >= WAITS_MAX:
            return True
        if before := self._waits.pop(worker, None):
            before.rung.set()
        wait = self._waits[worker] = _Wait(worker, group, free)
        try:
            await asyncio.wait_for(wait.rung.wait(), timeout_s)
        except TimeoutError:
            return False
        finally:
            if self._waits.get(worker) is wait:
                del self._waits[worker]
        return True

    def ring_worker(self, worker: str) -> None:
        """There is something for this worker: a task to stop."""
        self._soon(self._ring_worker, worker)

    def ring_for(self, planned: Mapping[tuple[str, Lane], int]) -> None:
        """So many tasks wait, by group and lane."""
        if planned:
            self._soon(self._ring_for, planned)

    def ring_all(self) -> None:
        """This coordinator's term is over: everybody finds the next leader."""
        self._soon(self._ring_all)

    def _soon(self, call: object, *args: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)  # type: ignore[arg-type]

    def _ring_worker(self, worker: str) -> None:
        if wait := self._waits.pop(worker, None):
            wait.rung.set()

    def _ring_for(self, planned: Mapping[tuple[str, Lane], int]) -> None:
        left = dict(planned)
        for wait in list(self._waits.values()):
            lane = next((x for x in sorted(wait.free) if left.get((wait.group, x), 0) > 0), None)
            if lane is not None:
                left[wait.group, lane] -= 1
                self._ring_worker(wait.worker)

    def _ring_all(self) -> None:
        for worker in list(self._waits):
            self._ring_worker(worker)
