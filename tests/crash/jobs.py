"""Jobs for crash tests, and what stands in the store and in the table afterwards."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from headrace.client import Client, JobView
from headrace.jobfile.reader import read_job

ENDED = {"FINISHED", "FAILED", "CANCELED"}

LAKE_JOB = """
env {{ job.mode = "BATCH", parallelism = 2 }}
source {{
  FakeSource {{
    plugin_output = "made"
    row.num = {per_reader}
    schema {{ fields {{ id = "bigint", name = "string", at = "timestamp" }} }}
  }}
}}
sink {{ Iceberg {{ plugin_input = "made", namespace = "crash", table = "rows" }} }}
"""


def submit(url: str, *, per_reader: int = 10, key: str = "k1") -> str:
    """Submit a job of two readers; its id."""
    spec = read_job("job.conf", text=LAKE_JOB.format(per_reader=per_reader))
    with closing(Client([url])) as client:
        return client.submit_job(
            spec.model_dump(mode="json"), submission_key=key, group="default"
        ).id


def job(url: str, job_id: str) -> JobView:
    with closing(Client([url])) as client:
        return client.job(job_id)


def metadata_of(warehouse: Path, table: str) -> Path:
    """The current metadata file of a table of the embedded catalog."""
    namespace, _, name = table.partition(".")
    with sqlite3.connect(warehouse / "catalog.db") as catalog:
        (location,) = catalog.execute(
            "SELECT metadata_location FROM iceberg_tables"
            " WHERE table_namespace = ? AND table_name = ?",
            (namespace, name),
        ).fetchone()
    catalog.close()
    return Path(str(location).removeprefix("file:").replace("///", "/"))
