"""A real zombie: the worker speaks, and its Spark does nothing any more (D5)."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import psutil
import pytest

from headrace.client.client import Client
from headrace.client.views import JobView
from headrace.jobfile.reader import read_job
from tests.crash.cluster import END_MAX_S, Cluster, Process, cluster, free_port, until
from tests.crash.jobs import ENDED, files_below, job

# Of the matrix: its two attempts take more than a minute.
pytestmark = [pytest.mark.crash, pytest.mark.matrix, pytest.mark.timeout(1800)]

STALL_S = 10  # while its JVM is stopped; before and after that nobody is in a hurry
LASTS_S = 45.0  # of an attempt, so that its JVM is stopped while it waits
SPARK_START_MAX_S = 600.0
JOB_MAX_S = 600.0
ROWS = 200
PACED_JOB = f"""
env {{ job.mode = "BATCH", job.retry.interval.seconds = 0 }}
source {{
  FakeSource {{
    plugin_output = "made"
    row.num = {ROWS}
    split.read-interval = {LASTS_S * 1000:.0f}
    schema {{ fields {{ id = "bigint" }} }}
  }}
}}
sink {{ LocalFile {{ plugin_input = "made", path = "TARGET", file_format_type = "csv" }} }}
"""


@pytest.fixture
def made(tmp_path: Path, store_url: str) -> Iterator[Cluster]:
    with cluster(tmp_path, store_url) as running:
        yield running


def submit(url: str, target: Path) -> str:
    spec = read_job("job.conf", text=PACED_JOB.replace("TARGET", str(target)))
    with closing(Client([url])) as client:
        made = spec.model_dump(mode="json")
        return client.submit_job(made, submission_key="k1", group="default").id


def jvm_of(worker: Process) -> psutil.Process:
    children = psutil.Process(worker.pid).children(recursive=True)
    return next(child for child in children if child.name() == "java")


@pytest.mark.req("D5")
def test_an_execution_whose_jvm_is_stopped_is_given_up_and_its_next_attempt_ends_the_job(
    made: Cluster,
) -> None:
    port = free_port()
    patient = made.coordinator("patient", port=port)
    target = made.folder / "rows"
    job_id = submit(patient.url, target)
    worker = made.worker("worker", patient.url)

    # It has staged all, and waits until the time of its split is over.
    until(lambda: staged(target), limit_s=SPARK_START_MAX_S, what="rows are staged")
    before = job(patient.url, job_id)
    jvm = jvm_of(worker)
    jvm.send_signal(signal.SIGSTOP)
    patient.kill()

    # Nothing moves any more: whatever the machine is busy with, this one sees a standstill.
    stall = ("--execution-stall-timeout", str(STALL_S))
    impatient = made.coordinator("impatient", *stall, port=port)
    until(lambda: impatient.said("stands still"), limit_s=JOB_MAX_S, what="it is given up")
    assert before.pipelines[0].execution is not None
    assert impatient.said(before.pipelines[0].execution)
    assert worker.popen.poll() is None, "its worker spoke all the time"
    assert not impatient.said("worker lost")
    until(lambda: stuck_at(impatient), limit_s=END_MAX_S, what="it is counted")
    impatient.kill()

    coordinator = made.coordinator("leader", port=port)
    jvm.send_signal(signal.SIGCONT)

    def ended() -> JobView | None:
        view = job(coordinator.url, job_id)
        return view if view.status in ENDED else None

    view = until(ended, limit_s=JOB_MAX_S, what="the job ends")
    assert view.status == "FINISHED", view
    assert view.pipelines[0].execution != before.pipelines[0].execution
    assert view.pipelines[0].rows_out == ROWS
    lines = [line for file in target.glob("*.csv") for line in file.read_text().splitlines()]
    assert len(lines) == ROWS


def stuck_at(coordinator: Process) -> bool:
    """Its next attempt, which the stopped JVM holds up as well, may be among them."""
    text = httpx2.get(f"{coordinator.url}/metrics", timeout=60.0, trust_env=False).text
    told = re.search(r"^headrace_executions_stuck_total (\S+)$", text, re.MULTILINE)
    return told is not None and float(told[1]) >= 1


def staged(target: Path) -> bool:
    return any(file.suffix == ".csv" for file in files_below(target / "_headrace"))
