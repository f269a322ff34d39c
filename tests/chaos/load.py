"""The jobs that run meanwhile, and what their targets have to hold in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from headrace.client.views import JobView
from headrace.errors import Unavailable
from tests.chaos.leftovers import empty_below
from tests.chaos.world import World
from tests.crash.jobs import ENDED, csv, ids_in, job_text, numbers, paced, spec_of, staged_in
from tests.crash.lake import TableFiles, files_of

EPOCH_MS = 2_000
STREAM_SPLITS = 10_000  # almost three hours of them
ROWS_A_SPLIT = 500
BATCH_SPLITS = 6
BATCHES_OPEN_MAX = 2
TARGETS = 3  # of each job
NAMESPACE = "chaos"
PASSWORD = "any will do"  # the server asks for none; the store has a secret to keep, and to forget


@dataclass
class Load:
    """A job with a folder, a table of a database and a table of the lake as its sinks."""

    name: str
    streams: bool
    world: World
    id: str | None = None
    last: JobView | None = None
    completed: int = 0  # rows of its source: the most that it ever said it is done with
    problems: list[str] = field(default_factory=list[str])  # what it should never have said

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
        database = self.world.database.sink("made", self.name, f'password = "{PASSWORD}"')
        sinks = [lake, csv(["made"], self.folder), database]
        interval = f"checkpoint.interval = {EPOCH_MS}"
        mode = "STREAMING" if self.streams else "BATCH"
        return job_text([source], sinks, interval, mode=mode, retries_at_once=False)

    def submit(self) -> bool:
        """False: nobody took it, or nobody could say so. The same key finds the same job at the
        next try."""
        try:
            with self.world.client() as client:
                self.id = client.submit_job(
                    spec_of(self.text()), submission_key=self.name, group="default"
                ).id
        except Unavailable:
            return False
        return True

    def look(self) -> JobView | None:
        """None: nobody can tell just now."""
        assert self.id is not None
        try:
            with self.world.client() as client:
                view = client.job(self.id)
        except Unavailable:
            return None
        self.heard(view)
        return view

    def heard(self, view: JobView) -> None:
        """What it completed it never takes back."""
        rows = sum(pipeline.rows_in for pipeline in view.pipelines)
        if rows < self.completed:
            self.problems.append(
                f"{self.name} had completed {self.completed:,} rows, and says {rows:,} later"
            )
        self.completed = max(self.completed, rows)
        self.last = view

    def cancel(self) -> bool:
        """False: nobody took it."""
        assert self.id is not None
        try:
            with self.world.client() as client:
                client.cancel_job(self.id)
        except Unavailable:
            return False
        return True

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

    def given(self, by_target: Mapping[str, Sequence[int]]) -> int:
        """How many rows its source gave: of a stream those that it completed, or that are in any
        of its targets."""
        if not self.streams:
            return self.splits * ROWS_A_SPLIT
        return max(self.completed, *(rows[-1] for rows in by_target.values() if rows), 0)

    def miscounts(self, given: int) -> list[str]:
        """Where its own counts, of each source and sink, are others than what was given."""
        if self.last is None:
            return [f"nobody ever said what {self.name} does"]
        counts = {
            f"{kind} {name}": rows
            for pipeline in self.last.pipelines
            for kind, by_name in (("read", pipeline.read), ("written", pipeline.written))
            for name, rows in by_name.items()
        }
        if len(counts) != 1 + TARGETS:
            return [f"{self.name} does not count the rows of all its parts: {counts}"]
        wrong = {name: rows for name, rows in counts.items() if rows != given}
        return [f"{self.name} counts {wrong}, and {given:,} were given"] if wrong else []

    def compactions(self) -> int:
        """Commits of its table that replaced files."""
        history = lake_of(self.world).load_table((NAMESPACE, self.name)).metadata.snapshots
        told = [snapshot.summary for snapshot in history if snapshot.summary is not None]
        return sum(summary.operation.value == "replace" for summary in told)

    def files(self) -> TableFiles:
        """Of its table."""
        return files_of(self.world.warehouse, f"{NAMESPACE}.{self.name}")

    def left_behind(self) -> list[str]:
        """At its targets: what was staged and is no part of them."""
        of_folder = [*staged_in([self.folder]), *empty_below([self.folder])]
        return [*self.files().staged, *of_folder]


def lake_of(world: World) -> SqlCatalog:
    uri = f"sqlite:///{world.warehouse / 'catalog.db'}"
    return SqlCatalog("headrace", uri=uri, warehouse=f"file:{world.warehouse}")


def ids_in_the_lake(world: World, name: str) -> list[int]:
    table: Any = lake_of(world).load_table((NAMESPACE, name))  # pyarrow has no types
    return sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())
