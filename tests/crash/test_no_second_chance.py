"""A batch job without checkpoints and without retries, whose only worker is killed (C8)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from headrace.client.client import Client
from headrace.client.views import JobView
from headrace.coordinator.jobs.reconciler import SETTLE_DEADLINE_S
from headrace.model.task import ENDED as TASK_ENDED
from headrace.store.core.engine import open_store, reading
from headrace.store.tasks import tasks
from tests.crash.cluster import END_MAX_S, until
from tests.crash.jobs import (
    JOB_MAX_S,
    await_end,
    csv,
    ids_in,
    job,
    job_text,
    numbers,
    paced,
    submit_text,
)
from tests.crash.stand import SPARK_START_MAX_S, Stand, Victim

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

ROWS = 100
LASTS_MS = 120_000  # far longer than all that is waited for here


def forlorn(target: Path) -> str:
    source = numbers("made", ROWS, paced(2, LASTS_MS))
    return job_text([source], [csv(["made"], target)], "job.retry.times = 0")


def running(url: str, job_id: str) -> JobView:
    """As soon as the API says so, and it is held by a worker."""

    def look() -> JobView | None:
        view = job(url, job_id)
        return view if view.status == "RUNNING" and view.pipelines[0].worker else None

    return until(look, limit_s=SPARK_START_MAX_S, what="the job is RUNNING")


def tasks_left(store_url: str, job_id: str) -> list[str]:
    engine = open_store(store_url)
    try:
        with reading(engine) as conn:
            return [t.id for t in tasks.of_job(conn, job_id) if t.status not in TASK_ENDED]
    finally:
        engine.dispose()


@pytest.mark.req("C8")
def test_a_batch_job_without_a_second_chance_fails_when_its_worker_is_killed(
    stand: Stand, tmp_path: Path, store_url: str
) -> None:
    stand.start()
    target = tmp_path / "rows"
    job_id = submit_text(stand.url, forlorn(target))
    before = running(stand.url, job_id)
    assert not before.error

    stand.kill(Victim.WORKER)
    until(lambda: not stand.worker.left(), limit_s=END_MAX_S, what="its JVM is gone, too")

    assert JOB_MAX_S < SETTLE_DEADLINE_S, "its end does not wait for somebody to settle it"
    ended = await_end(stand.url, job_id, "FAILED")
    assert f"worker {before.pipelines[0].worker} is gone" in (ended.error or "")
    assert [p.status for p in ended.pipelines] == ["FAILED"]
    with closing(Client([stand.url])) as client:
        assert job_id not in [view.id for view in client.jobs()]
    assert tasks_left(store_url, job_id) == []
    assert ids_in(target) == []
