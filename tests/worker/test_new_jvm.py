"""A worker whose JVM has another version of a jar than a task needs comes back with a new JVM."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path

import httpx2
import pytest

from headrace.config import Settings
from headrace.model.jobs.spec import EnvSpec, PipelineSpec, PluginSpec
from headrace.model.task import Claim, FailureCause, Lane, TaskKind
from headrace.protocol.messages import Assignment, PipelinePayload, Register, TaskGivenBack
from headrace.worker import service
from headrace.worker.client import LeaderClient
from tests.worker.leader import Leader, eventually
from tests.worker.test_jars import CODEC_1, CODEC_2, Resolver

SIGNALS = (signal.SIGTERM, signal.SIGINT, service.UNHURRIED)


class FakeSpark:
    """Spark that runs nothing: each session is refused."""

    def __init__(self, started: list[FakeSpark]) -> None:
        started.append(self)
        self.application = f"app-{len(started)}"
        self.added: list[str] = []
        self.stopped = False

    def add_jars(self, paths: Sequence[Path]) -> None:
        self.added += map(str, paths)

    def alive(self) -> bool:
        return True

    def stop(self, *, within_s: float | None) -> None:
        self.stopped = True

    def cancel(self, execution: str) -> None:
        """There is nothing to cancel."""

    def rows_written(self, execution: str) -> int | None:
        return None

    def tasks_finished(self, execution: str) -> tuple[int, int]:
        return 0, 0

    def died_of(self) -> FailureCause:
        raise AssertionError


@pytest.fixture
def default_signals() -> Generator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def needing(task: str, jar: str) -> Assignment:
    pipeline = PipelineSpec(
        number=1,
        sources=(PluginSpec(name="s", plugin="FakeSource", output="t"),),
        sinks=(PluginSpec(name="c", plugin="Console", inputs=("t",)),),
    )
    env = EnvSpec(other={"jars": [jar]})
    payload = PipelinePayload(job=task, incarnation=task, env=env, pipeline=pipeline)
    return Assignment(
        claim=Claim(task, 1),
        kind=TaskKind.PIPELINE,
        lane=Lane.SLOT,
        payload=payload.model_dump(mode="json"),
    )


def workers(leader: Leader) -> list[str]:
    return [said.worker for said in list(leader.said) if isinstance(said, Register)]


def given_back(leader: Leader) -> set[str]:
    reports = [report for sync in leader.syncs() for report in sync.reports]
    return {report.claim.task for report in reports if isinstance(report, TaskGivenBack)}


@pytest.mark.usefixtures("default_signals")
def test_a_worker_comes_back_with_a_new_jvm_and_then_takes_the_other_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    leader, started = Leader(), list[FakeSpark]()
    transport = httpx2.MockTransport(leader)

    def start(*_: object, **__: object) -> FakeSpark:
        return FakeSpark(started)

    def cache(*_: object, **__: object) -> Resolver:
        return Resolver()

    monkeypatch.setattr(service, "start_spark", start)
    monkeypatch.setattr(service, "LeaderClient", partial(LeaderClient, transport=transport))
    monkeypatch.setattr(service, "JarCache", cache)

    def story() -> None:
        try:
            eventually(lambda: len(workers(leader)) == 1)
            leader.give = [needing("first", CODEC_1)]
            eventually(lambda: started[0].added)
            leader.give = [needing("second", CODEC_2)]
            eventually(lambda: len(workers(leader)) == 2)
            leader.give = [needing("second", CODEC_2)]
            eventually(lambda: started[1].added)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    teller = threading.Thread(target=story)
    teller.start()
    service.serve_worker(
        coordinators=["http://a:1"],
        group="g",
        slots=1,
        spark_master="local",
        conf={},
        token=None,
        settings=Settings(home=tmp_path),
        warehouse="w",
        allow_jars=["org.toy:*"],
    )
    teller.join()

    assert [spark.added for spark in started] == [[CODEC_1], [CODEC_2]]
    assert [spark.stopped for spark in started] == [True, True]
    assert given_back(leader) == {"second"}
    assert len(set(workers(leader))) == 2, "it is another worker to its leader"
    assert len(leader.goodbyes()) == 2
