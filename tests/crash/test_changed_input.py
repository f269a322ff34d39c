"""A file that is changed between a death and the next attempt (E5), with targets of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.cluster import until
from tests.crash.database import Database
from tests.crash.jobs import await_end, csv, ids_in, job_text, staged_in, submit_text
from tests.crash.lake import leftovers
from tests.crash.stand import SPARK_START_MAX_S, Stand, Victim

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

TABLE, IN_LAKE = "changed.rows", 'namespace = "changed", table = "rows"'
CLEANUP_MAX_S = 60 + 2 * SPARK_START_MAX_S  # its delay, and a worker that is busy


def reading(folder: Path) -> str:
    parts = ['plugin_output = "read"', f'path = "{folder}"', 'file_format_type = "csv"']
    return f'LocalFile {{ {", ".join(parts)}, schema {{ fields {{ id = "bigint" }} }} }}'


@pytest.mark.req("E5")
@pytest.mark.matrix
@pytest.mark.parametrize("changed", [True, False], ids=["changed", "as it was"])
def test_an_epoch_that_was_planned_reads_the_files_it_was_planned_with_or_none(
    stand: Stand, database: Database, *, changed: bool
) -> None:
    """The worker dies when the first of three sinks has staged; nothing is prepared by then."""
    given, target = stand.made.folder / "given", stand.made.folder / "target"
    warehouse = stand.made.folder / "home" / "warehouse"
    given.mkdir()
    (given / "a.csv").write_text("1\n2\n")
    (given / "b.csv").write_text("3\n")
    lake = f'Iceberg {{ plugin_input = "read", {IN_LAKE} }}'
    sinks = [csv(["read"], target), lake, database.sink("read", "rows")]
    stand.start(worker_seams="staged=stop")
    job_id = submit_text(stand.url, job_text([reading(given)], sinks))
    stand.await_stopped_worker()
    stand.kill(Victim.WORKER)
    if changed:
        (given / "b.csv").write_text("4\n")
    (given / "c.csv").write_text("5\n")  # one that comes later is none of this epoch's

    stand.start_again(Victim.WORKER)
    ended = await_end(stand.url, job_id, "FAILED" if changed else "FINISHED")

    rows = [] if changed else [1, 2, 3]
    assert (ids_in(target), database.ids("rows")) == (rows, rows)
    if changed:
        assert "b.csv has changed since the epoch was planned" in str(ended.pipelines[0].error)

    def nothing_is_staged() -> bool:
        return not (staged_in([target]) or database.stages() or leftovers(warehouse, TABLE))

    until(nothing_is_staged, limit_s=CLEANUP_MAX_S, what="nothing is left staged", every_s=1.0)
