"""How much makes an epoch, and when the next one is due.

Nobody knows beforehand how fast a job is, so the first epoch is small, and those that ran tell how
large the next should be to take about `checkpoint.interval`. An epoch costs something whatever is
in it, and an interval shorter than that can't be kept: then at least half of the time goes into
rows, or a job would do nothing but begin and end epochs.

Without an interval an epoch of a batch job is all there is. A streaming job has an epoch every
interval, also when nothing came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from statistics import fmean, linear_regression

from headrace.clock import Clock
from headrace.model.jobspec import EnvSpec

FIRST_ROWS = 100_000  # of each source
ROWS_MIN = 1000
CHANGE_MAX = 4.0  # from one epoch to the next: one that was lucky must not make the next endless
REMEMBERED_EPOCHS = 6  # what they took tells the cost of an epoch and of a row apart
ROWS_APART_MIN = 1.2  # the largest to the smallest of them, to tell anything
ROW_S_MIN = 1e-9  # no row costs less
FIXED_SHARE_MAX = 0.5  # of an epoch's time, for what it costs whatever is in it
STREAMING_INTERVAL_MS = 10_000  # when none is given


class Pace:
    def __init__(self, env: EnvSpec, clock: Clock) -> None:
        self._clock = clock
        self._streaming = env.job_mode == "STREAMING"
        default = STREAMING_INTERVAL_MS if self._streaming else None
        interval_ms = env.checkpoint_interval_ms or default
        self._pause_s = (env.checkpoint_min_pause_ms or 0) / 1000
        # Between two epochs of a batch job nothing would happen in a pause, so they take longer.
        self._interval_s = None if interval_ms is None else max(interval_ms / 1000, self._pause_s)
        self._rows = float(FIRST_ROWS)
        self._seen: deque[tuple[float, float]] = deque(maxlen=REMEMBERED_EPOCHS)  # rows, seconds
        self._fixed_s = 0.0  # what an epoch costs, whatever is in it
        self._warm = False
        self._due_s = clock.monotonic_s()

    @property
    def rows_max(self) -> int | None:
        """Rows to plan of each source; None: all."""
        return None if self._interval_s is None else round(self._rows)

    @property
    def may_overlap(self) -> bool:
        """Whether an epoch may begin while the one before it is being committed."""
        return not (self._streaming and self._pause_s)

    @property
    def due_in_s(self) -> float:
        """How long to wait before the next epoch is planned."""
        return max(0.0, self._due_s - self._clock.monotonic_s())

    def began(self) -> None:
        """An epoch begins to run."""
        if self._streaming and self._interval_s is not None:
            self._due_s = self._clock.monotonic_s() + self._interval_s

    def completed(self) -> None:
        """An epoch is complete: the next one is not to begin before `min-pause` is over."""
        if self._streaming:
            self._due_s = max(self._due_s, self._clock.monotonic_s() + self._pause_s)

    def took(self, seconds: float, rows: int | None) -> None:
        """Reading and staging an epoch of `rows` rows, of its largest source, took so long.
        None: nobody counted them."""
        if self._interval_s is None or rows == 0:
            return
        self._seen.append((self._rows if rows is None else float(rows), max(seconds, 0.001)))
        self._fixed_s, row_s = _cost(self._seen, self._fixed_s)
        target_s = max(self._interval_s, self._fixed_s / FIXED_SHARE_MAX)
        fitting = (target_s - self._fixed_s) / row_s
        self._rows = max(
            ROWS_MIN, min(self._rows * CHANGE_MAX, max(self._rows / CHANGE_MAX, fitting))
        )
        if not self._warm:  # the first one pays for everything that happens once
            self._warm = True
            self._seen.clear()


def _cost(seen: Collection[tuple[float, float]], fixed_s: float) -> tuple[float, float]:
    """What an epoch costs in itself, and what a row of it costs, in seconds: the line through
    what was seen. Epochs that are all of a size say nothing new about the first."""
    rows, seconds = [r for r, _ in seen], [s for _, s in seen]
    mean_rows, mean_s = fmean(rows), fmean(seconds)
    if max(rows) >= ROWS_APART_MIN * min(rows):
        slope = max(linear_regression(rows, seconds).slope, ROW_S_MIN)
        fixed_s = max(0.0, mean_s - slope * mean_rows)
    fixed_s = min(fixed_s, *seconds)
    return fixed_s, max((mean_s - fixed_s) / mean_rows, ROW_S_MIN)
