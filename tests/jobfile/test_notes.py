"""What is accepted without the effect it seems to have is told, with its place."""

from __future__ import annotations

import pytest

from tests.jobfile.samples import job, notes


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("custom_parameters { a = b }", "nothing reads it"),
        (
            "savemode.execute.location = CLUSTER",
            "the worker that runs a pipeline makes its tables",
        ),
        (
            "spark.executor.memory = 1g",
            "give settings of Spark to the worker with --conf NAME=VALUE",
        ),
        ("flink.a.b = 1", "jobs run on Spark"),
    ],
)
def test_an_env_option_without_effect_is_told_once(env: str, said: str) -> None:
    name = env.split(" ")[0]

    assert notes(job(env=f"  {env}")) == [
        f"job.conf:2:3: option {name!r} of env has no effect yet: {said}"
    ]


def test_an_option_of_a_plugin_without_effect_is_told() -> None:
    assert notes(job(source="split.row = 5")) == [
        "job.conf:5:1: option 'split.row' of source FakeSource has no effect yet: nothing reads it"
    ]


def test_a_table_that_nothing_makes_is_told_in_a_simple_job() -> None:
    assert notes(job(source="plugin_output = a", sink="plugin_input = b")) == [
        "job.conf:10:16: sink Console-1 reads table 'a', the only one there is: nothing makes 'b'"
    ]


def test_a_job_that_means_what_it_says_is_read_in_silence() -> None:
    assert not notes(job(env="parallelism = 2", source="plugin_output = a"))
