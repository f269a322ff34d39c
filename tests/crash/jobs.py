"""Jobs for crash tests, and what stands in the store and in the table afterwards."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from headrace.client.client import Client
from headrace.client.views import CheckpointView, JobView
from headrace.jobfile.reader import read_job
from headrace.store.core.engine import open_store, reading
from headrace.store.jobs import epochs, jobs
from headrace.store.jobs.epochs import Epoch
from tests.crash.cluster import until

ENDED = {"FINISHED", "FAILED", "CANCELED", "SAVEPOINT_DONE"}
JOB_MAX_S = 600.0
LOOK_S = 0.1  # between two looks at a job: they are not to take the processor from it

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


def numbers(name: str, rows: int, *options: str, first: int = 1) -> str:
    """A FakeSource whose rows are numbered: `rows` of each reader, from `first` on."""
    parts = [f'plugin_output = "{name}"', f"row.num = {rows}", "auto.increment.enabled = true"]
    parts += [f"auto.increment.start = {first}", *options]
    key = 'primaryKey { name = "id", columnNames = ["id"] }'
    return f'FakeSource {{ {", ".join(parts)}, schema {{ fields {{ id = "bigint" }}, {key} }} }}'


def paced(splits: int, every_ms: int) -> str:
    return f"split.num = {splits}, split.read-interval = {every_ms}"


def csv(of: Sequence[str], folder: Path, *options: str) -> str:
    named = ", ".join(f'"{name}"' for name in of)
    parts = [f"plugin_input = [{named}]", f'path = "{folder}"', 'file_format_type = "csv"']
    return f"LocalFile {{ {', '.join([*parts, *options])} }}"


def job_text(
    sources: Sequence[str],
    sinks: Sequence[str],
    *env: str,
    mode: str = "BATCH",
    retries_at_once: bool = True,
) -> str:
    """Its next attempt does not wait: a test that kills has waited long enough.

    Without `retries_at_once` it waits as long as one that says nothing about it.
    """
    at_once = ["job.retry.interval.seconds = 0"] if retries_at_once else []
    settings = "\n".join((f'job.mode = "{mode}"', *at_once, *env))
    return (
        f"env {{ {settings} }}\n"
        + "source {\n"
        + "\n".join(sources)
        + "\n}\nsink {\n"
        + "\n".join(sinks)
        + "\n}\n"
    )


def submit_text(url: str, text: str, *, key: str = "k1", restore: str | None = None) -> str:
    with closing(Client([url])) as client:
        return client.submit_job(
            spec_of(text), submission_key=key, group="default", restore=restore
        ).id


def spec_of(text: str) -> Mapping[str, Any]:
    return read_job("job.conf", text=text).model_dump(mode="json")


def await_end(url: str, job_id: str, expected: str = "FINISHED") -> JobView:
    with closing(Client([url])) as client:

        def ended() -> JobView | None:
            view = client.job(job_id)
            return view if view.status in ENDED else None

        view = until(ended, limit_s=JOB_MAX_S, what="the job ends", every_s=LOOK_S)
    assert view.status == expected, view
    return view


def checkpoints(url: str, job_id: str) -> Sequence[CheckpointView]:
    """The oldest first."""
    with closing(Client([url])) as client:
        return sorted(client.checkpoints(job_id), key=lambda found: found.id)


def ids_in(folder: Path) -> list[int]:
    """Of all rows that readers of the folder see; one that came twice is there twice."""
    return sorted(
        int(line) for file in folder.glob("*.csv") for line in file.read_text().splitlines()
    )


def staged_in(folders: Collection[Path]) -> list[str]:
    """What is left of stages below target folders: all but the manifests, which stay."""
    return [
        str(found.relative_to(folder))
        for folder in folders
        for found in files_below(folder / "_headrace")
        if not _is_manifest(found)
    ]


def files_below(folder: Path) -> list[Path]:
    """Folders may go while they are looked through: Spark tidies up after its tasks."""
    return [Path(at, name) for at, _, names in os.walk(folder) for name in names]


def _is_manifest(file: Path) -> bool:
    return file.suffix == ".json" and file.stem.isdecimal()


def ready_and_open(store_url: str, job_id: str) -> tuple[Sequence[str], Sequence[Epoch]]:
    """As they stand in the store, of pipeline 1: sources that have read everything, and epochs."""
    engine = open_store(store_url)
    try:
        with reading(engine) as conn:
            found = jobs.get(conn, job_id)
            assert found is not None
            of = (conn, found.incarnation, 1)
            return sorted(epochs.ready_of(*of)), epochs.all_open(*of)
    finally:
        engine.dispose()


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
    found = find_metadata(warehouse, table)
    assert found is not None, f"no table {table}"
    return found


def find_metadata(warehouse: Path, table: str) -> Path | None:
    if not (warehouse / "catalog.db").exists():
        return None
    namespace, _, name = table.partition(".")
    with closing(sqlite3.connect(warehouse / "catalog.db")) as catalog:
        row = catalog.execute(
            "SELECT metadata_location FROM iceberg_tables"
            " WHERE table_namespace = ? AND table_name = ?",
            (namespace, name),
        ).fetchone()
    return Path(str(row[0]).removeprefix("file:").replace("///", "/")) if row else None
