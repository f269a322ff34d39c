"""What a plugin is made with, when the secrets of the sources went with the end of the job."""

from __future__ import annotations

import pytest

from headrace.errors import Refused
from headrace.model.jobs.spec import REDACTED, EnvSpec, PipelineSpec, PluginSpec
from headrace.protocol.messages import PipelinePayload, Restore
from headrace.worker.runner import settings_for

WAY = {"driver": "org.postgresql.Driver", "user": "u", "url": REDACTED, "password": REDACTED}
SOURCE = PluginSpec(name="Jdbc-1", plugin="Jdbc", options={**WAY, "query": "q"}, output="t")
SINK = PluginSpec(name="Jdbc-2", plugin="Jdbc", options={**WAY, "query": "q"}, inputs=("t",))
PAYLOAD = PipelinePayload(
    job="j",
    incarnation="i",
    env=EnvSpec(),
    pipeline=PipelineSpec(number=1, sources=(SOURCE,), sinks=(SINK,)),
    secrets={"Jdbc-2.url": "jdbc:postgresql://db/x", "Jdbc-2.password": "p"},
    restore=Restore(),
)


def test_a_source_that_is_asked_for_nothing_needs_no_secret() -> None:
    made = settings_for(SOURCE, "source", PAYLOAD, pipeline=1, warehouse="w", idle=True)
    assert made.options["password"] == REDACTED
    with pytest.raises(Refused, match=r"the secret 'Jdbc-1\..*' is missing"):
        settings_for(SOURCE, "source", PAYLOAD, pipeline=1, warehouse="w")


def test_a_sink_is_given_its_secrets_in_any_case() -> None:
    made = settings_for(SINK, "sink", PAYLOAD, pipeline=1, warehouse="w")
    assert (made.options["password"], made.options["url"]) == ("p", "jdbc:postgresql://db/x")


def test_a_sink_is_told_whether_it_has_committed_before() -> None:
    """By any execution, also when there were no rows: a table that is gone was dropped since."""
    done = PAYLOAD.model_copy(update={"restore": Restore(epoch=1, written={"Jdbc-2": 0})})
    found = [
        settings_for(SINK, "sink", payload, pipeline=1, warehouse="w").has_committed
        for payload in (PAYLOAD, done)
    ]
    assert found == [False, True]
