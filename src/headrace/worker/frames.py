"""The tables of an epoch, by name: what sources read, then what transforms make of it.

What is read is counted on the way, source by source, where a slice does not say it itself.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from headrace.connectors.connector import Source
from headrace.model.jobspec import PipelineSpec, PluginSpec
from headrace.protocol.payloads import Plan, Slice
from headrace.transforms.transform import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

TOLD_MAX_S = 10.0  # from the end of staging until Spark tells what a source gave


class Count(Protocol):
    """A frame whose rows Spark counts."""

    frame: DataFrame

    def rows(self, *, max_s: float) -> int | None:
        """None: Spark did not tell."""
        ...


class Counting(Protocol):
    """How rows are counted that a slice does not know beforehand."""

    def passing(self, frame: DataFrame) -> Count:
        """All rows of the frame. Spark hands no condition down through it."""
        ...

    def scanned(self, frame: DataFrame, beside: Sequence[DataFrame]) -> Count:
        """As many as Spark asks the source for, which may be fewer than there are.

        `beside`: what else is read in the same epoch, and might be taken for it."""
        ...


class Frames:
    def __init__(
        self,
        spec: PipelineSpec,
        sources: Sequence[Source],
        transforms: Sequence[Transform],
        session: SparkSession,
        counting: Counting,
    ) -> None:
        self._spec, self._session, self._counting = spec, session, counting
        self._sources, self._transforms = sources, transforms
        self._shared = len(spec.sinks) > 1
        self._chosen = _chosen_from(spec, transforms)
        self._silent: set[str] = set()  # sources whose count never came: it is waited for once
        self._known: dict[str, int] = {}  # of the current epoch: rows, by source name
        self._counts: dict[str, Count] = {}

    @contextmanager
    def of(self, plan: Plan) -> Generator[Mapping[str, DataFrame]]:
        """Each sink reads for itself. Where a second reading could give other rows, all sinks
        are given what was read the first time, or they would not hold the same (E2)."""
        frames: dict[str, DataFrame] = {}
        kept: list[DataFrame] = []
        self._known, self._counts = {}, {}
        read = {source.name: self._read(source, plan, kept) for source in self._sources}
        for source, spec in zip(self._sources, self._spec.sources, strict=True):
            part, frame = plan.slices.get(source.name), read[source.name]
            if part is not None:
                # What is kept is read whole, whatever a query asks for.
                asked = source.takes_conditions and not self._keeps(source)
                asked = asked and _table(spec) in self._chosen
                beside = self._scanned_beside(source, plan, read) if asked else None
                frame = self._counted(source.name, part, frame, beside)
            frames[_table(spec)] = frame
        try:
            yield self._transformed(frames, plan.now_ms)
        finally:
            for frame in kept:
                frame.unpersist()

    def _read(self, source: Source, plan: Plan, kept: list[DataFrame]) -> DataFrame:
        part = plan.slices.get(source.name)
        if part is None:  # sources of a pipeline run out at different epochs
            return source.empty(self._session)
        frame = source.read(self._session, part)
        if self._keeps(source):
            frame = frame.persist()
            kept.append(frame)
        return frame

    def _keeps(self, source: Source) -> bool:
        return self._shared and not source.repeatable

    def _scanned_beside(
        self, source: Source, plan: Plan, read: Mapping[str, DataFrame]
    ) -> Sequence[DataFrame]:
        return [
            read[other.name]
            for other in self._sources
            if other is not source and other.takes_conditions and other.name in plan.slices
        ]

    def _counted(
        self, name: str, part: Slice, frame: DataFrame, beside: Sequence[DataFrame] | None
    ) -> DataFrame:
        """The same rows, which Spark counts as it reads them, unless they are known already.

        With `beside` they are counted at the scan, since Spark may hand conditions down to it.
        """
        if part.rows is not None:
            self._known[name] = part.rows
        elif name not in self._silent:
            if beside is None:
                count = self._counting.passing(frame)
            else:
                count = self._counting.scanned(frame, beside)
            self._counts[name] = count
            return count.frame
        return frame

    def rows_read(self) -> dict[str, int]:
        """By source name, once all sinks have staged; a source that can't be counted has none."""
        for name, count in self._counts.items():
            rows = count.rows(max_s=TOLD_MAX_S)
            if rows is None:
                log.warning("rows read are not counted", extra={"source": name})
                self._silent.add(name)
            else:
                self._known[name] = rows
        self._counts = {}
        return dict(self._known)

    def empty(self) -> Mapping[str, DataFrame]:
        """No rows, and the columns of those to come."""
        specs = zip(self._sources, self._spec.sources, strict=True)
        frames = {_table(spec): source.empty(self._session) for source, spec in specs}
        return self._transformed(frames, 0)

    def _transformed(self, frames: dict[str, DataFrame], now_ms: int) -> Mapping[str, DataFrame]:
        for transform, spec in zip(self._transforms, self._spec.transforms, strict=True):
            inputs = {name: frames[name] for name in spec.inputs}
            frames[_table(spec)] = transform(self._session, inputs, now_ms=now_ms)
        return frames


def _chosen_from(spec: PipelineSpec, transforms: Sequence[Transform]) -> set[str]:
    """Tables of which some transform behind them may choose rows."""
    found: set[str] = set()
    for transform, made in reversed([*zip(transforms, spec.transforms, strict=True)]):
        if transform.has_conditions or _table(made) in found:
            found |= set(made.inputs)
    return found


def _table(spec: PluginSpec) -> str:
    return spec.output or spec.name


def union(frames: Sequence[DataFrame]) -> DataFrame:
    first, *rest = frames
    for frame in rest:
        first = first.unionByName(frame)
    return first
