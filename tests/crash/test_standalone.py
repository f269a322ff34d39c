"""A worker on a Spark standalone cluster, started by a container: it runs pipelines and optimizes
tables there, and comes back when its driver is killed.

Master, node, executors, driver and coordinator are processes of their own. That the work was done
by executors is told by their own logs; a driver on such a master runs no Spark task itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.machine import is_gone
from tests.crash.cluster import Cluster, until
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
from tests.crash.lake import leftovers
from tests.crash.on_spark import LOOK_S, Driver, OnSpark, on_spark

# Of the matrix: a cluster and two drivers take more than a minute.
pytestmark = [pytest.mark.crash, pytest.mark.matrix, pytest.mark.timeout(1800)]

TABLE = "lake.numbers"
ROWS, EPOCHS, EPOCH_MS = 100, 4, 200
LONG_ROWS, LONG_EPOCHS, LONG_EPOCH_MS = 120, 12, 500  # 6 s and more: time to be killed in
GIVEN = 1001
STEP_MAX_S = 300.0
# As many files as there are epochs are enough to merge them, and not one less.
EAGER = f"""iceberg.table.auto-create-props {{
  "self-optimizing.minor.trigger.file-count" = "{EPOCHS}"
  "self-optimizing.minor.trigger.interval" = "-1"
  "self-optimizing.min-plan-interval" = "0"
}}"""


@pytest.fixture
def lake(made: Cluster) -> Iterator[OnSpark]:
    with on_spark(made) as started:
        yield started


def run_pipeline(lake: OnSpark, driver: Driver) -> None:
    """Rows into a table, in several commits: each one's file is written by an executor."""
    sink = f'Iceberg {{ plugin_input = "made", namespace = "lake", table = "numbers", {EAGER} }}'
    source = numbers("made", ROWS, paced(EPOCHS, EPOCH_MS))
    text = job_text([source], [sink], f"checkpoint.interval = {EPOCH_MS}")
    view = await_end(lake.url, submit_text(lake.url, text, key="into the table"))

    [pipeline] = view.pipelines
    assert (pipeline.rows_out, pipeline.spark_application) == (ROWS, driver.application)
    appended = [each["summary"] for each in lake.snapshots(TABLE)[:EPOCHS]]
    assert [each["operation"] for each in appended] == ["append"] * EPOCHS
    assert (appended[-1]["total-records"], appended[-1]["total-data-files"]) == (
        str(ROWS),
        str(EPOCHS),
    )
    await_files_written(lake, driver, at_least=EPOCHS)


def await_files_written(lake: OnSpark, driver: Driver, *, at_least: int) -> None:
    """The node copies what executors say into their logs a little later."""
    until(
        lambda: lake.files_written(driver.application) >= at_least,
        limit_s=STEP_MAX_S,
        what=f"executors wrote {at_least} files",
        every_s=LOOK_S,
    )


def await_optimized(lake: OnSpark, driver: Driver) -> None:
    """Once, by the worker on the cluster: the file that replaces the others is an executor's."""
    identifier = f"headrace.{TABLE}"

    def replaced() -> bool:
        return lake.snapshots(TABLE)[-1]["summary"]["operation"] == "replace"

    until(replaced, limit_s=STEP_MAX_S, what="the table is optimized", every_s=LOOK_S)
    with lake.client() as client:
        until(
            lambda: client.table(identifier).status == "IDLE" and client.processes(identifier),
            limit_s=STEP_MAX_S,
            what="the table is idle",
            every_s=LOOK_S,
        )
        [process] = client.processes(identifier)
    assert (process.status, process.type) == ("SUCCESS", "MINOR")
    told = lake.snapshots(TABLE)[-1]["summary"]
    assert (told["total-records"], told["total-data-files"]) == (str(ROWS), "1")
    assert len(lake.snapshots(TABLE)) == EPOCHS + 1
    assert leftovers(lake.warehouse, TABLE) == []
    await_files_written(lake, driver, at_least=EPOCHS + 1)
    assert lake.files_written(driver.application) == EPOCHS + 1


