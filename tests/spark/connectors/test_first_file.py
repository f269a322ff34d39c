"""A stream that begins before its first file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.clock import SystemClock
from headrace.model.jobs.spec import EnvSpec, PipelineSpec, PluginSpec
from headrace.model.task import Claim, Lane, TaskKind
from headrace.protocol.messages import (
    Acknowledged,
    Assignment,
    EpochPlanned,
    PipelinePayload,
    Report,
    TaskEnded,
)
from headrace.worker.execution import Execution
from headrace.worker.outbox import Outbox
from headrace.worker.runner import Runner
from headrace.worker.warm_session import WarmSpark
from tests.worker.leader import BOUND_S, eventually


class Run:
    def __init__(self, warm: WarmSpark, home: Path) -> None:
        self.said: list[Report] = []
        self.outbox = Outbox(home / "outbox" / "w1", posted=self._grant)
        self._runner = Runner(warm, SystemClock(), warehouse=f"file:{home}/warehouse")

    def _grant(self) -> None:
        for report in self.outbox.pending(10):
            self.said.append(report)
            plan = report.plan if isinstance(report, EpochPlanned) else None
            self.outbox.acknowledge([Acknowledged(seq=report.seq, held=True, plan=plan)])

    def begin(self, env: EnvSpec, pipeline: PipelineSpec) -> Execution:
        payload = PipelinePayload(job="j", incarnation="i", env=env, pipeline=pipeline)
        task = Assignment(
            claim=Claim("t", 1),
            kind=TaskKind.PIPELINE,
            lane=Lane.SLOT,
            payload=payload.model_dump(mode="json"),
        )
        execution = Execution(task, self.outbox, self._runner.pipeline)
        execution.start()
        return execution


def _files(path: Path, name: str, inputs: str, **more: Any) -> PluginSpec:
    options = {"path": str(path), "file_format_type": "parquet", **more}
    return PluginSpec(name=name, plugin="LocalFile", options=options, inputs=(inputs,))


def test_a_stream_of_parquet_files_waits_for_the_first_one(warm: WarmSpark, tmp_path: Path) -> None:
    """The folder is empty when the job starts, as it should be: files are to arrive in it."""
    (tmp_path / "in").mkdir()
    source = PluginSpec(
        name="LocalFile-1",
        plugin="LocalFile",
        options={
            "path": str(tmp_path / "in"),
            "file_format_type": "parquet",
            "schema": {"fields": {"id": "bigint"}},
        },
        output="t",
    )
    sinks = (_files(tmp_path / "out", "LocalFile-2", "t"),)
    env = EnvSpec.model_validate({"job_mode": "STREAMING", "checkpoint_interval_ms": 200})
    run = Run(warm, tmp_path)
    execution = run.begin(env, PipelineSpec(number=1, sources=(source,), sinks=sinks))
    eventually(
        lambda: (
            execution.ended.is_set()
            or len([r for r in run.said if isinstance(r, EpochPlanned)]) > 2
        )
    )
    execution.savepoint()
    assert execution.ended.wait(BOUND_S)

    end = run.said[-1]
    assert isinstance(end, TaskEnded)
    assert end.outcome == "SAVEPOINT", f"{end.error} (again: {end.retry})"
