"""What a history is about: so many coordinators, workers and jobs, of this shape."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.model.jobs.epoch import Retention
from headrace.model.jobs.spec import EnvSpec, JobSpec, PipelineSpec, PluginSpec

GROUP = "default"
INTERVAL_MS = 300  # between epochs of a streaming job
# Longer than a pause in which a worker is given up, its job ends, and its state is cleaned.
COMMIT_DEADLINE_S = 12.0
CLEANS = Retention(state_cleanup_delay_ms=700, commit_deadline_ms=round(COMMIT_DEADLINE_S * 1000))


@dataclass(frozen=True, slots=True)
class Scenario:
    coordinators: tuple[str, ...] = ("c1", "c2")
    workers: tuple[str, ...] = ("w1", "w2")
    slots: int = 2
    jobs: int = 1
    pipelines: int = 1
    sources: int = 1
    sinks: int = 1
    rows: int = 4
    rows_per_epoch: int = 2
    changes: bool = False  # sources say something else each time they are read (E2)
    longer: int = 0  # rows that each source has more than the one before it
    uneven: bool = False  # sources cut their slices differently each time they plan (E5)
    read_s: float = 0.1  # at most, to read a slice
    retry_times: int = 20
    cancel_after_s: float | None = None  # counted from when the client sees it run
    savepoint_after_s: float | None = None  # likewise; the job is then restored
    streaming: bool = False  # sources never end
    opens: bool = False  # save modes empty the sinks first
    cleans: bool = False  # the history goes on until nothing of its jobs is left
    restore_after_s: float | None = None  # about; counted from the end, however the job ended
    leaves: bool = False  # its sinks have secrets, and its targets are settled as soon as it ends
    hasty: bool = False  # cancels at once, also what nobody works at yet
    resubmit: bool = False  # once it is cleaned up, another job gets its id
    rewinds: bool = False  # the store is restored from a backup, while all processes are down
    tables: int = 0  # of a lake, beside the jobs
    table_files: int = 4  # in each of them at the beginning
    quota: float = 0.5  # of each table
    rewrite_s: float = 0.5  # at most, for one bin
    edits: int = 0  # things that its writers do while it is optimized
    edit_kinds: tuple[str, ...] = ("append",)
    asks: tuple[str, ...] = ()  # commands about tables, one after the other

    @property
    def retention(self) -> Retention:
        return CLEANS if self.cleans else Retention()

    @property
    def incarnations(self) -> int:
        return self.jobs * (2 if self.resubmit else 1)

    @property
    def landed_least(self) -> int:
        """Commits of processes, whatever happens to us; people may prevent any of them."""
        return self.tables if not (self.edits or self.asks) else 0

    @property
    def actors(self) -> tuple[str, ...]:
        return (*self.coordinators, *self.workers)

    def length(self, source: int) -> int:
        """Sources of a pipeline run out one after the other (K6)."""
        return self.rows + source * self.longer

    def spec(self) -> JobSpec:
        return JobSpec(
            name="simulated",
            env=EnvSpec(
                job_mode="STREAMING" if self.streaming else "BATCH",
                checkpoint_interval_ms=INTERVAL_MS if self.streaming else None,
                retry_times=self.retry_times,
                retry_interval_s=1,
            ),
            pipelines=tuple(self._pipeline(n + 1) for n in range(self.pipelines)),
            secrets={"sink-1-0.password": "secret"} if self.leaves else {},
        )

    def _pipeline(self, number: int) -> PipelineSpec:
        tables = tuple(f"rows-{number}-{s}" for s in range(self.sources))
        return PipelineSpec(
            number=number,
            sources=tuple(_source(f"source-{number}-{s}", t) for s, t in enumerate(tables)),
            sinks=tuple(
                PluginSpec(
                    name=f"sink-{number}-{s}",
                    plugin="LocalFile",
                    options={
                        "path": "/simulated",
                        "file_format_type": "text",
                        "data_save_mode": "DROP_DATA" if self.opens else "APPEND_DATA",
                    },
                    inputs=tables,
                )
                for s in range(self.sinks)
            ),
        )

    def words(self) -> str:
        """Fields that differ from the plainest scenario, for a command line."""
        plain = Scenario()
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return json.dumps({n: v for n, v in fields.items() if v != getattr(plain, n)})

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """What `words` said."""
        given: dict[str, Any] = json.loads(text)
        for name in ("coordinators", "workers", "edit_kinds", "asks"):
            if name in given:
                given[name] = tuple(given[name])
        return replace(cls(), **given)

    def smaller(self) -> Sequence[Scenario]:
        """Simpler ones, for shrinking."""
        fields = ("jobs", "pipelines", "sources", "sinks", "rows")
        found: list[Scenario] = []
        for name in fields:
            now = getattr(self, name)
            if now > (2 if name == "rows" else 1):
                found.append(replace(self, **{name: now - (2 if name == "rows" else 1)}))
        for name, least in (("tables", 1), ("edits", 0), ("table_files", 3)):
            if self.tables and getattr(self, name) > least:
                found.append(replace(self, **{name: getattr(self, name) - 1}))
        if self.asks:
            found.append(replace(self, asks=self.asks[:-1]))
        if len(self.workers) > 1:
            found.append(replace(self, workers=self.workers[:-1]))
        return found


def _source(name: str, output: str) -> PluginSpec:
    options: dict[str, Any] = {"schema": {"fields": {"id": "bigint"}}, "row.num": 1}
    return PluginSpec(name=name, plugin="FakeSource", options=options, output=output)


_SLOW: dict[str, Any] = {"rows": 8, "read_s": 1.0}  # long enough to be saved
_LIVE: dict[str, Any] = {"streaming": True, "rows": 5}
_LAKE: dict[str, Any] = {"jobs": 0, "tables": 1}
_CANCELS = ("cancel", "optimize", "cancel")
_PAUSES = ("pause", "resume", "block", "plan", "unblock")
_WRITES = ("append", "append", "upsert", "delete")
_RIVALS = ("append", "delete", "upsert", "remove", "rewrite", "expire")
# Long, and so no shape of its own: the table can't be asked until nobody waits for it any more.
OUTAGE = Scenario(**_LAKE, edits=1, edit_kinds=("outage",), table_files=3, rewrite_s=1.0)
# A run that goes with its coordinator.
LEAVING = Scenario(cleans=True, leaves=True, sinks=2, rows=3)
# No shape of its own either: it would shift what every known seed draws.
REWOUND = Scenario(rewinds=True, rows=14, sinks=2, uneven=True, read_s=0.6)
# The shapes that random histories take. Few, so that the points of each are worth knowing.
SHAPES: tuple[Scenario, ...] = (
    Scenario(),
    Scenario(sinks=2, changes=True),
    Scenario(pipelines=2, slots=1, rows=2),
    Scenario(cancel_after_s=0.2, sinks=2, rows=8),
    Scenario(jobs=2, rows=2, slots=1, workers=("w1",)),
    Scenario(coordinators=("c1", "c2", "c3"), rows=6),
    Scenario(cancel_after_s=0.3, rows=6, read_s=2.0),
    Scenario(cancel_after_s=0.35, sinks=2, rows=9, uneven=True),
    Scenario(uneven=True, rows=5, sources=2),
    Scenario(rows=2, sources=3, longer=2, sinks=2),
    Scenario(rows=0, sources=2, longer=4),
    Scenario(retry_times=1, changes=True, sinks=2),
    Scenario(opens=True, sinks=2, rows=3),
    Scenario(opens=True, cancel_after_s=0.05, rows=2),
    Scenario(savepoint_after_s=0.3, rows=9, sinks=2),
    Scenario(savepoint_after_s=0.1, cancel_after_s=0.3, rows=6, pipelines=2),
    Scenario(streaming=True, rows=5, cancel_after_s=2.0),
    Scenario(streaming=True, rows=5, savepoint_after_s=0.8, cancel_after_s=1.0),
    Scenario(cleans=True, sinks=2, rows=3),
    Scenario(cleans=True, resubmit=True, rows=3),
    Scenario(cleans=True, resubmit=True, cancel_after_s=0.2, rows=6, uneven=True, changes=True),
    Scenario(cleans=True, savepoint_after_s=0.1, restore_after_s=0.6, sinks=2, **_SLOW),
    Scenario(cleans=True, savepoint_after_s=0.2, restore_after_s=24.5, **_SLOW),
    Scenario(cleans=True, savepoint_after_s=0.1, restore_after_s=2.5, hasty=True, **_SLOW),
    Scenario(cleans=True, savepoint_after_s=0.8, restore_after_s=1.2, cancel_after_s=1.0, **_LIVE),
    Scenario(cleans=True, retry_times=0, restore_after_s=2.0, rows=6, sinks=2, changes=True),
    Scenario(**_LAKE),
    Scenario(**_LAKE, edits=4, edit_kinds=_WRITES),
    Scenario(**_LAKE, edits=6, edit_kinds=_RIVALS, table_files=8),
    Scenario(jobs=0, tables=2, table_files=9, quota=0.5, slots=2, edits=2, edit_kinds=_WRITES),
    Scenario(**_LAKE, edits=4, edit_kinds=(*_WRITES, "drop", "switch"), table_files=5),
    Scenario(**_LAKE, edits=3, edit_kinds=("away", "append", "expire"), table_files=6),
    Scenario(**_LAKE, asks=_CANCELS, rewrite_s=1.5, edits=1, table_files=6),
    Scenario(**_LAKE, asks=_PAUSES, rewrite_s=1.5, edits=2, table_files=5),
    Scenario(**_LAKE, asks=("block",), rewrite_s=2.5, table_files=8),
    Scenario(tables=1, rows=2, slots=1, edits=2, edit_kinds=_WRITES),
)
OF_TABLES = next(number for number, shape in enumerate(SHAPES) if shape.tables)  # the first
