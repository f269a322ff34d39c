"""A pipeline of several sources, killed when some of them, or all, have read everything (K6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model.jobs.epoch import EpochStatus
from tests.crash.jobs import (
    await_end,
    checkpoints,
    csv,
    ids_in,
    job,
    job_text,
    numbers,
    paced,
    ready_and_open,
    staged_in,
    submit_text,
)
from tests.crash.stand import Stand, Victim, victims

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

EPOCH_MS = 500
ROWS_A_SPLIT = 20
SPLITS = {"short": 1, "middle": 2, "long": 3}  # one of each is read in an epoch
LAST_EPOCH = max(SPLITS.values())
APART = 1000  # between the first numbers of two sources


def three_sources(folder: Path) -> str:
    sources = [
        numbers(name, splits * ROWS_A_SPLIT, paced(splits, EPOCH_MS), first=1 + APART * number)
        for number, (name, splits) in enumerate(SPLITS.items())
    ]
    return job_text(sources, [csv(list(SPLITS), folder)], f"checkpoint.interval = {EPOCH_MS}")


def every_row() -> list[int]:
    return [
        1 + APART * number + row
        for number, splits in enumerate(SPLITS.values())
        for row in range(splits * ROWS_A_SPLIT)
    ]


def stopped_in(stand: Stand, epoch: int) -> tuple[str, Path]:
    """A job whose worker stands still when this epoch is prepared and not committed."""
    stand.start(worker_seams=f"before sink commit=stop@{epoch}")
    target = stand.made.folder / "target"
    job_id = submit_text(stand.url, three_sources(target))
    stand.await_stopped_worker()
    assert job(stand.url, job_id).status == "RUNNING"
    return job_id, target


@pytest.mark.req("K6", "K1", "K2")
@victims(Victim.WORKER)
def test_killed_with_a_part_of_its_sources_ready_it_goes_on_with_an_ordinary_checkpoint(
    stand: Stand, victim: Victim
) -> None:
    job_id, target = stopped_in(stand, epoch=1)
    ready, left = ready_and_open(stand.made.store_url, job_id)
    assert 0 < len(ready) < len(SPLITS)
    assert left[0].status is EpochStatus.PREPARED
    assert ids_in(target) == []

    stand.strike_stopped_worker(victim)

    after = await_end(stand.url, job_id)
    found = checkpoints(stand.url, job_id)
    assert [each.id for each in found] == list(range(1, LAST_EPOCH + 2))
    assert [each.kind for each in found] == ["checkpoint"] * LAST_EPOCH + ["completed"]
    assert ids_in(target) == every_row()
    assert after.pipelines[0].rows_out == len(every_row())
    assert staged_in([target]) == []


@pytest.mark.req("K6", "K2")
@victims(Victim.BOTH)
def test_killed_with_all_of_its_sources_ready_it_goes_to_the_completed_point(
    stand: Stand, victim: Victim
) -> None:
    job_id, target = stopped_in(stand, epoch=LAST_EPOCH)
    ready, left = ready_and_open(stand.made.store_url, job_id)
    assert sorted(ready) == sorted(f"FakeSource-{n}" for n in range(1, len(SPLITS) + 1))
    assert [(each.epoch, each.status) for each in left] == [(LAST_EPOCH, EpochStatus.PREPARED)]
    before = {each.id for each in checkpoints(stand.url, job_id)}

    stand.strike_stopped_worker(victim)

    await_end(stand.url, job_id)
    new = [each for each in checkpoints(stand.url, job_id) if each.id not in before]
    assert [(each.id, each.kind) for each in new] == [(LAST_EPOCH + 1, "completed")]
    assert ids_in(target) == every_row()
    assert staged_in([target]) == []
