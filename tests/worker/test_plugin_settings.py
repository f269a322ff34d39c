"""What a plugin is made with, when the secrets of the sources went with the end of the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from headrace.clock import SystemClock
from headrace.config import Settings
from headrace.connectors.jdbc.sink import JdbcSink
from headrace.connectors.registry import make_source
from headrace.errors import Refused, Unavailable
from headrace.model.jobs.spec import REDACTED, EnvSpec, PipelineSpec, PluginSpec
from headrace.model.task import Claim, Lane, TaskKind
from headrace.plugins.catalog import catalog
from headrace.protocol.messages import Assignment, PipelinePayload, Restore
from headrace.worker import runner as runner_module
from headrace.worker import service
from headrace.worker.execution import Execution
from headrace.worker.runner import Runner, settings_for

WAY = {"driver": "org.postgresql.Driver", "user": "u", "url": REDACTED, "password": REDACTED}
SOURCE = PluginSpec(name="Jdbc-1", plugin="Jdbc", options={**WAY, "query": "q"}, output="t")
PUBLIC = PluginSpec(
    name="FakeSource-1",
    plugin="FakeSource",
    options={"schema": {"fields": {"id": "int"}}},
    output="u",
)
SINK = PluginSpec(name="Jdbc-2", plugin="Jdbc", options={**WAY, "table": "q"}, inputs=("t", "u"))
SECRETS = {"Jdbc-2.url": "jdbc:postgresql://db/x", "Jdbc-2.password": "p"}
PAYLOAD = PipelinePayload(
    job="j",
    incarnation="i",
    env=EnvSpec(),
    pipeline=PipelineSpec(number=1, sources=(SOURCE, PUBLIC), sinks=(SINK,)),
    secrets=cast("Any", SECRETS),
    restore=Restore(),
)
CLOCK = SystemClock()


def plugins(*, settles: bool, payload: PipelinePayload = PAYLOAD) -> Any:
    claim = Claim("t", 1)
    task = Assignment(claim=claim, kind=TaskKind.SETTLE, lane=Lane.SLOT, payload={})
    execution = Execution(task, cast("Any", None), cast("Any", None))
    runner = Runner(cast("Any", None), CLOCK, warehouse="w")
    return runner.plugins_of(execution, payload, settles=settles)


def test_what_settles_leaves_out_a_source_whose_secrets_are_gone() -> None:
    made = plugins(settles=True)

    assert [source.name for source in made.sources] == ["FakeSource-1"]
    assert [type(sink) for sink in made.sinks] == [JdbcSink]


@pytest.mark.parametrize(
    "error", [Refused("bad"), Unavailable("not here"), KeyError("x")], ids=["bad", "away", "flaw"]
)
def test_what_settles_leaves_out_a_source_that_cant_be_made_for_any_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(runner_module, "make_source", fails)

    assert plugins(settles=True).sources == []
    assert "source not told of commits" in caplog.messages
    readable = PAYLOAD.pipeline.model_copy(update={"sources": (PUBLIC,)})
    with pytest.raises(type(error)):
        plugins(settles=False, payload=PAYLOAD.model_copy(update={"pipeline": readable}))


def test_a_worker_looks_for_its_plugins_before_it_takes_tasks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Started(Exception):
        pass

    def starts(*_: object, **__: object) -> None:
        raise Started(catalog.cache_info().currsize)

    monkeypatch.setattr(service, "start_spark", starts)
    catalog.cache_clear()
    with pytest.raises(Started, match="1"):
        service.serve_worker(
            coordinators=(),
            group="g",
            slots=1,
            spark_master="local",
            conf={},
            token=None,
            settings=Settings(home=tmp_path),
            warehouse="w",
        )


def test_what_reads_needs_the_secrets_of_its_sources() -> None:
    setting = settings_for(SOURCE, PAYLOAD, pipeline=1, warehouse="w", clock=CLOCK)

    with pytest.raises(Refused, match=r"the secret 'Jdbc-1\..*' is missing"):
        make_source(SOURCE, setting, secrets=PAYLOAD.secrets)
    with pytest.raises(Refused, match=r"the secret 'Jdbc-1\..*' is missing"):
        plugins(settles=False)


def test_a_sink_is_told_whether_it_has_committed_before() -> None:
    """By any execution, also when there were no rows: a table that is gone was dropped since."""
    done = PAYLOAD.model_copy(update={"restore": Restore(epoch=1, written={"Jdbc-2": 0})})
    found = [
        settings_for(SINK, payload, pipeline=1, warehouse="w", clock=CLOCK).has_committed
        for payload in (PAYLOAD, done)
    ]
    assert found == [False, True]
