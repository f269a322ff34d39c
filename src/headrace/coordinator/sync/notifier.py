"""The wake-up call: ends the long poll of parked workers when there is something for them.

A `wait` of a worker carries no state: it may be abandoned, repeated or lost, because the sync that
follows says everything. Only as many workers are woken as there is new work, so that one task does
not make a hundred workers sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.task import Lane

WAITS_MAX = 10_000  # parked at one time; further ones are answered at once


@dataclass(slots=True, eq=False)
class _Wait:
    """One parked worker, and the lanes in which it has free slots."""

    worker: str
    group: str
    free: frozenset[Lane]
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class WorkerNotifier:
    """Lives on the event loop; the `wake_*` methods may be called from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waits: dict[str, _Wait] = {}  # by worker: its newest wait

    def groups(self) -> set[str]:
        """The groups that have parked workers."""
        return {wait.group for wait in list(self._waits.values())}

    async def wait(
        self, worker: str, group: str, free: frozenset[Lane], *, timeout_s: float
    ) -> bool:
        """Park until there is something for this worker. False: `timeout_s` passed first."""
        self._loop = asyncio.get_running_loop()
        if len(self._waits) >= WAITS_MAX:
            return True
        if before := self._waits.pop(worker, None):
            before.woken.set()
        wait = self._waits[worker] = _Wait(worker, group, free)
        try:
            await asyncio.wait_for(wait.woken.wait(), timeout_s)
        except TimeoutError:
            return False
        finally:
            if self._waits.get(worker) is wait:
                del self._waits[worker]
        return True

    def wake_worker(self, worker: str) -> None:
        """Wake this worker: a task of it is to stop, or to make a savepoint."""
        self._soon(self._wake_worker, worker)

    def wake_for(self, planned: Mapping[tuple[str, Lane], int]) -> None:
        """Wake as many workers as there are tasks waiting, by group and lane."""
        if planned:
            self._soon(self._wake_for, planned)

    def wake_all(self) -> None:
        """Wake everybody: this coordinator's term is over, and they look for the next leader."""
        self._soon(self._wake_all)

    def _soon(self, call: object, *args: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)  # type: ignore[arg-type]

    def _wake_worker(self, worker: str) -> None:
        if wait := self._waits.pop(worker, None):
            wait.woken.set()

    def _wake_for(self, planned: Mapping[tuple[str, Lane], int]) -> None:
        left = dict(planned)
        for wait in list(self._waits.values()):
            lane = next((x for x in sorted(wait.free) if left.get((wait.group, x), 0) > 0), None)
            if lane is not None:
                left[wait.group, lane] -= 1
                self._wake_worker(wait.worker)

    def _wake_all(self) -> None:
        for worker in list(self._waits):
            self._wake_worker(worker)
