"""Leaders that die while they deploy, with real processes (D1, D3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.views import JobView
from headrace.model.jobs.status import PipelineStatus
from headrace.store.core.engine import open_store, reading
from headrace.store.jobs import jobs
from headrace.store.tasks import tasks
from tests.crash.cluster import Cluster, cluster, free_port, until
from tests.crash.jobs import ENDED, job, submit

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

SPARK_START_MAX_S = 600.0
JOB_MAX_S = 600.0
PER_READER = 1000


@pytest.fixture
def made(tmp_path: Path, store_url: str) -> Iterator[Cluster]:
    with cluster(tmp_path, store_url) as running:
        yield running


def in_store(made: Cluster, job_id: str) -> tuple[PipelineStatus, list[tasks.Task]]:
    engine = open_store(made.store_url)
    try:
        with reading(engine) as conn:
            return jobs.pipeline(conn, job_id, 1).status, list(tasks.of_job(conn, job_id))
    finally:
        engine.dispose()


@pytest.mark.req("D3", "D1")
def test_leaders_killed_between_deploying_and_running_are_followed_by_one_that_gets_there(
    made: Cluster,
) -> None:
    """The first dies when it has recorded who gets the task, and before that one hears of it; the
    second when it has heard that the task is held, and before its worker hears anything of it."""
    port = free_port()
    assigning = made.coordinator("assigning", seams="task assigned, before answer=kill")
    made.leader(assigning)
    holding = made.coordinator("holding", seams="task held, before answer=kill")
    job_id = submit(holding.url, per_reader=PER_READER)
    worker = made.worker("worker", assigning.url, holding.url, f"http://127.0.0.1:{port}")
    assigning.wait_killed(limit_s=SPARK_START_MAX_S)
    holding.wait_killed(limit_s=JOB_MAX_S)
    status, [left] = in_store(made, job_id)
    assert (status, left.attempt) == (PipelineStatus.INITIALIZING, 1)

    last = made.coordinator("last", port=port)
    seen: set[str] = set()

    def ended() -> JobView | None:
        view = job(last.url, job_id)
        seen.add(view.status)
        return view if view.status in ENDED else None

    view = until(ended, limit_s=JOB_MAX_S, what="the job ends")
    assert view.status == "FINISHED", view
    assert not seen & {"FAILING", "FAILED"}
    [pipeline] = view.pipelines
    assert pipeline.execution == left.claim.execution, "no attempt was spent"
    assert pipeline.worker == left.worker_id
    assert pipeline.rows_out == 2 * PER_READER
    assert worker.popen.poll() is None
    assert holding.said("task deployed again")
    assert not last.said("task deployed again"), "it was held, and nobody touched it"
