"""What a job needs of its workers, read from its stored spec."""

from __future__ import annotations

from headrace.model.jobs.needs import from_text, need, needs_of, text_of

SPEC = {
    "pipelines": [
        {
            "sources": [{"plugin": "FakeSource"}, {"plugin": "FakeSource"}],
            "sinks": [{"plugin": "Iceberg"}],
        },
        {
            "sources": [{"plugin": "Iceberg"}],
            "transforms": [{"plugin": "Sql"}],
            "sinks": [{"plugin": "Kafka"}],
        },
    ]
}


def test_a_job_needs_every_plugin_that_its_pipelines_name_once() -> None:
    assert from_text(needs_of(SPEC)) == {
        "source FakeSource",
        "source Iceberg",
        "transform Sql",
        "sink Iceberg",
        "sink Kafka",
    }


def test_the_cleanup_of_its_targets_needs_its_sinks_only() -> None:
    assert from_text(needs_of(SPEC, only="sink")) == {"sink Iceberg", "sink Kafka"}


def test_jobs_that_need_the_same_have_the_same_text() -> None:
    one, other = need("sink", "B"), need("source", "A")

    assert text_of([one, other]) == text_of([other, one, other])
    assert needs_of({}) == text_of([])
    assert from_text(text_of([])) == frozenset()
