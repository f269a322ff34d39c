"""One pipeline, epoch by epoch: plan, run, stage, prepare, commit, complete.

After a crash the new owner first finishes the newest prepared epoch from its handles, then runs
a planned one again on the same slices. N + 1 is committed nowhere before N is committed
everywhere.

Nothing here asks Spark for anything: sources, transforms and sinks do, and the simulation gives
this code others of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.clock import Clock
from headrace.connectors.connector import Sink, Source
from headrace.model.epoch import EpochAt, EpochStatus
from headrace.protocol.messages import EpochCompleted, Json
from headrace.protocol.payloads import OpenEpoch, PipelinePayload, Plan, Slice
from headrace.seams import seam
from headrace.transforms.transform import Transform
from headrace.worker.execution import RUNNING, Execution

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

SWEEP_PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # before each further try to delete what is left over


@dataclass(frozen=True, slots=True)
class Plugins:
    """What a pipeline is made of, in the order of its spec."""

    sources: Sequence[Source]
    transforms: Sequence[Transform]
    sinks: Sequence[Sink]


class Pipeline:
    def __init__(
        self,
        execution: Execution,
        payload: PipelinePayload,
        plugins: Plugins,
        session: SparkSession,
        clock: Clock,
    ) -> None:
        self._execution, self._payload, self._session = execution, payload, session
        self._sources, self._sinks = plugins.sources, plugins.sinks
        self._transforms, self._clock = plugins.transforms, clock
        self._positions: dict[str, Any] = dict(payload.restore.positions)
        self._unswept: dict[int, Json] = {}  # by epoch: its handles
        self._rows = 0

    def _at(self, epoch: int) -> EpochAt:
        payload = self._payload
        return EpochAt(payload.incarnation, payload.pipeline.number, epoch, self._execution.id)

    def run(self) -> None:
        epoch = self._payload.restore.epoch
        if epoch > 0:
            self._sweep(epoch, {})  # its owner may have died between completing and sweeping
        if (left := self._payload.restore.open) is not None:
            epoch = left.epoch
            self._resume(left)
        while (plan := self._next_plan()) is not None:
            epoch += 1
            self._epoch(epoch, plan)
        self._sweep_again()

    def settle(self) -> Json:
        left = self._payload.restore.open
        if left is None:
            return {"outcome": "nothing"}
        if left.status is EpochStatus.PREPARED:
            handles = left.handles or {}
            done = self._commit(left.epoch, left.plan, handles)
            self._sweep(left.epoch, handles)
            self._sweep_again()
            return {"outcome": "committed", "completed": done.model_dump(mode="json")}
        for sink in self._sinks:
            sink.abort(self._session, self._at(left.epoch))
        return {"outcome": "aborted"}

    def _resume(self, left: OpenEpoch) -> None:
        if left.status is EpochStatus.PREPARED:
            self._finish(left.epoch, left.plan, left.handles or {})
        else:
            self._epoch(left.epoch, left.plan)

    def _next_plan(self) -> Plan | None:
        self._execution.check()
        slices: dict[str, Slice] = {}
        for source in self._sources:
            part = source.plan(self._positions.get(source.name))
            if part is not None:
                slices[source.name] = part
        return Plan(slices=slices, now_ms=self._clock.wall_ms()) if slices else None

    def _epoch(self, epoch: int, proposed: Plan) -> None:
        plan = self._execution.plan(epoch, proposed)
        expected = _rows_in(plan)
        self._execution.says(RUNNING, epoch=epoch, rows=self._rows, expected=expected)
        seam("epoch running")
        handles: Json = {}
        frames = self._frames(plan)
        for sink, spec in zip(self._sinks, self._payload.pipeline.sinks, strict=True):
            self._execution.check()
            frame = _union([frames[name] for name in spec.inputs])
            staged = sink.stage(self._session, frame, self._at(epoch))
            handles[sink.name] = {"handle": staged.handle, "rows": staged.rows}
        self._rows += max((_rows_out(handles, sink) for sink in self._sinks), default=0)
        self._execution.says("preparing", epoch=epoch, rows=self._rows, expected=expected)
        self._execution.prepare(epoch, handles)
        self._finish(epoch, plan, handles)

    def _frames(self, plan: Plan) -> dict[str, DataFrame]:
        """Every table of the pipeline, by name: what sources read, then what transforms make."""
        spec = self._payload.pipeline
        frames: dict[str, DataFrame] = {}
        for source, plugin in zip(self._sources, spec.sources, strict=True):
            part = plan.slices.get(source.name)
            frames[plugin.output or plugin.name] = (
                source.read(self._session, part)
                if part is not None  # sources of a pipeline run out at different epochs
                else source.empty(self._session)
            )
        for transform, plugin in zip(self._transforms, spec.transforms, strict=True):
            inputs = {name: frames[name] for name in plugin.inputs}
            frames[plugin.output or plugin.name] = transform(
                self._session, inputs, now_ms=plan.now_ms
            )
        return frames

    def _finish(self, epoch: int, plan: Plan, handles: Json) -> None:
        self._execution.complete(self._commit(epoch, plan, handles))
        for source, part in plan.slices.items():
            self._positions[source] = part.after
        self._sweep(epoch, handles)
        self._execution.says("completed", epoch=epoch, rows=self._rows)

    def _sweep_again(self) -> None:
        """What could not be deleted then may be now. The end of the job does not wait for long."""
        for pause_s in SWEEP_PAUSES_S:
            if not self._unswept:
                return
            self._execution.wait(pause_s)
            unswept, self._unswept = self._unswept, {}
            for epoch, handles in unswept.items():
                self._sweep(epoch, handles)

    def _sweep(self, epoch: int, handles: Json) -> None:
        """The rows are committed: leftovers that can't be deleted now must not fail the job."""
        for sink in self._sinks:
            handle = _handle(handles, sink) if handles else None
            try:
                sink.sweep(self._session, handle, self._at(epoch))
            except Exception:
                facts = {"execution": self._execution.id, "sink": sink.name, "epoch": epoch}
                log.exception("staged files not swept", extra=facts)
                self._unswept[epoch] = handles

    def _commit(self, epoch: int, plan: Plan, handles: Json) -> EpochCompleted:
        self._execution.says("committing", epoch=epoch, rows=self._rows)
        commits: Json = {}
        for sink in self._sinks:
            committed = sink.commit(self._session, _handle(handles, sink), self._at(epoch))
            commits[sink.name] = dict(committed.facts)
        return EpochCompleted(
            seq=0,
            claim=self._execution.claim,
            epoch=epoch,
            positions={
                **self._positions,
                **{name: part.after for name, part in plan.slices.items()},
            },
            rows_in=_rows_in(plan) or 0,
            rows_out=sum(_rows_out(handles, sink) for sink in self._sinks),
            commits=commits,
        )


def _handle(handles: Json, sink: Sink) -> Any:
    entry: Any = handles[sink.name]
    return entry["handle"]


def _rows_out(handles: Json, sink: Sink) -> int:
    entry: Any = handles[sink.name]
    return int(entry["rows"])


def _rows_in(plan: Plan) -> int | None:
    known = [part.rows for part in plan.slices.values() if part.rows is not None]
    return sum(known) if len(known) == len(plan.slices) else None


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    first, *rest = frames
    for frame in rest:
        first = first.unionByName(frame)
    return first
