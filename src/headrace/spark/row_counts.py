"""Row counts of Spark queries: exact ones once a query has ended, and progress while it runs.

`RowCount` counts rows while Spark does something else with them, without a pass of its own. Spark
reports what it observed through its listener bus, a moment after the query has ended. Every wait
for that has a limit here, because an observation whose query never ran is never reported.

`rows_of_running_jobs` and `tasks_finished` read Spark's own status store. Executors send their SQL
metrics with each heartbeat (`spark.executor.heartbeatInterval`), so the number of rows moves while
tasks run, and reading it costs the job nothing: some look-ups in the driver's memory. The number of
finished tasks only moves when a task has ended. As a sign of life it is good enough, and there are
jobs that show no rows.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from headrace.errors import Unavailable
from headrace.spark.errors import error_text
from headrace.spark.jvm_bridge import JAVA_ERRORS, java_classes, scala_context, sql_status

log = logging.getLogger(__name__)

METRICS_WAIT_MAX_S = 60.0  # from the end of a query until its metrics are reported
COUNT_POLL_S = 0.02
ROW_BITS = 33  # of monotonically_increasing_id: the number of a row within its partition
QUERIES_ASKED_MAX = 20  # the newest; the rows of a running query that is older are not shown
QUERIES_COUNTED_MAX = 1000  # of the whole application, while one epoch is staged (newest)
JOBS_ASKED_MAX = 20  # the newest of a task: a stream has run thousands before
STATUS_POLL_S = 0.05

_COUNTED, _RUNS = "rows", "runs"  # of an observation
_MARK = "__headrace_partition"
_ROWS = "number of output rows"  # Spark's name of the metric
_RANGES = "Exchange rangepartitioning"  # to find the ranges, Spark runs all below it once before


class RowCount:
    """How many rows a frame gave to the first query that read it.

    Spark may run a partition more than once: a sort samples all of them first, and what a lost
    executor had shuffled is computed again. A mere count would then count rows twice. So the first
    row of each partition is marked, and the marks tell how often each partition was run.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._observation = Observation()
        row = f.monotonically_increasing_id().bitwiseAND(f.lit((1 << ROW_BITS) - 1))
        marked = frame.withColumn(_MARK, f.when(row == 0, f.spark_partition_id()))
        rows, runs = f.count(f.lit(1)).alias(_COUNTED), f.collect_list(_MARK).alias(_RUNS)
        self.frame = marked.observe(self._observation, rows, runs).drop(_MARK)

    def rows(self, *, max_s: float = METRICS_WAIT_MAX_S) -> int | None:
        """None when no query reported it within `max_s`."""
        metrics = wait_for_metrics(self._observation, max_s=max_s)
        if metrics is None:
            return None
        return rows_counted_once(int(metrics[_COUNTED]), metrics[_RUNS]) if metrics else 0


class ScanCount:
    """How many rows a source itself handed out, where Spark reads fewer of them than it has.

    An observation between the source and a query's conditions would keep Spark from pushing these
    down. So Spark's own count at the scan is used. The scan is identified by its name, and there is
    no count when two sources share the name, a query has it twice, or a scan was run twice for a
    sort. Scans of all parquet files have the same name; `beside` are the frames of the other
    sources.
    """

    def __init__(self, frame: DataFrame, tag: str, beside: Sequence[DataFrame] = ()) -> None:
        self.frame, self._tag, self._session = frame, tag, frame.sparkSession
        self._scans = _scans(frame)
        if any(self._scans & _scans(other) for other in beside):
            self._scans = set[str]()
        self._after = _newest_query(sql_status(self._session))

    def rows(self, *, max_s: float) -> int | None:
        """The rows of the query that read most; those of other sinks read the same, or fewer.

        None when there is no count: no epoch fails because its rows could not be counted for
        people.
        """
        try:
            return self._wait_for_counts(max_s)
        except JAVA_ERRORS as error:
            log.warning("Spark can't tell what it read", extra={"reason": error_text(error)})
            return None

    def _wait_for_counts(self, max_s: float) -> int | None:
        waits = int(max_s / STATUS_POLL_S)
        while (counts := self._row_counts()) is None and waits > 0:
            waits -= 1
            threading.Event().wait(STATUS_POLL_S)
        return max(counts or (), default=None)

    def _row_counts(self) -> list[int] | None:
        """Rows scanned by each query since; None while the end of one is not reported."""
        if len(self._scans) != 1:
            return []
        status = sql_status(self._session)
        tracker = scala_context(self._session).statusTracker()
        own = set(tracker.getJobIdsForTag(self._tag))
        counts: list[int] = []
        # Counted from the end: Spark drops the oldest queries, which shifts all places in the list.
        first = max(0, int(status.executionsCount()) - QUERIES_COUNTED_MAX)
        for query in _each(status.executionsList(first, QUERIES_COUNTED_MAX)):
            if int(query.executionId()) <= self._after:
                continue
            if not any(int(job) in own for job in _each(query.jobs().keys())):
                continue
            if query.completionTime().isEmpty():
                return None
            scanned = self._rows_of_scans(status, query.executionId())
            if len(scanned) > 1:
                return []  # it is unknown which of them is meant, or whether both are
            counts += scanned
        return counts

    def _rows_of_scans(self, status: Any, query: int) -> list[int]:
        """The rows of each scan of this name in the query."""
        values, rows = status.executionMetrics(query), list[int]()
        for node in _each(status.planGraph(query).allNodes()):
            if str(node.desc()).startswith(_RANGES):
                return []
            if str(node.name()) in self._scans:
                metrics = [m for m in _each(node.metrics()) if m.name() == _ROWS]
                rows += [_number(values, metric.accumulatorId()) for metric in metrics]
        return rows


