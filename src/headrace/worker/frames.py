"""The tables of an epoch, by name: what sources read, then what transforms make of it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.connectors.connector import Source
from headrace.model.jobspec import PipelineSpec, PluginSpec
from headrace.protocol.payloads import Plan
from headrace.transforms.transform import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Frames:
    def __init__(
        self,
        spec: PipelineSpec,
        sources: Sequence[Source],
        transforms: Sequence[Transform],
        session: SparkSession,
    ) -> None:
        self._spec, self._session = spec, session
        self._sources, self._transforms = sources, transforms
        self._shared = len(spec.sinks) > 1

    @contextmanager
    def of(self, plan: Plan) -> Generator[Mapping[str, DataFrame]]:
        """Each sink reads for itself. Where a second reading could give other rows, all sinks
        are given what was read the first time, or they would not hold the same (E2)."""
        frames: dict[str, DataFrame] = {}
        kept: list[DataFrame] = []
        for source, spec in zip(self._sources, self._spec.sources, strict=True):
            part = plan.slices.get(source.name)
            if part is None:  # sources of a pipeline run out at different epochs
                frame = source.empty(self._session)
            else:
                frame = source.read(self._session, part)
                if self._shared and not source.repeatable:
                    frame = frame.persist()
                    kept.append(frame)
            frames[_table(spec)] = frame
        try:
            yield self._transformed(frames, plan.now_ms)
        finally:
            for frame in kept:
                frame.unpersist()

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


def _table(spec: PluginSpec) -> str:
    return spec.output or spec.name


def union(frames: Sequence[DataFrame]) -> DataFrame:
    first, *rest = frames
    for frame in rest:
        first = first.unionByName(frame)
    return first
