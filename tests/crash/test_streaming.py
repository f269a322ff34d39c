"""Streaming jobs go through a failover, and end by cancel or by savepoint only (K7)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from headrace.client.client import Client
from headrace.client.views import JobView
from tests.crash.cluster import until
from tests.crash.jobs import (
    JOB_MAX_S,
    LOOK_S,
    await_end,
    checkpoints,
    csv,
    ids_in,
    job,
    job_text,
    numbers,
    paced,
    staged_in,
    submit_text,
)
from tests.crash.stand import SPARK_START_MAX_S, Stand, Victim, victims

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

EPOCH_MS = 500
ROWS_A_SPLIT = 10
SPLITS = 10_000  # more than any run reads
RETAINED = 1000  # all that a run makes


def endless(folder: Path) -> str:
    return job_text(
        [numbers("made", SPLITS * ROWS_A_SPLIT, paced(SPLITS, EPOCH_MS))],
        [csv(["made"], folder)],
        f"checkpoint.interval = {EPOCH_MS}",
        f"checkpoint.retained = {RETAINED}",
        mode="STREAMING",
    )


def epoch_of(view: JobView) -> int:
    (pipeline,) = view.pipelines
    return pipeline.epoch


def await_epochs(stand: Stand, jobs: Sequence[str], *, above: int) -> list[int]:
    """Until each is so far. From its first epoch on a job is RUNNING, and its epochs only grow."""
    last = dict.fromkeys(jobs, 0)
    with closing(Client([stand.url])) as client:

        def reached() -> bool:
            for job_id in jobs:
                view = client.job(job_id)
                assert epoch_of(view) >= last[job_id]
                assert view.status == "RUNNING" or epoch_of(view) == 0, view
                last[job_id] = epoch_of(view)
            return min(last.values()) > above

        limit_s = SPARK_START_MAX_S + JOB_MAX_S
        until(reached, limit_s=limit_s, what=f"epochs above {above}", every_s=LOOK_S)
    return list(last.values())


def assert_whole(stand: Stand, job_id: str, folder: Path, kinds: Sequence[str]) -> None:
    """Every row of the completed epochs is there once, and no other; ids grew one by one."""
    found = checkpoints(stand.url, job_id)
    completed = [each for each in found if each.status == "COMPLETED"]
    assert [each.id for each in completed] == list(range(1, len(completed) + 1))
    times = [each.completed_at_ms or 0 for each in completed]
    assert times == sorted(times)
    assert [each.kind for each in completed if each.kind != "checkpoint"] == kinds
    rows = sum(each.rows_out or 0 for each in completed)
    assert rows > 0
    assert ids_in(folder) == list(range(1, rows + 1))
    assert staged_in([folder]) == []


@pytest.mark.req("K7")
@victims(Victim.COORDINATOR)
def test_a_streaming_job_runs_on_through_a_failover_and_ends_by_cancel_or_by_savepoint(
    stand: Stand, victim: Victim
) -> None:
    stand.start(slots=2)
    folders = [stand.made.folder / name for name in ("cancelled", "saved")]
    cancelled, saved = (
        submit_text(stand.url, endless(folder), key=folder.name) for folder in folders
    )
    before = await_epochs(stand, [cancelled, saved], above=1)

    stand.strike(victim)

    await_epochs(stand, [cancelled, saved], above=max(before) + 2)
    with closing(Client([stand.url])) as client:
        client.cancel_job(cancelled)
        client.savepoint_job(saved)
    await_end(stand.url, cancelled, "CANCELED")
    assert_whole(stand, cancelled, folders[0], [])

    at = epoch_of(await_end(stand.url, saved, "SAVEPOINT_DONE"))
    assert_whole(stand, saved, folders[1], ["savepoint"])
    rows = len(ids_in(folders[1]))
    restored = submit_text(stand.url, endless(folders[1]), key="again", restore=saved)
    assert restored == saved
    until(lambda: job(stand.url, saved).status == "RUNNING", limit_s=JOB_MAX_S, what="it runs")
    await_epochs(stand, [saved], above=at + 2)
    with closing(Client([stand.url])) as client:
        client.cancel_job(saved)
    await_end(stand.url, saved, "CANCELED")
    assert_whole(stand, saved, folders[1], ["savepoint"])
    assert len(ids_in(folders[1])) > rows
