"""Count rows while Spark does something else with them: exact, and without a pass of its own.

Spark tells what it observed through its listener bus, a moment after the query has ended. Every
wait for that has a limit here, because an observation that no query ran is never told.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from headrace.errors import Unavailable

TOLD_MAX_S = 60.0  # from the end of a query until its counts are told
TOLD_POLL_S = 0.02
ROW_BITS = 33  # of monotonically_increasing_id: the number of a row within its partition
_ROWS, _RUNS = "rows", "runs"
_MARK = "__headrace_partition"


def told(seen: Observation, *, max_s: float = TOLD_MAX_S) -> Mapping[str, Any] | None:
    """What was observed; None: nothing was told in time. Empty: Spark found it had not to run."""
    java: Any = seen._jo  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    waits = int(max_s / TOLD_POLL_S)
    while not java.future().isCompleted():
        waits -= 1
        if waits < 0:
            return None
        threading.Event().wait(TOLD_POLL_S)
    outcome: Any = java.future().value().get()
    if not outcome.isSuccess():
        return None
    return seen.get if outcome.get().length() else {}


def told_or_fail(seen: Observation) -> Mapping[str, Any]:
    """Of a query that is known to have run what was observed."""
    found = told(seen)
    if found is None:
        raise Unavailable(f"Spark did not tell its counts in {TOLD_MAX_S:.0f} s")
    return found


class RowCount:
    """How many rows a frame gave to the first query that read it.

    Spark may run a partition more than once: a sort samples all of them first, and what a lost
    executor had shuffled is made again. Only counting would then count twice. So the first row of
    a partition is marked, and the marks tell how often each was run.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._seen = Observation()
        row = f.monotonically_increasing_id().bitwiseAND(f.lit((1 << ROW_BITS) - 1))
        marked = frame.withColumn(_MARK, f.when(row == 0, f.spark_partition_id()))
        rows, runs = f.count(f.lit(1)).alias(_ROWS), f.collect_list(_MARK).alias(_RUNS)
        self.frame = marked.observe(self._seen, rows, runs).drop(_MARK)

    def rows(self, *, max_s: float = TOLD_MAX_S) -> int | None:
        """None: no query told it."""
        found = told(self._seen, max_s=max_s)
        if found is None:
            return None
        return once(int(found[_ROWS]), found[_RUNS]) if found else 0


def once(rows: int, runs: Sequence[int]) -> int:
    """Rows of all partitions, each counted once; `runs` has a partition as often as it was run.

    Exact as long as all were run equally often. Where only some were run again, their rows are
    taken to be as many as those of the others.
    """
    times = Counter(runs)
    return round(rows * len(times) / len(runs)) if runs else rows
