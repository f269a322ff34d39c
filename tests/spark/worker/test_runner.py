"""A pipeline's epochs, with sinks that are watched or that fail."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from pyspark.sql import DataFrame, SparkSession

from headrace.clock import SystemClock
from headrace.connectors.connector import Committed, Setting, Sink, Staged
from headrace.model.jobs.epoch import EpochAt, EpochStatus
from headrace.model.jobs.spec import EnvSpec, PipelineSpec, PluginSpec
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import (
    Acknowledged,
    Assignment,
    EpochCompleted,
    EpochPlan,
    EpochPlanned,
    EpochPrepared,
    OpenEpoch,
    PipelinePayload,
    Report,
    Restore,
    SettleResult,
    Slice,
    TaskEnded,
)
from headrace.worker import pipeline, sinks
from headrace.worker import runner as runner_module
from headrace.worker.execution import Execution, Run
from headrace.worker.outbox import Outbox
from headrace.worker.runner import Runner
from headrace.worker.warm_session import WarmSpark
from tests.worker.leader import BOUND_S

ROWS = 3
STAGED: JsonValue = {"staged": "x"}


class Watched(Sink):
    """A sink that keeps nothing, and remembers what was asked of it."""

    def __init__(self, name: str, swept: list[tuple[str, int, JsonValue]]) -> None:
        self.name, self._swept = name, swept

    def read_mark(self, session: SparkSession, at: EpochAt) -> None:
        return None

    def stage(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> Staged:
        return Staged(STAGED, frame.count())

    def commit(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        return Committed(already=False, facts={})

    def sweep(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> None:
        self._swept.append((self.name, at.epoch, handle))
        raise OSError("the disk is away")

    def abort(self, session: SparkSession, at: EpochAt) -> None:
        raise AssertionError

    def forget(self, session: SparkSession, at: EpochAt, *, owners: Collection[str] | None) -> None:
        raise AssertionError

    def survey(self, session: SparkSession, frame: DataFrame, at: EpochAt) -> JsonValue:
        raise AssertionError

    def open(self, session: SparkSession, handle: JsonValue, at: EpochAt) -> Committed:
        raise AssertionError


class Bench:
    """Runs a task to its end, and grants whatever it reports."""

    def __init__(self, warm: WarmSpark, home: Path) -> None:
        self.outbox = Outbox(home / "w1", posted=self._grant)
        self.runner = Runner(warm, SystemClock(), warehouse="file:/nowhere")
        self.swept: list[tuple[str, int, JsonValue]] = []
        self.said: list[Report] = []
        self.settings: list[Setting] = []  # of the sinks that were made

    def _grant(self) -> None:
        for report in self.outbox.pending(10):
            self.said.append(report)
            plan = report.plan if isinstance(report, EpochPlanned) else None
            self.outbox.acknowledge([Acknowledged(seq=report.seq, held=True, plan=plan)])

    def run(
        self,
        kind: TaskKind,
        restore: Restore,
        *,
        lengths: tuple[int, ...] = (ROWS,),
        env: EnvSpec | None = None,
    ) -> Execution:
        tables = tuple(f"t{n}" for n in range(len(lengths)))
        payload = PipelinePayload(
            job="j1",
            incarnation="i1",
            env=env or EnvSpec(),
            pipeline=PipelineSpec(
                number=1,
                sources=tuple(
                    _source(n, rows, table)
                    for n, (rows, table) in enumerate(zip(lengths, tables, strict=True), start=1)
                ),
                sinks=tuple(
                    PluginSpec(name=f"Console-{n}", plugin="Console", inputs=tables) for n in (1, 2)
                ),
            ),
            restore=restore,
        )
        run: Run = self.runner.settle if kind is TaskKind.SETTLE else self.runner.pipeline
        task = Assignment(
            claim=Claim("t", 1), kind=kind, lane=Lane.SLOT, payload=payload.model_dump(mode="json")
        )
        execution = Execution(task, self.outbox, run)
        execution.start()
        assert execution.ended.wait(BOUND_S)
        return execution

    def end(self) -> TaskEnded:
        end = self.said[-1]
        assert isinstance(end, TaskEnded)
        return end


def _source(number: int, rows: int, table: str) -> PluginSpec:
    options: dict[str, Any] = {"row.num": rows, "schema": {"fields": {"id": "int"}}}
    return PluginSpec(
        name=f"FakeSource-{number}", plugin="FakeSource", options=options, output=table
    )


@pytest.fixture
def bench(warm: WarmSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(warm, tmp_path)

    def watched(spec: PluginSpec, setting: Setting, *, secrets: object) -> Sink:
        made.settings.append(setting)
        return Watched(spec.name, made.swept)

    monkeypatch.setattr(runner_module, "make_sink", watched)
    monkeypatch.setattr(sinks, "SWEEP_PAUSES_S", (0.01,))
    yield made
    made.outbox.close()


def prepared(epoch: int) -> OpenEpoch:
    return OpenEpoch(
        epoch=epoch,
        status=EpochStatus.PREPARED,
        plan=EpochPlan(slices={"FakeSource-1": Slice(data=None, after=ROWS, rows=ROWS)}, now_ms=0),
        handles={f"Console-{n}": {"handle": STAGED, "rows": ROWS} for n in (1, 2)},
    )


def test_a_sweep_that_fails_does_not_fail_what_is_committed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.run(TaskKind.PIPELINE, Restore())

    assert bench.end().outcome == "SUCCESS"
    # Once after the commit, and once more at the end: a target may be away for a moment only.
    assert [name for name, _, _ in bench.swept] == ["Console-1", "Console-2"] * 2
    assert caplog.text.count("staged files not swept") == 4


def test_several_sinks_of_the_same_rows_are_not_counted_twice(bench: Bench) -> None:
    execution = bench.run(TaskKind.PIPELINE, Restore())

    assert execution.progress.rows == ROWS
    [done] = [report for report in bench.said if isinstance(report, EpochCompleted)]
    assert (done.rows_in, done.rows_out) == (ROWS, 2 * ROWS)  # written, to all sinks together


def test_the_sinks_of_an_execution_know_which_tables_each_other_makes(bench: Bench) -> None:
    for _ in range(2):
        bench.run(TaskKind.PIPELINE, Restore())

    one, other, later, _ = (setting.planned_tables for setting in bench.settings)
    assert one is other
    assert one is not later


def test_a_settled_epoch_is_swept_after_its_commit(bench: Bench) -> None:
    bench.run(TaskKind.SETTLE, Restore(open=(prepared(1),)))

    settled = SettleResult.model_validate(bench.end().result)
    assert [done.epoch for done in settled.completed] == [1]
    assert bench.swept == [("Console-1", 1, STAGED), ("Console-2", 1, STAGED)] * 2


def test_an_epoch_that_a_lost_execution_completed_is_swept_by_the_next_one(bench: Bench) -> None:
    bench.run(TaskKind.PIPELINE, Restore(epoch=4, open=(prepared(5),)))

    assert [(epoch, handle) for _, epoch, handle in bench.swept][:4] == [
        (4, None),
        (4, None),
        (5, STAGED),
        (5, STAGED),
    ]


def test_sources_run_out_at_different_epochs_and_each_is_said_to_be_ready_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "FIRST_ROWS", 2)
    monkeypatch.setattr(pipeline, "CHANGE_MAX", 1.0)
    monkeypatch.setattr(pipeline, "ROWS_MIN", 1)
    bench.run(
        TaskKind.PIPELINE, Restore(), lengths=(1, 4, 0), env=EnvSpec(checkpoint_interval_ms=1)
    )

    assert bench.end().outcome == "SUCCESS"
    ready = [(r.epoch, r.ready) for r in bench.said if isinstance(r, EpochPrepared)]
    assert ready == [(1, ("FakeSource-1", "FakeSource-3")), (2, ("FakeSource-2",))]
    done = [(r.epoch, r.rows_in) for r in bench.said if isinstance(r, EpochCompleted)]
    assert done == [(1, 3), (2, 2)]


def test_a_source_that_was_ready_is_not_read_again_and_a_full_set_ends_at_once(
    bench: Bench,
) -> None:
    bench.run(
        TaskKind.PIPELINE,
        Restore(epoch=3, ready=("FakeSource-1",), positions={"FakeSource-1": 2}),
        lengths=(2, 2),
    )
    [planned] = [report for report in bench.said if isinstance(report, EpochPlanned)]
    assert planned.epoch == 4
    assert set(EpochPlan.model_validate(planned.plan).slices) == {"FakeSource-2"}

    bench.said.clear()
    both = ("FakeSource-1", "FakeSource-2")
    bench.run(TaskKind.PIPELINE, Restore(epoch=4, ready=both), lengths=(2, 2))
    assert [type(report) for report in bench.said] == [TaskEnded]
    assert bench.end().outcome == "SUCCESS"
