"""How far the jobs of a task have got, in rows and in tasks, as Spark's own status store knows.

Executors send their SQL metrics with each heartbeat (`spark.executor.heartbeatInterval`), so the
number moves while tasks run, and asking costs the job nothing: some look-ups in the driver's
memory. (The counts of stages would be simpler; they only move when a task has ended. As a sign of
life they are good enough, and there are jobs that show no rows.)
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from headrace.formats.iceberg.jvm import JAVA_ERRORS, java_classes, scala_context, sql_status

QUERIES_ASKED_MAX = 20  # the newest: one that runs is among them, or its rows are not shown
JOBS_ASKED_MAX = 20  # the newest of a task: a stream has thousands behind it
_ROWS = "number of output rows"


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
