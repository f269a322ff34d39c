"""Jobs whose look or step raised: each is tried again after a pause, which grows.

What fails is a bug of ours, or something that is away for a while, as the key of the secrets may
be. The job stays marked. Without a pause every pass would try it again, and thousands of such jobs
would take the time of all others. A cancel ends the pause, once: it is the way out of many a
failure. The pauses are in this leader's memory alone: its successor tries each job at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.clock import Clock

FIRST_PAUSE_S = 1.0  # after the first failure; twice as long after each further one
PAUSE_MAX_S = 60.0
FAILING_MAX = 10_000  # jobs remembered: of more, those whose last failure is the longest ago go


@dataclass(slots=True)
class _Failed:
    pause_s: float
    until_s: float
    is_canceled: bool = False  # that has ended a pause of it


class FailingJobs:
    """Which jobs are not to be tried right now. The reconcile thread alone notes something; any
    thread may ask."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, _Failed] = {}

    def note_failure(self, job_id: str) -> float:
        """Returns for how many seconds it is left alone."""
        now_s = self._clock.monotonic_s()
        before = self._failed.pop(job_id, None)
        # One that was not tried for so long did not fail in a row: it was not due any more.
        if before is None or now_s >= before.until_s + PAUSE_MAX_S:
            before = _Failed(FIRST_PAUSE_S / 2, now_s)
        pause_s = min(2 * before.pause_s, PAUSE_MAX_S)
        self._failed[job_id] = _Failed(pause_s, now_s + pause_s, before.is_canceled)
        if len(self._failed) > FAILING_MAX:
            del self._failed[next(iter(self._failed))]
        return pause_s

    def note_success(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self._failed.pop(job_id, None)

    def note_canceled(self, job_ids: Iterable[str]) -> None:
        """These are to be canceled. If one of them was not when it failed, it is tried at once."""
        for job_id in job_ids:
            failed = self._failed.get(job_id)
            if failed is not None and not failed.is_canceled:
                failed.is_canceled, failed.until_s = True, self._clock.monotonic_s()

    def is_paused(self, job_id: str) -> bool:
        failed = self._failed.get(job_id)
        return failed is not None and self._clock.monotonic_s() < failed.until_s
