"""The jobs that run meanwhile, and what their targets have to hold in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from headrace.client import JobView
from headrace.errors import CoordinatorUnavailable, HeadraceError
from tests.chaos.world import World
from tests.crash.jobs import ENDED, csv, ids_in, job_text, numbers, paced, spec_of

EPOCH_MS = 2_000
STREAM_SPLITS = 10_000  # almost three hours of them
ROWS_A_SPLIT = 500
BATCH_SPLITS = 6
BATCHES_OPEN_MAX = 2
NAMESPACE = "chaos"


@dataclass
class Load:
    """A job with a folder, a table of a database and a table of the lake as its sinks."""

    name: str
    streams: bool
    world: World
    id: str | None = None
    last: JobView | None = None

    @property
    def folder(self) -> Path:
        return self.world.made.folder / f"target-{self.name}"

    @property
    def splits(self) -> int:
        return STREAM_SPLITS if self.streams else BATCH_SPLITS

    def text(self) -> str:
        lake = (
            f'Iceberg {{ plugin_input = "made", namespace = "{NAMESPACE}", table = "{self.name}" }}'
        )
        source = numbers("made", self.splits * ROWS_A_SPLIT, paced(self.splits, EPOCH_MS // 2))
        sinks = [lake, csv(["made"], self.folder), self.world.database.sink("made", self.name)]
        interval = f"checkpoint.interval = {EPOCH_MS}"
        return job_text([source], sinks, interval, mode="STREAMING" if self.streams else "BATCH")

    def submit(self) -> bool:
        """False: nobody took it. The same key finds the same job at the next try."""
        try:
            with self.world.client() as client:
                self.id = client.submit_job(
                    spec_of(self.text()), submission_key=self.name, group="default"
                ).id
        except CoordinatorUnavailable:
            return False
        return True

    def look(self) -> JobView | None:
        """None: nobody can tell just now."""
        assert self.id is not None
        try:
            with self.world.client() as client:
                view = client.job(self.id)
        except HeadraceError:
            return None
        self.last = view
        return view

    @property
    def epoch(self) -> int:
        """The last completed one that was seen."""
        return self.last.pipelines[0].epoch if self.last and self.last.pipelines else 0

    @property
    def has_ended(self) -> bool:
        return self.last is not None and self.last.status in ENDED

    def rows_by_target(self) -> Mapping[str, Sequence[int]]:
        """Read by other programs than ours: by PyIceberg, by SQL and as text."""
        return {
            "lake": ids_in_the_lake(self.world, self.name),
            "files": ids_in(self.folder),
            "database": self.world.database.ids(self.name),
        }


def lake_of(world: World) -> SqlCatalog:
    uri = f"sqlite:///{world.warehouse / 'catalog.db'}"
    return SqlCatalog("headrace", uri=uri, warehouse=f"file:{world.warehouse}")


def ids_in_the_lake(world: World, name: str) -> list[int]:
    table: Any = lake_of(world).load_table((NAMESPACE, name))  # pyarrow has no types
    return sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def compactions(world: World, name: str) -> int:
    """Commits of the table that replaced files."""
    history = lake_of(world).load_table((NAMESPACE, name)).metadata.snapshots
    told = [snapshot.summary for snapshot in history if snapshot.summary is not None]
    return sum(summary.operation.value == "replace" for summary in told)
