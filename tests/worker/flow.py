"""A pipeline between sources and sinks made of lists, and a coordinator that grants what it hears.

No Spark: worker/pipeline.py asks it nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue

from headrace.clock import SystemClock
from headrace.connectors.connector import Committed, Sink, Source, Staged
from headrace.exactly_once.target import Mark
from headrace.model.jobs.epoch import EpochAt, Moment
from headrace.model.jobs.spec import EnvSpec, PipelineSpec, PluginSpec
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import (
    Acknowledged,
    Assignment,
    EpochPlanned,
    PipelinePayload,
    Report,
    Restore,
    Slice,
    TaskEnded,
)
from headrace.worker.execution import Execution
from headrace.worker.outbox import Outbox
from headrace.worker.pipeline import Pipeline, Plugins
from tests.fakes import PlainRows
from tests.worker.leader import BOUND_S, eventually

CLOCK = SystemClock()


class Frame(list[int]):
    kept = 0

    def unionByName(self, other: Frame) -> Frame:  # noqa: N802  as Spark names it
        return Frame([*self, *other])

    def persist(self) -> Frame:
        Frame.kept += 1
        return self

    def unpersist(self) -> Frame:
        Frame.kept -= 1
        return self


class Counted:
    """Counts as Spark does: it tells once somebody has read."""

    tells = True

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def rows(self, *, max_s: float) -> int | None:
        return len(self.frame) if Counted.tells else None


class CountedFlow:
    def passing(self, frame: Any) -> Counted:
        return Counted(frame)

    def scanned(self, frame: Any, beside: Sequence[Any]) -> Counted:
        raise AssertionError("there are no transforms")


@dataclass
class Numbers(Source):
    """Gives `per_slice` numbers at a time, up to `total`; unbounded, it waits for a larger one."""

    name: str = "source"
    total: int = 3
    per_slice: int = 1
    bounded: bool = True
    repeatable: bool = True
    takes_conditions: bool = False
    known: bool = True  # how many rows a slice has, before it is read
    lasts_ms: int = 0

    def plan(
        self, session: object, position: JsonValue, *, rows_max: int | None = None
    ) -> Slice | None:
        first = int(cast("int", position)) if position is not None else 0
        if first >= self.total:
            return None
        end = min(first + self.per_slice, self.total)
        last = self.bounded and end == self.total
        rows = end - first if self.known else None
        return Slice(data=[first, end], after=end, rows=rows, last=last, lasts_ms=self.lasts_ms)

    def read(self, session: object, part: Slice) -> Any:
        first, end = cast("list[int]", part.data)
        return Frame(range(first, end))

    def empty(self, session: object) -> Any:
        return Frame()


@dataclass
class Lists(Sink):
    """Remembers all that was asked of it, in order; a test may look in at each step."""

    name: str = "sink"
    opens: bool = False
    leaves_stage: bool = True
    did: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    rows: list[int] = field(default_factory=list[int])
    finished: int | None = None  # with how many rows
    closed: int = 0  # how often
    mark: Mark | None = None
    look: Callable[[str, int], None] = lambda _step, _epoch: None

    def _does(self, step: str, at: EpochAt) -> None:
        self.did.append((step, at.epoch))
        self.look(step, at.epoch)

    def read_mark(self, session: object, at: EpochAt) -> Mark | None:
        return self.mark

    def survey(self, session: object, frame: Any, at: EpochAt) -> JsonValue:
        self._does("survey", at)
        return "surveyed"

    def open(self, session: object, handle: JsonValue, at: EpochAt) -> Committed:
        assert handle == "surveyed"
        self._does("open", at)
        self.rows.clear()
        return Committed(already=False, facts={})

    def stage(self, session: object, frame: Any, at: EpochAt) -> Staged:
        self._does("stage", at)
        return Staged(list(frame), len(frame))

    def commit(self, session: object, handle: JsonValue, at: EpochAt) -> Committed:
        self._does("commit", at)
        self.rows += cast("list[int]", handle)
        return Committed(already=False, facts={"rows": len(self.rows)})

    def sweep(self, session: object, handle: JsonValue, at: EpochAt) -> None:
        self._does("sweep", at)

    def abort(self, session: object, at: EpochAt) -> None:
        self._does("abort", at)

    def forget(self, session: object, at: EpochAt, *, owners: Collection[str] | None) -> None:
        self._does("forget", at)

    def finish(self, rows: int) -> None:
        self.finished = rows

    def close(self) -> None:
        self.closed += 1


class Flow:
    """Runs a pipeline to its end; what it says is acknowledged at once, unless it is held back."""

    def __init__(
        self, home: Path, sources: Sequence[Numbers], sinks: Sequence[Lists], **env: Any
    ) -> None:
        self.said: list[Report] = []
        self._held: list[Report] = []
        self.hold: Callable[[Report], bool] = lambda _report: False
        self._lock = threading.Lock()
        self.outbox = Outbox(home / "w1", posted=self._grant)
        given, taken = cast("Any", sources), cast("Any", sinks)
        self._plugins = Plugins(given, (), taken, CountedFlow(), PlainRows())
        self._env = EnvSpec.model_validate(env)

    def _grant(self) -> None:
        with self._lock:
            pending = [r for r in self.outbox.pending(10) if r not in self.said]
            self.said += pending
            self._held += pending
            granted = [report for report in self._held if not self.hold(report)]
            self._held = [report for report in self._held if self.hold(report)]
        for report in granted:
            plan = report.plan if isinstance(report, EpochPlanned) else None
            self.outbox.acknowledge([Acknowledged(seq=report.seq, held=True, plan=plan)])

    def release(self) -> None:
        self.hold = lambda _report: False
        self._grant()

    def begin(
        self,
        restore: Restore | None = None,
        *,
        settle: bool = False,
        since: Moment | None = None,
    ) -> Execution:
        payload = PipelinePayload(
            job="j",
            incarnation="i",
            env=self._env,
            pipeline=PipelineSpec(
                number=1,
                sources=tuple(
                    PluginSpec(name=s.name, plugin="FakeSource") for s in self._plugins.sources
                ),
                sinks=tuple(
                    PluginSpec(
                        name=sink.name,
                        plugin="Console",
                        inputs=tuple(s.name for s in self._plugins.sources),
                    )
                    for sink in self._plugins.sinks
                ),
            ),
            restore=restore or Restore(),
        )

        def run(execution: Execution) -> Any:
            session = cast("Any", None)
            made = Pipeline(execution, payload, self._plugins, session, CLOCK)
            return made.settle() if settle else made.run()

        kind = TaskKind.SETTLE if settle else TaskKind.PIPELINE
        task = Assignment(claim=Claim("t", 1), kind=kind, lane=Lane.SLOT, payload={})
        execution = Execution(task, self.outbox, run, since=since)
        execution.start()
        return execution

    def run(
        self,
        restore: Restore | None = None,
        *,
        settle: bool = False,
        since: Moment | None = None,
    ) -> TaskEnded:
        return self.end(self.begin(restore, settle=settle, since=since))

    def end(self, execution: Execution) -> TaskEnded:
        assert execution.ended.wait(BOUND_S)
        eventually(lambda: any(isinstance(report, TaskEnded) for report in self.said))
        end = self.said[-1]
        assert isinstance(end, TaskEnded)
        return end

    def of(self, kind: type[Report]) -> list[Any]:
        return [report for report in self.said if isinstance(report, kind)]
