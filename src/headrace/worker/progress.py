"""How far the jobs of a task have got, in rows and in tasks, as Spark's own status store knows.

Executors send their SQL metrics with each heartbeat (`spark.executor.heartbeatInterval`), so the
number moves while tasks run, and asking costs the job nothing: some look-ups in the driver's
memory. (The counts of stages would be simpler; they only move when a task has ended. As a sign of
life they are good enough, and there are jobs that show no rows.)
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.formats.iceberg.jvm import JAVA_ERRORS, java_classes, scala_context, sql_status
from headrace.formats.spark_counts import RowCount
from headrace.formats.spark_errors import words_of

log = logging.getLogger(__name__)

QUERIES_ASKED_MAX = 20  # the newest: one that runs is among them, or its rows are not shown
QUERIES_COUNTED_MAX = 1000  # of the whole application, while one epoch is staged
JOBS_ASKED_MAX = 20  # the newest of a task: a stream has thousands behind it
TOLD_POLL_S = 0.05
_ROWS = "number of output rows"
_RANGES = "Exchange rangepartitioning"  # to know the ranges, all that is below runs once before


def rows_of_running_jobs(session: SparkSession, tag: str) -> int | None:
    """None when no job with this tag runs."""
    tracker = scala_context(session).statusTracker()
    running = [job for job in _newest(tracker, tag) if _runs(tracker, job)]
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
    """The newest job with this tag, and how many tasks of the newest ones have succeeded."""
    context = scala_context(session)
    jobs = _newest(context.statusTracker(), tag)
    store = context.statusStore()
    return max(jobs, default=-1), sum(_finished_of(store, job) for job in jobs)


class ScanCount:
    """How many rows a source handed out by itself, where Spark asks it for fewer than it has.

    An observation between the source and a query's conditions would keep Spark from handing these
    down. So Spark's own count is taken, at the scan. Which scan it is says its name: one that two
    sources share, that a query has twice, or that was run twice for a sort, tells nothing. Those of
    all parquet files are called the same; `beside` are the frames of the other sources.
    """

    def __init__(self, frame: DataFrame, tag: str, beside: Sequence[DataFrame] = ()) -> None:
        self.frame, self._tag, self._session = frame, tag, frame.sparkSession
        self._scans = _scans(frame)
        if any(self._scans & _scans(other) for other in beside):
            self._scans = set[str]()
        self._after = _newest_query(sql_status(self._session))

    def rows(self, *, max_s: float) -> int | None:
        """Of the query that read most; one sink's reads all that the others' do, or less.

        No epoch fails because its rows could not be counted for people."""
        try:
            return self._counted(max_s)
        except JAVA_ERRORS as error:
            log.warning("Spark can't tell what it read", extra={"reason": words_of(error)})
            return None

    def _counted(self, max_s: float) -> int | None:
        waits = int(max_s / TOLD_POLL_S)
        while (found := self._found()) is None and waits > 0:
            waits -= 1
            threading.Event().wait(TOLD_POLL_S)
        return max(found or (), default=None)

    def _found(self) -> list[int] | None:
        """Of each query since that read from it; None: one of them has not been told to its end."""
        if len(self._scans) != 1:
            return []
        status = sql_status(self._session)
        tracker = scala_context(self._session).statusTracker()
        own = set(tracker.getJobIdsForTag(self._tag))
        counts: list[int] = []
        # The newest ones: Spark forgets the oldest, and with them what a place in the list means.
        first = max(0, int(status.executionsCount()) - QUERIES_COUNTED_MAX)
        for query in _each(status.executionsList(first, QUERIES_COUNTED_MAX)):
            if int(query.executionId()) <= self._after:
                continue
            if not any(int(job) in own for job in _each(query.jobs().keys())):
                continue
            if query.completionTime().isEmpty():
                return None
            found = self._of_query(status, query.executionId())
            if len(found) > 1:
                return []  # which of them is meant, or whether both are, can't be told
            counts += found
        return counts

    def _of_query(self, status: Any, query: int) -> list[int]:
        """Of each scan of this name."""
        values, found = status.executionMetrics(query), list[int]()
        for node in _each(status.planGraph(query).allNodes()):
            if str(node.desc()).startswith(_RANGES):
                return []
            if str(node.name()) in self._scans:
                metrics = [m for m in _each(node.metrics()) if m.name() == _ROWS]
                found += [_number(values, metric.accumulatorId()) for metric in metrics]
        return found


class SparkCounting:
    """How rows are counted that a slice does not know beforehand."""

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def passing(self, frame: DataFrame) -> RowCount:
        return RowCount(frame)

    def scanned(self, frame: DataFrame, beside: Sequence[DataFrame]) -> ScanCount:
        return ScanCount(frame, self._tag, beside)


def _newest_query(status: Any) -> int:
    """The id of the query that began last; -1: none has."""
    last = max(0, int(status.executionsCount()) - 1)
    return max(
        (int(each.executionId()) for each in _each(status.executionsList(last, 1))), default=-1
    )


def _scans(frame: DataFrame) -> set[str]:
    java: Any = frame._jdf  # noqa: SLF001  # pyright: ignore
    leaves: Any = java.queryExecution().executedPlan().collectLeaves()
    return {str(leaf.nodeName()) for leaf in _each(leaves)}


def _each(many: Any) -> Iterator[Any]:
    """Of a Scala collection, or an iterator over one."""
    parts = many.iterator()
    while parts.hasNext():
        yield parts.next()


def _newest(tracker: Any, tag: str) -> list[int]:
    return sorted(tracker.getJobIdsForTag(tag))[-JOBS_ASKED_MAX:]


def _finished_of(store: Any, job: int) -> int:
    try:
        return int(store.job(job).numCompletedTasks())
    except JAVA_ERRORS as error:
        if "NoSuchElementException" not in java_classes(error):
            raise
        return 0  # not heard of yet, or forgotten since


def _runs(tracker: Any, job: int) -> bool:
    info = tracker.getJobInfo(job)
    return bool(info.isDefined()) and str(info.get().status()) == "RUNNING"


def _rows_of_query(status: Any, query: int) -> int:
    """The rows that the operator nearest to the sink has given out."""
    try:
        values = status.executionMetrics(query)
        nodes = status.planGraph(query).allNodes().iterator()
    except JAVA_ERRORS as error:
        if "NoSuchElementException" not in java_classes(error):
            raise
        return 0  # not planned yet, or forgotten since
    while nodes.hasNext():
        metrics = nodes.next().metrics().iterator()
        while metrics.hasNext():
            metric = metrics.next()
            if metric.name() == _ROWS and (rows := _number(values, metric.accumulatorId())):
                return rows
    return 0


def _number(values: Any, accumulator: int) -> int:
    found = values.get(accumulator)
    return int(str(found.get()).replace(",", "")) if found.isDefined() else 0
