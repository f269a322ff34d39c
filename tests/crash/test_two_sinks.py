"""Two sinks, killed between their commits, and a source that gives other rows afterwards (E2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.database import Database
from tests.crash.jobs import (
    await_end,
    csv,
    ids_in,
    job,
    job_text,
    ready_and_open,
    staged_in,
    submit_text,
)
from tests.crash.stand import Stand, Victim, victims

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

ROWS = 100
FILE_FIRST = "the file first"
DATABASE_FIRST = pytest.param("the database first", marks=pytest.mark.matrix)


def two_sinks(database: Database, folder: Path, first: str) -> str:
    sinks = [csv(["read"], folder), database.sink("read", "copied")]
    source = database.source("read", "SELECT id FROM numbers")
    return job_text([source], sinks if first == FILE_FIRST else sinks[::-1])


def stopped_at(stand: Stand, database: Database, seam: str, first: str) -> tuple[str, Path]:
    """A job whose worker stands still at a seam of its first sink, and whose source has changed
    since it was read: no row of it is what it was."""
    database.run(f"CREATE TABLE numbers AS SELECT generate_series(1, {ROWS})::bigint AS id")
    stand.start(worker_seams=f"{seam}=stop")
    target = stand.made.folder / "target"
    job_id = submit_text(stand.url, two_sinks(database, target, first))
    stand.await_stopped_worker()
    assert job(stand.url, job_id).pipelines[0].repeatable is False
    database.run(f"UPDATE numbers SET id = -id; INSERT INTO numbers VALUES (-{ROWS + 1})")
    return job_id, target


@pytest.mark.req("E2")
@pytest.mark.parametrize("first", [FILE_FIRST, DATABASE_FIRST])
@victims(Victim.WORKER)
def test_killed_between_the_commits_of_two_sinks_both_end_with_the_rows_that_were_prepared(
    stand: Stand, database: Database, victim: Victim, first: str
) -> None:
    job_id, target = stopped_at(stand, database, "sink committed", first)
    there = len(ids_in(target)), database.tables("copied")
    if first == FILE_FIRST:
        assert there == (ROWS, []), "the second table is made with its first rows"
    else:
        assert there == (0, ["copied"])
        assert len(database.ids("copied")) == ROWS

    stand.strike_stopped_worker(victim)

    await_end(stand.url, job_id)
    assert ids_in(target) == database.ids("copied") == list(range(1, ROWS + 1))
    assert staged_in([target]) == database.stages() == []


@pytest.mark.req("E2")
@pytest.mark.matrix
@victims(Victim.BOTH)
def test_killed_when_one_of_two_sinks_has_staged_both_end_with_the_same_rows(
    stand: Stand, database: Database, victim: Victim
) -> None:
    job_id, target = stopped_at(stand, database, "staged", FILE_FIRST)
    _, left = ready_and_open(stand.made.store_url, job_id)
    assert [each.handles for each in left] == [None], "nothing is prepared"

    stand.strike_stopped_worker(victim)

    await_end(stand.url, job_id)
    again = range(-ROWS - 1, 0) if victim.holds_the_worker else range(1, ROWS + 1)
    assert ids_in(target) == database.ids("copied") == list(again)
    assert staged_in([target]) == database.stages() == []