def kill_while_it_works(lake: OnSpark, driver: Driver, job_id: str, folder: Path) -> None:
    """In the middle of a job, some of whose rows are committed. Nothing of it is left here or on
    the cluster."""
    until(lambda: ids_in(folder), limit_s=STEP_MAX_S, what="an epoch is committed", every_s=LOOK_S)
    [pipeline] = job(lake.url, job_id).pipelines
    assert (pipeline.status, pipeline.worker) == ("RUNNING", driver.worker)
    family, executors = driver.family(), lake.executors(driver.application)
    assert len(family) > 1, "Python and the JVM"
    assert len(executors) == 1

    driver.kill()

    assert len(ids_in(folder)) < LONG_ROWS, "it was not killed in time to prove anything"
    for pids, what in ((family, "the driver is gone"), (executors, "its executor is gone")):
        until(lambda pids=pids: all(map(is_gone, pids)), limit_s=STEP_MAX_S, what=what)
    until(
        lambda: lake.applications("completed") == [driver.application],
        limit_s=STEP_MAX_S,
        what="the master has let its application go",
        every_s=LOOK_S,
    )
    assert lake.applications("active") == []


def read_table(lake: OnSpark, driver: Driver, folder: Path) -> None:
    """A further job: all rows of the table into files, and one that was given. Such rows are
    unpickled by a Python that an executor starts."""
    kept = 'Iceberg { plugin_output = "kept", namespace = "lake", table = "numbers" }'
    row = f"rows = [{{ kind = INSERT, fields = [{GIVEN}] }}]"
    given = (
        f'FakeSource {{ plugin_output = "given", {row}, schema {{ fields {{ id = "bigint" }} }} }}'
    )
    text = job_text([kept, given], [csv(["kept", "given"], folder)])
    [pipeline] = await_end(lake.url, submit_text(lake.url, text, key="out of the table")).pipelines

    assert pipeline.spark_application == driver.application
    assert ids_in(folder) == [*range(1, ROWS + 1), GIVEN]


def see_it_end_with_its_application(lake: OnSpark, driver: Driver) -> None:
    """A cluster that gives an application up stops its context, and leaves the JVM alone: a worker
    that stayed would fail all that it is given, and would never be started again."""
    lake.end_application(driver.application)
    until(lambda: is_gone(driver.pid), limit_s=STEP_MAX_S, what="the worker has ended")
    with lake.client() as client:
        said = client.resource_logs(driver.resource).lines
    assert "that of the cluster that ended its application" in said[-1], said


@pytest.mark.req("R1", "R4", "R8")
def test_a_worker_on_a_cluster_runs_a_pipeline_optimizes_its_table_and_comes_back_when_killed(
    lake: OnSpark, tmp_path: Path
) -> None:
    first = lake.await_driver(launch=1)
    assert lake.applications("active") == [first.application]
    run_pipeline(lake, first)
    await_optimized(lake, first)
    before = lake.resource()
    counted, read = tmp_path / "counted", tmp_path / "read"
    source = numbers("made", LONG_ROWS, paced(LONG_EPOCHS, LONG_EPOCH_MS))
    text = job_text([source], [csv(["made"], counted)], f"checkpoint.interval = {LONG_EPOCH_MS}")
    job_id = submit_text(lake.url, text, key="killed in the middle")

    kill_while_it_works(lake, first, job_id, counted)
    lake.start_again()

    second = lake.await_driver(launch=2)
    assert (second.resource, second.launch) == (first.resource, 2)
    assert second.application != first.application
    assert lake.applications("active") == [second.application]
    assert lake.launches() == [1, 2], "the next leader found the one that was started"
    [pipeline] = await_end(lake.url, job_id).pipelines
    assert pipeline.spark_application == second.application
    assert ids_in(counted) == list(range(1, LONG_ROWS + 1))
    read_table(lake, second, read)
    assert staged_in([counted, read]) == []
    assert lake.tasks_finished(second.application) > 0
    after = lake.resource()
    assert (after.launch, after.attempts, after.started_at_ms) == (2, 0, before.started_at_ms)
    assert lake.applications("active") == [second.application]
    see_it_end_with_its_application(lake, second)
