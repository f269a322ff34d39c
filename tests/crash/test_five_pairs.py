"""Five pipelines, killed when a quarter of their rows is there (K5)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.client.views import JobView
from tests.crash.cluster import until
from tests.crash.jobs import (
    await_end,
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

PAIRS = 5
READERS = 5
PER_READER = 200
ROWS_OF_EACH = READERS * PER_READER
ROWS = PAIRS * ROWS_OF_EACH
SPLITS = 5
EPOCH_MS = 1000


def five_pairs(folders: Sequence[Path]) -> str:
    names = [f"pair-{number}" for number in range(PAIRS)]
    return job_text(
        [numbers(name, PER_READER, paced(SPLITS, EPOCH_MS)) for name in names],
        [csv([name], folder) for name, folder in zip(names, folders, strict=True)],
        f"parallelism = {READERS}",
        f"checkpoint.interval = {EPOCH_MS}",
    )


def ran_by(view: JobView) -> list[tuple[str | None, str | None, str | None]]:
    return [(each.execution, each.worker, each.spark_application) for each in view.pipelines]


@pytest.mark.req("K5", "D1")
@victims(Victim.COORDINATOR)
def test_five_pairs_killed_at_a_quarter_of_their_rows_end_with_every_row_once(
    stand: Stand, victim: Victim
) -> None:
    stand.start(slots=PAIRS)
    folders = [stand.made.folder / f"target-{number}" for number in range(PAIRS)]
    job_id = submit_text(stand.url, five_pairs(folders))

    def a_quarter() -> bool:
        return sum(len(ids_in(folder)) for folder in folders) >= ROWS / 4

    until(a_quarter, limit_s=2 * SPARK_START_MAX_S, what="a quarter of the rows is there")
    before = job(stand.url, job_id)
    assert before.status == "RUNNING"
    stand.kill(victim)
    assert sum(len(ids_in(folder)) for folder in folders) < ROWS, "it was killed in the middle"
    stand.start_again(victim)

    after = await_end(stand.url, job_id)
    assert len(after.pipelines) == PAIRS
    for folder in folders:
        assert ids_in(folder) == list(range(1, ROWS_OF_EACH + 1))
    assert staged_in(folders) == []
    if victim is Victim.COORDINATOR:
        assert ran_by(after) == ran_by(before), "executions, worker and Spark application stay"
        assert all(None not in facts for facts in ran_by(before))
    else:
        assert {facts[1] for facts in ran_by(after)}.isdisjoint(f[1] for f in ran_by(before))
