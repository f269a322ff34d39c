"""What row kinds cost a job whose rows are all inserted: nothing, is the promise.

The same epoch of made-up rows goes through a filter of fields and a query, to a sink that counts
and forgets: by the dataflow of a worker, which would carry kinds if some could come; and, as the
peer, by calling source and transforms one after the other, as a dataflow did before it knew kinds.
Beside it, what it takes to build the frames of an epoch whose rows do have kinds. Seconds of the
processor count: a difference of a hundredth drowns in the wall time of a machine that is shared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from bench.figures import Side, in_ms, in_turns, middle, reaches, rounded
from bench.lake import CPU_IS, Took, lake, timed
from bench.result import Result, made, say
from bench.stores import workplace
from headrace.connectors.connector import Setting, Source
from headrace.connectors.registry import make_source
from headrace.connectors.targetless import count_rows
from headrace.jobfile.reader import read_job
from headrace.model.jobs.spec import PipelineSpec
from headrace.protocol.messages import EpochPlan
from headrace.spark.row_carrier import SparkRowCarrier
from headrace.spark.row_counts import SparkRowCounter
from headrace.transforms.registry import Transform, make_transform
from headrace.worker.dataflow import Dataflow
from headrace.worker.warm_session import WarmSpark

ROWS, ROWS_QUICK = 4_000_000, 400_000
PAIRS, PAIRS_QUICK = 10, 3
WARM_UP_PAIRS = 2
BUILDS = 10
AIM = 1.02
_PLAIN = "row.num = %d"
_CHANGES = (
    "rows = [{kind = INSERT, fields = [1, a, 1.0]}, {kind = DELETE, fields = [1, a, 1.0]}]  # %d"
)
JOB = """
source { FakeSource { plugin_output = a, %s
  schema { fields { id = bigint, name = string, score = double } }
} }
transform {
  Filter { plugin_input = a, plugin_output = b, include_fields = [id, score] }
  Sql { plugin_input = b, plugin_output = c, query = "select id, score * 2 from b where id > 9" }
}
sink { InMemory { plugin_input = c } }
"""


class _Epoch:
    """One epoch of a job, and both ways to run it."""

    def __init__(self, warm: WarmSpark, rows: str, count: int) -> None:
        (self._spec,) = read_job("bench.conf", text=JOB % (rows % count)).pipelines
        self._session = warm.session
        self._sources, self._transforms = _plugins(self._spec)
        planned = self._sources[0].plan(self._session, None)
        assert planned is not None
        self._plan = EpochPlan(slices={self._sources[0].name: planned}, now_ms=0)
        self._dataflow = Dataflow(
            self._spec,
            self._sources,
            self._transforms,
            self._session,
            SparkRowCounter("bench"),
            SparkRowCarrier(),
        )

    def build(self) -> None:
        with self._dataflow.frames_of(self._plan) as frames:
            self._dataflow.input_of(self._spec.sinks[0], frames)

    def ours(self) -> int:
        with self._dataflow.frames_of(self._plan) as frames:
            return count_rows(self._dataflow.input_of(self._spec.sinks[0], frames))

    def theirs(self) -> int:
        frame = self._sources[0].read(self._session, self._plan.slices[self._sources[0].name])
        for transform, spec in zip(self._transforms, self._spec.transforms, strict=True):
            frame = transform(self._session, {spec.inputs[0]: frame}, now_ms=0)
        return count_rows(frame)


def _plugins(spec: PipelineSpec) -> tuple[Sequence[Source], Sequence[Transform]]:
    setting = Setting(
        job="bench",
        incarnation="b" * 32,
        pipeline=1,
        parallelism=1,
        streaming=False,
        warehouse="file:/nowhere",
    )
    sources = [make_source(plugin, setting, secrets={}) for plugin in spec.sources]
    return sources, [make_transform(plugin, setting, secrets={}) for plugin in spec.transforms]


def run(*, quick: bool) -> Iterator[Result]:
    rows = ROWS_QUICK if quick else ROWS
    with workplace("row_kinds") as folder, lake(folder) as warm:
        epoch = _Epoch(warm, _PLAIN, rows)

        def measure(side: Side) -> Took:
            counted, took = timed(warm, epoch.ours if side == "ours" else epoch.theirs)
            say(f"{side}: {took.wall_s:.2f} s, {took.cpu_s:.2f} s of the processor, {counted} rows")
            return took

        pairs = PAIRS_QUICK if quick else PAIRS
        ours, theirs = in_turns(measure, pairs=pairs, warm_up_pairs=WARM_UP_PAIRS)
        plain_ms, kinds_ms = _build_ms(epoch), _build_ms(_Epoch(warm, _CHANGES, 0))
    yield _result(rows, ours, theirs, {"plain": plain_ms, "with_kinds": kinds_ms})


def _build_ms(epoch: _Epoch) -> float:
    """The median time to build the frames of an epoch, without running them."""
    took_s: list[float] = []
    for _ in range(BUILDS):
        began_s = time.perf_counter()
        epoch.build()
        took_s.append(time.perf_counter() - began_s)
    return in_ms(middle(took_s))


def _result(rows: int, ours: list[Took], theirs: list[Took], build_ms: dict[str, float]) -> Result:
    our_cpu_s, their_cpu_s = ([took.cpu_s for took in side] for side in (ours, theirs))
    ratio = middle(our_cpu_s) / middle(their_cpu_s)
    return made(
        "row_kinds",
        ours=middle(our_cpu_s),
        peer=middle(their_cpu_s),
        unit="cpu s",
        aim=(AIM, f"an epoch without kinds takes at most {AIM} times what it took before"),
        met=reaches(ratio, AIM, better="lower"),
        ours_is="an epoch by the dataflow of a worker, which asks whether kinds may come; median",
        peer_is="the same source, transforms and sink called one after the other; median",
        rows=rows,
        cpu_is=CPU_IS,
        cpu_s_in_turn={"ours": rounded(our_cpu_s), "peer": rounded(their_cpu_s)},
        wall_s_in_turn={
            "ours": rounded([took.wall_s for took in ours]),
            "peer": rounded([took.wall_s for took in theirs]),
        },
        build_ms=build_ms,
    )
