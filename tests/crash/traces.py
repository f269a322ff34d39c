"""What jobs leave behind: rows of theirs in the store, and at targets all that is not rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy import func, select

from headrace.model.task import OF_TABLES
from headrace.store.core.engine import open_store, reading
from headrace.store.jobs.schema import (
    cleanups,
    epochs,
    history,
    job_secrets,
    jobs,
    pipelines,
    ready_sources,
)
from headrace.store.tasks.schema import tasks
from tests.crash.cluster import Cluster
from tests.crash.database import Database
from tests.crash.jobs import csv, find_metadata, ids_in
from tests.crash.lake import leftovers

NAMESPACE = "ends"
# What a process of the table has staged just now would be taken for something that a job left.
LEFT_ALONE = 'iceberg.table.auto-create-props { "self-optimizing.enabled" = "false" }'
STATE = (jobs, pipelines, tasks, epochs, ready_sources, job_secrets)
MARKS = ("headrace.mark.", "headrace.aborted.")
OPTIMIZING = ".0.optimize"  # in the marks of a table's own processes, which stay with the table


def rows_left(store_url: str) -> Mapping[str, int]:
    """Of all jobs, by table; a table that has none is not in it."""
    engine = open_store(store_url)
    try:
        with reading(engine) as conn:
            counts = {
                table.name: conn.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (*STATE, cleanups)
            }
            # Tables are optimized meanwhile: their tasks are nothing that a job left.
            theirs = select(func.count()).where(tasks.c.kind.in_(sorted(OF_TABLES)))
            counts[tasks.name] -= conn.execute(theirs).scalar_one()
    finally:
        engine.dispose()
    return {name: count for name, count in counts.items() if count}


def ended_runs(store_url: str, job_id: str) -> Sequence[tuple[int, str]]:
    """Of jobs under this id, as history has them: run and status, in the order of their ends."""
    engine = open_store(store_url)
    try:
        with reading(engine) as conn:
            query = select(history.c.run, history.c.status).where(history.c.job_id == job_id)
            return [(run, status) for run, status in conn.execute(query.order_by("ended_at_ms"))]
    finally:
        engine.dispose()


class Targets:
    """A folder, a table of a database and a table of the lake: a job writes to all three."""

    def __init__(self, made: Cluster, database: Database, name: str) -> None:
        self.name, self.folder = name, made.folder / f"target-{name}"
        self._database, self._warehouse = database, made.folder / "home" / "warehouse"

    def sinks(self, of: str) -> list[str]:
        return [
            csv([of], self.folder),
            self._database.sink(of, self.name),
            f'Iceberg {{ plugin_input = "{of}", {self._in_lake}, {LEFT_ALONE} }}',
        ]

    def source_in_lake(self, output: str) -> str:
        return f'Iceberg {{ plugin_output = "{output}", {self._in_lake} }}'

    @property
    def _in_lake(self) -> str:
        return f'namespace = "{NAMESPACE}", table = "{self.name}"'

    def ids(self) -> tuple[list[int], list[int]]:
        """In the folder, and in the database."""
        return ids_in(self.folder), self._database.ids(self.name)

    def traces(self) -> list[str]:
        """All that is there and is no row: what is staged, and marks."""
        table = f"{NAMESPACE}.{self.name}"
        return [
            *(str(found) for found in sorted(self.folder.glob("_headrace/**/*"))),
            *self._database.stages(),
            *(str(mark) for mark in self._database.marks()),
            *leftovers(self._warehouse, table),
            *_marks_in(find_metadata(self._warehouse, table)),
        ]


def _marks_in(metadata: Path | None) -> list[str]:
    if metadata is None:
        return []
    properties: Mapping[str, str] = json.loads(metadata.read_text())["properties"]
    return [key for key in properties if key.startswith(MARKS) and OPTIMIZING not in key]
