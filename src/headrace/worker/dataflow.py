"""Planning an epoch, and the DataFrames of it: what sources read and what transforms make of that.

`EpochPlanner` decides what comes next: the slice of each source, and the positions of the pipeline
once these slices are read. A plan starts where the epochs planned before it will end, not where
they are now, since the next epoch is planned and granted while the current one runs.

`Dataflow` holds the frames of an epoch by table name. Rows are counted as they are read, source by
source, where a slice does not state its number of rows. Where rows may be of other kinds than
INSERT, or of several tables, which is known from descriptors, these go through transforms in
reserved columns; any other frame is left as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from pydantic import JsonValue

from headrace.clock import Clock
from headrace.connectors.connector import Source
from headrace.errors import Refused
from headrace.model.jobs.spec import PipelineSpec, PluginSpec
from headrace.plugins.row_flow import flows_of, treatment_of
from headrace.plugins.row_kinds import TABLE_COLUMN, KindTreatment, RowFlow, joined
from headrace.plugins.syntax_tree import Role
from headrace.protocol.messages import EpochPlan, Restore, Slice
from headrace.transforms.registry import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

COUNT_WAIT_MAX_S = 10.0  # from the end of staging until Spark reports the rows of a source


@dataclass(frozen=True, slots=True)
class PlannedEpoch:
    """An epoch to run: its plan, and where its sources are once it is completed."""

    epoch: int
    plan: EpochPlan
    positions: Mapping[str, JsonValue]  # by source name, once the epoch is completed
    ready: Sequence[str]  # sources that have read everything once this epoch is prepared
    read: Mapping[str, int] | None = None  # rows by source name; None until they are staged

    @property
    def rows(self) -> int | None:
        """How many rows it reads; None when not all of its sources know beforehand."""
        known = [part.rows for part in self.plan.slices.values() if part.rows is not None]
        return sum(known) if len(known) == len(self.plan.slices) else None

    @property
    def rows_of_largest(self) -> int | None:
        """Rows of the source that reads most; None when one of them does not know."""
        known = [part.rows for part in self.plan.slices.values() if part.rows is not None]
        return max(known, default=0) if len(known) == len(self.plan.slices) else None

    @property
    def lasts_s(self) -> float:
        return max((part.lasts_ms for part in self.plan.slices.values()), default=0) / 1000


class EpochPlanner:
    """Plans the epochs of a pipeline one after the other, from where the last plan ends."""

    def __init__(
        self, sources: Sequence[Source], restore: Restore, session: SparkSession, clock: Clock
    ) -> None:
        self._sources, self._session, self._clock = sources, session, clock
        self._positions: dict[str, JsonValue] = dict(restore.positions)
        self._ready = set(restore.ready)
        self.epoch = max(restore.epoch, restore.highest)  # the last one planned

    @property
    def over(self) -> bool:
        """Whether every source has read everything once all planned epochs are prepared."""
        return all(source.name in self._ready for source in self._sources)

    def opening(self) -> PlannedEpoch:
        """Epoch 0, which reads nothing and carries out the save modes."""
        return self.resume(0, EpochPlan(slices={}, now_ms=self._clock.wall_ms()))

    def propose(self, *, rows_max: int | None) -> PlannedEpoch:
        """Plan the next epoch. One without slices gets an id, too: it records that nothing came."""
        slices: dict[str, Slice] = {}
        for source in self._sources:
            if source.name not in self._ready:
                position = self._positions.get(source.name)
                part = source.plan(self._session, position, rows_max=rows_max)
                if part is not None:
                    slices[source.name] = part
        return self.resume(self.epoch + 1, EpochPlan(slices=slices, now_ms=self._clock.wall_ms()))

    def resume(self, epoch: int, plan: EpochPlan) -> PlannedEpoch:
        """Adopt a plan, ours or that of an earlier execution; the next plan continues from it."""
        if epoch > 0:
            ready = sorted(s.name for s in self._sources if self._has_read_all(s, plan))
        else:
            ready = []
        self._positions |= {name: part.after for name, part in plan.slices.items()}
        self._ready |= set(ready)
        self.epoch = max(self.epoch, epoch)
        return PlannedEpoch(epoch, plan, dict(self._positions), ready)

    def _has_read_all(self, source: Source, plan: EpochPlan) -> bool:
        if not source.bounded or source.name in self._ready:
            return False
        part = plan.slices.get(source.name)
        return part is None or part.last


class CountedFrame(Protocol):
    """A frame whose rows Spark counts."""

    frame: DataFrame

    def rows(self, *, max_s: float) -> int | None:
        """How many rows it had; None when Spark did not report it within `max_s`."""
        ...


class RowCounter(Protocol):
    """Counts rows of slices that do not know their number beforehand."""

    def passing(self, frame: DataFrame) -> CountedFrame:
        """Count all rows of the frame. It keeps Spark from pushing filters down to the source."""
        ...

    def scanned(self, frame: DataFrame, beside: Sequence[DataFrame]) -> CountedFrame:
        """Count at the scan: the rows that Spark asks the source for, with filters pushed down.

        `beside`: other frames of the same epoch, whose scans might be mistaken for this one."""
        ...


class RowCarrier(Protocol):
    """Carries row kinds and table ids, in reserved columns, past transforms that don't know them;
    `spark/row_carrier.py` has the contract of each."""

    def check(self, frame: DataFrame, columns: Sequence[str], *, title: str) -> None: ...

    def keep(self, frame: DataFrame, columns: Sequence[str]) -> DataFrame: ...

    def fresh(self) -> RowCarrier: ...

    def hide(self, frame: DataFrame) -> DataFrame: ...

    def level(self, frame: DataFrame, columns: Sequence[str], *, table: str) -> DataFrame: ...

    def carry(
        self, made: DataFrame, columns: Sequence[str], *, title: str, table: str
    ) -> DataFrame: ...


class Dataflow:
    """Makes the tables of an epoch from its sources and transforms, and counts what is read."""

    def __init__(
        self,
        spec: PipelineSpec,
        sources: Sequence[Source],
        transforms: Sequence[Transform],
        session: SparkSession,
        counting: RowCounter,
        carrier: RowCarrier,
    ) -> None:
        self._spec, self._session, self._counting = spec, session, counting
        self._sources, self._transforms, self._carrier = sources, transforms, carrier
        self._columns_checked = False  # by an earlier epoch of this execution
        self._shared = len(spec.sinks) > 1
        self._uncounted: set[str] = set()  # sources whose count never came, not waited for again
        self._known: dict[str, int] = {}  # rows by source name, in the current epoch
        self._counts: dict[str, CountedFrame] = {}

    @cached_property
    def _flows(self) -> Mapping[str, RowFlow]:
        """What may come with each table. Raises `Refused` when a plugin can't take it."""
        return flows_of(self._spec)

    @cached_property
    def _filtered(self) -> set[str]:
        return _filtered_tables(self._spec, self._transforms)

    @contextmanager
    def frames_of(self, plan: EpochPlan) -> Generator[Mapping[str, DataFrame]]:
        """The tables of an epoch, by name. Each sink reads for itself; but where a second reading
        could give other rows, the first one is persisted for all sinks, or they would not hold
        the same rows (E2)."""
        frames: dict[str, DataFrame] = {}
        kept: list[DataFrame] = []
        self._known, self._counts = {}, {}
        read = {source.name: self._read(source, plan, kept) for source in self._sources}
        for source, spec in zip(self._sources, self._spec.sources, strict=True):
            part, frame = plan.slices.get(source.name), read[source.name]
            if part is not None:
                # A persisted frame is read as a whole, whatever a query filters by.
                at_scan = source.takes_conditions and not self._keeps(source)
                at_scan = at_scan and _table(spec) in self._filtered
                beside = self._scanned_beside(source, plan, read) if at_scan else None
                frame = self._counted(source.name, part, frame, beside)
            frames[_table(spec)] = frame
        try:
            yield self._transformed(frames, plan.now_ms)
        finally:
            for frame in kept:
                frame.unpersist()

    def _read(self, source: Source, plan: EpochPlan, kept: list[DataFrame]) -> DataFrame:
        part = plan.slices.get(source.name)
        if part is None:  # the sources of a pipeline end at different epochs
            return source.empty(self._session)
        frame = source.read(self._session, part)
        if self._keeps(source):
            frame = frame.persist()
            kept.append(frame)
        return frame

    def _keeps(self, source: Source) -> bool:
        return self._shared and not source.repeatable

    def _scanned_beside(
        self, source: Source, plan: EpochPlan, read: Mapping[str, DataFrame]
    ) -> Sequence[DataFrame]:
        return [
            read[other.name]
            for other in self._sources
            if other is not source and other.takes_conditions and other.name in plan.slices
        ]

    def _counted(
        self, name: str, part: Slice, frame: DataFrame, beside: Sequence[DataFrame] | None
    ) -> DataFrame:
        """The same rows, counted by Spark as it reads them unless their number is known already.

        With `beside` they are counted at the scan, since Spark may push filters down to it.
        """
        if part.rows is not None:
            self._known[name] = part.rows
        elif name not in self._uncounted:
            if beside is None:
                count = self._counting.passing(frame)
            else:
                count = self._counting.scanned(frame, beside)
            self._counts[name] = count
            return count.frame
        return frame

    def rows_read(self) -> dict[str, int]:
        """Rows by source name, once all sinks have staged; uncountable sources are left out."""
        for name, count in self._counts.items():
            rows = count.rows(max_s=COUNT_WAIT_MAX_S)
            if rows is None:
                log.warning("rows read are not counted", extra={"source": name})
                self._uncounted.add(name)
            else:
                self._known[name] = rows
        self._counts = {}
        return dict(self._known)

    def empty(self) -> Mapping[str, DataFrame]:
        """The tables by name, without rows, with the columns that their rows will have."""
        specs = zip(self._sources, self._spec.sources, strict=True)
        frames = {_table(spec): source.empty(self._session) for source, spec in specs}
        return self._transformed(frames, 0)

    def _transformed(self, frames: dict[str, DataFrame], now_ms: int) -> Mapping[str, DataFrame]:
        for spec in self._spec.sources:
            self._check_columns("source", spec, frames)
        for transform, spec in zip(self._transforms, self._spec.transforms, strict=True):
            inputs = {name: frames[name] for name in spec.inputs}
            if joined(self._flows[name] for name in spec.inputs).is_plain:
                frames[_table(spec)] = transform(self._session, inputs, now_ms=now_ms)
            else:
                frames[_table(spec)] = self._carried(transform, spec, inputs, now_ms)
            self._check_columns("transform", spec, frames)
        self._columns_checked = True
        return frames

    def _check_columns(self, role: Role, spec: PluginSpec, frames: Mapping[str, DataFrame]) -> None:
        """Once for each execution: the columns of a table are the same in each of its epochs."""
        if not self._columns_checked:
            flow = self._flows[_table(spec)]
            self._carrier.check(frames[_table(spec)], flow.columns, title=f"{role} {spec.name}")

    def _carried(
        self, transform: Transform, spec: PluginSpec, inputs: Mapping[str, DataFrame], now_ms: int
    ) -> DataFrame:
        """What a transform makes of inputs of which one has reserved columns, with these. Where
        some say a table, rows of the others get the id of their own."""
        after = self._flows[_table(spec)].columns
        if treatment_of(spec) is KindTreatment.READS:
            come = joined(self._flows[name] for name in inputs).columns
            level = {name: self._level(inputs[name], name, come) for name in inputs}
            return self._carrier.keep(transform(self._session, level, now_ms=now_ms), after)
        if TABLE_COLUMN not in after:
            return self._past(transform, spec, inputs, now_ms)
        spoken = [name for name in inputs if not self._flows[name].is_plain]
        try:
            level = {name: self._level(inputs[name], name, after) for name in inputs}
            return self._past(transform, spec, level, now_ms)
        except Refused:
            if len(spoken) == len(inputs):
                raise
        # Rows that are all inserted may be merged and looked into while they say nothing.
        level = {name: self._level(inputs[name], name, after) for name in spoken}
        return self._past(transform, spec, {**inputs, **level}, now_ms)

    def _past(
        self, transform: Transform, spec: PluginSpec, inputs: Mapping[str, DataFrame], now_ms: int
    ) -> DataFrame:
        """What a transform makes of inputs whose reserved columns it does not see."""
        carrier, after = self._carrier.fresh(), self._flows[_table(spec)].columns
        hidden = {name: carrier.hide(inputs[name]) for name in inputs}
        made = transform(self._session, hidden, now_ms=now_ms)
        title, table = f"transform {spec.name}", _table(spec)
        return carrier.carry(made, after, title=title, table=table)

    def _level(self, frame: DataFrame, table: str, columns: Sequence[str]) -> DataFrame:
        if self._flows[table].columns == tuple(columns):
            return frame
        return self._carrier.level(frame, columns, table=table)

    def input_of(self, sink: PluginSpec, frames: Mapping[str, DataFrame]) -> DataFrame:
        """All rows of the tables that a sink reads."""
        columns = joined(self._flows[name] for name in sink.inputs).columns
        return union([self._level(frames[name], name, columns) for name in sink.inputs])


def _filtered_tables(spec: PipelineSpec, transforms: Sequence[Transform]) -> set[str]:
    """Tables that some later transform may filter."""
    filtered: set[str] = set()
    for transform, made in reversed([*zip(transforms, spec.transforms, strict=True)]):
        if transform.has_conditions or _table(made) in filtered:
            filtered |= set(made.inputs)
    return filtered


def _table(spec: PluginSpec) -> str:
    return spec.output or spec.name


def union(frames: Sequence[DataFrame]) -> DataFrame:
    first, *rest = frames
    for frame in rest:
        first = first.unionByName(frame)
    return first
