"""What a leader knows of each worker in its own term: when it last spoke, and what it was told.

Memory only, on this process's monotonic clock: no two clocks are ever compared. A worker that has
not spoken to this leader yet counts as seen at the take-over, so a new leader gives everybody one
full timeout before one may strike (D1).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.clock import Clock
from headrace.coordinator.activity import EXECUTE_TIMEOUT_S, STALL_TIMEOUT_S, Watch
from headrace.model.task import Claim
from headrace.protocol.messages import Progress

ACK_TIMEOUT_S = 30.0  # `optimizer.task-ack-timeout`


@dataclass(slots=True)
class _Presence:
    seen_at_s: float
    sync: int = 0  # the highest sync number it sent
    number: int = 0  # of the last answer made for it
    progress: Mapping[Claim, Progress] = field(default_factory=dict[Claim, Progress])


class Roster:
    def __init__(
        self,
        clock: Clock,
        *,
        timeout_s: float,
        stall_timeout_s: float = STALL_TIMEOUT_S,
        ack_timeout_s: float = ACK_TIMEOUT_S,
        execute_timeout_s: float = EXECUTE_TIMEOUT_S,
    ) -> None:
        self._clock = clock
        self.watch = Watch(
            clock, stall_timeout_s=stall_timeout_s, execute_timeout_s=execute_timeout_s
        )
        self._timeout_s, self._ack_timeout_s = timeout_s, ack_timeout_s
        self._took_over_at_s = clock.monotonic_s()
        self._present: dict[str, _Presence] = {}
        self._lock = threading.Lock()

    def _of(self, worker: str) -> _Presence:
        return self._present.setdefault(worker, _Presence(self._took_over_at_s))

    def heard(self, worker: str, sync: int) -> bool:
        """Note a sync. False: it is older than one already heard, and says nothing new."""
        with self._lock:
            presence = self._of(worker)
            presence.seen_at_s = self._clock.monotonic_s()
            if sync < presence.sync:
                return False
            presence.sync = sync
            return True

    def next_number(self, worker: str) -> int:
        with self._lock:
            presence = self._of(worker)
            presence.number += 1
            return presence.number

    def written(self, worker: str) -> Mapping[Claim, Progress]:
        """The progress of what it holds that stands in the store, so that it is written once."""
        with self._lock:
            presence = self._present.get(worker)
        return presence.progress if presence else {}

    def wrote(self, worker: str, progress: Mapping[Claim, Progress]) -> None:
        with self._lock:
            if (presence := self._present.get(worker)) is not None:
                presence.progress = progress

    def names(self) -> set[str]:
        with self._lock:
            return set(self._present)

    def forget(self, worker: str) -> None:
        with self._lock:
            self._present.pop(worker, None)
        self.watch.forget(worker)

    def silent_for_s(self, worker: str) -> float:
        with self._lock:
            presence = self._present.get(worker)
        seen_at_s = presence.seen_at_s if presence else self._took_over_at_s
        return self._clock.monotonic_s() - seen_at_s

    def expired(self, worker: str) -> bool:
        return self.silent_for_s(worker) > self._timeout_s

    def slow_to_answer(self, worker: str) -> bool:
        """What it was given, and has not said to hold, may go to somebody else meanwhile."""
        return self.silent_for_s(worker) > self._ack_timeout_s