class SparkRowCounter:
    """Counts rows of slices that do not know their number beforehand."""

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def passing(self, frame: DataFrame) -> RowCount:
        return RowCount(frame)

    def scanned(self, frame: DataFrame, beside: Sequence[DataFrame]) -> ScanCount:
        return ScanCount(frame, self._tag, beside)


def wait_for_metrics(
    observation: Observation, *, max_s: float = METRICS_WAIT_MAX_S
) -> Mapping[str, Any] | None:
    """What was observed; None when nothing was reported in time. Empty when Spark found that it
    need not run the query."""
    java: Any = observation._jo  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    waits = int(max_s / COUNT_POLL_S)
    while not java.future().isCompleted():
        waits -= 1
        if waits < 0:
            return None
        threading.Event().wait(COUNT_POLL_S)
    outcome: Any = java.future().value().get()
    if not outcome.isSuccess():
        return None
    return observation.get if outcome.get().length() else {}


def require_metrics(observation: Observation) -> Mapping[str, Any]:
    """What was observed in a query that is known to have run, or `Unavailable`."""
    metrics = wait_for_metrics(observation)
    if metrics is None:
        raise Unavailable(f"Spark did not tell its counts in {METRICS_WAIT_MAX_S:.0f} s")
    return metrics


def rows_counted_once(rows: int, runs: Sequence[int]) -> int:
    """Rows of all partitions, each counted once; `runs` lists a partition as often as it was run.

    Exact as long as all partitions were run equally often. Where only some were run again, they are
    taken to have as many rows as the others.
    """
    times = Counter(runs)
    return round(rows * len(times) / len(runs)) if runs else rows


def rows_of_running_jobs(session: SparkSession, tag: str) -> int | None:
    """Rows that the running jobs with this tag have put out so far; None when none runs."""
    tracker = scala_context(session).statusTracker()
    running = [job for job in _newest(tracker, tag) if _is_running(tracker, job)]
    if not running:
        return None
    status = sql_status(session)
    first = max(0, int(status.executionsCount()) - QUERIES_ASKED_MAX)
    queries = status.executionsList(first, QUERIES_ASKED_MAX).iterator()
    rows = 0
    while queries.hasNext():
        query = queries.next()
        if any(query.jobs().contains(job) for job in running):
            rows += _rows_of_query(status, query.executionId())
    return rows


def tasks_finished(session: SparkSession, tag: str) -> tuple[int, int]:
    """The newest job with this tag, and how many tasks of its newest jobs have succeeded."""
    context = scala_context(session)
    jobs = _newest(context.statusTracker(), tag)
    store = context.statusStore()
    return max(jobs, default=-1), sum(_tasks_finished_of(store, job) for job in jobs)


def _newest_query(status: Any) -> int:
    """The id of the query that began last; -1 when there was none."""
    last = max(0, int(status.executionsCount()) - 1)
    return max(
        (int(each.executionId()) for each in _each(status.executionsList(last, 1))), default=-1
    )


def _scans(frame: DataFrame) -> set[str]:
    """The names of the scans that a frame reads from."""
    java: Any = frame._jdf  # noqa: SLF001  # pyright: ignore
    leaves: Any = java.queryExecution().executedPlan().collectLeaves()
    return {str(leaf.nodeName()) for leaf in _each(leaves)}


def _each(collection: Any) -> Iterator[Any]:
    """The elements of a Scala collection."""
    items = collection.iterator()
    while items.hasNext():
        yield items.next()


def _newest(tracker: Any, tag: str) -> list[int]:
    return sorted(tracker.getJobIdsForTag(tag))[-JOBS_ASKED_MAX:]


def _tasks_finished_of(store: Any, job: int) -> int:
    try:
        return int(store.job(job).numCompletedTasks())
    except JAVA_ERRORS as error:
        if "NoSuchElementException" not in java_classes(error):
            raise
        return 0  # not in the status store yet, or dropped from it


def _is_running(tracker: Any, job: int) -> bool:
    info = tracker.getJobInfo(job)
    return bool(info.isDefined()) and str(info.get().status()) == "RUNNING"


def _rows_of_query(status: Any, query: int) -> int:
    """The rows that the operator nearest to the sink has put out."""
    try:
        values = status.executionMetrics(query)
        nodes = status.planGraph(query).allNodes().iterator()
    except JAVA_ERRORS as error:
        if "NoSuchElementException" not in java_classes(error):
            raise
        return 0  # not planned yet, or dropped from the status store
    while nodes.hasNext():
        metrics = nodes.next().metrics().iterator()
        while metrics.hasNext():
            metric = metrics.next()
            if metric.name() == _ROWS and (rows := _number(values, metric.accumulatorId())):
                return rows
    return 0


def _number(values: Any, accumulator: int) -> int:
    value = values.get(accumulator)
    return int(str(value.get()).replace(",", "")) if value.isDefined() else 0
