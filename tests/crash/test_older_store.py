"""A store that was restored from a backup, under targets that went on (E7), with real processes."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from headrace.client.client import Client
from headrace.client.views import JobView
from tests.crash.cluster import Cluster, until
from tests.crash.database import Database
from tests.crash.jobs import (
    JOB_MAX_S,
    LOOK_S,
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

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

EPOCH_MS = 500
ROWS_A_SPLIT = 10
SPLITS = 10_000  # more than any run reads
FURTHER = 2  # epochs that the backup does not know
IN_LAKE = 'namespace = "older", table = "rows"'


def rows_in_lake(stand: Stand) -> list[int]:
    """A job of its own reads them: the table may have been compacted meanwhile."""
    copy = stand.made.folder / "copy"
    source = f'Iceberg {{ plugin_output = "read", {IN_LAKE} }}'
    text = job_text([source], [csv(["read"], copy)])
    await_end(stand.url, submit_text(stand.url, text, key="copy"))
    return ids_in(copy)


def refused(stand: Stand, job_id: str) -> JobView | None:
    """For a quarter of an hour it stays FAILING, while it is tried to settle what is open."""
    view = job(stand.url, job_id)
    return view if view.status in {"FAILING", "FAILED"} else None


def await_epoch(stand: Stand, job_id: str, *, above: int) -> int:
    with closing(Client([stand.url])) as client:

        def reached() -> int | None:
            epoch = client.job(job_id).pipelines[0].epoch
            return epoch if epoch > above else None

        limit_s = SPARK_START_MAX_S + JOB_MAX_S
        return until(reached, limit_s=limit_s, what=f"an epoch above {above}", every_s=LOOK_S)


def copy_store(made: Cluster, to: Path, *, back: bool = False) -> None:
    """The file and its journal; nobody has them open."""
    path = Path(made.store_url.removeprefix("sqlite:///"))
    to.mkdir(exist_ok=True)
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        here, there = (to, path.parent) if back else (path.parent, to)
        (there / name).unlink(missing_ok=True)
        if (here / name).exists():
            shutil.copy2(here / name, there / name)


@pytest.mark.req("E7")
@pytest.mark.matrix
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_store_older_than_its_targets_stops_the_job_and_changes_no_row(
    made: Cluster, database: Database
) -> None:
    stand, target = Stand(made), made.folder / "target"
    stand.start()
    source = numbers("made", SPLITS * ROWS_A_SPLIT, paced(SPLITS, EPOCH_MS))
    lake = f'Iceberg {{ plugin_input = "made", {IN_LAKE} }}'
    sinks = [csv(["made"], target), lake, database.sink("made", "rows")]
    every = f"checkpoint.interval = {EPOCH_MS}"
    job_id = submit_text(stand.url, job_text([source], sinks, every, mode="STREAMING"))
    await_epoch(stand, job_id, above=1)
    stand.kill(Victim.BOTH)
    copy_store(made, made.folder / "backup")
    stand.start_again(Victim.BOTH)
    known = await_epoch(stand, job_id, above=0)
    await_epoch(stand, job_id, above=known + FURTHER)
    stand.kill(Victim.BOTH)
    copy_store(made, made.folder / "backup", back=True)
    before = ids_in(target), database.ids("rows")

    stand.start_again(Victim.BOTH)
    limit_s = SPARK_START_MAX_S + JOB_MAX_S
    view = until(lambda: refused(stand, job_id), limit_s=limit_s, what="it fails", every_s=LOOK_S)

    assert "the store is older than its targets" in str(view.pipelines[0].error)
    for ids in (*before, rows_in_lake(stand)):
        assert ids == list(range(1, len(ids) + 1)), "each row is there once"
        assert len(ids) >= (known + FURTHER) * ROWS_A_SPLIT
    assert (ids_in(target), database.ids("rows")) == before
