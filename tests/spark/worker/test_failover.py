"""The coordinator dies while an epoch runs; the worker goes on, and nothing is lost or repeated."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.client.views import JobView
from tests.crash.cluster import Cluster, Process, cluster, free_port, until
from tests.crash.jobs import ENDED, job, metadata_of, submit

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

PER_READER = 100_000
ROWS = 2 * PER_READER
SPARK_START_MAX_S = 600.0
JOB_MAX_S = 600.0
HEARTBEAT_TIMEOUT_S = 15.0


@pytest.fixture
def made(tmp_path: Path, store_url: str) -> Iterator[Cluster]:
    with cluster(tmp_path, store_url) as running:
        yield running


def running_job(made: Cluster, *options: str) -> tuple[str, Process, int, JobView]:
    """A job whose coordinator was killed at the seam "epoch running".

    Gives the job, its worker, the port kept for the next coordinator, and the job as it was
    last seen before.
    """
    port = free_port()
    first = made.coordinator("first", *options, seams="epoch running=kill")
    second = made.coordinator("second", *options)  # answers while the first is killed
    made.leader(first)
    worker = made.worker("worker", first.url, f"http://127.0.0.1:{port}")
    job_id = submit(second.url, per_reader=PER_READER)
    first.wait_killed(limit_s=SPARK_START_MAX_S)
    before = job(second.url, job_id)
    second.kill()
    return job_id, worker, port, before


def execution_of(view: JobView) -> tuple[str | None, str | None, str | None]:
    (pipeline,) = view.pipelines
    return pipeline.execution, pipeline.worker, pipeline.spark_application


def finished(made: Cluster, coordinator: Process, job_id: str) -> JobView:
    def ended() -> JobView | None:
        view = job(coordinator.url, job_id)
        return view if view.status in ENDED else None

    view = until(ended, limit_s=JOB_MAX_S, what="the job ends")
    assert view.status == "FINISHED", view
    return view


def rows_in(session: SparkSession, made: Cluster) -> int:
    metadata = metadata_of(made.folder / "home" / "warehouse", "crash.rows")
    return session.read.format("iceberg").load(str(metadata)).count()


@pytest.mark.req("M3", "D1")
def test_a_coordinator_killed_while_an_epoch_runs_is_replaced_and_the_worker_goes_on(
    made: Cluster, session: SparkSession
) -> None:
    job_id, worker, port, before = running_job(made)

    after = finished(made, made.coordinator("third", port=port), job_id)

    assert execution_of(after) == execution_of(before)
    assert execution_of(before)[2], "a Spark application runs it"
    assert worker.popen.poll() is None, "the worker's process is the same"
    assert (after.pipelines[0].rows_in, after.pipelines[0].rows_out) == (ROWS, ROWS)
    assert rows_in(session, made) == ROWS


@pytest.mark.req("D1")
def test_a_coordinator_away_for_longer_than_the_heartbeat_timeout_loses_no_worker(
    made: Cluster, session: SparkSession
) -> None:
    timeout = ("--heartbeat-timeout", str(HEARTBEAT_TIMEOUT_S))
    job_id, worker, port, before = running_job(made, *timeout)
    time.sleep(1.5 * HEARTBEAT_TIMEOUT_S)  # the absence itself is what is tested

    after = finished(made, made.coordinator("third", *timeout, port=port), job_id)

    assert execution_of(after) == execution_of(before)
    assert worker.popen.poll() is None
    assert not worker.said("no longer registered")
    assert rows_in(session, made) == ROWS
